"""AI SDK's `UIMessage`: one part holds a call and its result."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from leafward.core.calls import Call, Pairs, Result, pair
from leafward.core.json import try_parse
from leafward.core.json_fields import object_list, string, typed_blocks
from leafward.core.message import Message
from leafward.core.parts import Part, is_thinking, is_ui_tool, thinking_text
from leafward.core.provider_extras import ORIGIN, raw_of, rest_if_any, without_origin
from leafward.core.times import to_wire
from leafward.formats.media import read_media
from leafward.formats.reading import Messages, checked_messages, refuse
from leafward.formats.turns import role_of
from leafward.formats.wording import output_as_text

NAME = "ui"
CARRIED = "data-leafward"
"""The type of a data part that carries, unchanged, a part AI SDK has no type for."""

METADATA, KEY = "callProviderMetadata", "leafward"
"""Where a tool part keeps what AI SDK has no field for."""

_CALL_FIELDS = frozenset({"type", "id", "name", "input", ORIGIN})
_RESULT_FIELDS = frozenset({"type", "id", "tool_use_id", "name", "output", "content", "state", "is_error", ORIGIN})
_KEPT = frozenset({"text", "step-start", "source-url", "source-document"})
_OWN_FILE = frozenset({"url", "mediaType"})

# ── to AI SDK ────────────────────────────────────────────────────────────────


def to_ui_messages(messages: Messages) -> list[dict[str, Any]]:
    """Return messages for `useChat` and `convertToModelMessages`; ids, times and metadata are kept.

    Nothing is left out. A result that stands in a message apart is folded into its call's part; a call without one
    stays `input-available`, or whatever state its part has; a result without its call is a tool part that says so. A
    part that AI SDK has no type for travels in a `data-leafward` part, and what a tool part has no field for under
    `callProviderMetadata.leafward`.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = checked_messages(messages)
    pairs = pair(found)
    folded = {result for call, result in pairs.belonging() if result not in pairs.orphans and result.call is not call}
    payload: list[dict[str, Any]] = []
    for message, items in zip(found, pairs.items, strict=True):
        parts: list[Part] = []
        for item in items:
            if isinstance(item, Call):
                parts.append(_tool_part(item, pairs))
            elif isinstance(item, Result):
                parts += [_orphan(item)] if item in pairs.orphans else []
            else:
                parts.append(_part(item))
        if parts or not any(item in folded for item in items if isinstance(item, Result)):
            payload.append(_envelope(message, parts))
    return payload


def _envelope(message: Message, parts: list[Part]) -> dict[str, Any]:
    role = role_of(message)
    # Calls and results that stood in OpenAI's own keys are parts by now.
    whole = {
        key: value for key, value in message.to_dict().items() if key not in (ORIGIN, "tool_calls", "tool_call_id")
    }
    kept = rest_if_any(message.extra, NAME)
    if kept is not None:
        # It came without a time, or with one in other words.
        whole = {key: value for key, value in whole.items() if key != "createdAt"} | kept
    return {**whole, "role": "system" if role == "developer" else role, "parts": parts}


def _part(part: Part) -> Part:
    kind: str = part["type"]
    if raw_of(part) is None and (kind in _KEPT or kind.startswith("data-")):
        return without_origin(part) if kind != CARRIED else {"type": CARRIED, "data": part}
    if kind == "reasoning" and ORIGIN not in part:
        return part
    if kind == "file" and part.keys() >= _OWN_FILE:
        return without_origin(part)
    if is_thinking(part):
        return _reasoning(part)
    media = read_media(part)
    if media is not None and media.any_url is not None:
        media_type = media.media_type or ("image/*" if media.kind == "image" else "application/octet-stream")
        name = {"filename": media.name} if media.name else {}
        return {"type": "file", "mediaType": media_type, "url": media.any_url, **name}
    return {"type": CARRIED, "data": part}


def _reasoning(part: Part) -> Part:
    signed: dict[str, Any] = {}
    if isinstance(part.get("signature"), str):
        signed = {"signature": part["signature"]}
    elif part["type"] == "redacted_thinking" and isinstance(part.get("data"), str):
        signed = {"redactedData": part["data"]}
    elif not thinking_text(part):
        return {"type": CARRIED, "data": part}
    made: Part = {"type": "reasoning", "text": thinking_text(part)}
    return {**made, "providerMetadata": {"anthropic": signed}} if signed else made


