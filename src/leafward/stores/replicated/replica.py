"""One session in memory, as its journal tells it."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from leafward.core.errors import CorruptStore
from leafward.core.ids import Scope
from leafward.stores.journal import lines
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.replaying import commands, read_header, shared_commands
from leafward.stores.replicated.finishing import in_a_thread
from leafward.stores.replicated.journals import NOTHING, Journal, Mark, Server, Tail
from leafward.stores.replicated.snapshots import SMALLEST, bound, put_back, read_snapshot
from leafward.stores.sql.in_memory import drop_discarded, new_database, render
from leafward.stores.sql.operations import Operation, run_steps
from leafward.stores.sql.scanning import NO_INDEX

T = TypeVar("T")

EMPTY_SIZE = 256 * 1024
"""About how many bytes of memory a session takes that has nothing in it."""

SMALL = 16 * 1024
"""Bytes of lines that are worked through at once; with more, others would wait longer than a thread costs."""

SEED = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"

_log = logging.getLogger(__name__)


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
        self._connection = new_database()
        self._forget()

    def _forget(self) -> None:
        self.marks: dict[Journal, Mark] = {self.own: NOTHING, self.shared: NOTHING}
        self.size = EMPTY_SIZE
        self.loaded = False
        """Whether it was ever brought up to date."""
        self.lengths: dict[Journal, int] = dict.fromkeys(self.marks, 0)
        """How many bytes the journals have."""
        self._bounds: dict[Journal, int] = dict.fromkeys(self.marks, 2 * SMALLEST)

    def reset(self) -> None:
        """Begin again with nothing."""
        self.close()
        self._connection = new_database()
        self._forget()

    def close(self) -> None:
        self._connection.close()

    def run(self, operation: Operation[T], at: int | None = None) -> T:
        """Run an operation on what is here."""
        return run_steps(operation, self.execute, at)

    def execute(self, statement: str, parameters: tuple[object, ...]) -> list[object]:
        return self._connection.execute(render(statement), parameters).fetchall()

    async def work(self, work: Callable[[], T], size: int) -> T:
        """Do some work on about so many bytes, in a thread if they are many."""
        return work() if size <= SMALL else await in_a_thread(work)

    @property
    def changes(self) -> int:
        """A number that grows with every row that is changed."""
        return self._connection.total_changes

    def begin(self) -> None:
        self._connection.execute("BEGIN")

    def undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def keep(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def tidy(self) -> None:
        """Remove what a clear let go of."""
        self.run(drop_discarded())

    @contextmanager
    def _changing(self) -> Generator[None]:
        self.begin()
        try:
            yield
            self.tidy()
            self.keep()
        except BaseException:
            self.undo()
            raise

    def seed(self, incarnation: str) -> None:
        """Have trees and lanes numbered as no other incarnation of the session has them, but the same everywhere."""
        # A place has 31 bits for the number of its lane; half of them are left to count on.
        chance = zlib.crc32(incarnation.encode())
        for table, number in (("tree", chance << 20), ("lane", chance >> 2)):
            self._connection.execute(SEED, (table, number))

    def note(self, journal: Journal, mark: Mark, length: int) -> None:
        """Take note that a journal, longer by so many bytes, now goes up to `mark`."""
        self.marks[journal] = mark
        self.size += length
        self.lengths[journal] += length

    async def is_outgrown(self, journal: Journal) -> bool:
        """Whether most of what a journal tells is no longer so, and it is better written anew."""
        length = self.lengths[journal]
        if length <= self._bounds[journal]:
            return False
        self._bounds[journal] = await self.work(lambda: self.run(bound(shared=journal == self.shared)), length)
        return length > self._bounds[journal]

    # What the journals say.

    async def catch_up(self, server: Server) -> None:
        """Take over all that is committed by now."""
        while True:
            tails = dict(zip(self.marks, await server.fetch(list(self.marks.items())), strict=True))
            if any(tail.foreign for tail in tails.values()):
                self._warn(tails)
                self.reset()
                continue
            length = sum(len(batch) for tail in tails.values() for batch in tail.batches)
            await self.work(partial(self._take_over_all, tails), length)
            if all(self.marks[journal] == tail.mark for journal, tail in tails.items()):
                self.loaded = True
                return
            if not any(tail.batches for tail in tails.values()):
                raise CorruptStore(self._what(self.own), "is not as long as its mark says")

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
        data = b"".join(batch + b"\n" for batch in tail.batches)
        reading = lines.read(data, mark.crc)
        if reading.damage or reading.torn is not None:
            raise CorruptStore(
                self._what(journal), f"does not have the checksum it should have after batch {mark.length}"
            )
        entries = reading.entries
        incarnation = mark.incarnation
        with self._changing():
            if journal == self.own:
                if not incarnation:
                    incarnation = self._begin_with(entries)
                for happened in commands(entries, self.scope):
                    self.run(happened.command.operation(NO_INDEX), happened.at)
            else:
                incarnation = incarnation or read_header(entries[0]).incarnation
                for text in shared_commands(entries, self.scope.owner):
                    self.run(text.command.operation(NO_INDEX), text.at)
        self.note(journal, Mark(incarnation, mark.length + len(tail.batches), reading.crc), len(data))

    def _begin_with(self, entries: list[Entry]) -> str:
        """Read the first line of the journal, and take it away if it is a snapshot; return the incarnation."""
        snapshot = read_snapshot(entries, self._what(self.own))
        if snapshot is None:
            incarnation = read_header(entries[0]).incarnation
            self.seed(incarnation)
            return incarnation
        self.run(put_back(snapshot, self.scope.owner, self._what(self.own)))
        del entries[0]
        return snapshot.incarnation
