"""OpenAI's Responses: a flat list of items, in which calls, results and reasoning stand beside the messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from leafward.core.calls import Call, Result
from leafward.core.ids import refusal
from leafward.core.json_fields import object_list, string, typed_blocks
from leafward.core.media import DETAILS, read_media
from leafward.core.message import Message
from leafward.core.openai_messages import read_arguments
from leafward.core.parts import Part, plain_block_text
from leafward.core.provider_extras import ORIGIN, opaque, raw_of, rest_if_any, rest_of, with_rest
from leafward.formats.fallback_text import as_text, output_as_text
from leafward.formats.limits import function_name, short_id
from leafward.formats.openai_custom import RESPONSES, custom_input, is_custom
from leafward.formats.reading import Messages, build, checked_messages
from leafward.formats.turns import Answers, Turn, media_to_user, turns, with_ids

NAME = RESPONSES
_TEXTS = frozenset({"input_text", "output_text"})
_FILES = {
    "input_image": ("image_url", "file_id", "detail"),
    "input_file": ("file_id", "file_url", "file_data", "filename", "detail"),
}
_DETAILS = (*DETAILS, "original", None)
_LONGEST_ID = 64
_CALLS = {"function_call": "arguments", "custom_tool_call": "input"}
_RESULTS = frozenset({"function_call_output", "custom_tool_call_output"})

# ── to OpenAI ────────────────────────────────────────────────────────────────


def to_openai_responses(messages: Messages) -> list[dict[str, Any]]:
    """Return items for `client.responses.create(input=...)`.

    Items that came from Responses, such as reasoning with its encrypted content or a web search, go back unchanged;
    reasoning that nothing of its reply follows is not sent.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = with_ids(turns(checked_messages(messages)), lambda one: short_id(one, _LONGEST_ID), everywhere=True)
    payload: list[dict[str, Any]] = []
    for entry in media_to_user(found, may_send=("user", "system", "developer"), from_results=False):
        if isinstance(entry, Answers):
            made, role = [_output(call, result) for call, result in entry.pairs], "tool"
        else:
            made, role = _Items(entry).made, entry.role
        if made and not (role == "assistant" and "id" in made[0]):
            _drop_last_reasoning(payload)
        payload += made
    _drop_last_reasoning(payload)
    return payload


def _drop_last_reasoning(payload: list[dict[str, Any]]) -> None:
    """Drop reasoning that nothing of its reply follows, as a stream that broke off leaves it: the API refuses it.

    A reply is one message, or several whose items have the ids that the API gave them.
    """
    while payload and payload[-1].get("type") == "reasoning":
        payload.pop()


class _Items:
    """Writes one turn as items, joining what belongs in one message."""

    def __init__(self, turn: Turn) -> None:
        self.made: list[dict[str, Any]] = []
        self._role = turn.role
        self._blocks: list[dict[str, Any]] = []
        self._envelope: dict[str, Any] = {}
        self._as_list = False
        for item in turn.items:
            if isinstance(item, Call):
                self._close()
                self.made.append(_call_item(item))
            elif isinstance(item, dict):
                self._part(item)
        self._close()
        if not turn.items:
            self.made.append({"role": turn.role, "content": ""})

    def _part(self, part: Part) -> None:
        raw = raw_of(part, NAME)
        in_list = raw is not None and part[ORIGIN].get("block") is True
        if raw is not None and not in_list:
            self._close()
            self.made.append(raw)
            return
        kept = rest_if_any(part, NAME)
        if kept is not None and "item" in kept:
            self._close()
            self._envelope, self._as_list = cast(dict[str, Any], kept["item"]), kept.get("form") == "list"
        elif self._role == "assistant" and not (self._as_list and (in_list or kept is not None)):
            # Only what came in such a list may stand in one here; other text is a message of one string.
            self._close()
        self._blocks += _blocks(part, self._role)

    def _close(self) -> None:
        if self._blocks:
            self.made.append({"role": self._role, **self._envelope, "content": self._content()})
        self._blocks, self._envelope, self._as_list = [], {}, False

    def _content(self) -> str | list[dict[str, Any]]:
        text = plain_block_text(self._blocks)
        return self._blocks if text is None or self._as_list else text


