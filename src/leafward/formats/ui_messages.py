"""AI SDK's `UIMessage`: one part holds a call and its result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import zip_longest
from typing import Any, TypeGuard, cast

from leafward.core.calls import Call, Result, pair
from leafward.core.fallback_text import output_as_text
from leafward.core.json import try_parse
from leafward.core.json_fields import message_list, string, typed_blocks
from leafward.core.media import read_media
from leafward.core.message import Message
from leafward.core.parts import (
    CALLS,
    Part,
    is_thinking,
    is_ui_tool,
    keys_beside_parts,
    output_key,
    plain_block_text,
    thinking_text,
)
from leafward.core.provider_extras import ORIGIN, rest_if_any
from leafward.core.times import to_wire
from leafward.formats.reading import Messages, checked_messages, refuse
from leafward.formats.turns import known_role
from leafward.formats.ui_folds import Fold, Folding, Place, Unfolding, read_fold

NAME = "ui"
CARRIED = "data-leafward"
"""The type of a data part that carries, unchanged, a part AI SDK has no type for."""

ROLE = "leafwardRole"
"""The key of a message that keeps a role AI SDK does not know."""

CALL_METADATA, METADATA, KEY = "callProviderMetadata", "providerMetadata", "leafward"
"""Where a tool part, and any other part, keeps what AI SDK has no field for."""

PENDING = "input-available"
"""The state of a tool part that holds a call of ours and no result."""

_KEPT = frozenset({"text", "step-start", "source-url", "source-document"})
_OWN_FILE = frozenset({"url", "mediaType"})
_LOOKS = 3

# ── to AI SDK ────────────────────────────────────────────────────────────────


def to_ui_messages(messages: Messages) -> list[dict[str, Any]]:
    """Return messages for `useChat` and `convertToModelMessages`; ids, times and metadata are kept.

    Nothing is left out. A result that stands in a message apart is folded into its call's part; a call without one
    stays `input-available`, or whatever state its part has; a result without its call is a tool part that says so. A
    part that AI SDK has no type for travels in a `data-leafward` part, and what a part has no field for under
    `leafward` in its metadata: parts that repeat a call or its result too. `from_ui_messages` gives back the messages
    there were.

    Raises:
        ValueError: something in `messages` is not a message.
    """
    found = checked_messages(messages)
    shown = zip(found, _shown_parts(found), strict=True)
    return [_envelope(message, parts) for message, parts in shown if parts is not None]


def _shown_parts(messages: Sequence[Message]) -> list[list[Part] | None]:
    """Return the parts that a screen shows of each message; `None` for one that is shown in the parts of others."""
    pairs = pair(messages)
    folding = Folding(messages, pairs)
    apart = [result for call, result in pairs.belonging() if result not in pairs.orphans and result.call is not call]
    folded = {item.row for item in (*apart, *pairs.repeated_calls)}
    found: list[list[Part] | None] = []
    for row, items in enumerate(pairs.items):
        parts: list[Part] = []
        for item in items:
            if isinstance(item, Call):
                parts.append(_tool_part(item, pairs.answers.get(item), folding))
            elif isinstance(item, Result):
                parts += [_orphan(item)] if item in pairs.orphans else []
            else:
                parts.append(_part(item))
        found.append(parts if parts or row not in folded else None)
    return found


def _envelope(message: Message, parts: list[Part]) -> dict[str, Any]:
    # Calls and results that stood in OpenAI's own keys are parts by now; what is not stays there.
    whole = {key: value for key, value in message.to_dict().items() if key not in ("tool_calls", "tool_call_id")}
    whole |= keys_beside_parts(message.body)
    kept = rest_if_any(message.extra, NAME)
    if kept is not None:
        # It came without a time, or with one in other words.
        whole = {key: value for key, value in whole.items() if key not in ("createdAt", ORIGIN)} | kept
    shown = _shown_role(message.role)
    return {**whole, "role": shown, "parts": parts, **({} if shown == message.role else {ROLE: message.role})}


def _shown_role(role: str) -> str:
    known = known_role(role)
    return "system" if known == "developer" else known


def _part(part: Part) -> Part:
    kind: str = part["type"]
    ours = kind == CARRIED or ORIGIN in part
    known = kind in _KEPT or kind.startswith("data-") or (kind == "file" and part.keys() >= _OWN_FILE)
    if not ours and (known or kind == "reasoning"):
        return part
    if kind == "text" and isinstance(part.get("text"), str):
        return _beside({"type": "text", "text": part["text"]}, part, {"text": part["text"]})
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
    """Return a copy in which something else stands at a place.

    Raises:
        AttributeError, LookupError, TypeError: there is no such place.
    """
    holder: Any = [value]
    whole, key = holder, 0
    for step in place:
        holder[key] = holder[key].copy()
        holder, key = holder[key], step
        holder[key]  # There is something to replace.
    holder[key] = new
    return whole[0]


def _tool_part(call: Call, result: Result | None, folding: Folding) -> Part:
    """Return a call with its result; beside it, under `leafward`, the parts it was made of and where they stood."""
    made = call.part if is_ui_tool(call.part) else _pending_part(call)
    kept: dict[str, Any] = {}
    if result is not None and result.call is not call:
        if is_ui_tool(result.part):
            made = {**made, **result.part}
        elif result.final:
            made = {**made, **settled(result)}
        shown = made.get(output_key(made))
        kept = {"result": _without_shown(result.part, output_key(result.part), shown), **folding.place(result, call)}
    repeats = folding.repeats(call)
    if repeats:
        kept["repeats"] = repeats
    if is_ui_tool(call.part) and not kept:
        return made
    kept["call"] = _without_shown(call.part, "input", made.get("input"))
    theirs = cast(Part, made[CALL_METADATA]) if isinstance(made.get(CALL_METADATA), dict) else {}
    return {**made, CALL_METADATA: {**theirs, KEY: kept}}


def _without_shown(part: Part, key: str, shown: object) -> dict[str, Any]:
    """Return a part without the value under `key` that the screen's part shows, and the place of that value."""
    inside = _place_of(shown, part.get(key)) if isinstance(shown, str) else [] if part.get(key) == shown else None
    if key not in part or inside is None:
        return {"part": part}
    place = [key, *inside]
    return {"part": _replaced(part, place, None), "place": place}


