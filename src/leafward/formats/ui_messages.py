"""AI SDK's `UIMessage`: one part holds a call and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from leafward.core.calls import Call, Pairs, Result, pair
from leafward.core.json import try_parse
from leafward.core.json_fields import message_list, string, typed_blocks
from leafward.core.message import Message
from leafward.core.parts import Part, is_thinking, is_ui_tool, keys_beside_parts, plain_block_text, thinking_text
from leafward.core.provider_extras import ORIGIN, rest_if_any
from leafward.core.times import to_wire
from leafward.formats.media import read_media
from leafward.formats.reading import Messages, checked_messages, refuse
from leafward.formats.turns import role_of
from leafward.formats.wording import output_as_text

NAME = "ui"
CARRIED = "data-leafward"
"""The type of a data part that carries, unchanged, a part AI SDK has no type for."""

ROLE = "leafwardRole"
"""The key of a message that keeps a role AI SDK does not know."""

CALL_METADATA, METADATA, KEY = "callProviderMetadata", "providerMetadata", "leafward"
"""Where a tool part, and any other part, keeps what AI SDK has no field for."""

_KEPT = frozenset({"text", "step-start", "source-url", "source-document"})
_OWN_FILE = frozenset({"url", "mediaType"})

# ── to AI SDK ────────────────────────────────────────────────────────────────


def to_ui_messages(messages: Messages) -> list[dict[str, Any]]:
    """Return messages for `useChat` and `convertToModelMessages`; ids, times and metadata are kept.

    Nothing is left out. A result that stands in a message apart is folded into its call's part; a call without one
    stays `input-available`, or whatever state its part has; a result without its call is a tool part that says so. A
    part that AI SDK has no type for travels in a `data-leafward` part, and what a part has no field for under
    `leafward` in its metadata: parts that repeat a call or its result too. `from_ui_messages` makes of it the parts
    there were; calls and results stay one part.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = checked_messages(messages)
    pairs = pair(found)
    repeats = _repeats(pairs)
    apart = [result for call, result in pairs.belonging() if result not in pairs.orphans and result.call is not call]
    folded = {item.row for item in (*apart, *pairs.repeated_calls)}
    payload: list[dict[str, Any]] = []
    for row, (message, items) in enumerate(zip(found, pairs.items, strict=True)):
        parts: list[Part] = []
        for item in items:
            if isinstance(item, Call):
                parts.append(_tool_part(item, pairs.answers.get(item), repeats.get(item, [])))
            elif isinstance(item, Result):
                parts += [_orphan(item)] if item in pairs.orphans else []
            else:
                parts.append(_part(item))
        if parts or row not in folded:
            payload.append(_envelope(message, parts))
    return payload


def _repeats(pairs: Pairs) -> dict[Call, list[Part]]:
    """Return for each call the parts that say it, or its result, once more; with their messages."""
    shown = {id(result.part) for result in pairs.answers.values()}
    again: list[tuple[Call, Call | Result]] = [
        *((call, item) for item, call in pairs.repeated_calls.items() if id(item.part) not in shown),
        *((call, item) for item, call in pairs.repeats.items() if item not in pairs.orphans),
    ]
    found: dict[Call, list[Part]] = {}
    for call, item in again:
        found.setdefault(call, []).append({"part": item.part, "message": _without_parts(item.message)})
    return found


def _without_parts(message: Message) -> dict[str, Any]:
    return {key: value for key, value in message.to_dict().items() if key != "parts"}


def _envelope(message: Message, parts: list[Part]) -> dict[str, Any]:
    # Calls and results that stood in OpenAI's own keys are parts by now; what is not stays there.
    whole = {key: value for key, value in message.to_dict().items() if key not in ("tool_calls", "tool_call_id")}
    whole |= keys_beside_parts(message.body)
    kept = rest_if_any(message.extra, NAME)
    if kept is not None:
        # It came without a time, or with one in other words.
        whole = {key: value for key, value in whole.items() if key not in ("createdAt", ORIGIN)} | kept
    role = role_of(message)
    shown = "system" if role == "developer" else role
    return {**whole, "role": shown, "parts": parts, **({} if shown == message.role else {ROLE: message.role})}


