"""The messages of an agent's state as AgentScope's `Msg`: strict as its reader, and nothing of ours is lost.

A message is written as it stands. Unlike the payloads of `leafward.formats`, which are for a model, a state keeps
calls that are still open. A message of our own bears its exact time beside the local one; one that Java could not
read is written in words, and carried whole beside them. Java reads past both keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from msgspec import UNSET, Struct, UnsetType, field

from leafward.core.agent_blocks import Block, by_the_rules, check_block, filled, fits, in_words, usage_by_the_rules
from leafward.core.agent_records import read_as, read_object, refuse
from leafward.core.errors import StateDecodeError
from leafward.core.json import encode
from leafward.core.message import Message, as_message
from leafward.core.parts import Part
from leafward.core.times import from_micros, parse_local
from leafward.core.untrusted import place

AT = "leafward_at"
"""The key that gives a message's time in microseconds since 1970, and says that we made it."""
CARRIED = "leafward_message"
"""The key that carries a whole message beside the words that stand for it."""
ORIGIN = "leafward_provider"
"""The key under which a message keeps what only its origin reads, as `leafward.formats` has it."""

ROLES = {"user": "USER", "assistant": "ASSISTANT", "system": "SYSTEM", "tool": "TOOL"}
_KEYS = ("id", "name", "role", "content", "metadata", "timestamp", "usage")
_APART = ("parts", "createdAt", ORIGIN)
"""Keys of a `Msg` that mean something else in a message of ours, so they wait under `ORIGIN`."""
_Read = tuple[str, str, int, dict[str, Any]]


# ── reading ──────────────────────────────────────────────────────────────────


def read_messages(items: list[tuple[object, str]], *, roles: bool = True) -> list[Message]:
    """Read `Msg` objects, each given with its place; what is a message already stays as it is.

    A message without an id gets one made of its place and content, so that it is the same at every read; one without
    a time has that of the message before. Without `roles`, any role may hold any block, as in 1.x.

    Raises:
        StateDecodeError: one of them is not a `Msg`.
    """
    found: list[Message] = []
    for item, where in items:
        before = found[-1].at if found else 0
        found.append(item if isinstance(item, Message) else _read_message(item, where, before, len(found), roles))
    return found


class _Msg(Struct):
    """A `Msg` as AgentScope's reader takes it: `null` counts as missing."""

    role: Literal["USER", "ASSISTANT", "SYSTEM", "TOOL"]
    content: list[Block | None] | None = None
    id: str | None = None
    name: str | None = None
    metadata: dict[str, Any] | None = None
    timestamp: str | None = None
    usage: dict[str, Any] | None = None
    at: int | UnsetType = field(default=UNSET, name=AT)


def _read_message(item: object, where: str, before: int, index: int, roles: bool) -> Message:
    given = read_object(item, where)
    try:
        if CARRIED in given:
            return Message.from_dict(read_object(given[CARRIED], place(where, CARRIED)))
        id, role, at, body = _read(given, where, before, index, roles)
        return Message.from_dict({"id": id, "role": role, "createdAt": from_micros(at), **body})
    except (ValueError, OverflowError) as error:
        refuse(where, f"is not a message: {error}")
    except RecursionError:
        refuse(where, "is nested too deeply")


def _read(given: dict[str, Any], where: str, before: int, index: int, roles: bool) -> _Read:
    msg = read_as(_Msg, given, where)
    content = [(number, block) for number, block in enumerate(given.get("content") or ()) if block is not None]
    for number, block in content:
        check_block(block, msg.role if roles else "", f"{place(where, 'content')}[{number}]")
    ours = msg.at is not UNSET
    body: dict[str, Any] = {"parts": [block if ours else filled(block) for _, block in content]}
    if msg.name is not None:
        body["name"] = msg.name
    at = _read_ours(given, msg, body) if ours else _read_theirs(given, msg, body, before, where)
    id = hashlib.sha256(encode([index, given])).hexdigest()[:32] if msg.id is None else msg.id
    return id, msg.role.lower(), at, body