def _pending_part(call: Call) -> Part:
    return {
        "type": "dynamic-tool",
        "toolName": call.name,
        "toolCallId": call.id,
        "state": PENDING,
        "input": _input(call),
    }


def _orphan(result: Result) -> Part:
    """Return a result whose call is missing as a tool part that has no input."""
    made: Part = {
        "type": "dynamic-tool",
        "toolName": result.name or "unknown",
        "toolCallId": result.call_id,
        "input": None,
        **settled(result),
    }
    return {**made, CALL_METADATA: {KEY: {"orphan": result.part}}}


def _input(call: Call) -> object:
    if isinstance(call.input, dict):
        return call.object_input
    read = try_parse(call.input) if isinstance(call.input, str) else None
    return call.input if read is None else read[0]


def settled(result: Result) -> dict[str, Any]:
    """Return the keys of a tool part that show a result: its state, and its output or the text of its error."""
    text = plain_block_text(result.blocks)
    if not result.failed:
        return {"state": "output-available", "output": result.output if text is None else text}
    words = "\n".join(map(output_as_text, result.blocks)) if text is None else text
    return {"state": "output-error", "errorText": words}


def _leafward(part: Part, metadata_key: str) -> dict[str, Any]:
    """Return what we keep in a part."""
    metadata: object = part.get(metadata_key)
    kept = cast(Part, metadata).get(KEY) if isinstance(metadata, dict) else None
    return cast(Part, kept) if isinstance(kept, dict) else {}


# ── from AI SDK ──────────────────────────────────────────────────────────────


def from_ui_messages(payload: Sequence[Any]) -> list[Message]:
    """Read a list of `UIMessage`; parts are kept as they are, and what `to_ui_messages` made of others is undone.

    A result that was folded into its call is a part, or a message, of its own again. A tool part that the page has
    settled itself stays one part. A page may hide anything where we keep what others were made of: it is read only if
    `to_ui_messages` would show it as the page does.

    Raises:
        ValueError: the payload is not such a list; the text names the place.
    """
    items = message_list(payload)
    page = [_parts_of_page(item, f"messages[{row}]") for row, item in enumerate(items)]
    believed = {(row, index) for row, parts in enumerate(page) for index in range(len(parts))}
    # What one part hides may change how others are shown, so it takes a few looks. After those nothing is believed.
    for _ in range(_LOOKS):
        read, forged = _undone(items, page, believed)
        if not forged:
            return read
        believed -= forged
    return _undone(items, page, set())[0]