def _part(part: Part) -> Part:
    kind: str = part["type"]
    ours = kind == CARRIED or ORIGIN in part
    known = kind in _KEPT or kind.startswith("data-") or (kind == "file" and part.keys() >= _OWN_FILE)
    if not ours and (known or kind == "reasoning"):
        return part
    if is_thinking(part):
        return _reasoning(part)
    media = read_media(part)
    if media is None or media.any_url is None:
        return {"type": CARRIED, "data": part}
    media_type = media.media_type or ("image/*" if media.kind == "image" else "application/octet-stream")
    name = {"filename": media.name} if media.name else {}
    made = {"type": "file", "mediaType": media_type, "url": media.any_url, **name}
    return _beside(made, part, {"url": media.any_url, "data": media.data})


def _reasoning(part: Part) -> Part:
    text, metadata = thinking_text(part), {}
    if isinstance(part.get("signature"), str):
        metadata = {METADATA: {"anthropic": {"signature": part["signature"]}}}
    elif part["type"] == "redacted_thinking" and isinstance(part.get("data"), str):
        metadata = {METADATA: {"anthropic": {"redactedData": part["data"]}}}
    elif not text:
        return {"type": CARRIED, "data": part}
    return _beside({"type": "reasoning", "text": text, **metadata}, part, {"text": text})


def _beside(made: Part, part: Part, shared: Mapping[str, str | None]) -> Part:
    """Keep a part in the one made of it, without the string that both hold: `shared` names that and where it is."""
    kept: dict[str, Any] = {"part": part}
    for name, value in shared.items():
        place = _place_of(value, part) if value else None
        if place is not None:
            kept = {"part": _replaced(part, place, None), name: place}
    return {**made, METADATA: {**made.get(METADATA, {}), KEY: kept}}


def _place_of(text: str | None, value: object) -> list[str | int] | None:
    """Return the keys that lead to a string, `None` when it is not there."""
    if value == text:
        return []
    inner: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        inner = cast(dict[str | int, object], value).items()
    elif isinstance(value, list):
        inner = enumerate(cast(list[object], value))
    for key, item in inner:
        rest = _place_of(text, item)
        if rest is not None:
            return [key, *rest]
    return None


def _replaced(value: Any, place: Sequence[Any], new: object) -> Any:
    """Return a copy in which something else stands at a place."""
    if not place:
        return new
    copied = value.copy()
    copied[place[0]] = _replaced(copied[place[0]], place[1:], new)
    return copied


def _tool_part(call: Call, result: Result | None, repeats: list[Part]) -> Part:
    kept: dict[str, Any] = {}
    if is_ui_tool(call.part):
        made = call.part
    else:
        made = _pending_part(call)
        said = {"type": "tool_use", "id": call.id, "name": call.name, "input": made["input"]}
        kept["call"] = _unsaid(call.part, said)
    if result is not None and result.call is not call:
        if is_ui_tool(result.part):
            made, before = {**made, **result.part}, made
            kept["call"] = kept.get("call") or _unsaid(before, made)
        else:
            made = {**made, **_settled(result)} if result.final else made
            kept |= _facts(result, call.name)
        if result.message is not call.message:
            kept["message"] = _without_parts(result.message)
    kept["repeats"] = repeats
    kept = {key: value for key, value in kept.items() if value}
    if not kept:
        return made
    theirs = cast(Part, made[CALL_METADATA]) if isinstance(made.get(CALL_METADATA), dict) else {}
    return {**made, CALL_METADATA: {**theirs, KEY: _leafward(made, CALL_METADATA) | kept}}


def _pending_part(call: Call) -> Part:
    return {
        "type": "dynamic-tool",
        "toolName": call.name,
        "toolCallId": call.id,
        "state": "input-available",
        "input": _input(call),
    }


def _orphan(result: Result) -> Part:
    """Return a result whose call is missing as a tool part that has no input."""
    made: Part = {
        "type": "dynamic-tool",
        "toolName": result.name or "unknown",
        "toolCallId": result.call_id,
        "input": None,
        **_settled(result),
    }
    return {**made, CALL_METADATA: {KEY: {"orphan": result.part}}}


