"""OpenAI's chat completions: messages with `tool_calls`, and a `tool` message for each result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from leafward.core.message import Message
from leafward.core.parts import Part
from leafward.formats.calls import Call, Result, read_arguments
from leafward.formats.media import AUDIO_FORMATS, read_media
from leafward.formats.origin import ORIGIN, opaque, raw_of, rest_of, with_rest, without_origin
from leafward.formats.reading import Messages, build, checked_messages, json_object, object_list, string, typed_blocks
from leafward.formats.turns import Answers, Turn, media_to_user, turns, with_ids
from leafward.formats.wording import as_text

NAME = "openai.chat"
_REASONING = ("reasoning_content", "reasoning")
_READ = frozenset({"role", "content", "name", "refusal", "tool_calls", "function_call", *_REASONING})
_REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]+")
_MAX_NAME = 64

# ── to OpenAI ────────────────────────────────────────────────────────────────


def to_openai_chat(messages: Messages) -> list[dict[str, Any]]:
    """Return messages for `client.chat.completions.create(messages=...)`.

    Files in a tool's result follow it in a user's message, for results hold text only. Thinking is sent as text
    between `<thinking>` tags, unless it came in a field of this format.

    Raises:
        ValueError: something in `messages` is no message.
    """
    # Some servers number the calls of each reply from nought, and pair them in the reply: such ids may come again.
    found = with_ids(turns(checked_messages(messages)), str, everywhere=False)
    payload: list[dict[str, Any]] = []
    for entry in media_to_user(found, may_send=("user",), from_results=True):
        if isinstance(entry, Answers):
            payload += [_tool_message(call, result) for call, result in entry.pairs]
        else:
            payload += _spoken(entry)
    return payload


def _spoken(turn: Turn) -> list[dict[str, Any]]:
    kept = rest_of(turn.message.extra, NAME) if turn.first else {}
    calls = [item for item in turn.items if isinstance(item, Call)]
    parts = [item for item in turn.items if isinstance(item, dict)]
    fields = _fields(parts) if turn.role == "assistant" else {}
    blocks = [block for part in parts if not (fields and _field_of(part)) for block in _blocks(part)]
    if turn.items and not (blocks or fields or calls):
        # Nothing in it that this model could read, such as reasoning encrypted for another.
        return []
    message: dict[str, Any] = {"role": turn.role, **_content(blocks, kept.get("form"), bool(calls)), **fields}
    name = _name(turn)
    if name is not None:
        message["name"] = name
    modern = [call for call in calls if not _is_legacy(call)]
    if modern:
        message["tool_calls"] = [_tool_call(call) for call in modern]
    for call in calls:
        if _is_legacy(call):
            message["function_call"] = {"name": call.name, "arguments": call.arguments}
    return [{**message, **cast(dict[str, Any], kept.get("fields", {}))}]


def _name(turn: Turn) -> str | None:
    name = turn.message.name
    if name is None and turn.role == "user" and turn.message.role.lower() not in ("user", "tool", "function"):
        name = turn.message.role if turn.message.role.lower() not in ("assistant", "system", "developer") else None
    return None if not name else _REFUSED_IN_NAMES.sub("_", name)[:_MAX_NAME]


def _fields(parts: list[Part]) -> dict[str, Any]:
    """Return the parts that are fields of the message itself: a refusal, reasoning."""
    fields: dict[str, Any] = {}
    for part in parts:
        field = _field_of(part)
        if field is not None:
            words = cast(str, part["refusal"] if field == "refusal" else part["thinking"])
            fields[field] = f"{fields[field]}\n{words}" if field in fields else words
    return fields


def _field_of(part: Part) -> str | None:
    field: object = rest_of(part, NAME).get("field")
    known = "refusal" if part["type"] == "refusal" else "thinking"
    return field if isinstance(field, str) and isinstance(part.get(known), str) else None


def _content(blocks: list[dict[str, Any]], form: object, calls: bool) -> dict[str, Any]:
    if not blocks and form != "list":
        if form == "absent":
            return {}
        return {"content": None if form == "null" or (calls and form is None) else ""}
    only_text = len(blocks) == 1 and blocks[0].keys() == {"type", "text"}
    return {"content": blocks[0]["text"] if only_text and form != "list" else blocks}


def _blocks(part: Part) -> list[dict[str, Any]]:
    raw = raw_of(part, NAME)
    if raw is not None:
        return [raw]
    if part["type"] == "text" and isinstance(part.get("text"), str):
        return [{"type": "text", "text": part["text"], **rest_of(part, NAME)}]
    if part["type"] == "refusal" or (part["type"] == "image_url" and isinstance(part.get("image_url"), dict)):
        return [without_origin(part)]
    if part["type"] in ("file", "input_audio") and isinstance(part.get(part["type"]), dict):
        return [without_origin(part)]
    converted = _converted(part)
    if converted is not None:
        return [converted]
    words = as_text(part)
    return [{"type": "text", "text": words}] if words else []


def _converted(part: Part) -> dict[str, Any] | None:
    media = read_media(part)
    if media is None:
        return None
    url = media.any_url
    if media.kind == "image" and url is not None:
        return {"type": "image_url", "image_url": {"url": url}}
    form = AUDIO_FORMATS.get(media.media_type or "")
    if media.kind == "audio" and media.data is not None and form is not None:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": form}}
    if media.file_id is not None:
        return {"type": "file", "file": {"file_id": media.file_id}}
    if media.kind == "file" and media.data is not None:
        return {"type": "file", "file": {"filename": media.name or "file", "file_data": url}}
    return None


def _tool_call(call: Call) -> dict[str, Any]:
    rest = rest_of(call.part, NAME)
    if rest.get("type") == "custom" or rest_of(call.part, "openai.responses").get("type") == "custom_tool_call":
        words = call.input if isinstance(call.input, str) else call.arguments
        made = {"id": call.id, "type": "custom", "custom": {"name": call.name, "input": words}}
    else:
        made = {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    inner = cast(str, made["type"])
    return {
        **made,
        **cast(dict[str, Any], rest.get("fields", {})),
        inner: {**cast(dict[str, Any], made[inner]), **cast(dict[str, Any], rest.get("inner", {}))},
    }


def _tool_message(call: Call, result: Result) -> dict[str, Any]:
    rest = rest_of(result.part, NAME)
    blocks = [block for part in result.blocks if read_media(part) is None for block in _blocks(part)]
    fields = cast(dict[str, Any], rest.get("fields", {}))
    content = _content(blocks, rest.get("form"), False)
    if _is_legacy(call):
        return {"role": "function", "name": call.name, **content, **fields}
    return {"role": "tool", "tool_call_id": call.id, **content, **fields}


def _is_legacy(call: Call) -> bool:
    return rest_of(call.part, NAME).get("type") == "function_call"


# ── from OpenAI ──────────────────────────────────────────────────────────────


def from_openai_chat(payload: Sequence[Any]) -> list[Message]:
    """Read the messages of a chat completions request, or of its replies.

    Calls become `tool_use` parts and results `tool_result` parts; arguments are kept byte for byte.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    found: list[Message] = []
    legacy: dict[str, str] = {}
    for index, item in enumerate(object_list(payload, "messages")):
        where = f"messages[{index}]"
        role = string(item, "role", where)
        if role == "tool":
            found.append(_read_result(item, string(item, "tool_call_id", where), where))
        elif role == "function":
            name = string(item, "name", where)
            found.append(_read_result(item, legacy.get(name, f"function_call_{index}"), where))
        else:
            message = _read_spoken(item, role, index, where)
            legacy.update({part["name"]: part["id"] for part in message.parts if part["type"] == "tool_use"})
            found.append(message)
    return found


