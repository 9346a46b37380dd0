"""Search without an index: every message of the scope is looked at."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from leafward.core.ids import Owner, Scope
from leafward.core.json import decode_body
from leafward.core.parts import search_text
from leafward.core.query import Query
from leafward.core.ranking import Candidate, SearchResult, rank
from leafward.core.times import from_micros
from leafward.stores.contracts import SearchFilter
from leafward.stores.sql.operations import Operation, SessionRow, find_session, owner_ids, single
from leafward.stores.sql.statements import GET_OWNER

SCAN = """
    SELECT s.session_id, m.id, m.role, m.created_at, CAST(m.body AS BLOB)
    FROM {p}session s JOIN {p}message m ON m.tree_no = s.tree_no WHERE """
NEWEST_FIRST = " ORDER BY m.created_at DESC, m.id, s.session_id"


class NoIndex:
    """Searches look at the messages themselves."""

    def added(self, place: int) -> Operation[None]:
        yield from ()

    def changed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        yield from ()

    def removed(self, session: SessionRow, gone: dict[int, bytes]) -> Operation[None]:
        yield from ()


NO_INDEX = NoIndex()


def search(where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> Operation[list[SearchResult]]:
    return rank(query, (yield from candidates(where, query, only)), limit=limit)


def candidates(where: Scope | Owner, query: Query, only: SearchFilter) -> Operation[Iterator[Candidate]]:
    """Return all messages a search has to look at, newest first."""
    if isinstance(where, Scope):
        session = yield from find_session(where)
        condition, number = "m.tree_no = ?", None if session is None else session.tree_no
    else:
        condition, number = "s.owner_no = ?", single((yield GET_OWNER, owner_ids(where)))
    if number is None or not query.terms:
        return iter(())
    kept, values = kept_by(only)
    rows = yield SCAN + condition + kept + NEWEST_FIRST, (number, *values)
    return map(candidate, rows)


def kept_by(only: SearchFilter) -> tuple[str, list[Any]]:
    """Return the condition that a filter is, and its parameters."""
    conditions = {"m.role = ?": only.role, "m.created_at >= ?": only.since, "m.created_at < ?": only.until}
    asked = {condition: value for condition, value in conditions.items() if value is not None}
    return "".join(f" AND {condition}" for condition in asked), list(asked.values())


def candidate(row: Any) -> Candidate:
    session_id, message_id, role, at, body = row
    return Candidate(session_id, message_id, role, from_micros(at), search_text(decode_body(body)))
