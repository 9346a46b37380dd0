"""Each call of a reply has an id of its own, by which its result names it."""

from __future__ import annotations

from leafward.core.message import Message, body_to_read, message_sharing
from leafward.core.parts import CALLS, Part


def take_call_id(sent: str, taken: set[str]) -> str:
    """Return the id of the next call of a reply, and put it among those that are taken: a second `c` is `c#2`."""
    id, number = sent, 1
    while id in taken:
        number += 1
        id = f"{sent}#{number}"
    taken.add(id)
    return id


def with_own_ids(reply: Message) -> Message:
    """Return a reply each of whose calls has an id of its own."""
    body = body_to_read(reply)
    parts: list[Part] = body["parts"]
    taken: set[str] = set()
    found = [_with_own_id(part, taken) for part in parts]
    if found == parts:
        return reply
    return message_sharing(reply.id, reply.role, reply.at, {**body, "parts": found}).sealed()[0]


def _with_own_id(part: Part, taken: set[str]) -> Part:
    sent = part.get("id") if part["type"] in CALLS else None
    return {**part, "id": take_call_id(sent, taken)} if isinstance(sent, str) and sent else part
