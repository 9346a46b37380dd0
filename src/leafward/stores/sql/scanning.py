"""Search without an index: every message of the scope is looked at."""

from __future__ import annotations

from leafward.core.ids import Owner, Scope
from leafward.core.json import decode_body
from leafward.core.parts import search_text
from leafward.core.query import Query
from leafward.core.ranking import Candidate, SearchResult, rank
from leafward.core.times import from_micros
from leafward.stores.contracts import SearchFilter
from leafward.stores.sql.operations import Operation, find_session, owner_ids, single
from leafward.stores.sql.statements import GET_OWNER

_SCAN = """
    SELECT s.session_id, m.id, m.role, m.created_at, CAST(m.body AS BLOB)
    FROM {p}session s JOIN {p}message m ON m.tree_no = s.tree_no
    WHERE (? IS NULL OR m.role = ?) AND (? IS NULL OR m.created_at >= ?) AND (? IS NULL OR m.created_at < ?)
    AND """
_NEWEST_FIRST = " ORDER BY m.created_at DESC, m.id, s.session_id"
SCAN_TREE = _SCAN + "m.tree_no = ?" + _NEWEST_FIRST
SCAN_OWNER = _SCAN + "s.owner_no = ?" + _NEWEST_FIRST


def search(where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> Operation[list[SearchResult]]:
    if isinstance(where, Scope):
        session = yield from find_session(where)
        statement, number = SCAN_TREE, None if session is None else session.tree_no
    else:
        statement, number = SCAN_OWNER, single((yield GET_OWNER, owner_ids(where)))
    if number is None or not query.terms:
        return []
    rows = yield statement, (only.role, only.role, only.since, only.since, only.until, only.until, number)
    found = (
        Candidate(session_id, id, role, from_micros(at), search_text(decode_body(body)["parts"]))
        for session_id, id, role, at, body in rows
    )
    return rank(query, found, limit=limit)