def _input(call: Call) -> object:
    if isinstance(call.input, dict):
        return call.object_input
    read = try_parse(call.input) if isinstance(call.input, str) else None
    return call.input if read is None else read[0]


def _settled(result: Result) -> dict[str, Any]:
    text = plain_block_text(result.blocks)
    if not result.failed:
        return {"state": "output-available", "output": result.output if text is None else text}
    words = "\n".join(map(output_as_text, result.blocks)) if text is None else text
    return {"state": "output-error", "errorText": words}


def _facts(result: Result, name: str) -> dict[str, Any]:
    """Return what a result says that the tool part made of it does not."""
    said: dict[str, Any] = {
        "type": "tool_result",
        **dict.fromkeys(("id", "tool_use_id"), result.call_id),
        "name": name if result.name else result.part.get("name"),
        **dict.fromkeys(("output", "content"), result.output),
        "state": result.state,
        "is_error": result.failed,
    }
    lost = not result.final or (result.failed and plain_block_text(result.blocks) is None)
    return {
        "result": _unsaid(result.part, said),
        "state": None if result.state == ("error" if result.failed else "success") else result.state,
        "output": result.output if lost else None,
    }


def _unsaid(part: Part, said: Mapping[str, object]) -> Part:
    """Return the fields of a part that the one made of it does not have."""
    return {key: item for key, item in part.items() if key not in said or said[key] != item}


def _leafward(part: Part, metadata_key: str) -> dict[str, Any]:
    """Return what we keep in a part."""
    metadata: object = part.get(metadata_key)
    kept = cast(Part, metadata).get(KEY) if isinstance(metadata, dict) else None
    return cast(Part, kept) if isinstance(kept, dict) else {}


# ── from AI SDK ──────────────────────────────────────────────────────────────


def from_ui_messages(payload: Sequence[Any]) -> list[Message]:
    """Read a list of `UIMessage`; parts are kept as they are, and what `to_ui_messages` made of others is undone.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    return [_read(item, f"messages[{index}]") for index, item in enumerate(message_list(payload))]


def _read(item: dict[str, Any], where: str) -> Message:
    role = string(item, "role", where)
    if "content" in item and "parts" not in item:
        raise ValueError(
            f'{where} has "content" and no "parts", so it is not a UIMessage of AI SDK 5: from_openai_chat reads it'
        )
    parts = [_restored(part) for part in typed_blocks(item.get("parts"), f"{where}.parts")]
    own = {key: value for key, value in item.items() if key != ROLE}
    try:
        message = Message.from_dict({**own, "role": item.get(ROLE, role), "parts": parts})
    except ValueError as error:
        refuse(where, error)
    kept: dict[str, Any] = {key: None for key in ("createdAt", "name", "metadata") if key in item and item[key] is None}
    if item.get("createdAt") is not None:
        kept["createdAt"] = item["createdAt"] if isinstance(item["createdAt"], str) else to_wire(message.at)
    if kept == {"createdAt": to_wire(message.at)}:
        return message
    if ORIGIN in item:
        kept[ORIGIN] = item[ORIGIN]
    return Message.from_dict({**message.to_dict(), ORIGIN: {"name": NAME, "rest": kept}})


def _restored(part: Part) -> Part:
    orphan = _leafward(part, CALL_METADATA).get("orphan")
    if isinstance(orphan, dict) and cast(Part, orphan).get("type") == "tool_result":
        return cast(Part, orphan)
    inner: object = part.get("data")
    if part["type"] == CARRIED and isinstance(inner, dict) and part.keys() == {"type", "data"}:
        return cast(Part, inner)
    return _unfolded(part) or part


def _unfolded(part: Part) -> Part | None:
    """Return the part that another was made of."""
    kept = _leafward(part, METADATA)
    original: object = kept.get("part")
    url: object = part.get("url")
    held = {"text": part.get("text"), "url": url, "data": url.partition(",")[2] if isinstance(url, str) else None}
    for name, value in held.items():
        if name in kept:
            try:
                original = _replaced(original, kept[name], value)
            except (AttributeError, LookupError, TypeError):
                return None
    return cast(Part, original) if isinstance(original, dict) else None
