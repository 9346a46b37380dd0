"""Serves calls on the index of the moment, and replaces it when it is lost."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from typing import TypeVar

from leafward.core.errors import CorruptStore, DirectoryRemoved, OutcomeUnknown, StoreError
from leafward.core.ids import Owner, Scope
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.stores.contracts import Revision, SearchFilter
from leafward.stores.files.folder import Folder
from leafward.stores.files.journal_places import JournalPlaces
from leafward.stores.files.opening import DirectoryLock, index_of, open_index
from leafward.stores.files.repairing import RepairReport
from leafward.stores.files.running import FileRunner
from leafward.stores.files.writing import Journals
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence, LeaseTable
from leafward.stores.leases.forwarding_table import ForwardingLeaseTable
from leafward.stores.registry import ErasureReport
from leafward.stores.signals import Signals
from leafward.stores.sql import reads
from leafward.stores.sql.commands import Command
from leafward.stores.sql.operations import Operation
from leafward.stores.sqlite.connection import Database, guarded
from leafward.stores.sqlite.parts import Parts
from leafward.stores.sqlite.rawfile import let_go

T = TypeVar("T")


class Engine:
    """One opened index, and what works on it."""

    def __init__(
        self,
        database: Database,
        connection: sqlite3.Connection,
        folder: Folder,
        guard: Guard,
        lock: DirectoryLock,
        signals: Signals,
    ) -> None:
        self.database = database
        self._lock = lock
        places = JournalPlaces(folder)
        journals = Journals(database, folder, places)
        self.parts = Parts(database, guard, lock, connection, journals)
        self.runner = FileRunner(self.parts, signals, folder, places, journals)
        self.parts.start()

    def shut(self) -> None:
        """Finish what was begun and let go of the index."""
        try:
            self.parts.shut()
        except DirectoryRemoved:
            # Without its directory there is nothing to tidy, and nothing to lock.
            self.parts.drop()
            let_go()
        self._lock.close()

    def drop(self) -> None:
        """Close what a forked child inherited."""
        self.parts.drop()
        # Or a parent killed while writing would leave the directory locked by this child.
        self._lock.close()


class Serving(ForwardingLeaseTable):
    """Runs everything on the index of the moment; when that is removed or damaged, on a new one."""

    def __init__(
        self, folder: Folder, guard: Guard, lock: DirectoryLock, database: Database, connection: sqlite3.Connection
    ) -> None:
        self._folder = folder
        self._guard = guard
        self.signals = Signals()
        self.engine = Engine(database, connection, folder, guard, lock, self.signals)
        self._renewing = asyncio.Lock()

    async def _run(self, call: Callable[[FileRunner], Awaitable[T]]) -> T:
        engine = self.engine
        try:
            return await call(engine.runner)
        except StoreError as error:
            if not self._is_lost(engine, error):
                raise
            await self._renew(engine, error)
        return await call(self.engine.runner)

    def _is_lost(self, engine: Engine, error: StoreError) -> bool:
        """Tell whether an error came from an index that was removed or cannot be read, and nothing was written."""
        if isinstance(error, OutcomeUnknown):
            return False
        return _is_unusable(engine, error) or not engine.database.is_there()

    async def _renew(self, lost: Engine, error: StoreError) -> None:
        unusable = _is_unusable(lost, error)
        async with self._renewing:
            self._guard.check()
            if self.engine is lost:
                loop = self._guard.loop
                self.engine = await loop.run_in_executor(None, self._open_again, lost, unusable)
                # Those who wait for changes go over to the new one, and let go of this.
                self.signals.notify_all()
                await loop.run_in_executor(None, lost.shut)

    def _open_again(self, lost: Engine, unusable: bool) -> Engine:
        database = index_of(self._folder)
        # A lock of its own: the lost one's writer may still be at work behind the other.
        lock = DirectoryLock(self._folder)
        try:
            with lock:
                # Unless another process has replaced it already.
                useless = unusable and lost.database.is_there()
                connection = guarded(database, lambda: open_index(database, unusable=useless))
        except BaseException:
            lock.close()
            raise
        return Engine(database, connection, self._folder, self._guard, lock, self.signals)

    async def write(self, command: Command[T], fence: Fence | None = None) -> T:
        return await self._run(lambda runner: runner.write(command, fence))

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        return await self._run(lambda runner: runner.read(where, operation))

    async def change(self, operation: Callable[[bool], Operation[T]], fence: Fence | None) -> T:
        return await self._run(lambda runner: runner.change(operation, fence))

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        return await self._run(lambda runner: runner.search(where, query, only, limit))

    async def wait(self, scope: Scope, revision: Revision) -> None:
        async with self.signals.listening(scope) as changed:
            while True:
                engine = self.engine
                async with engine.runner.watching():
                    while self.engine is engine:
                        if await self.read(scope, lambda: reads.revision(scope)) != revision:
                            return
                        await changed.wait()
                        changed.clear()

    async def is_shared(self, scope: Scope) -> bool:
        return await self._run(lambda runner: runner.is_shared(scope))

    async def erase(self, scope: Scope) -> ErasureReport:
        return await self._run(lambda runner: runner.erase(scope))

    async def scrub(self) -> list[str]:
        return await self._run(lambda runner: runner.scrub())

    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        return await self._run(call)

    async def repair(self, scope: Scope) -> RepairReport:
        return await self._run(lambda runner: runner.repair(scope))

    async def damage(self) -> list[str]:
        return await self._run(lambda runner: runner.damage())


def _is_unusable(engine: Engine, error: StoreError) -> bool:
    return isinstance(error, CorruptStore) and error.where == engine.database.path
