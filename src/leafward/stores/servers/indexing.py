"""The search index on a server: the words of messages, in a table of their own that lags behind.

Which messages of a session are indexed is told by a mark on its row: those up to a version and place, but for the ones
that were changed since, which stand in a table. An append thus costs nothing here. The words only propose candidates;
whether a message matches is decided on its stored text.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from leafward.core.errors import CorruptStore, LeafwardError
from leafward.core.ids import Scope
from leafward.core.json import DecodeError, decode_body
from leafward.core.parts import search_text
from leafward.core.query import Query
from leafward.core.text import analyzer_version, index_tokens
from leafward.stores.sql import schema
from leafward.stores.sql import statements as sql
from leafward.stores.sql.dialect import WordList
from leafward.stores.sql.operations import Many, Operation, SessionRow, find_session

T = TypeVar("T")

ANALYZER = "analyzer"
"""The name in the meta table of the analyzer that made the words."""
SLICE = 64
"""Messages whose words are cut at once."""
IDLE_S = 0.2
"""How long nothing must have been written before words are cut."""
MOST_WAITING = 2000
"""Messages that wait for it however much is written."""
ENOUGH = 32
"""So many messages are worth an index of their words."""
MOST_COUNTED = 10_000
"""Sessions whose messages are counted; the one that was written to longest ago is forgotten first."""
LARGEST = 400_000
"""Characters of words that an index takes for one message; PostgreSQL's takes a mebibyte and loses the rest."""
OVERSIZED = "xxx"
"""In place of words: the message has more of them, and may match anything."""
_MOST_TERMS = 16
LONGEST_WORD = 70

_log = logging.getLogger(__name__)

GET_MARK = "SELECT indexed_seq, indexed_place FROM {p}session WHERE session_no = ?"
SET_MARK = "UPDATE {p}session SET indexed_seq = ?, indexed_place = ? WHERE session_no = ?"
NEXT_UNMARKED = """
    SELECT place, seq, CAST(body AS BLOB) FROM {p}message
    WHERE tree_no = ? AND (seq > ? OR (seq = ? AND place > ?)) ORDER BY seq, place LIMIT ?"""
NEXT_CHANGED = """
    SELECT m.place, m.seq, CAST(m.body AS BLOB) FROM {p}unindexed u JOIN {p}message m ON m.place = u.place
    WHERE u.tree_no = ? ORDER BY u.place LIMIT ?"""
LIST_SESSIONS = """
    SELECT o.agent_id, o.user_id, s.session_id FROM {p}session s JOIN {p}owner o ON o.owner_no = s.owner_no
    WHERE s.version > 0"""
HAS_WORDS = "SELECT 1 FROM {p}words WHERE place = ?"
ADD_WORDS = "INSERT INTO {p}words (place, words) VALUES (?, {word_list})"
DROP_WORDS = "DELETE FROM {p}words WHERE place = ?"
ADD_UNINDEXED = "INSERT INTO {p}unindexed (place, tree_no) VALUES (?, ?)"
DROP_UNINDEXED = "DELETE FROM {p}unindexed WHERE place = ?"
FORGET = (
    "UPDATE {p}session SET indexed_seq = 0, indexed_place = 0",
    "DELETE FROM {p}words",
    "DELETE FROM {p}unindexed",
)


def encode_word(word: str) -> str:
    """Return a word as letters and digits that no server takes for a stop word, an operator or too short or long."""
    if word.isascii() and word.isalnum() and len(word) <= LONGEST_WORD:
        return f"q{word}q"
    return "h" + hashlib.sha256(word.encode()).hexdigest()[:32]


def tree_word(tree_no: int) -> str:
    # No encoded word begins so; with it in the query, other sessions' matches cost nothing.
    return f"t{tree_no}t"


def owner_word(owner_no: int) -> str:
    return f"o{owner_no}o"


def words_of(session: SessionRow, body: bytes) -> list[str]:
    """Return what the index holds for a message."""
    scope = [tree_word(session.tree_no), owner_word(session.owner_no)]
    words = sorted(map(encode_word, index_tokens(search_text(decode_body(body)))))
    return [*scope, *(words if sum(map(len, words)) <= LARGEST else [OVERSIZED])]


def wanted_words(query: Query) -> list[list[str]]:
    """Return groups of words, of each of which a matching message has at least one."""
    groups: list[list[str]] = []
    for term in sorted(query.needs, key=lambda term: -max(len(word) for need in term for word in need))[:_MOST_TERMS]:
        if len(term) == 1:
            groups += [[encode_word(word), OVERSIZED] for word in sorted(term[0])]
        else:
            groups.append([*sorted({encode_word(max(need, key=len)) for need in term}), OVERSIZED])
    return groups


def is_current() -> Operation[bool]:
    """Tell whether the words were cut by this version of the analyzer."""
    rows = yield schema.GET_META, (ANALYZER,)
    return bool(rows) and rows[0][0] == analyzer_version()


