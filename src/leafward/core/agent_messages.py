"""AgentScope's `Msg` objects as messages: whatever Java reads is read, and nothing in it is lost.

A message of ours bears its exact time beside the local one, or is carried whole beside what Java reads in its place.
A `Msg` that no message can hold as it is becomes one that can, with the original beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType, field

from leafward.core.agent_blocks import Block, check_block, counts_fit, filled, is_whole, sizes_fit
from leafward.core.agent_records import read_as, read_object, refuse
from leafward.core.coercion import coerced
from leafward.core.errors import StateDecodeError
from leafward.core.ids import MessageIds
from leafward.core.message import Message, make_message
from leafward.core.odd_messages import Usual, made_usual
from leafward.core.provider_extras import ORIGIN
from leafward.core.times import parse_local
from leafward.core.untrusted import is_of, place

NAME = "agentscope"
AT = "leafward_at"
"""The key that gives a message's time in microseconds since 1970, and says that we made it."""
CARRIED = "leafward_message"
"""The key that carries a whole message beside the blocks that Java reads in its place."""
CONTINUES = "leafward_continues"
"""The key of a `Msg` that shows more of the one it names, which carries the whole message."""

Role = Literal["USER", "ASSISTANT", "SYSTEM", "TOOL"]
ROLES = {"user": "USER", "assistant": "ASSISTANT", "system": "SYSTEM", "tool": "TOOL"}
KEYS = frozenset({"id", "name", "role", "content", "metadata", "timestamp", "usage"})
APART = ("parts", "createdAt", ORIGIN)
"""Keys of a `Msg` that mean something else in a message of ours, so they wait under `ORIGIN`."""
TEXTS = "texts"
"""The key under `ORIGIN` that says which texts in a `Msg` are the JSON of what stood there."""

UNREADABLE = (StateDecodeError, ValueError, OverflowError, RecursionError)
"""Raised for a `Msg` that cannot be read, or not in this way."""

Fields = tuple[str, str, int, dict[str, Any]]
"""The id, the role, the time and the body of a message."""
OnUsual = Callable[[Message, dict[str, Any], Fields, int], None]
"""Gets each message of which all fields are as AgentScope writes them: the message, its `Msg`, what was read of it, and
the time of the message before."""


def read_messages(
    items: list[tuple[object, str]], *, roles: bool = True, on_usual: OnUsual | None = None
) -> list[Message]:
    """Read `Msg` objects, each given with its place; what is a message already stays as it is, and null is left out.

    A message without an id gets one made of its role, its content and its place in the list, so that it is the same at
    every read. One without a time that can be read has that of the message before, the first one that of 1970. Without
    `roles`, any role may hold any block, as in 1.x.

    Raises:
        StateDecodeError: one of them is not a `Msg`.
    """
    reader = MsgReader(roles=roles, on_usual=on_usual)
    for item, where in items:
        if isinstance(item, Message):
            reader.add(item)
        elif item is not None:
            reader.read(item, where)
    return reader.messages


class _Msg(Struct):
    """A `Msg` as AgentScope writes it: `null` counts as missing."""

    id: str
    role: Role
    content: list[Block | None] | None = None
    name: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp: str | None = None
    usage: dict[str, Any] | None = None
    at: int | UnsetType = field(default=UNSET, name=AT)


class MsgReader:
    """Reads the `Msg` objects of one list, one after the other."""

    def __init__(self, *, roles: bool, on_usual: OnUsual | None = None) -> None:
        self.messages: list[Message] = []
        self._roles = roles
        self._on_usual = on_usual
        self._ids = MessageIds()
        self._carried: set[str] = set()

    def add(self, message: Message) -> None:
        """Take a message as the next one."""
        self.messages.append(message)
        self._ids.add(message.id)

    def read(self, item: object, where: str) -> None:
        """Read the next `Msg`; one that only shows more of a message that was carried whole adds nothing.

        Raises:
            StateDecodeError: it is not a `Msg`.
        """
        given = read_object(item, where)
        if CARRIED in given:
            carried = _read_carried(given[CARRIED])
            if carried is not None:
                self._carried.add(carried.id)
                self.add(carried)
                return
            given = {key: value for key, value in given.items() if key != CARRIED}
        continues = given.get(CONTINUES)
        if not (isinstance(continues, str) and continues in self._carried):
            self.add(self._read(given, where))

    def _read(self, given: dict[str, Any], where: str) -> Message:
        try:
            found = read_usual(given, where, self._before, roles=self._roles)
            message = make_message(*found) if self._may_have(found[0], given) else None
        except UNREADABLE:
            message = found = None
        if message is None or found is None:
            # As Java does not refuse it for this, it is looked at again.
            return self._read_odd(given, where)
        if self._on_usual is not None:
            self._on_usual(message, given, found, self._before)
        return message

    @property
    def _before(self) -> int:
        """The time of the message before."""
        return self.messages[-1].at if self.messages else 0

    def _may_have(self, id: str, given: dict[str, Any]) -> bool:
        """Tell whether the message of a `Msg` may have an id: one that we wrote has the id it had."""
        return id not in self._ids or AT in given

    def _read_odd(self, given: dict[str, Any], where: str) -> Message:
        try:
            return make_message(*read_odd(given, where, self._before, len(self.messages), self._ids, roles=self._roles))
        except (ValueError, OverflowError) as error:
            refuse(where, f"is not a message: {error}")
        except RecursionError:
            refuse(where, "is nested too deeply")


