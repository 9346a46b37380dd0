"""Searching on a server: what the index proposes and what is not indexed yet, decided and ranked on the text."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from leafward.core.ids import Owner, Scope
from leafward.core.query import Finder, Query
from leafward.core.ranking import RANKED, SearchResult, rank
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


class Found(NamedTuple):
    """Rows that may match, among them the newest that do, and how many messages of which session are not indexed."""

    rows: list[Any]
    unindexed: Counter[str]


def candidates(where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> Operation[Found]:
    """Return what a search has to look at."""
    if isinstance(where, Scope):
        session = yield from find_session(where)
        number = None if session is None else session.tree_no
        condition, word = "m.tree_no = ?", "" if number is None else tree_word(number)
    else:
        number = single((yield GET_OWNER, owner_ids(where)))
        condition, word = "s.owner_no = ?", "" if number is None else owner_word(number)
    if number is None or not query.terms:
        return Found([], Counter())
    kept, values = scanning.kept_by(only)
    rest, asked = condition + kept + PAGE, (number, *values)
    search = _Search(query, max(RANKED, min(limit, MOST)))
    if not (yield from is_current()):
        yield from search.take(scanning.SCAN + rest, asked)
        return Found(search.rows, Counter())
    unindexed: Counter[str] = Counter()
    for statement in (UNMARKED, CHANGED):
        unindexed += yield from search.take(statement + rest, asked)
    yield from search.take(MATCHING + rest, (Wanted([[word], *wanted_words(query)]), *asked))
    return Found(search.rows, unindexed)


class _Search:
    """Gathers rows from several places, page by page, until the newest `most` matches are among them."""

    def __init__(self, query: Query, most: int) -> None:
        self._finder = Finder(query)
        self._most = most
        self._matching: list[Any] = []
        self._unread: list[Any] = []

    @property
    def rows(self) -> list[Any]:
        """What was gathered, without most of what does not match."""
        return [*self._matching, *self._unread]

    def take(self, statement: str, parameters: tuple[Any, ...]) -> Operation[Counter[str]]:
        """Add what a statement gives, newest first; tell how many messages of which session it gave."""
        given: Counter[str] = Counter()
        offset = 0
        while True:
            page = yield statement, (*parameters, self._most, offset)
            given.update(row[0] for row in page)
            # Read only when there is more than one page: it takes time on the event loop, and ranking reads them too.
            self._unread += page
            if len(page) < self._most:
                return given
            self._matching += filter(self._matches, self._unread)
            self._unread.clear()
            offset += self._most
            # What is older than the page may have to give way to what the next one brings.
            oldest = page[-1][3]
            if sum(row[3] >= oldest for row in self._matching) >= self._most:
                return given

    def _matches(self, row: Any) -> bool:
        return self._finder.find(scanning.candidate(row).text) is not None


def rank_rows(query: Query, rows: list[Any], limit: int) -> list[SearchResult]:
    """Return the best matches among rows; takes as long as there is text in them."""
    rows.sort(key=lambda row: (-row[3], row[1], row[0]))
    return rank(query, map(scanning.candidate, rows), limit=limit)
