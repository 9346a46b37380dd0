"""Searching on a server: what the index proposes and what is not indexed yet, decided and ranked on the text."""

from __future__ import annotations

from collections import Counter
from typing import Any

from leafward.core.ids import Owner, Scope
from leafward.core.query import Finder, Query
from leafward.core.ranking import RANKED, Candidate, SearchResult, rank
from leafward.stores.contracts import SearchFilter
from leafward.stores.servers.indexing import is_current, owner_word, tree_word, wanted_words
from leafward.stores.sql import scanning
from leafward.stores.sql.dialect import Wanted
from leafward.stores.sql.operations import Operation, find_session, owner_ids, single
from leafward.stores.sql.statements import GET_OWNER

_ROW = "SELECT s.session_id, m.id, m.role, m.created_at, CAST(m.body AS BLOB) "
MATCHING = (
    _ROW
    + """FROM {p}words w JOIN {p}message m ON m.place = w.place JOIN {p}session s ON s.tree_no = m.tree_no
    WHERE {match} AND """
)
UNMARKED = (
    _ROW
    + """FROM {p}session s JOIN {p}message m ON m.tree_no = s.tree_no
    AND (m.seq > s.indexed_seq OR (m.seq = s.indexed_seq AND m.place > s.indexed_place)) WHERE """
)
CHANGED = (
    _ROW
    + """FROM {p}unindexed u JOIN {p}message m ON m.place = u.place JOIN {p}session s ON s.tree_no = m.tree_no WHERE """
)
MOST = 2**31
"""Matches that are ranked, however many are asked for: a server takes no larger numbers than it can count to."""
PAGE = scanning.NEWEST_FIRST + " LIMIT ? OFFSET ?"


def search(
    where: Scope | Owner, query: Query, only: SearchFilter, limit: int
) -> Operation[tuple[list[SearchResult], Counter[str]]]:
    """Return the best matches, and how many messages of which session are not indexed."""
    if isinstance(where, Scope):
        session = yield from find_session(where)
        number = None if session is None else session.tree_no
        condition, word = "m.tree_no = ?", "" if number is None else tree_word(number)
    else:
        number = single((yield GET_OWNER, owner_ids(where)))
        condition, word = "s.owner_no = ?", "" if number is None else owner_word(number)
    if number is None or not query.terms:
        return [], Counter()
    if not (yield from is_current()):
        return (yield from scanning.search(where, query, only, limit)), Counter()
    kept, values = scanning.kept_by(only)
    asked = (number, *values)
    rest: list[Any] = []
    for statement in (UNMARKED, CHANGED):
        rest += yield statement + condition + kept, asked
    matching = MATCHING + condition + kept + PAGE
    wanted = Wanted([[word], *wanted_words(query)])
    found = yield from _enough(
        query, matching, (wanted, *asked), [*map(scanning.candidate, rest)], max(RANKED, min(limit, MOST))
    )
    return rank(query, found, limit=limit), Counter(row[0] for row in rest)


def _enough(
    query: Query, matching: str, parameters: tuple[Any, ...], rest: list[Candidate], most: int
) -> Operation[list[Candidate]]:
    """Add what the index proposes to the rest, page by page, until the newest `most` matches are among it."""
    found = rest
    finder, matches = Finder(query), 0
    offset = 0
    while True:
        page = [*map(scanning.candidate, (yield matching, (*parameters, most, offset)))]
        found = sorted([*found, *page], key=lambda one: one.id)
        found.sort(key=lambda one: one.created_at, reverse=True)
        offset += most
        if len(page) < most:
            return found
        # What is older than the page may have to give way to what the next one brings.
        oldest = page[-1].created_at
        matches = sum(one.created_at >= oldest and finder.find(one.text) is not None for one in found)
        if matches >= most:
            return found