def _read_carried(given: Any) -> Message | None:
    """Return the message that a `Msg` carries, if it is one."""
    try:
        return Message.from_dict(given)
    except (ValueError, OverflowError, RecursionError):
        return None


def is_msg(given: dict[str, Any]) -> bool:
    """Tell whether each field of an object is of the type that it has in a `Msg`."""
    return is_of(given, _Msg)


def read_usual(given: dict[str, Any], where: str, before: int, *, roles: bool, usual: Usual | None = None) -> Fields:
    """Read a `Msg` of which each field is as AgentScope writes it, or that was made so.

    Raises:
        StateDecodeError: it is not such a one; the reason names the place.
    """
    msg = read_as(_Msg, given, where)
    content = [(number, block) for number, block in enumerate(given.get("content") or ()) if block is not None]
    for number, block in content:
        check_block(block, msg.role if roles else "", f"{place(where, 'content')}[{number}]")
    ours = msg.at is not UNSET
    body: dict[str, Any] = {"parts": [block if ours else filled(block) for _, block in content]}
    if msg.name is not None:
        body["name"] = msg.name
    at = _read_ours(given, msg, body) if ours else _read_theirs(given, msg, body, before, usual)
    return msg.id, msg.role.lower(), at, body


def _read_ours(given: dict[str, Any], msg: _Msg, body: dict[str, Any]) -> int:
    """Read a message we made, and return its time; an empty metadata object stands for none, null for an empty one."""
    if msg.metadata or ("metadata" in given and msg.metadata is None):
        body["metadata"] = msg.metadata or {}
    if msg.usage is not None:
        body["usage"] = msg.usage
    body |= {key: value for key, value in given.items() if key not in KEYS and key != AT}
    return cast(int, msg.at)


def _read_theirs(given: dict[str, Any], msg: _Msg, body: dict[str, Any], before: int, usual: Usual | None) -> int:
    body["metadata"] = {key: value for key, value in (msg.metadata or {}).items() if value is not None}
    body["timestamp"] = msg.timestamp
    body["usage"] = msg.usage
    others = given.keys() - KEYS
    if others:
        body |= {key: value for key, value in given.items() if key in others and key not in APART}
    rest = {key: given[key] for key in APART if key in others}
    if usual is not None:
        rest |= usual.rest
    texts = {TEXTS: usual.texts} if usual is not None and usual.texts else {}
    if rest or texts:
        body[ORIGIN] = {"name": NAME, "rest": rest, **texts}
    try:
        return before if msg.timestamp is None else parse_local(msg.timestamp)
    except (ValueError, OverflowError):
        return before


def read_odd(given: dict[str, Any], where: str, before: int, index: int, taken: MessageIds, *, roles: bool) -> Fields:
    """Read a `Msg` that Java reads although it is not as AgentScope writes it.

    Raises:
        StateDecodeError: Java does not read it either; the reason names the place.
    """
    theirs = {key: value for key, value in given.items() if key not in (AT, CONTINUES)}
    msg = coerced(theirs, _Msg, ordinals=True)
    # What is wrong with the types must be said before anything is made of it.
    missing = {key: usual for key, usual in (("id", ""), ("role", "USER")) if msg.get(key) is None}
    read_as(_Msg, {**msg, **missing}, where)
    usual = made_usual(msg, index, taken)
    return read_usual(usual.msg, where, before, roles=roles and "role" not in usual.rest, usual=usual)


def java_reads(given: dict[str, Any], *, of_1x: bool) -> bool:
    """Tell whether Java takes a `Msg` that `MsgReader` reads, and finds all its blocks.

    In 2.x no other role than ASSISTANT and TOOL may hold every block; 1.x does not know all blocks.
    """
    msg = coerced(given, _Msg, ordinals=True)
    blocks = [block for block in msg.get("content") or () if block is not None]
    try:
        for block in blocks:
            check_block(block, "" if of_1x else str(msg.get("role")), "")
    except StateDecodeError:
        return False
    return all(is_whole(block, of_1x=of_1x) and sizes_fit(block) for block in blocks) and counts_fit(msg.get("usage"))
