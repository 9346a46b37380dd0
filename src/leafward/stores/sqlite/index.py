"""The search index: an FTS5 table that holds our own tokens and nothing else.

It is derived data and may lag: a message stands either in the index or in a range of the `unindexed` table, and a
search looks at both. The index only proposes candidates; whether a message matches is decided on its stored text.
"""

from __future__ import annotations

import sqlite3
import time
from itertools import accumulate
from typing import NamedTuple

from leafward.core import lanes
from leafward.core.json import DecodeError, decode_body
from leafward.core.parts import search_text
from leafward.core.text import analyzer_version, index_tokens
from leafward.stores.sql.operations import Operation, SessionRow
from leafward.stores.sql.schema import GET_META, SET_META

ANALYZER = "analyzer"
"""The name in the meta table of the analyzer that made the index; absent while it has to be made anew."""

DAMAGED = "damaged"

SLICE = 24
"""Messages indexed in one transaction, which then takes a few milliseconds."""
LARGEST_SLICE = 400
LARGEST = 16_000
"""Tokens of text, about, in one transaction, unless a single message has more."""

CREATE_INDEX = """
    CREATE VIRTUAL TABLE {p}search USING fts5 (
        tokens, content='', detail=none, columnsize=0, tokenize="ascii tokenchars '_'"
    )"""
DROP_INDEX = "DROP TABLE IF EXISTS {p}search"

# The queue: ranges of places, each inside one lane, whose messages are not in the index. A lane that is being written
# to has a range up to its last possible place, so that only the first of many appends has to queue anything.
RANGE_BEFORE = "SELECT high FROM {p}unindexed WHERE low <= ? ORDER BY low DESC LIMIT 1"
QUEUE_RANGE = "INSERT INTO {p}unindexed (low, high) VALUES (?, ?)"
DROP_RANGE = "DELETE FROM {p}unindexed WHERE low = ?"
GET_RANGE = "SELECT high FROM {p}unindexed WHERE low = ?"
EMPTY_QUEUE = "DELETE FROM {p}unindexed"
QUEUE_ALL = """
    INSERT INTO {p}unindexed (low, high) SELECT (lane_no << 32) + 1, (lane_no + 1 << 32) - 1 FROM {p}lane"""
NEXT_RANGES = """
    SELECT u.low, u.high, t.tree_no, t.owner_no
    FROM {p}unindexed u JOIN {p}lane l ON l.lane_no = u.low >> 32 JOIN {p}tree t ON t.tree_no = l.tree_no
    WHERE t.discarded = 0 LIMIT ?"""
LIST_RANGE = "SELECT place, tokens FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"
READ_BODY = "SELECT CAST(body AS BLOB) FROM {p}message WHERE place = ?"
ADD_TOKENS = "INSERT INTO {p}search (rowid, tokens) VALUES (?, ?)"
REMOVE_TOKENS = "INSERT INTO {p}search ({p}search, rowid, tokens) VALUES ('delete', ?, ?)"

MERGE = "INSERT INTO {p}search ({p}search, rank) VALUES ('merge', 16)"

# A negative number has all segments joined into one, however few they are; positive ones then go on with that.
BEGIN_JOINING = "INSERT INTO {p}search ({p}search, rank) VALUES ('merge', -64)"
GO_ON_JOINING = "INSERT INTO {p}search ({p}search, rank) VALUES ('merge', 64)"


def tree_token(tree_no: int) -> str:
    # No word has an underscore, so these meet no word; with them a match never costs other sessions' matches.
    return f"_t{tree_no}"


def owner_token(owner_no: int) -> str:
    return f"_o{owner_no}"


def tokens_for(tree_no: int, owner_no: int, body: bytes) -> str:
    """Return what the index holds for a message, the same whenever it is asked."""
    try:
        words = sorted(index_tokens(search_text(decode_body(body))))
    except (DecodeError, KeyError):
        # Whoever reads the message is told; it must not keep others from being indexed.
        words = []
    return " ".join((tree_token(tree_no), owner_token(owner_no), *words))


def found_analyzer() -> Operation[str | None]:
    """Return the version of the analyzer that made the index."""
    rows = yield GET_META, (ANALYZER,)
    return rows[0][0] if rows else None


def is_current() -> Operation[bool]:
    """Tell whether the index was made by this version of the analyzer."""
    return (yield from found_analyzer()) == analyzer_version()