def _tool_part(call: Call, pairs: Pairs) -> Part:
    result = pairs.answers.get(call)
    if is_ui_tool(call.part):
        own = without_origin(call.part)
        if result is None or result.call is call:
            return own
    else:
        own = {
            "type": "dynamic-tool",
            "toolName": call.name,
            "toolCallId": call.id,
            "state": "input-available",
            "input": _input(call),
        }
        own |= _kept({"call": _beside(call.part, _CALL_FIELDS)})
    if result is None:
        return own
    settled = _settled(result) if result.final else _kept({"state": result.state, "output": result.output})
    kept = _leafward(own) | _leafward(settled)
    theirs = cast(Part, own[METADATA]) if isinstance(own.get(METADATA), dict) else {}
    return {**own, **settled, **({METADATA: {**theirs, KEY: kept}} if kept else {})}


def _orphan(result: Result) -> Part:
    """Return a result whose call is missing as a tool part that has no input."""
    made: Part = {
        "type": "dynamic-tool",
        "toolName": result.name or "unknown",
        "toolCallId": result.call_id,
        "input": None,
        **_settled(result),
    }
    return {**made, METADATA: {KEY: {"orphan": without_origin(result.part)}}}


def _input(call: Call) -> object:
    if isinstance(call.input, dict):
        return call.object_input
    read = try_parse(call.input) if isinstance(call.input, str) else None
    return call.input if read is None else read[0]


def _settled(result: Result) -> dict[str, Any]:
    blocks = result.blocks
    only_text = len(blocks) == 1 and blocks[0].get("type") == "text" and isinstance(blocks[0].get("text"), str)
    output = cast(str, blocks[0]["text"]) if only_text else result.output
    kept: dict[str, Any] = {"result": _beside(result.part, _RESULT_FIELDS)}
    if not result.failed:
        return {"state": "output-available", "output": output, **_kept(kept)}
    words = output if isinstance(output, str) else "\n".join(map(output_as_text, blocks))
    kept["state"] = None if result.state == "error" else result.state
    kept["output"] = None if isinstance(output, str) else output
    return {"state": "output-error", "errorText": words, **_kept(kept)}


def _beside(part: Part, fields: Collection[str]) -> Part:
    """Return what a tool part has no field for."""
    return {} if is_ui_tool(part) else {key: value for key, value in part.items() if key not in fields}


def _kept(facts: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in facts.items() if value}
    return {METADATA: {KEY: found}} if found else {}


def _leafward(part: Part) -> dict[str, Any]:
    """Return what we keep in a tool part."""
    metadata: object = part.get(METADATA)
    kept = cast(Part, metadata).get(KEY) if isinstance(metadata, dict) else None
    return cast(Part, kept) if isinstance(kept, dict) else {}


# ── from AI SDK ──────────────────────────────────────────────────────────────


def from_ui_messages(payload: Sequence[Any]) -> list[Message]:
    """Read a list of `UIMessage`; parts are kept as they are.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    return [_read(item, f"messages[{index}]") for index, item in enumerate(object_list(payload, "messages"))]


def _read(item: dict[str, Any], where: str) -> Message:
    string(item, "role", where)
    parts = [_restored(part) for part in typed_blocks(item.get("parts"), f"{where}.parts")]
    try:
        message = Message.from_dict({**item, "parts": parts})
    except ValueError as error:
        refuse(where, error)
    kept: dict[str, Any] = {key: None for key in ("createdAt", "name", "metadata") if key in item and item[key] is None}
    if item.get("createdAt") is not None:
        kept["createdAt"] = item["createdAt"] if isinstance(item["createdAt"], str) else to_wire(message.at)
    if ORIGIN in item:
        kept[ORIGIN] = item[ORIGIN]
    if kept == {"createdAt": to_wire(message.at)}:
        return message
    return Message.from_dict({**message.to_dict(), ORIGIN: {"name": NAME, "rest": kept}})


def _restored(part: Part) -> Part:
    orphan = _leafward(part).get("orphan")
    if isinstance(orphan, dict) and cast(Part, orphan).get("type") == "tool_result":
        return cast(Part, orphan)
    inner: object = part.get("data")
    if part["type"] == CARRIED and isinstance(inner, dict) and part.keys() == {"type", "data"}:
        return cast(Part, inner)
    return part
