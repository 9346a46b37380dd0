"""The messages of an agent's state as AgentScope's `Msg`: strict as its reader, and nothing of ours is lost.

A message is written as it stands. Unlike the payloads of `leafward.formats`, which are for a model, a state keeps
calls that are still open. A message of our own bears its exact time beside the local one; one that Java could not
read is written in words, and carried whole beside them. Java reads past both keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, cast

from leafward.core.agent_blocks import by_the_rules, check_role, in_words, read_block, usage_by_the_rules
from leafward.core.errors import StateDecodeError
from leafward.core.fields import Fields, refuse
from leafward.core.json import encode
from leafward.core.message import Message, as_message
from leafward.core.parts import Part
from leafward.core.times import from_micros, parse_local

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


def _read_message(item: object, where: str, before: int, index: int, roles: bool) -> Message:
    fields = Fields(item, where)
    try:
        if CARRIED in fields.values:
            return Message.from_dict(fields.object(CARRIED).values)
        id, role, at, body = _read(fields, before, index, roles)
        return Message.from_dict({"id": id, "role": role, "createdAt": from_micros(at), **body})
    except (ValueError, OverflowError) as error:
        refuse(where, f"is not a message: {error}")


def _read(fields: Fields, before: int, index: int, roles: bool) -> _Read:
    role = fields.required_text("role")
    if role not in ROLES.values():
        fields.refuse("role", f"is {role!r}, not one of {', '.join(ROLES.values())}")
    ours = AT in fields.values
    content = [(item, where) for item, where in fields.items("content") if item is not None]
    parts = [_read_part(item, where, role if roles else "", ours) for item, where in content]
    body: dict[str, Any] = {"parts": parts}
    name = fields.text("name")
    if name is not None:
        body["name"] = name
    id = fields.text("id")
    if id is None:
        id = hashlib.sha256(encode([index, fields.values])).hexdigest()[:32]
    usage = None if fields.values.get("usage") is None else fields.object("usage").values
    at = _read_ours(fields, body, usage) if ours else _read_theirs(fields, body, usage, before)
    return id, role.lower(), at, body


def _read_part(item: object, where: str, role: str, ours: bool) -> Part:
    block = read_block(item, where)
    check_role(block["type"], role, where)
    return Fields(item, where).values if ours else block


def _read_ours(fields: Fields, body: dict[str, Any], usage: object) -> int:
    """Read a message we made, and return its time; an empty metadata object stands for none, null for an empty one."""
    metadata = fields.object("metadata").values
    if metadata or fields.values.get("metadata", metadata) is None:
        body["metadata"] = metadata
    if usage is not None:
        body["usage"] = usage
    body |= fields.others(*_KEYS, AT)
    at = fields.values[AT]
    if not isinstance(at, int) or isinstance(at, bool):
        fields.refuse(AT, "is not a number of microseconds")
    return at


def _read_theirs(fields: Fields, body: dict[str, Any], usage: object, before: int) -> int:
    metadata = fields.object("metadata").values
    body["metadata"] = {key: value for key, value in metadata.items() if value is not None}
    body["timestamp"] = timestamp = fields.text("timestamp")
    body["usage"] = usage
    body |= fields.others(*_KEYS, *_APART)
    apart = {key: fields.values[key] for key in _APART if key in fields.values}
    if apart:
        body[ORIGIN] = {"name": "agentscope", "rest": apart}
    if timestamp is None:
        return before
    try:
        return parse_local(timestamp)
    except (ValueError, OverflowError):
        fields.refuse("timestamp", f"is {timestamp!r}, not a time like 2026-08-22 23:15:56.123")


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
        read = _read(Fields(written, ""), before, index, roles=True)
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
    try:
        block = read_block(part, "")
        check_role(block["type"], role, "")
    except StateDecodeError:
        return in_words(part, results=role in ("ASSISTANT", "TOOL"))
    return by_the_rules(block)


def _local(at: int) -> str:
    local = from_micros(at).astimezone()
    return local.strftime("%Y-%m-%d %H:%M:%S.") + f"{local.microsecond // 1000:03d}"


def _object(value: object) -> dict[str, Any]:
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}