class FtsIndexing:
    """Queues messages for the index, and takes words out of it when their message is changed or deleted."""

    def added(self, place: int) -> Operation[None]:
        if not (yield from _is_queued(place)):
            yield QUEUE_RANGE, (place, lanes.last_of(lanes.lane_of(place)))

    def changed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        if not (yield from _is_queued(place)):
            yield from _remove(place, tokens_for(session.tree_no, session.owner_no, old_body))
            yield QUEUE_RANGE, (place, place)

    def removed(self, session: SessionRow, gone: dict[int, bytes]) -> Operation[None]:
        for place, old_body in gone.items():
            if not (yield from _is_queued(place)):
                yield from _remove(place, tokens_for(session.tree_no, session.owner_no, old_body))


def _is_queued(place: int) -> Operation[bool]:
    rows = yield RANGE_BEFORE, (place,)
    return bool(rows) and rows[0][0] >= place


def forget(place: int, tokens: str) -> Operation[None]:
    """Take a message out of the index if it is there."""
    if not (yield from _is_queued(place)):
        yield from _remove(place, tokens)


def _remove(place: int, tokens: str) -> Operation[None]:
    if (yield from is_current()):
        try:
            yield REMOVE_TOKENS, (place, tokens)
        except sqlite3.DatabaseError as error:
            raise_unless_damage(error)
            # A damaged index must not keep a message from being changed: it is made anew from the messages.
            yield SET_META, (ANALYZER, DAMAGED)


def raise_unless_damage(error: sqlite3.DatabaseError) -> None:
    """Let go on after a damaged or missing index; anything else is a failure of the search or the write itself."""
    damaged = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_CORRUPT or "no such table" in str(error)
    if not damaged:
        raise error


def rebuild() -> Operation[None]:
    """Empty the index and queue every message for it."""
    yield DROP_INDEX, ()
    yield CREATE_INDEX, ()
    yield EMPTY_QUEUE, ()
    yield QUEUE_ALL, ()
    yield SET_META, (ANALYZER, analyzer_version())


class Prepared(NamedTuple):
    """The first messages of a queued range, with their tokens made."""

    low: int
    high: int
    tree_no: int
    owner_no: int
    messages: list[tuple[int, bytes, str]]


def that_fit(messages: list[tuple[int, int]], room: int) -> list[int]:
    """Return the first places of `(place, tokens)` that together need no more than `room`, at least one."""
    running = accumulate(tokens for _, tokens in messages)
    return [
        place for n, ((place, _), total) in enumerate(zip(messages, running, strict=True)) if not n or total <= room
    ]


def prepare_slice(count: int) -> Operation[list[Prepared]]:
    """Read up to `count` messages that are next in the queue and make their tokens, outside any transaction."""
    found: list[Prepared] = []
    room = LARGEST * count // SLICE
    for low, high, tree_no, owner_no in (yield NEXT_RANGES, (count,)):
        listed = yield LIST_RANGE, (low, high, count)
        messages: list[tuple[int, bytes, str]] = []
        for place in that_fit(listed, room):
            for (body,) in (yield READ_BODY, (place,)):
                messages.append((place, body, tokens_for(tree_no, owner_no, body)))
                # Cutting words holds the interpreter: let a write that waits for it go first.
                time.sleep(0)
        found.append(Prepared(low, high, tree_no, owner_no, messages))
        count -= len(messages)
        room -= sum(tokens for _, tokens in listed[: len(messages)])
        if count <= 0 or room <= 0:
            break
    return found


def apply_slice(prepared: list[Prepared]) -> Operation[None]:
    """Put messages into the index, as they are now, and take them off the queue."""
    if not (yield from is_current()):
        return
    for low, high, tree_no, owner_no, messages in prepared:
        if (yield GET_RANGE, (low,)) != [(high,)]:
            continue  # Another process was here first.
        for place, body, tokens in messages:
            for (current,) in (yield READ_BODY, (place,)):
                yield ADD_TOKENS, (place, tokens if current == body else tokens_for(tree_no, owner_no, current))
        yield DROP_RANGE, (low,)
        rest = messages[-1][0] + 1 if messages else low
        if (yield LIST_RANGE, (rest, high, 1)):
            yield QUEUE_RANGE, (rest, high)


def merge() -> Operation[None]:
    """Join segments of the index, a few pages at a time."""
    if (yield from is_current()):
        yield MERGE, ()


def begin_joining() -> Operation[bool]:
    """Begin to join all segments, for what was removed stays in the old ones; False when the index is made anew."""
    if not (yield from is_current()):
        # What another version of the analyzer put in cannot be taken out word by word.
        yield from rebuild()
        return False
    yield from _join(BEGIN_JOINING)
    return True


def go_on_joining() -> Operation[None]:
    """Join a few more pages of the segments."""
    if (yield from is_current()):
        yield from _join(GO_ON_JOINING)
    else:
        yield from rebuild()


def _join(statement: str) -> Operation[None]:
    try:
        yield statement, ()
    except sqlite3.DatabaseError as error:
        raise_unless_damage(error)
        yield from rebuild()