def _read_ours(given: dict[str, Any], msg: _Msg, body: dict[str, Any]) -> int:
    """Read a message we made, and return its time; an empty metadata object stands for none, null for an empty one."""
    if msg.metadata or ("metadata" in given and msg.metadata is None):
        body["metadata"] = msg.metadata or {}
    if msg.usage is not None:
        body["usage"] = msg.usage
    body |= {key: value for key, value in given.items() if key not in _KEYS and key != AT}
    return cast(int, msg.at)


def _read_theirs(given: dict[str, Any], msg: _Msg, body: dict[str, Any], before: int, where: str) -> int:
    body["metadata"] = {key: value for key, value in (msg.metadata or {}).items() if value is not None}
    body["timestamp"] = msg.timestamp
    body["usage"] = msg.usage
    body |= {key: value for key, value in given.items() if key not in _KEYS and key not in _APART}
    apart = {key: given[key] for key in _APART if key in given}
    if apart:
        body[ORIGIN] = {"name": "agentscope", "rest": apart}
    if msg.timestamp is None:
        return before
    try:
        return parse_local(msg.timestamp)
    except (ValueError, OverflowError):
        refuse(place(where, "timestamp"), f"is {msg.timestamp!r}, not a time like 2026-08-22 23:15:56.123")


# ── writing ──────────────────────────────────────────────────────────────────


def write_messages(messages: Sequence[Message | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages, also such as dicts, as `Msg` objects that Java reads, and `read_messages` reads as they were.

    Raises:
        ValueError: something in the list is no message, or was made unsound; the text names the place.
    """
    written: list[dict[str, Any]] = []
    before = 0
    for index, message in enumerate(messages):
        try:
            sound = as_message(message).sealed()[0]
        except ValueError as error:
            raise ValueError(f"context[{index}]: {error}") from error
        written.append(_write(sound, before, index))
        before = sound.at
    return written


def _write(message: Message, before: int, index: int) -> dict[str, Any]:
    as_is = _as_it_stands(message)
    return as_is if _is_sound(as_is) and _comes_back(as_is, message, before, index) else _in_words(message)


def _is_sound(written: dict[str, Any]) -> bool:
    """Tell whether a message that stands as it is is one that Java might have written."""
    blocks: list[Part] = written["content"]
    usage = written["usage"]
    # An unknown one, or one without its type, does not come back.
    return all(by_the_rules(block) == block for block in blocks) and usage_by_the_rules(usage) == usage


def _as_it_stands(message: Message) -> dict[str, Any]:
    body = message.body
    theirs = "timestamp" in body
    others = {key: value for key, value in body.items() if key not in ("parts", *_KEYS)}
    if theirs:
        origin = _object(others.pop(ORIGIN, None))
        # A rest that is not one of ours makes a message that does not come back, which is then carried whole.
        others |= {key: value for key, value in _object(origin.get("rest")).items() if key in _APART}
    metadata: dict[str, Any] | None = message.metadata
    if not theirs and not metadata:
        metadata = {} if metadata is None else None
    return {
        "id": message.id,
        "name": message.name,
        "role": ROLES.get(message.role),
        "content": message.parts,
        "metadata": metadata,
        "timestamp": body["timestamp"] if theirs else _local(message.at),
        "usage": body.get("usage"),
        **({} if theirs else {AT: message.at}),
        **others,
    }


def _comes_back(written: dict[str, Any], message: Message, before: int, index: int) -> bool:
    if CARRIED in message.body:
        return False
    try:
        read = _read(written, "", before, index, roles=True)
    except StateDecodeError:
        return False
    return read == (message.id, message.role, message.at, message.body)


def _in_words(message: Message) -> dict[str, Any]:
    role = {"developer": "SYSTEM"}.get(message.role, ROLES.get(message.role.lower(), "USER"))
    return {
        "id": message.id,
        "name": message.name,
        "role": role,
        "content": [_fitting(part, role) for part in message.parts],
        "metadata": message.metadata or {},
        "timestamp": _local(message.at),
        "usage": usage_by_the_rules(message.extra.get("usage")) or None,
        CARRIED: message.to_dict(),
    }


def _fitting(part: Part, role: str) -> Part:
    return by_the_rules(filled(part)) if fits(part, role) else in_words(part, results=role in ("ASSISTANT", "TOOL"))


def _local(at: int) -> str:
    local = from_micros(at).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}"


def _object(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
