"""How lines are made of messages, summaries and other facts, and how they become a batch."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from leafward.core.ids import new_id
from leafward.core.json import encode
from leafward.core.message import Message
from leafward.stores.journal.entry import NOTHING, Derived, Entry, Payload, Summarised, Told, timestamp
from leafward.stores.journal.transcript import entries_of

Line = tuple[Entry, Payload]


def batch(at: int, lines: Sequence[Line]) -> list[Entry]:
    """Return lines as one batch, which happened at `at` and counts only when its last line is there."""
    lines[0][1].at = at
    found: list[Entry] = []
    for number, (entry, payload) in enumerate(lines, start=1):
        payload.more = len(lines) - number
        encoded = encode(payload)
        entry.leafward = NOTHING if encoded == b"{}" else Raw(encoded)
        found.append(entry)
    return found


def fact(payload: Payload, at: int) -> Line:
    """Return a line of a type that AgentScope does not have."""
    return Entry(type=payload.kind, id=new_id(), timestamp=timestamp(at)), payload


def message_lines(message: Message, body: bytes, told: Told, parent_id: str | None) -> list[Line]:
    """Return the lines of a message; the first holds all of it, the others repeat its calls and results."""
    first, *rest = entries_of(message, parent_id)
    told.message = None if first.id == message.id else message.id
    told.role = None if first.role is not None and first.role.lower() == message.role else message.role
    told.body = NOTHING if body == plain_body(first) else Raw(body)
    return [(first, told), *((entry, Derived()) for entry in rest)]


def plain_body(entry: Entry) -> bytes:
    """Return the body of a message that is nothing but the text of its line."""
    return encode({"parts": [{"type": "text", "text": entry.content or ""}]})


def summary_lines(
    id: str, summary: str, at: int, payload: Summarised, parent_id: str, first_kept_id: str | None
) -> list[Line]:
    """Return the lines of a summary; where nothing comes after it, what is kept begins behind its own last line."""
    own_id = f"{id}:compaction"
    told = Entry(
        type="summary", id=id, parent_id=parent_id, timestamp=timestamp(at), summary=summary, format="structured"
    )
    mark = Entry(
        type="compaction",
        id=own_id,
        parent_id=parent_id,
        timestamp=timestamp(at),
        first_kept_entry_id=first_kept_id or own_id,
        summary_entry_id=id,
    )
    return [(told, payload), (mark, Derived())]
