"""The search index: an FTS5 table that holds our own tokens and nothing else.

It is derived data and may lag: a message stands either in the index or in the `unindexed` table, and a search looks at
both. The index only proposes candidates; whether a message matches is decided on its stored text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

from leafward.core import lanes
from leafward.core.ids import Owner, Scope
from leafward.core.json import decode
from leafward.core.parts import search_text
from leafward.core.query import Query
from leafward.core.ranking import Candidate, SearchResult, rank
from leafward.core.text import analyzer_version, index_tokens
from leafward.core.times import from_micros
from leafward.stores.contracts import SearchFilter
from leafward.stores.sql.operations import Operation, SessionRow, find_session, owner_ids
from leafward.stores.sql.schema import GET_META, SET_META
from leafward.stores.sql.statements import DROP_MESSAGE, GET_OWNER
from leafward.stores.sqlite.connection import Database

ANALYZER = "analyzer"
"""The name in the meta table of the analyzer that made the index; absent while it has to be made anew."""

SLICE = 24
"""Messages indexed or purged in one transaction: a few milliseconds."""

_MOST_TERMS = 16
"""So many terms narrow the candidates well enough; the rest is checked on the text."""

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
ANY_QUEUED = "SELECT 1 FROM {p}unindexed LIMIT 1"
NEXT_RANGES = """
    SELECT u.low, u.high, t.tree_no, t.owner_no
    FROM {p}unindexed u JOIN {p}lane l ON l.lane_no = u.low >> 32 JOIN {p}tree t ON t.tree_no = l.tree_no
    WHERE t.discarded = 0 LIMIT ?"""
READ_BODIES = "SELECT place, CAST(body AS BLOB) FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place LIMIT ?"
READ_BODY = "SELECT CAST(body AS BLOB) FROM {p}message WHERE place = ?"
ADD_TOKENS = "INSERT INTO {p}search (rowid, tokens) VALUES (?, ?)"
REMOVE_TOKENS = "INSERT INTO {p}search ({p}search, rowid, tokens) VALUES ('delete', ?, ?)"

NEXT_DISCARDED = """
    SELECT t.tree_no, t.owner_no, m.place, CAST(m.body AS BLOB)
    FROM {p}tree t LEFT JOIN {p}message m ON m.tree_no = t.tree_no
    WHERE t.discarded = 1 LIMIT ?"""
ANY_DISCARDED = "SELECT 1 FROM {p}tree WHERE discarded = 1 LIMIT 1"
PURGE_TREE = (
    "DELETE FROM {p}label WHERE tree_no = ?",
    "DELETE FROM {p}unindexed WHERE low >> 32 IN (SELECT lane_no FROM {p}lane WHERE tree_no = ?)",
    "DELETE FROM {p}lane WHERE tree_no = ?",
    "DELETE FROM {p}tree WHERE tree_no = ?",
)

_FILTER = """ AND (? IS NULL OR m.role = ?) AND (? IS NULL OR m.created_at >= ?) AND (? IS NULL OR m.created_at < ?)"""
INDEXED_MATCHES = (
    """SELECT m.place, m.created_at, m.id FROM {p}search JOIN {p}message m ON m.place = {p}search.rowid
    WHERE {p}search MATCH ?"""
    + _FILTER
)
QUEUED_IN_TREE = (
    """SELECT m.place, m.created_at, m.id
    FROM {p}lane l CROSS JOIN {p}unindexed u ON u.low BETWEEN l.lane_no << 32 AND (l.lane_no + 1 << 32) - 1
    CROSS JOIN {p}message m ON m.place BETWEEN u.low AND u.high WHERE l.tree_no = ?"""
    + _FILTER
)
QUEUED_OF_OWNER = (
    """SELECT m.place, m.created_at, m.id
    FROM {p}unindexed u CROSS JOIN {p}lane l ON l.lane_no = u.low >> 32 JOIN {p}session s ON s.tree_no = l.tree_no
    CROSS JOIN {p}message m ON m.place BETWEEN u.low AND u.high WHERE s.owner_no = ?"""
    + _FILTER
)
ALL_IN_TREE = "SELECT m.place, m.created_at, m.id FROM {p}message m WHERE m.tree_no = ?" + _FILTER
ALL_OF_OWNER = (
    """SELECT m.place, m.created_at, m.id FROM {p}session s JOIN {p}message m ON m.tree_no = s.tree_no
    WHERE s.owner_no = ?"""
    + _FILTER
)
READ_CANDIDATE = """
    SELECT s.session_id, m.id, m.role, m.created_at, CAST(m.body AS BLOB)
    FROM {p}message m JOIN {p}session s ON s.tree_no = m.tree_no WHERE m.place = ?"""


def tree_token(tree_no: int) -> str:
    # No word has an underscore, so these meet no word; with them a match never costs other sessions' matches.
    return f"_t{tree_no}"


def owner_token(owner_no: int) -> str:
    return f"_o{owner_no}"


def tokens_for(tree_no: int, owner_no: int, body: bytes) -> str:
    """Return what the index holds for a message, the same whenever it is asked."""
    words = sorted(index_tokens(search_text(decode(body)["parts"])))
    return " ".join((tree_token(tree_no), owner_token(owner_no), *words))


def is_current() -> Operation[bool]:
    """Tell whether the index was made by this version of the analyzer."""
    rows = yield GET_META, (ANALYZER,)
    return bool(rows) and rows[0][0] == analyzer_version()


class FtsIndexing:
    """Queues messages for the index, and takes words out of it when their message is changed or deleted."""

    def added(self, place: int) -> Operation[None]:
        if not (yield from _is_queued(place)):
            yield QUEUE_RANGE, (place, lanes.last_of(lanes.lane_of(place)))

    def changed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        if not (yield from _is_queued(place)):
            yield from _forget(place, tokens_for(session.tree_no, session.owner_no, old_body))
            yield QUEUE_RANGE, (place, place)

    def removed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        if not (yield from _is_queued(place)):
            yield from _forget(place, tokens_for(session.tree_no, session.owner_no, old_body))


def _is_queued(place: int) -> Operation[bool]:
    rows = yield RANGE_BEFORE, (place,)
    return bool(rows) and rows[0][0] >= place


def _forget(place: int, tokens: str) -> Operation[None]:
    if (yield from is_current()):
        try:
            yield REMOVE_TOKENS, (place, tokens)
        except sqlite3.DatabaseError as error:
            _raise_unless_damage(error)
            # A damaged index must not keep a message from being changed: it is made anew from the messages.
            yield from mark_damaged()


def _raise_unless_damage(error: sqlite3.DatabaseError) -> None:
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


def prepare_slice() -> Operation[list[Prepared]]:
    """Read what is next in the queue and make its tokens, outside any transaction."""
    found: list[Prepared] = []
    room = SLICE
    for low, high, tree_no, owner_no in (yield NEXT_RANGES, (SLICE,)):
        rows = yield READ_BODIES, (low, high, room)
        messages = [(place, body, tokens_for(tree_no, owner_no, body)) for place, body in rows]
        found.append(Prepared(low, high, tree_no, owner_no, messages))
        room -= len(rows)
        if not room:
            break
    return found


def index_slice(prepared: list[Prepared]) -> Operation[None]:
    """Put messages into the index, as they are now, and take them off the queue."""
    for low, high, tree_no, owner_no, messages in prepared:
        if (yield GET_RANGE, (low,)) != [(high,)]:
            continue  # Another process was here first.
        for place, body, tokens in messages:
            for (current,) in (yield READ_BODY, (place,)):
                yield ADD_TOKENS, (place, tokens if current == body else tokens_for(tree_no, owner_no, current))
        yield DROP_RANGE, (low,)
        rest = messages[-1][0] + 1 if messages else low
        if (yield READ_BODIES, (rest, high, 1)):
            yield QUEUE_RANGE, (rest, high)


def purge_slice() -> Operation[None]:
    """Remove some messages of trees that were cleared, then the trees."""
    for tree_no, owner_no, place, body in (yield NEXT_DISCARDED, (SLICE,)):
        if place is None:
            for statement in PURGE_TREE:
                yield statement, (tree_no,)
        else:
            if not (yield from _is_queued(place)):
                yield from _forget(place, tokens_for(tree_no, owner_no, body))
            yield DROP_MESSAGE, (place,)


def search(
    database: Database,
    connection: sqlite3.Connection,
    where: Scope | Owner,
    query: Query,
    only: SearchFilter,
    limit: int,
) -> tuple[list[SearchResult], bool]:
    """Return the best matches of a session or an owner, in one snapshot, and whether the index was sound."""
    places, sound = database.run(connection, _candidate_places(where, query, only))
    return rank(query, _read(database, connection, places), limit=limit), sound


def mark_damaged() -> Operation[None]:
    """Have the index made anew; until then searches read the messages themselves."""
    yield SET_META, (ANALYZER, "damaged")


def _candidate_places(where: Scope | Owner, query: Query, only: SearchFilter) -> Operation[tuple[list[int], bool]]:
    if isinstance(where, Scope):
        session = yield from find_session(where)
        number = session and session.tree_no
        token, queued, everything = tree_token, QUEUED_IN_TREE, ALL_IN_TREE
    else:
        rows = yield GET_OWNER, owner_ids(where)
        number = rows[0][0] if rows else None
        token, queued, everything = owner_token, QUEUED_OF_OWNER, ALL_OF_OWNER
    if number is None or not query.terms:
        return [], True
    kept = (only.role, only.role, only.since, only.since, only.until, only.until)
    found: list[Any]
    sound = True
    try:
        if not (yield from is_current()):
            found = yield everything, (number, *kept)
        else:
            found = yield INDEXED_MATCHES, (_match(token(number), query), *kept)
            found += yield queued, (number, *kept)
    except sqlite3.DatabaseError as error:
        _raise_unless_damage(error)
        # Without its index a search is slow, not wrong.
        sound = False
        found = yield everything, (number, *kept)
    found.sort(key=_newest_first)
    return [place for place, _, _ in found], sound


def _newest_first(row: tuple[int, int, str]) -> tuple[int, str]:
    return -row[1], row[2]


def _match(scope_token: str, query: Query) -> str:
    """Return the FTS5 expression for what a matching message must hold; tokens are quoted and hold no quotes."""
    terms = sorted(query.needs, key=lambda term: -max(len(token) for need in term for token in need))
    wanted = [
        " OR ".join("(" + " AND ".join(f'"{token}"' for token in sorted(need)) + ")" for need in term)
        for term in terms[:_MOST_TERMS]
    ]
    return " AND ".join([f'"{scope_token}"', *(f"({term})" for term in wanted)])


def _read(database: Database, connection: sqlite3.Connection, places: list[int]) -> Iterator[Candidate]:
    statement = database.render(READ_CANDIDATE)
    for place in places:
        # A message of a tree that was cleared has no session any more.
        for session_id, message_id, role, at, body in connection.execute(statement, (place,)):
            yield Candidate(session_id, message_id, role, from_micros(at), search_text(decode(body)["parts"]))