def _read_spoken(item: dict[str, Any], role: str, index: int, where: str) -> Message:
    parts: list[Part] = []
    fields = {key: value for key, value in item.items() if key not in _READ}
    for field in _REASONING:
        if isinstance(item.get(field), str):
            parts.append(with_rest({"type": "thinking", "thinking": item[field]}, NAME, {"field": field}))
        elif field in item:
            fields[field] = item[field]
    content, natural = _read_content(item.get("content"), f"{where}.content")
    parts += content
    if isinstance(item.get("refusal"), str):
        parts.append(with_rest({"type": "refusal", "refusal": item["refusal"]}, NAME, {"field": "refusal"}))
    calls = _read_calls(item, index, where)
    fields |= {key: item[key] for key in ("refusal", "tool_calls", "function_call", "name") if _is_empty(item, key)}
    kept: dict[str, Any] = {"fields": fields} if fields else {}
    form = _form(item, bool(content), natural, bool(calls))
    if form is not None:
        kept["form"] = form
    extra = {ORIGIN: {"name": NAME, "rest": kept}} if kept else {}
    return build(where, role, parts + calls, name=item.get("name") or None, **extra)


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
    return parts, len(blocks) == 1 and blocks[0].keys() == {"type", "text"}


def _read_block(block: dict[str, Any], where: str) -> Part:
    kind = block["type"]
    if ORIGIN in block:
        return opaque(kind, NAME, block)
    if kind == "text":
        rest = {key: value for key, value in block.items() if key not in ("type", "text")}
        return with_rest({"type": "text", "text": string(block, "text", where)}, NAME, rest)
    if kind == "refusal":
        string(block, "refusal", where)
        return block
    if kind in ("image_url", "input_audio", "file"):
        json_object(block.get(kind), f"{where}.{kind}")
        return block
    return opaque(kind, NAME, block)


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


def _read_result(item: dict[str, Any], call_id: str, where: str) -> Message:
    content, natural = _read_content(item.get("content"), f"{where}.content")
    part: Part = {"type": "tool_result", "id": call_id, "name": item.get("name"), "output": content, "state": "success"}
    known = ("role", "content", "tool_call_id") if item["role"] == "tool" else ("role", "content", "name")
    fields = {key: value for key, value in item.items() if key not in known}
    kept: dict[str, Any] = {"fields": fields} if fields else {}
    form = _form(item, bool(content), natural, False)
    if form is not None:
        kept["form"] = form
    return build(where, "tool", [with_rest(part, NAME, kept)])