def _blocks(part: Part, role: str) -> list[dict[str, Any]]:
    raw = raw_of(part, NAME)
    if raw is not None:
        return [raw]
    kind = "output_text" if role == "assistant" else "input_text"
    kept = rest_if_any(part, NAME)
    if part["type"] == "text" and isinstance(part.get("text"), str):
        return [{"type": kind, "text": part["text"], **cast(dict[str, Any], (kept or {}).get("fields", {}))}]
    own = _own_file(part)
    if own is not None:
        return [{"type": part["type"], **own, **cast(dict[str, Any], (kept or {}).get("fields", {}))}]
    if part["type"] == "refusal" and role == "assistant" and kept is not None:
        return [{"type": "refusal", "refusal": part["refusal"], **cast(dict[str, Any], kept.get("fields", {}))}]
    converted = _converted(part)
    if converted is not None:
        return [converted]
    words = output_as_text(part) if role == "tool" else as_text(part)
    return [{"type": kind, "text": words}] if words else []


def _own_file(part: Part) -> dict[str, Any] | None:
    """Return the fields of a file of this format, as the API takes them; nothing when it takes no such file."""
    media = read_media(part)
    if media is None or part["type"] not in _FILES or isinstance(part.get("image_url"), dict):
        return None
    if media.file_id is None and media.model_url is None:
        return None
    if part["type"] == "input_image" and not media.is_usual_image:
        return None
    sent = {key: part[key] for key in _FILES[part["type"]] if key in part and _is_text_or_null(part[key])}
    if part["type"] == "input_image" and media.model_url is not None:
        sent["image_url"] = media.model_url
    if "detail" in sent and sent["detail"] not in _DETAILS:
        sent["detail"] = "auto"
    return {**sent, "filename": media.file_name} if "file_data" in sent and media.data else sent


def _is_text_or_null(value: object) -> bool:
    return value is None or (isinstance(value, str) and value != "")


def _converted(part: Part) -> dict[str, Any] | None:
    media = read_media(part)
    if media is None or media.kind in ("audio", "video") or media.text is not None:
        return None
    place = {"file_id": media.file_id} if media.file_id is not None and media.keeper == "openai" else {}
    url = media.model_url
    if media.kind == "image":
        if not place and not (media.is_usual_image and url is not None):
            return None
        detail: object = part["image_url"].get("detail") if isinstance(part.get("image_url"), dict) else None
        return {
            "type": "input_image",
            **(place or {"image_url": url}),
            "detail": detail if detail in DETAILS else "auto",
        }
    if media.data is not None and url is not None:
        return {"type": "input_file", "filename": media.file_name, "file_data": url}
    return {"type": "input_file", **(place or {"file_url": url})} if place or url is not None else None


def _call_item(call: Call) -> dict[str, Any]:
    rest = rest_of(call.part, NAME)
    made: dict[str, Any] = {"call_id": call.id, "name": function_name(call.name)}
    if is_custom(call):
        made = {"type": "custom_tool_call", **made, "input": custom_input(call)}
    else:
        made = {"type": "function_call", **made, "arguments": call.arguments}
    return {**made, **cast(dict[str, Any], rest.get("fields", {}))}


def _output(call: Call, result: Result) -> dict[str, Any]:
    rest = rest_of(result.part, NAME)
    blocks = [block for part in result.blocks for block in _blocks(part, "tool")]
    output: str | list[dict[str, Any]] = blocks
    if rest.get("form") != "list":
        text = plain_block_text(blocks) if blocks else ""
        output = blocks if text is None else text
    kind = "custom_tool_call_output" if is_custom(call) else "function_call_output"
    return {"type": kind, "call_id": call.id, "output": output, **cast(dict[str, Any], rest.get("fields", {}))}


# ── from OpenAI ──────────────────────────────────────────────────────────────


