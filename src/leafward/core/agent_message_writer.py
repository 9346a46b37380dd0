"""Messages as AgentScope's `Msg` objects: Java reads them, and we read the very same messages from them.

A message is written as it stands. Unlike the payloads of `leafward.formats`, which are for a model, a state keeps
calls that are still open. One that Java could not read is written in pieces that it can, and carried whole beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from leafward.core.agent_blocks import by_the_rules, is_whole, usage_by_the_rules
from leafward.core.agent_messages import (
    APART,
    AT,
    CARRIED,
    CONTINUES,
    KEYS,
    ROLES,
    TEXTS,
    UNREADABLE,
    Fields,
    read_odd,
    read_usual,
)
from leafward.core.agent_pieces import in_pieces, pieces, written_time
from leafward.core.calls import Item, pair
from leafward.core.ids import MessageIds
from leafward.core.java_limits import LONGEST_KEY, SHORTEST, check_limits
from leafward.core.message import Message, as_message
from leafward.core.odd_messages import ORIGINAL, restored
from leafward.core.parts import Part
from leafward.core.provider_extras import ORIGIN
from leafward.core.times import to_local

_KNOWN = KEYS | {"parts"}
_OPENAIS = frozenset({"tool_calls", "tool_call_id"})
"""Keys beside the parts in which earlier versions kept calls and results."""


def write_messages(messages: Sequence[Message | Mapping[str, Any]], *, of_1x: bool = False) -> list[dict[str, Any]]:
    """Return messages, also such as dicts, as `Msg` objects that Java reads, and `read_messages` reads as they were.

    With `of_1x`, they hold only blocks that AgentScope 1.x knows.

    Raises:
        ValueError: something in the list is no message, was made unsound, or exceeds what Java reads; the text names
            the place.
    """
    return [one for made in write_each(messages, of_1x=of_1x) for one in made]


def write_each(messages: Sequence[Message | Mapping[str, Any]], *, of_1x: bool = False) -> list[list[dict[str, Any]]]:
    """Return for each message the `Msg` objects that `write_messages` makes of it."""
    checked = [_checked(message, f"context[{index}]") for index, message in enumerate(messages)]
    found = [message for message, _ in checked]
    items: list[list[Item]] | None = None
    written: list[list[dict[str, Any]]] = []
    taken = MessageIds()
    before = 0
    for index, (message, is_short) in enumerate(checked):
        made = [_as_it_stands(message)]
        excess = None if is_short else _excess(made)
        if excess or not _comes_back(made[0], message, before, index, taken) or not _is_sound(made[0], of_1x):
            # Which calls an AI SDK part repeats is said by what is above it.
            items = pair(found).items if items is None else items
            made = _in_pieces(message, items[index], of_1x)
            excess = None if is_short else _excess(made)
        if excess:
            raise ValueError(f"context[{index}]: {excess}") from excess
        written.append(made)
        taken.add(message.id)
        before = message.at
    return written


def write_message(message: Message, *, of_1x: bool = False) -> dict[str, Any]:
    """Return a message as one `Msg`; of several pieces, all blocks are in the first."""
    head, *more = write_messages([message], of_1x=of_1x)
    if not more:
        return head
    # No other role may hold all of them.
    return {**head, "role": "ASSISTANT", "content": [block for one in (head, *more) for block in one["content"]]}


def _checked(message: Message | Mapping[str, Any], where: str) -> tuple[Message, bool]:
    """Return a message, and whether it is too short to exceed what Java reads, whatever is written of it."""
    try:
        sound, body = as_message(message).sealed()
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    # A text may stand for a number of as many digits.
    return sound, len(body) <= (SHORTEST if ORIGIN in sound.body else LONGEST_KEY)


def _excess(written: list[dict[str, Any]]) -> ValueError | None:
    """Return what Java could not read of a message, where it stands in a state."""
    try:
        check_limits({"context": written}, "the Msg of this message")
    except ValueError as error:
        return error
    return None


def _is_sound(written: dict[str, Any], of_1x: bool) -> bool:
    """Tell whether Java finds all of a message that stands as it is, which it reads, and could have written so."""
    blocks: list[Part] = written["content"]
    usage = written["usage"]
    return (
        all(by_the_rules(block) == block and is_whole(block, of_1x=of_1x) for block in blocks)
        and usage_by_the_rules(usage) == usage
        and _OPENAIS.isdisjoint(written)
    )


def _as_it_stands(message: Message) -> dict[str, Any]:
    body = message.body
    theirs = "timestamp" in body
    others = {key: value for key, value in body.items() if key not in _KNOWN}
    metadata: dict[str, Any] | None = message.metadata
    if not theirs and not metadata:
        metadata = {} if metadata is None else None
    written = {
        "id": message.id,
        "name": message.name,
        "role": ROLES.get(message.role),
        "content": message.parts,
        "metadata": metadata,
        "timestamp": body["timestamp"] if theirs else to_local(message.at),
        "usage": body.get("usage"),
        **({} if theirs else {AT: message.at}),
        **others,
    }
    return with_original(written) if theirs and ORIGIN in written else written


def with_original(written: dict[str, Any]) -> dict[str, Any]:
    """Return a `Msg` that holds the key of what only AgentScope reads with that in its place, and without the key."""
    origin = _object(written.pop(ORIGIN, None))
    # A rest that is not one of ours makes a message that does not come back, which is then carried whole.
    rest = {key: value for key, value in _object(origin.get("rest")).items() if key in (*APART, *ORIGINAL)}
    return restored(written | rest, origin.get(TEXTS))


def _comes_back(written: dict[str, Any], message: Message, before: int, index: int, taken: MessageIds) -> bool:
    body = message.body
    if CARRIED in body or CONTINUES in body:
        return False
    wanted: Fields = (message.id, message.role, message.at, body)
    theirs = AT not in written
    try:
        if not (theirs and message.id in taken) and read_usual(written, "", before, roles=True) == wanted:
            return True
    except UNREADABLE:
        pass
    if not theirs or ORIGIN not in body:
        return False
    try:
        return read_odd(written, "", before, index, taken, roles=True) == wanted
    except UNREADABLE:
        return False


def _in_pieces(message: Message, items: Sequence[Item], of_1x: bool) -> list[dict[str, Any]]:
    parts = pieces(message, items, of_1x=of_1x)
    role, content = parts[0]
    head = {
        "id": message.id,
        "name": message.name,
        "role": role,
        "content": content,
        "metadata": message.metadata or {},
        "timestamp": written_time(message),
        "usage": usage_by_the_rules(message.extra.get("usage")) or None,
    }
    return in_pieces(message, head, parts)


def _object(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