def _undone(
    items: Sequence[dict[str, Any]], page: Sequence[list[Part]], believed: Set[Place]
) -> tuple[list[Message], set[Place]]:
    """Return the messages that those of a page were made of, and the parts that hide what the page does not show."""
    found = Unfolding({item["id"]: row for row, item in enumerate(items) if isinstance(item.get("id"), str)})
    parts: list[list[Part]] = []
    undone: dict[int, set[Place]] = {}
    for row, shown in enumerate(page):
        parts.append(list(shown))
        for index, part in enumerate(shown):
            if (row, index) in believed:
                parts[row][index], folds = _restored(part)
                for fold in folds:
                    found.add((row, index), fold)
            if parts[row][index] is not part:
                undone.setdefault(row, set()).add((row, index))
    names = [f"messages[{row}]" for row in range(len(items))]
    read = [_read(item, found.whole(row, parts[row]), names[row]) for row, item in enumerate(items)]
    whole = found.in_order(read, names)
    if not undone:
        return whole, set()
    again = dict(zip(map(id, whole), _shown_parts(whole), strict=True))
    shown_again = [again.pop(id(message)) for message in read]
    # A message that only held what was folded is not shown.
    forged = {place for message in whole if again.get(id(message)) is not None for place in found.behind(message.id)}
    for row in undone.keys() | found.rows:
        pairs = zip_longest(_visible(shown_again[row]), _visible(page[row]))
        wrong = {(row, index) for index, (one, other) in enumerate(pairs) if one != other}
        if wrong:
            hiding = undone.get(row, set())
            forged |= wrong & hiding or hiding | found.behind(row)
    return whole, forged


def _visible(parts: Sequence[Part] | None) -> list[Part]:
    """Return parts without what we keep in them."""
    return [_without_ours(_without_ours(part, METADATA), CALL_METADATA) for part in parts or ()]


def _without_ours(part: Part, key: str) -> Part:
    if not _leafward(part, key):
        return part
    theirs = {name: value for name, value in part[key].items() if name != KEY}
    return {**part, key: theirs} if theirs else {name: value for name, value in part.items() if name != key}


def _parts_of_page(item: dict[str, Any], where: str) -> list[Part]:
    if "content" in item and "parts" not in item:
        raise ValueError(
            f'{where} has "content" and no "parts", so it is not a UIMessage of AI SDK 5: from_openai_chat reads it'
        )
    return typed_blocks(item.get("parts"), f"{where}.parts")


def _read(item: dict[str, Any], parts: list[Part], where: str) -> Message:
    role = string(item, "role", where)
    own = {key: value for key, value in item.items() if key != ROLE}
    original: object = item.get(ROLE)
    # A page may write anything there: only what is shown as this role is believed.
    if isinstance(original, str) and _shown_role(original) == role:
        role = original
    try:
        message = Message.from_dict({**own, "role": role, "parts": parts})
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


def _restored(part: Part) -> tuple[Part, list[Fold]]:
    """Return the part that one of the screen was made of, and those that were folded into it."""
    kept = _leafward(part, CALL_METADATA)
    orphan: object = kept.get("orphan")
    if is_ui_tool(part) and _is_tool_part(orphan):
        return orphan, []
    inner: object = part.get("data")
    if part["type"] == CARRIED and isinstance(inner, dict) and part.keys() == {"type", "data"}:
        return cast(Part, inner), []
    return _unfolded_call(part, kept) or (_unfolded(part) or part, [])


def _unfolded_call(part: Part, kept: dict[str, Any]) -> tuple[Part, list[Fold]] | None:
    """Return a call and what was folded into it; nothing for a part that the page made."""
    call = _with_shown(kept.get("call"), part.get("input"))
    if call is None or not is_ui_tool(part):
        return None
    result = _with_shown(kept.get("result"), part.get(output_key(part)))
    again: object = kept.get("repeats", [])
    records = cast(list[object], again) if isinstance(again, list) else [None]
    folds = [read_fold(record, _with_shown(record, None)) for record in records]
    if result is not None:
        folds.append(read_fold(kept, result))
    whole = [fold for fold in folds if fold is not None]
    return (call, whole) if len(whole) == len(folds) else None


def _with_shown(record: object, shown: object) -> Part | None:
    """Return the part in a record, with the value that the screen's part shows."""
    kept = cast(Part, record) if isinstance(record, dict) else {}
    part: object = kept.get("part")
    if "place" in kept:
        try:
            part = _replaced(part, kept["place"], shown)
        except (AttributeError, LookupError, TypeError):
            return None
    return part if _is_tool_part(part) else None


def _is_tool_part(value: object) -> TypeGuard[Part]:
    """Tell calls and results from all that a page may have put in their place."""
    return _is_part(value) and (value["type"] in CALLS or value["type"] == "tool_result" or is_ui_tool(value))


def _is_part(value: object) -> TypeGuard[Part]:
    return isinstance(value, dict) and isinstance(cast(Part, value).get("type"), str)


def _unfolded(part: Part) -> Part | None:
    """Return the part that another was made of; nothing for what the page made."""
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
    return original if _is_part(original) else None
