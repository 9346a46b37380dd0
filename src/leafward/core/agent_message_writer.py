"""Messages as AgentScope's `Msg` objects: Java reads them, and we read the very same messages from them.

A message is written as it stands. Unlike the payloads of `leafward.formats`, which are for a model, a state keeps
calls that are still open. One that Java could not read is written in pieces that it can, and carried whole beside them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

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
    is_msg,
    read_odd,
    read_usual,
)
from leafward.core.agent_pieces import in_pieces, pieces, written_time
from leafward.core.calls import Item, own_items, pair
from leafward.core.ids import MessageIds
from leafward.core.java_limits import LONGEST_KEY, SHORTEST, check_limits
from leafward.core.message import Message, as_message, body_to_read, message_sharing
from leafward.core.odd_messages import ORIGINAL, restored
from leafward.core.parts import Part
from leafward.core.provider_extras import ORIGIN
from leafward.core.times import to_local

_KNOWN = KEYS | {"parts"}
_OPENAIS = frozenset({"tool_calls", "tool_call_id"})
"""Keys beside the parts in which earlier versions kept calls and results."""


class Written(NamedTuple):
    """What is written of a message, and what that depends on besides the message."""

    msgs: list[dict[str, Any]]
    is_own: bool
    """Whether it would be the same in any other list, but for what `before` says."""
    before: int | None = None
    """Where this is not `None`, only below a message of this time and none with the same id."""


class Checked(NamedTuple):
    """A message that is sound."""

    message: Message
    json: bytes
    """Its body."""
    is_short: bool
    """Whether it is too short to exceed what Java reads, whatever is written of it."""


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
    checked = [check_message(message, index) for index, message in enumerate(messages)]
    writer = MsgWriter([one.message for one in checked], of_1x=of_1x)
    return [writer.write(index, one).msgs for index, one in enumerate(checked)]


def write_message(message: Message, *, of_1x: bool = False) -> dict[str, Any]:
    """Return a message as one `Msg`; of several pieces, all blocks are in the first."""
    head, *more = write_messages([message], of_1x=of_1x)
    if not more:
        return head
    # No other role may hold all of them.
    return {**head, "role": "ASSISTANT", "content": [block for one in (head, *more) for block in one["content"]]}


def check_message(message: Message | Mapping[str, Any], index: int) -> Checked:
    """Return a message of a list as a sound one, which shares its body.

    Raises:
        ValueError: it is no message, or was made unsound; the text names the place.
    """
    try:
        sound, json = as_message(message).sealed()
    except ValueError as error:
        raise ValueError(f"context[{index}]: {error}") from error
    body = body_to_read(sound)
    # A text may stand for a number of as many digits.
    is_short = len(json) <= (SHORTEST if ORIGIN in body else LONGEST_KEY)
    return Checked(_twin(sound), json, is_short)


def _twin(message: Message) -> Message:
    """Return another message with the same body, so that looking at its parts does not lend those of the first."""
    return message_sharing(message.id, message.role, message.at, body_to_read(message))


class MsgWriter:
    """Writes the messages of a list, all of which are sound; no later one before an earlier."""

    def __init__(self, messages: Sequence[Message], *, of_1x: bool) -> None:
        self._messages = messages
        self._of_1x = of_1x
        self._items: list[list[Item]] | None = None
        self._taken = MessageIds()
        self._above = 0
        """How many messages have their ids in it."""

    def write(self, index: int, checked: Checked) -> Written:
        """Return what is written of a message, given as it was checked.

        Raises:
            ValueError: it exceeds what Java reads; the text names the place.
        """
        message, _, is_short = checked
        msg = as_it_stands(message)
        if is_short or excess_of([msg]) is None:
            written = self._as_it_stands(index, message, msg)
            if written is not None and is_sound(msg, self._of_1x):
                return written
        written = self._in_pieces(index, message)
        excess = None if is_short else excess_of(written.msgs)
        if excess:
            raise ValueError(f"context[{index}]: {excess}") from excess
        return written

    def holds(self, index: int, before: int | None) -> bool:
        """Tell whether what was written of a message, given as `Written.before`, is what is written of it here."""
        return before is None or (before == self._before(index) and self._is_new(index))

    def _is_new(self, index: int) -> bool:
        """Tell whether no message above has the same id."""
        return self._messages[index].id not in self._ids_above(index)

    def _before(self, index: int) -> int:
        """Return the time of the message above."""
        return self._messages[index - 1].at if index else 0

    def _ids_above(self, index: int) -> MessageIds:
        for message in self._messages[self._above : index]:
            self._taken.add(message.id)
        self._above = index
        return self._taken

    def _as_it_stands(self, index: int, message: Message, msg: dict[str, Any]) -> Written | None:
        """Return a message as the `Msg` that it is, if we read the very same message from it."""
        body = message.body
        if CARRIED in body or CONTINUES in body:
            return None
        wanted: Fields = (message.id, message.role, message.at, body)
        before = self._before(index)
        is_theirs = AT not in msg
        if (not is_theirs or self._is_new(index)) and _is_read_as_usual(msg, before, wanted):
            return Written([msg], is_own=True, before=before if is_theirs else None)
        if is_theirs and ORIGIN in body and _is_read_as_odd(msg, before, index, self._ids_above(index), wanted):
            return Written([msg], is_own=False)
        return None

    def _in_pieces(self, index: int, message: Message) -> Written:
        items = own_items(message)
        # That a message of Java's cannot stand as it is may be due to others.
        is_own = items is not None and "timestamp" not in message.body
        if items is None:
            # Which calls an AI SDK part repeats is said by what is above it.
            self._items = pair([*map(_twin, self._messages)]).items if self._items is None else self._items
            items = self._items[index]
        return Written(_in_pieces(message, items, self._of_1x), is_own)


def excess_of(written: list[dict[str, Any]]) -> ValueError | None:
    """Return what Java could not read of a message, where it stands in a state."""
    try:
        check_limits({"context": written}, "the Msg of this message")
    except ValueError as error:
        return error
    return None


def is_sound(written: dict[str, Any], of_1x: bool) -> bool:
    """Tell whether Java finds all of a message that stands as it is, which it reads, and could have written so."""
    blocks: list[Part] = written["content"]
    usage = written["usage"]
    return (
        all(by_the_rules(block) == block and is_whole(block, of_1x=of_1x) for block in blocks)
        and usage_by_the_rules(usage) == usage
        and _OPENAIS.isdisjoint(written)
    )


def as_it_stands(message: Message) -> dict[str, Any]:
    """Return a message as one `Msg`, whether or not Java could read it."""
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


def _is_read_as_usual(msg: dict[str, Any], before: int, wanted: Fields) -> bool:
    try:
        return is_msg(msg) and read_usual(msg, "", before, roles=True) == wanted
    except UNREADABLE:
        return False


def _is_read_as_odd(msg: dict[str, Any], before: int, index: int, taken: MessageIds, wanted: Fields) -> bool:
    try:
        return read_odd(msg, "", before, index, taken, roles=True) == wanted
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
