"""OpenAI chat messages, read into the wire shape of a message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from leafward.core.json import try_parse
from leafward.core.json_fields import json_object, message_list, object_list, string, typed_blocks
from leafward.core.parts import Part, plain_block_text
from leafward.core.provider_extras import ORIGIN, opaque, with_rest

NAME = "openai.chat"
REASONING = ("reasoning_content", "reasoning")

_READ = frozenset({"role", "content", "name", "refusal", "tool_calls", "function_call", *REASONING})


def read_openai_messages(payload: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages of a chat completions request, or of its replies, in the wire shape.

    Calls become `tool_use` parts and results `tool_result` parts; arguments are kept byte for byte.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    found: list[dict[str, Any]] = []
    legacy: dict[str, str] = {}
    for index, item in enumerate(message_list(payload)):
        where = f"messages[{index}]"
        role = string(item, "role", where)
        if role == "tool":
            found.append(_read_result(item, string(item, "tool_call_id", where), where))
        elif role == "function":
            name = string(item, "name", where)
            found.append(_read_result(item, legacy.get(name, f"function_call_{index}"), where))
        else:
            message = _read_spoken(item, role, index, where)
            legacy.update({part["name"]: part["id"] for part in message["parts"] if "name" in part and "id" in part})
            found.append(message)
    return found


def read_arguments(text: str) -> object:
    """Return what the arguments of a call mean; text that is not JSON means itself."""
    if not text.strip():
        return {}
    read = try_parse(text)
    return text if read is None else read[0]


def _read_spoken(item: dict[str, Any], role: str, index: int, where: str) -> dict[str, Any]:
    parts: list[Part] = []
    fields = {key: value for key, value in item.items() if key not in _READ}
    for field in REASONING:
        if isinstance(item.get(field), str):
            parts.append(with_rest({"type": "thinking", "thinking": item[field]}, NAME, {"field": field}))
        elif field in item:
            fields[field] = item[field]
    content, natural = _read_content(item.get("content"), f"{where}.content")
    parts += content
    spoken: object = item.get("audio")
    transcript = cast(Part, spoken).get("transcript") if isinstance(spoken, dict) and not content else None
    if isinstance(transcript, str) and transcript:
        parts.append(with_rest({"type": "text", "text": transcript}, NAME, {"field": "audio"}))
    if isinstance(item.get("refusal"), str):
        parts.append(with_rest({"type": "refusal", "refusal": item["refusal"]}, NAME, {"field": "refusal"}))
    calls = _read_calls(item, index, where)
    fields |= {key: item[key] for key in ("refusal", "tool_calls", "function_call", "name") if _is_empty(item, key)}
    kept: dict[str, Any] = {"fields": fields} if fields else {}
    form = _form(item, bool(content), natural, bool(calls))
    if form is not None:
        kept["form"] = form
    extra = {ORIGIN: {"name": NAME, "rest": kept}} if kept else {}
    return {"role": role, "parts": parts + calls, "name": item.get("name") or None, **extra}


def _is_empty(item: dict[str, Any], key: str) -> bool:
    return key in item and not item[key] and not (key == "refusal" and item[key] == "")


def _form(item: dict[str, Any], content: bool, natural: bool, calls: bool) -> str | None:
    """Return how an unusual content was written, so that it can be written so again."""
    if "content" not in item:
        return "absent"
    if item["content"] is None:
        return None if calls else "null"
    if not isinstance(item["content"], str):
        return "list" if natural or not content else None
    return None


def _read_content(content: object, where: str) -> tuple[list[Part], bool]:
    """Return the parts of a content, and whether they alone would be written as a string."""
    if content is None:
        return [], False
    if isinstance(content, str):
        return [{"type": "text", "text": content}], True
    blocks = typed_blocks(content, where)
    parts = [_read_block(block, f"{where}[{index}]") for index, block in enumerate(blocks)]
    return parts, plain_block_text(blocks) is not None


def _read_block(block: dict[str, Any], where: str) -> Part:
    kind = block["type"]
    if ORIGIN in block:
        return opaque(kind, NAME, block)
    if kind == "text":
        rest = {key: value for key, value in block.items() if key not in ("type", "text")}
        return with_rest({"type": "text", "text": string(block, "text", where)}, NAME, rest)
    if kind == "refusal":
        string(block, "refusal", where)
    elif kind in ("image_url", "input_audio", "file"):
        json_object(block.get(kind), f"{where}.{kind}")
    else:
        return opaque(kind, NAME, block)
    rest = {key: value for key, value in block.items() if key not in ("type", kind)}
    return with_rest({"type": kind, kind: block[kind]}, NAME, rest)


def _read_calls(item: dict[str, Any], index: int, where: str) -> list[Part]:
    parts: list[Part] = []
    for place, call in enumerate(object_list(item.get("tool_calls") or [], f"{where}.tool_calls")):
        parts.append(_read_call(call, f"{where}.tool_calls[{place}]"))
    if item.get("function_call"):
        made = json_object(item["function_call"], f"{where}.function_call")
        part = _call_part(f"function_call_{index}", made, "arguments", f"{where}.function_call")
        parts.append(with_rest(part, NAME, {"type": "function_call"}))
    return parts


def _read_call(call: dict[str, Any], where: str) -> Part:
    kind = call.get("type", "function")
    if kind not in ("function", "custom"):
        raise ValueError(f"{where}.type is 'function' or 'custom', not {kind!r}")
    inner = json_object(call.get(kind), f"{where}.{kind}")
    words = "arguments" if kind == "function" else "input"
    part = _call_part(string(call, "id", where), inner, words, f"{where}.{kind}")
    rest: dict[str, Any] = {"type": "custom"} if kind == "custom" else {}
    if kind == "custom":
        part = {key: value for key, value in part.items() if key != "content"} | {"input": inner["input"]}
    fields = {key: value for key, value in call.items() if key not in ("id", "type", kind)}
    beside = {key: value for key, value in inner.items() if key not in ("name", words)}
    rest |= ({"fields": fields} if fields else {}) | ({"inner": beside} if beside else {})
    return with_rest(part, NAME, rest)


def _call_part(call_id: str, inner: dict[str, Any], words: str, where: str) -> Part:
    written = string(inner, words, where)
    return {
        "type": "tool_use",
        "id": call_id,
        "name": string(inner, "name", where),
        "input": read_arguments(written),
        "content": written,
    }


def _read_result(item: dict[str, Any], call_id: str, where: str) -> dict[str, Any]:
    if isinstance(item.get("content"), (Mapping, int, float)):
        raise ValueError(f"{where}.content is text or a list of blocks: for a value, use tool_result(call_id, value)")
    content, natural = _read_content(item.get("content"), f"{where}.content")
    part: Part = {"type": "tool_result", "id": call_id, "name": item.get("name"), "output": content, "state": "success"}
    known = ("role", "content", "tool_call_id") if item["role"] == "tool" else ("role", "content", "name")
    fields = {key: value for key, value in item.items() if key not in known}
    kept: dict[str, Any] = {"fields": fields} if fields else {}
    form = _form(item, bool(content), natural, False)
    if form is not None:
        kept["form"] = form
    return {"role": "tool", "parts": [with_rest(part, NAME, kept)]}