class Words:
    """Takes words out of the index when their message is changed or deleted."""

    def added(self, place: int) -> Operation[None]:
        yield from ()

    def changed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        if (yield HAS_WORDS, (place,)):
            yield DROP_WORDS, (place,)
            yield ADD_UNINDEXED, (place, session.tree_no)

    def removed(self, session: SessionRow, gone: dict[int, bytes]) -> Operation[None]:
        yield DROP_WORDS, Many((place,) for place in gone)
        yield DROP_UNINDEXED, Many((place,) for place in gone)


class _Slice(NamedTuple):
    """Some messages that are not indexed, as of one version of their session."""

    session: SessionRow
    mark: tuple[int, int]
    rows: list[Any]
    changed: bool
    """Whether they were indexed once, and changed since."""


def _next_slice(scope: Scope) -> Operation[_Slice | None]:
    session = yield from find_session(scope)
    if session is None or not (yield from is_current()):
        return None
    mark = tuple((yield GET_MARK, (session.session_no,))[0])
    rows = yield NEXT_CHANGED, (session.tree_no, SLICE)
    changed = bool(rows)
    if not rows:
        rows = yield NEXT_UNMARKED, (session.tree_no, mark[0], *mark, SLICE)
    return _Slice(session, mark, rows, changed) if rows else None


def _add_slice(scope: Scope, found: _Slice, words: list[list[str]]) -> Operation[bool]:
    """Write the words of a slice, unless something happened to its messages; tell whether it was written."""
    session = yield from find_session(scope)
    if session is None or session.tree_no != found.session.tree_no or not (yield from is_current()):
        return False
    if tuple((yield GET_MARK, (session.session_no,))[0]) != found.mark:
        return False
    if session.version != found.session.version:
        happened = yield sql.LIST_CHANGES, (session.session_no, found.session.version)
        if any(kind in ("update", "delete") for _, kind, _ in happened):
            return False
    yield ADD_WORDS, Many((row[0], WordList(some)) for row, some in zip(found.rows, words, strict=True))
    if found.changed:
        yield DROP_UNINDEXED, Many((row[0],) for row in found.rows)
    else:
        place, seq, _ = found.rows[-1]
        yield SET_MARK, (seq, place, session.session_no)
    return True


def unindexed_sessions() -> Operation[list[Scope]]:
    """Return the sessions, of all owners, that something was written to."""
    rows = yield LIST_SESSIONS, ()
    return [Scope.of(session_id, user_id=user_id or None, agent_id=agent_id) for agent_id, user_id, session_id in rows]


class Running(Protocol):
    """What the indexer needs of a runner."""

    async def look(self, operation: Callable[[], Operation[T]]) -> T: ...

    async def transact(self, operation: Callable[[], Operation[T]]) -> T: ...


class Indexer:
    """Indexes in the background the sessions in which enough was written, a few messages at a time."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._counts: dict[Scope, int] = {}
        self._due: dict[Scope, None] = {}
        self._unreadable: set[Scope] = set()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._last = 0.0

    def wrote(self, scope: Scope, messages: int) -> None:
        """Take note that so many messages were written, or found without an index."""
        self._last = time.monotonic()
        count = self._counts[scope] = self._counts.pop(scope, 0) + messages
        if len(self._counts) > MOST_COUNTED:
            self._counts.pop(next(iter(self._counts)))
        if count >= ENOUGH:
            self.want(scope)

    def want(self, scope: Scope) -> None:
        """Have a session indexed, soon."""
        if scope in self._unreadable:
            return
        self._due[scope] = None
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._due and not self._stopped:
                waiting = sum(self._counts.get(scope, 0) for scope in self._due)
                if waiting < MOST_WAITING and time.monotonic() - self._last < IDLE_S:
                    await asyncio.sleep(IDLE_S)
                    continue
                scope = next(iter(self._due))
                counted = self._counts.get(scope)
                if await self._step_or_warn(scope):
                    continue
                # What was written while that was found out has to be looked for.
                if scope in self._unreadable or self._counts.get(scope) == counted:
                    self._due.pop(scope, None)
                    self._counts.pop(scope, None)
        except LeafwardError:
            # Nothing anybody waits for: what is not indexed is read by searches, and the next write tries again.
            self._due.clear()
        finally:
            self._task = None

    async def _step_or_warn(self, scope: Scope) -> bool:
        try:
            return await self._step(scope)
        except CorruptStore as error:
            # Once: it would not be better the next time, and its searches go without an index.
            _log.warning("a session is left without an index: %s", error)
            self._unreadable.add(scope)
            return False

    async def _step(self, scope: Scope) -> bool:
        found = await self._running.look(lambda: _next_slice(scope))
        if found is None:
            return False
        try:
            words = await asyncio.to_thread(lambda: [words_of(found.session, row[2]) for row in found.rows])
        except (DecodeError, LookupError, TypeError, AttributeError) as error:
            reason = f"holds a message that leafward did not write ({type(error).__name__}: {error})"
            raise CorruptStore(f"session {scope.session_id!r}", reason) from error
        await self._running.transact(lambda: _add_slice(scope, found, words))
        return True

    async def settle(self, scope: Scope) -> None:
        """Index all of a session.

        Raises:
            CorruptStore: a message of it cannot be read.
        """
        while await self._step(scope):
            continue

    async def stop(self) -> None:
        self._stopped = True
        while self._task is not None:
            await asyncio.wait({self._task})
            await asyncio.sleep(0)
