"""The search index: an FTS5 table that holds our own tokens and nothing else.

It is derived data and may lag: a message stands either in the index or in the `unindexed` table, and a search looks at
both. The index only proposes candidates; whether a message matches is decided on its stored text.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

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
from leafward.stores.sql.statements import GET_OWNER
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
QUEUE_ALL = """
    INSERT INTO {p}unindexed (place, seq) SELECT place, seq FROM {p}message WHERE true ON CONFLICT (place) DO NOTHING"""

IS_QUEUED = "SELECT 1 FROM {p}unindexed WHERE place = ?"
IS_QUEUED_AS = "SELECT 1 FROM {p}unindexed WHERE place = ? AND seq = ?"
UNQUEUE = "DELETE FROM {p}unindexed WHERE place = ?"
NEXT_QUEUED = """
    SELECT u.place, u.seq, t.tree_no, t.owner_no, CAST(m.body AS BLOB)
    FROM {p}unindexed u JOIN {p}message m ON m.place = u.place JOIN {p}tree t ON t.tree_no = m.tree_no
    WHERE t.discarded = 0 LIMIT ?"""
ANY_QUEUED = "SELECT 1 FROM {p}unindexed LIMIT 1"
ADD_TOKENS = "INSERT INTO {p}search (rowid, tokens) VALUES (?, ?)"
REMOVE_TOKENS = "INSERT INTO {p}search ({p}search, rowid, tokens) VALUES ('delete', ?, ?)"

NEXT_DISCARDED = """
    SELECT t.tree_no, t.owner_no, m.place, CAST(m.body AS BLOB)
    FROM {p}tree t LEFT JOIN {p}message m ON m.tree_no = t.tree_no
    WHERE t.discarded = 1 LIMIT ?"""
ANY_DISCARDED = "SELECT 1 FROM {p}tree WHERE discarded = 1 LIMIT 1"
PURGE_TREE = (
    "DELETE FROM {p}label WHERE tree_no = ?",
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
    """SELECT m.place, m.created_at, m.id FROM {p}unindexed u JOIN {p}message m ON m.place = u.place
    WHERE m.tree_no = ?"""
    + _FILTER
)
QUEUED_OF_OWNER = (
    """SELECT m.place, m.created_at, m.id FROM {p}unindexed u JOIN {p}message m ON m.place = u.place
    JOIN {p}session s ON s.tree_no = m.tree_no WHERE s.owner_no = ?"""
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
    """Takes words out of the index when their message is changed or deleted."""

    def forget(self, session: SessionRow, place: int, body: bytes) -> Operation[None]:
        yield from forget(place, session.tree_no, session.owner_no, body)


def forget(place: int, tree_no: int, owner_no: int, body: bytes) -> Operation[None]:
    if (yield IS_QUEUED, (place,)):
        yield UNQUEUE, (place,)
    elif (yield from is_current()):
        try:
            yield REMOVE_TOKENS, (place, tokens_for(tree_no, owner_no, body))
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
    yield QUEUE_ALL, ()
    yield SET_META, (ANALYZER, analyzer_version())


def index_slice(prepared: list[tuple[int, int, str]]) -> Operation[None]:
    """Index messages `(place, seq, tokens)` that are still as they were when their tokens were made."""
    for place, seq, tokens in prepared:
        if (yield IS_QUEUED_AS, (place, seq)):
            yield ADD_TOKENS, (place, tokens)
            yield UNQUEUE, (place,)


def purge_slice() -> Operation[None]:
    """Remove some messages of trees that were cleared, then the trees."""
    for tree_no, owner_no, place, body in (yield NEXT_DISCARDED, (SLICE,)):
        if place is None:
            for statement in PURGE_TREE:
                yield statement, (tree_no,)
        else:
            yield from forget(place, tree_no, owner_no, body)
            yield "DELETE FROM {p}message WHERE place = ?", (place,)


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
