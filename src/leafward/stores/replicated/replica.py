"""One session in memory, as its journal tells it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from typing import NamedTuple, TypeVar

from leafward.core.errors import CorruptStore, StoreError
from leafward.core.ids import Scope
from leafward.stores.finishing import in_a_thread
from leafward.stores.journal.appends import Unsound, read_batches
from leafward.stores.replicated.head_queries import find_head, find_ids
from leafward.stores.replicated.heads import KeptHead
from leafward.stores.replicated.ids import KnownIds
from leafward.stores.replicated.journals import NOTHING, Journal, KeepsHeads, Listing, Mark, Server, Tail, Write
from leafward.stores.replicated.snapshots import SMALLEST, bound
from leafward.stores.replicated.tables import Tables
from leafward.stores.sql.operations import Operation

T = TypeVar("T")

BLANK_SIZE, EMPTY_SIZE = 2048, 256 * 1024
"""About how many bytes of memory a session takes that was never read, and one that has nothing in it."""

SMALL = 64 * 1024
"""Bytes of lines that are worked through at once; with more, others would wait longer than a thread costs."""

MOST_SHRUNK = 4096
"""Messages of which is remembered what an append needs; to look at more would hold others up."""
SHRUNK_SIZE, SHRUNK_ID_SIZE = 2048, 160
"""About how many bytes of memory that takes, and each message that is appended then."""

_log = logging.getLogger(__name__)


class Ending(NamedTuple):
    """What an append below the leaf has to know of its session."""

    head: KeptHead
    listing: Listing


class Replica:
    """The tables with one session in them, and with what its owner's sessions share.

    Whoever uses it holds its lock. It is what the journals said when it was last brought up to date.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.own = Journal(scope.owner, scope.session_id)
        self.shared = Journal(scope.owner, None)
        self.lock = asyncio.Lock()
        self.users = 0
        """How many hold it or wait for it."""
        self._begin()

    def _begin(self) -> None:
        self._tables: Tables | KnownIds | None = None
        self.marks: dict[Journal, Mark] = {self.own: NOTHING, self.shared: NOTHING}
        self.size = BLANK_SIZE
        self.loaded = False
        """Whether it was ever brought up to date."""
        self.knows_shared = False
        """Whether that goes for what the owner's sessions share as well."""
        self.ending: Ending | None = None
        """What the session ends with, if that is known."""
        self.lengths: dict[Journal, int] = dict.fromkeys(self.marks, 0)
        """How many bytes the journals have."""
        self._bounds: dict[Journal, int] = dict.fromkeys(self.marks, 2 * SMALLEST)
        self._waiting: list[bytes] = []
        """Batches that are committed and have yet to be put into the tables, which end at the checksum `_ended`."""
        self._waiting_ids: set[str] = set()
        self._waiting_used: set[str] = set()
        self._lacks_head = False
        """Whether the server keeps heads, but not that of the session as it was when reading it began."""
        self._waiting_size = self._ended = 0

    def reset(self) -> None:
        """Begin again with nothing."""
        self.close()
        self._begin()

    def close(self) -> None:
        if self._tables is not None:
            self._tables.close()

    @property
    def tables(self) -> Tables:
        """The tables, with all in them that is known here."""
        tables = self._tables
        if tables is None:
            tables = self._tables = Tables(self.scope)
            self.size += EMPTY_SIZE - BLANK_SIZE
        assert isinstance(tables, Tables), "it has to be brought up to date"
        if self._waiting:
            told, _ = read_batches(self._waiting, self._ended)
            with tables.changing():
                tables.replay(told)
            self._waited_for()
        return tables

    @property
    def is_blank(self) -> bool:
        """Whether nothing is known here."""
        return self._tables is None

    @property
    def is_shrunk(self) -> bool:
        """Whether there are no tables, only what an append below the leaf needs."""
        return isinstance(self._tables, KnownIds)

    def shrink(self) -> bool:
        """Let go of the tables and remember what an append below the leaf needs; False when that is not at hand."""
        if self.ending is None or not isinstance(self._tables, Tables):
            return False
        ids = list(islice(chain(self._tables.ids(), self._waiting_ids), MOST_SHRUNK + 1))
        if len(ids) > MOST_SHRUNK:
            return False
        known = KnownIds(ids)
        self.close()
        self._tables, self.loaded = known, False
        self._waited_for()
        self.size = SHRUNK_SIZE + known.size + sum(map(len, self.ending.head.states.values()))
        return True

    def _waited_for(self) -> None:
        self._waiting, self._waiting_ids, self._waiting_used, self._waiting_size = [], set(), set(), 0

    def run(self, operation: Operation[T], at: int | None = None) -> T:
        """Run an operation on what is here."""
        return self.tables.run(operation, at)

    def undo(self) -> None:
        """Take back what was tried in the tables, if anything was."""
        if self._tables is not None:
            self._tables.undo()

    def knows(self, message_ids: Sequence[str]) -> bool:
        """Whether any of these messages is here."""
        assert self._tables is not None
        return not self._waiting_ids.isdisjoint(message_ids) or self._tables.knows(message_ids)

    def counted(self, usage_id: str) -> bool | None:
        """Whether usage of this name was counted; `None` when that is not known here."""
        if not isinstance(self._tables, Tables):
            return None
        return usage_id in self._waiting_used or self._tables.counted(usage_id)

    async def work(self, work: Callable[[], T], size: int) -> T:
        """Do some work with the tables, on about so many bytes, in a thread if they are many."""
        return work() if size + self._waiting_size <= SMALL else await in_a_thread(work)

    def note(self, journal: Journal, mark: Mark, length: int) -> None:
        """Take note that a journal, longer by so many bytes, now goes up to `mark`."""
        self.marks[journal] = mark
        self.size += length
        self.lengths[journal] += length
        self.ending = None

    def note_append(self, written: Write, ending: Ending) -> None:
        """Take note of what was appended below the leaf; it gets into the tables when those are used."""
        mark, batch, change = written.mark, written.batch, written.head
        message_ids = [id for id, _ in change.added] if change else []
        size = self.size + SHRUNK_ID_SIZE * len(message_ids)
        if not self.is_shrunk:
            if not self._waiting:
                self._ended = self.marks[self.own].crc
            self._waiting.append(batch)
            self._waiting_size += len(batch)
            size = self.size + len(batch)
        self._waiting_ids.update(message_ids)
        self._waiting_used.update(change.used if change else ())
        self.note(self.own, mark, len(batch))
        self.size, self.ending = size, ending

    async def is_outgrown(self, journal: Journal) -> bool:
        """Whether most of what a journal tells is no longer so, and it is better written anew."""
        length = self.lengths[journal]
        # Appends alone never make it so.
        if self.is_shrunk or length <= self._bounds[journal]:
            return False
        self._bounds[journal] = await self.work(lambda: self.run(bound(shared=journal == self.shared)), length)
        return length > self._bounds[journal]

    # What the journals say.

    async def catch_up(self, server: Server) -> None:
        """Take over all that is committed by now.

        Raises:
            CorruptStore: a journal is damaged.
        """
        try:
            await self._take_over_from(server)
        except CorruptStore:
            if isinstance(server, KeepsHeads):
                with suppress(StoreError):
                    await server.drop(self.own)
            raise

    async def _take_over_from(self, server: Server) -> None:
        if self.is_shrunk:
            self.reset()
        while True:
            tails = dict(zip(self.marks, await server.fetch(list(self.marks.items())), strict=True))
            if any(tail.foreign for tail in tails.values()):
                self._warn(tails)
                self.reset()
                continue
            self._lacks_head = self._lacks_head or tails[self.own].lacks_head
            length = sum(len(batch) for tail in tails.values() for batch in tail.batches)
            await self.work(partial(self._take_over_all, tails), length)
            if all(self.marks[journal] == tail.mark for journal, tail in tails.items()):
                self.loaded = self.knows_shared = True
                if self._lacks_head and isinstance(server, KeepsHeads):
                    self._lacks_head = False
                    await self._keep_head(server)
                return
            if not any(tail.batches for tail in tails.values()):
                raise CorruptStore(self._what(self.own), "is not as long as its mark says")

    async def _keep_head(self, server: KeepsHeads) -> None:
        """Have the server keep what the session ends with; where that fails, the session is read whole again."""
        head = await self.work(lambda: self.run(find_head(self.scope)), 0)
        if not head.is_small:
            return
        ids, used = await self.work(lambda: self.run(find_ids(self.scope)), self.lengths[self.own])
        try:
            await server.keep(self.own, self.marks[self.own], head, ids, used)
        except StoreError as error:
            _log.warning("what session %r ends with was not kept: %s", self.scope.session_id, error)

    def start(self) -> None:
        """Take note that there is no such session."""
        self.reset()
        self.loaded = True

    def _warn(self, tails: dict[Journal, Tail]) -> None:
        for journal, tail in tails.items():
            if tail.foreign and tail.mark.incarnation == self.marks[journal].incarnation:
                _log.warning(
                    "the server lost acknowledged writes of session %r: its %d batches differ from the %d known here; "
                    "after a failover, what the new server had not been told is gone",
                    self.scope.session_id,
                    tail.mark.length,
                    self.marks[journal].length,
                )

    def _what(self, journal: Journal) -> str:
        return f"the {'journal' if journal == self.own else 'shared journal'} of session {self.scope.session_id!r}"

    def _take_over_all(self, tails: dict[Journal, Tail]) -> None:
        for journal, tail in tails.items():
            self._take_over(journal, tail)

    def _take_over(self, journal: Journal, tail: Tail) -> None:
        if not tail.batches:
            return
        mark = self.marks[journal]
        try:
            told, crc = read_batches(tail.batches, mark.crc)
        except Unsound:
            raise CorruptStore(
                self._what(journal), f"does not have the checksum it should have after batch {mark.length}"
            ) from None
        incarnation = mark.incarnation
        tables = self.tables
        with tables.changing():
            if not incarnation:
                incarnation = tables.begin_with(told.pop(0), self._what(journal), shared=journal == self.shared)
            if journal == self.own:
                tables.replay(told)
            else:
                tables.replay_shared(told, self._what(journal))
        length = sum(len(batch) + 1 for batch in tail.batches)
        self.note(journal, Mark(incarnation, mark.length + len(tail.batches), crc), length)