def from_openai_responses(payload: Sequence[Any]) -> list[Message]:
    """Read the items of a Responses request, or of its output.

    What the model said without a break (reasoning, text, calls) becomes one message; each result is one more.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    found: list[Message] = []
    seen: set[str] = set()
    spoken: list[tuple[Part, str | None]] = []

    def close(where: str) -> None:
        if spoken:
            ids = [item_id for _, item_id in spoken if item_id is not None]
            found.append(_made(where, "assistant", [part for part, _ in spoken], ids, seen))
            spoken.clear()

    where = "input"
    for index, item in enumerate(object_list(payload, "input")):
        where = f"input[{index}]"
        role, parts = _read_item(item, where)
        item_id = item.get("id") if _is_message(item) else None
        if role == "assistant":
            spoken += [(part, item_id) for part in parts]
        else:
            close(where)
            found.append(_made(where, role, parts, [item_id], seen))
    close(where)
    return found


def _made(where: str, role: str, parts: list[Part], ids: Sequence[object], seen: set[str]) -> Message:
    # An id is kept where a message can have it; otherwise it stays with its item.
    usable = next((item_id for item_id in ids if refusal(item_id) is None and item_id not in seen), None)
    if isinstance(usable, str):
        seen.add(usable)
    return build(where, role, parts, id=usable)


def _is_message(item: Mapping[str, Any]) -> bool:
    return item.get("type", "message") == "message" and "role" in item


def _read_item(item: dict[str, Any], where: str) -> tuple[str, list[Part]]:
    """Return who an item is from, and its parts."""
    if _is_message(item):
        role = string(item, "role", where)
        return role, list(_read_message(item, where))
    kind = string(item, "type", where)
    if kind in _CALLS:
        return "assistant", [_read_call(item, kind, where)]
    if kind in _RESULTS and isinstance(item.get("call_id"), str):
        return "tool", [_read_result(item, where)]
    if kind == "reasoning":
        part = {**opaque(kind, NAME, item), "text": "\n".join(_thoughts(item))}
        return "assistant", [part]
    from_outside = kind.endswith(("_output", "_response"))
    return "tool" if from_outside else "assistant", [opaque(kind, NAME, item)]


def _read_message(item: dict[str, Any], where: str) -> Iterator[Part]:
    content = item.get("content")
    envelope = {key: value for key, value in item.items() if key not in ("role", "content")}
    if isinstance(content, str):
        yield with_rest({"type": "text", "text": content}, NAME, {"item": envelope} if envelope else {})
        return
    blocks = typed_blocks(content, f"{where}.content")
    if not blocks:
        yield opaque("message", NAME, item)
    for index, block in enumerate(blocks):
        part = _read_block(block, f"{where}.content[{index}]", "" if item["role"] == "assistant" else "input_text")
        if index == 0:
            origin = part.get(ORIGIN, {"name": NAME, "rest": {}})
            part[ORIGIN] = {**origin, "rest": {**origin.get("rest", {}), "item": envelope, "form": "list"}}
        yield part


def _read_block(block: dict[str, Any], where: str, usual: str) -> Part:
    kind = block["type"]
    if ORIGIN not in block:
        if kind in _TEXTS:
            fields = {key: value for key, value in block.items() if key != "text"}
            kept = {} if fields == {"type": usual} else {"fields": fields}
            return with_rest({"type": "text", "text": string(block, "text", where)}, NAME, kept)
        if kind == "refusal":
            fields = {key: value for key, value in block.items() if key not in ("type", "refusal")}
            return with_rest(
                {"type": kind, "refusal": string(block, "refusal", where)}, NAME, {"block": True, "fields": fields}
            )
        if kind in _FILES:
            known = ("type", *_FILES[kind])
            fields = {key: value for key, value in block.items() if key not in known}
            part = {key: value for key, value in block.items() if key in known}
            return with_rest(part, NAME, {"fields": fields} if fields else {})
    part = opaque(kind, NAME, block)
    part[ORIGIN]["block"] = True
    return part


def _read_call(item: dict[str, Any], kind: str, where: str) -> Part:
    words = _CALLS[kind]
    written = string(item, words, where)
    part: Part = {"type": "tool_use", "id": string(item, "call_id", where), "name": string(item, "name", where)}
    if kind == "function_call":
        part |= {"input": read_arguments(written), "content": written}
    else:
        part |= {"input": written}
    fields = {key: value for key, value in item.items() if key not in ("type", "call_id", "name", words)}
    rest: dict[str, Any] = {"type": kind} if kind == "custom_tool_call" else {}
    return with_rest(part, NAME, rest | ({"fields": fields} if fields else {}))


def _read_result(item: dict[str, Any], where: str) -> Part:
    output = item.get("output")
    kept: dict[str, Any] = {}
    if isinstance(output, str):
        blocks: list[Part] = [{"type": "text", "text": output}]
    else:
        found = typed_blocks(output, f"{where}.output")
        blocks = [_read_block(block, f"{where}.output[{index}]", "input_text") for index, block in enumerate(found)]
        kept["form"] = "list"
    fields = {key: value for key, value in item.items() if key not in ("type", "call_id", "output")}
    if fields:
        kept["fields"] = fields
    part: Part = {"type": "tool_result", "id": item["call_id"], "name": item.get("name"), "output": blocks}
    return with_rest({**part, "state": "success"}, NAME, kept)


def _thoughts(item: Mapping[str, Any]) -> Iterator[str]:
    for field in ("summary", "content"):
        for block in cast(list[object], item.get(field) if isinstance(item.get(field), list) else []):
            text = cast(Part, block).get("text") if isinstance(block, dict) else None
            if isinstance(text, str):
                yield text
