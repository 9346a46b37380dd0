"""Runs operations on one SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

from leafward.core.ids import Owner, Scope
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.stores.contracts import Revision, SearchFilter
from leafward.stores.leases import Fence
from leafward.stores.leases.holder_process import this_process
from leafward.stores.registry import ErasureReport
from leafward.stores.signals import Signals
from leafward.stores.sql import leases, reads, registry
from leafward.stores.sql.commands import Command
from leafward.stores.sql.lease_table import SqlLeases
from leafward.stores.sql.operations import Operation, Statement
from leafward.stores.sqlite import erase, searching
from leafward.stores.sqlite.index import FtsIndexing
from leafward.stores.sqlite.parts import Parts
from leafward.stores.sqlite.scrub import Pass
from leafward.stores.sqlite.watcher import Watcher

T = TypeVar("T")


class SqliteRunner(SqlLeases):
    """Writes on the writer's thread, reads beside it in a snapshot of their own."""

    def __init__(self, parts: Parts, signals: Signals) -> None:
        self._indexing = FtsIndexing()
        self._database = parts.database
        self._writer = parts.writer
        self._readers = parts.readers
        self._signals = signals
        self._scrubber = parts.upkeep.scrubber
        self._watcher = Watcher(parts.database, parts.readers, signals)

    async def write(self, command: Command[T], fence: Fence | None = None) -> T:
        if fence is not None:
            fence.check(command.scope)
        try:
            return await self._commit(lambda: leases.fenced(command, self._indexing, fence), size=command.size)
        finally:
            self._signals.notify(command.scope)

    async def _commit(self, operation: Callable[[], Operation[T]], *, size: int = 0, flushed: bool = True) -> T:
        # Made anew for each try: a write that shared a transaction with one that ended it is run again by itself.
        return await self._writer.run(
            lambda connection: self._database.run(connection, operation()), size=size, flushed=flushed
        )

    def this_process(self) -> str | None:
        return this_process()

    async def change_lease(self, operation: Callable[[], Operation[T]], *, flushed: bool) -> T:
        return await self._commit(operation, flushed=flushed)

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        return await self.look(operation)

    async def look(self, operation: Callable[[], Operation[T]]) -> T:
        return await self._readers.run(lambda connection: self._database.run(connection, operation()))

    async def change(
        self, operation: Callable[[bool], Operation[T]], fence: Fence | None, alone: Statement | None = None
    ) -> T:
        return await self._commit(lambda: leases.behind(fence, operation(False)))

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        found, sound = await self._readers.run(
            lambda connection: searching.search(self._database, connection, where, query, only, limit)
        )
        if not sound:
            self._writer.report_damage()
        return found

    async def wait(self, scope: Scope, revision: Revision) -> None:
        async with self._signals.listening(scope) as changed, self._watcher.watching():
            while await self.read(scope, lambda: reads.revision(scope)) == revision:
                await changed.wait()
                changed.clear()

    async def is_shared(self, scope: Scope) -> bool:
        return await self.look(lambda: registry.is_shared(scope))

    async def erase(self, scope: Scope) -> ErasureReport:
        try:
            elsewhere, scrubbing = await self._writer.run(lambda connection: self._begin_erasure(connection, scope))
        finally:
            self._signals.notify(scope)
        left = [] if scrubbing is None else await self._scrubbed(scrubbing)
        return ErasureReport(scope.session_id, elsewhere is not None, [*(elsewhere or []), *left])

    async def scrub(self) -> list[str]:
        return await self._scrubbed(await self._writer.run(lambda _: self._scrubber.ask()))

    async def _scrubbed(self, scrubbing: Pass) -> list[str]:
        """Wait for a pass to be over; return what it could not reach."""
        await self._writer.work_until(lambda: scrubbing.over)
        if scrubbing.failure is not None:
            raise self._database.explain(scrubbing.failure) from scrubbing.failure
        return scrubbing.not_reached

    def _begin_erasure(self, connection: sqlite3.Connection, scope: Scope) -> tuple[list[str] | None, Pass | None]:
        elsewhere = self._database.run(connection, erase.begin(scope))
        if elsewhere is None and self._database.run(connection, erase.found_mark()) is None:
            return None, None
        # Without such a session, an erasure that was begun and killed is finished: perhaps it was of this one.
        # Asked for on the writer's thread: whoever waits may be cancelled, and what was begun is finished all the same.
        return elsewhere, self._scrubber.ask()
