"""Searching: candidates from the index and from its queue, decided and ranked on their text."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from heapq import merge
from typing import Any, NamedTuple

from leafward.core.ids import Owner, Scope
from leafward.core.json import decode_body, encode_text
from leafward.core.parts import search_text
from leafward.core.query import Query
from leafward.core.ranking import RANKED, Candidate, SearchResult, rank
from leafward.core.times import from_micros
from leafward.stores.contracts import SearchFilter
from leafward.stores.sql.operations import Operation, find_session, owner_ids
from leafward.stores.sql.statements import GET_OWNER
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.index import is_current, owner_token, raise_unless_damage, tree_token

_FEW = 2000
"""Matches so few that looking whose they are is quicker than having the index do it."""
_MOST_TERMS = 16
"""So many terms narrow the candidates well enough; the rest is checked on the text."""

_FILTER = """ AND (? IS NULL OR m.role = ?) AND (? IS NULL OR m.created_at >= ?) AND (? IS NULL OR m.created_at < ?)"""
_NEWEST_FIRST = " ORDER BY m.created_at DESC, m.id LIMIT ? OFFSET ?"
_FOUND = "SELECT m.created_at, m.id, m.place "

FEW_MATCHES = "SELECT rowid FROM {p}search WHERE {p}search MATCH ? LIMIT ?"
THOSE_IN_TREE = (
    _FOUND
    + """FROM json_each(?) j CROSS JOIN {p}message m ON m.place = j.value WHERE m.tree_no = ?"""
    + _FILTER
    + _NEWEST_FIRST
)
THOSE_OF_OWNER = (
    _FOUND
    + """FROM json_each(?) j CROSS JOIN {p}message m ON m.place = j.value JOIN {p}session s ON s.tree_no = m.tree_no
    WHERE s.owner_no = ?"""
    + _FILTER
    + _NEWEST_FIRST
)
# The scope is a token of the query, so that others' matches cost nothing.
SCOPED_MATCHES = (
    _FOUND
    + """FROM {p}search JOIN {p}message m ON m.place = {p}search.rowid WHERE {p}search MATCH ?"""
    + _FILTER
    + _NEWEST_FIRST
)
QUEUED_IN_TREE = (
    _FOUND
    + """FROM {p}lane l CROSS JOIN {p}unindexed u ON u.low BETWEEN l.lane_no << 32 AND (l.lane_no + 1 << 32) - 1
    CROSS JOIN {p}message m ON m.place BETWEEN u.low AND u.high WHERE l.tree_no = ?"""
    + _FILTER
    + _NEWEST_FIRST
)
QUEUED_OF_OWNER = (
    _FOUND
    + """FROM {p}unindexed u CROSS JOIN {p}lane l ON l.lane_no = u.low >> 32 JOIN {p}session s ON s.tree_no = l.tree_no
    CROSS JOIN {p}message m ON m.place BETWEEN u.low AND u.high WHERE s.owner_no = ?"""
    + _FILTER
    + _NEWEST_FIRST
)
ALL_IN_TREE = _FOUND + "FROM {p}message m WHERE m.tree_no = ?" + _FILTER + _NEWEST_FIRST
ALL_OF_OWNER = (
    _FOUND
    + "FROM {p}session s JOIN {p}message m ON m.tree_no = s.tree_no WHERE s.owner_no = ?"
    + _FILTER
    + _NEWEST_FIRST
)
# A message of a tree that was cleared has no session any more.
READ_IN_TREE = """
    SELECT s.session_id, m.role, CAST(m.body AS BLOB)
    FROM {p}message m JOIN {p}session s ON s.tree_no = m.tree_no WHERE m.place = ? AND m.tree_no = ?"""
READ_OF_OWNER = """
    SELECT s.session_id, m.role, CAST(m.body AS BLOB)
    FROM {p}message m JOIN {p}session s ON s.tree_no = m.tree_no WHERE m.place = ? AND s.owner_no = ?"""


class _Place(NamedTuple):
    """Where a search looks: the number that scopes it, and the statements for that kind of scope."""

    number: int
    token: str
    those: str
    queued: str
    everything: str
    read: str


def search(
    database: Database,
    connection: sqlite3.Connection,
    where: Scope | Owner,
    query: Query,
    only: SearchFilter,
    limit: int,
) -> tuple[list[SearchResult], bool]:
    """Return the best matches of a session or an owner, in one snapshot, and whether the index was sound."""
    place = database.run(connection, _find_place(where))
    if place is None or not query.terms:
        return [], True
    hunt = _Hunt(database, connection, place, only)
    try:
        if database.run(connection, is_current()):
            return rank(query, hunt.through_index(query, limit), limit=limit), True
    except sqlite3.DatabaseError as error:
        raise_unless_damage(error)
        return rank(query, hunt.through_everything(), limit=limit), False
    return rank(query, hunt.through_everything(), limit=limit), True


def _find_place(where: Scope | Owner) -> Operation[_Place | None]:
    if isinstance(where, Scope):
        session = yield from find_session(where)
        if session is None:
            return None
        token = tree_token(session.tree_no)
        return _Place(session.tree_no, token, THOSE_IN_TREE, QUEUED_IN_TREE, ALL_IN_TREE, READ_IN_TREE)
    for (number,) in (yield GET_OWNER, owner_ids(where)):
        return _Place(number, owner_token(number), THOSE_OF_OWNER, QUEUED_OF_OWNER, ALL_OF_OWNER, READ_OF_OWNER)
    return None


class _Hunt:
    """Gives candidates newest first, reading no more of them than are asked for."""

    def __init__(self, database: Database, connection: sqlite3.Connection, place: _Place, only: SearchFilter) -> None:
        self._database = database
        self._connection = connection
        self._place = place
        self._kept = (only.role, only.role, only.since, only.since, only.until, only.until)

    def through_index(self, query: Query, limit: int) -> Iterator[Candidate]:
        found = self._matches(_expression(query), max(RANKED, limit))
        queued = self._execute(self._place.queued, self._place.number, *self._kept, -1, 0)
        return self._read(merge(found, queued, key=_newest_first))

    def through_everything(self) -> Iterator[Candidate]:
        return self._read(self._execute(self._place.everything, self._place.number, *self._kept, -1, 0))

    def _matches(self, expression: str, page: int) -> Iterator[tuple[int, str, int]]:
        few = self._execute(FEW_MATCHES, expression, _FEW + 1).fetchall()
        if len(few) <= _FEW:
            places = encode_text([place for (place,) in few])
            yield from self._execute(self._place.those, places, self._place.number, *self._kept, -1, 0)
        else:
            # What is beyond the page is needed only when some of it does not match after all.
            scoped = f'"{self._place.token}" AND {expression}'
            rows = self._execute(SCOPED_MATCHES, scoped, *self._kept, page, 0).fetchall()
            yield from rows
            if len(rows) == page:
                yield from self._execute(SCOPED_MATCHES, scoped, *self._kept, -1, page)

    def _read(self, found: Iterator[tuple[int, str, int]]) -> Iterator[Candidate]:
        execute, statement, number = (
            self._connection.execute,
            self._database.render(self._place.read),
            self._place.number,
        )
        for at, message_id, place in found:
            for session_id, role, body in execute(statement, (place, number)):
                yield Candidate(session_id, message_id, role, from_micros(at), search_text(decode_body(body)))

    def _execute(self, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return self._connection.execute(self._database.render(statement), parameters)


def _newest_first(row: tuple[int, str, int]) -> tuple[int, str]:
    return -row[0], row[1]


def _expression(query: Query) -> str:
    """Return in FTS5's language what a matching message must hold; tokens are quoted and hold no quotes."""
    terms = sorted(query.needs, key=lambda term: -max(len(token) for need in term for token in need))
    wanted = (
        " OR ".join("(" + " AND ".join(f'"{token}"' for token in sorted(need)) + ")" for need in term)
        for term in terms[:_MOST_TERMS]
    )
    return " AND ".join(f"({term})" for term in wanted)
