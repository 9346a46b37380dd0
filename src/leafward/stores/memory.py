"""`memory://`: sessions in this process's memory, gone with it.

The tables are those of every SQL backend, in a database that has no file: there is one set of rules.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Owner, Scope
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability, Revision, SearchFilter, check_options
from leafward.stores.guard import Guard
from leafward.stores.leases import Fence
from leafward.stores.registry import ErasureReport
from leafward.stores.signals import Signals
from leafward.stores.sql import leases, reads, registry, remains, scanning
from leafward.stores.sql.commands import Clear, Command, Remove
from leafward.stores.sql.in_memory import drop_discarded, new_database, render
from leafward.stores.sql.lease_table import SqlLeases
from leafward.stores.sql.operations import Operation, Statement, find_session, run_steps
from leafward.stores.sql.state_table import SqlStates
from leafward.stores.sql.states import StateRows
from leafward.stores.sql.store import SqlStore
from leafward.stores.states.table import Layout
from leafward.stores.urls import without_secrets

T = TypeVar("T")


@dataclass(slots=True)
class MemoryData:
    """What the stores opened as one `memory://name` share."""

    connection: sqlite3.Connection = field(default_factory=new_database)
    signals: Signals = field(default_factory=Signals)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryRunner(SqlLeases):
    """Runs each operation as one step under one lock."""

    def __init__(self, data: MemoryData, guard: Guard) -> None:
        self._data = data
        self._guard = guard

    def _run(self, operation: Operation[T]) -> T:
        return run_steps(operation, self._execute)

    def _execute(self, statement: str, parameters: tuple[object, ...]) -> list[object]:
        return self._data.connection.execute(render(statement), parameters).fetchall()

    async def write(self, command: Command[T], fence: Fence | None = None) -> T:
        if fence is not None:
            fence.check(command.scope)
        operation = leases.fenced(command, scanning.NO_INDEX, fence)
        result = self._commit(operation, discards=isinstance(command, (Clear, Remove)))
        self._data.signals.notify(command.scope)
        return result

    def _commit(self, operation: Operation[T], *, discards: bool = False) -> T:
        self._guard.check()
        with self._data.lock:
            self._data.connection.execute("BEGIN")
            try:
                result = self._run(operation)
                if discards:
                    self._run(drop_discarded())
            except BaseException:
                self._data.connection.execute("ROLLBACK")
                raise
            self._data.connection.execute("COMMIT")
        return result

    async def change_lease(self, operation: Callable[[], Operation[T]], *, flushed: bool) -> T:
        return self._commit(operation())

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        return await self.look(operation)

    async def look(self, operation: Callable[[], Operation[T]]) -> T:
        self._guard.check()
        with self._data.lock:
            return self._run(operation())

    async def change(
        self, operation: Callable[[bool], Operation[T]], fence: Fence | None, alone: Statement | None = None
    ) -> T:
        return self._commit(leases.behind(fence, operation(False)))

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        return await self.read(where, lambda: scanning.search(where, query, only, limit))

    async def wait(self, scope: Scope, revision: Revision) -> None:
        async with self._data.signals.listening(scope) as changed:
            while await self.read(scope, lambda: reads.revision(scope)) == revision:
                await changed.wait()
                changed.clear()

    async def is_shared(self, scope: Scope) -> bool:
        return await self.look(lambda: registry.is_shared(scope))

    async def erase(self, scope: Scope) -> ErasureReport:
        left = self._commit(_erase(scope), discards=True)
        self._data.signals.notify(scope)
        return ErasureReport(scope.session_id, left is not None, left or [])

    async def scrub(self) -> list[str]:
        return []


def _erase(scope: Scope) -> Operation[list[str] | None]:
    session = yield from find_session(scope)
    if session is None:
        return None
    left = yield from remains.in_the_store(session, scope.session_id)
    yield from registry.delete(scope)
    return [*left, "copies of this process's memory, such as swap or a core dump"]


_named: dict[str, MemoryData] = {}


class MemoryStore(SqlStore):
    """Sessions in memory."""

    def __init__(
        self,
        data: MemoryData,
        *,
        named: bool,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        layout: Layout = "2.x",
    ) -> None:
        self._guard = Guard("this memory:// store")
        self._data = data
        self._named = named
        self.runner = MemoryRunner(data, self._guard)
        super().__init__(self.runner, SqlStates(self.runner, StateRows(layout)), max_message_bytes, layout)

    def durability(self) -> Durability:
        return "none"

    async def close(self) -> None:
        self._guard.check_process()
        await self.background.close()
        self._guard.closed = True
        self._data.signals.notify_all()
        if not self._named:
            self._data.connection.close()


async def open_memory(
    url: str, *, durability: str = "power", max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> MemoryStore:
    """Open `memory://`, a store of its own, or `memory://name`, which all who name it share until the process ends.

    `durability` is taken so that a program can keep its options when it changes the URL; memory has none.
    """
    check_options(durability, max_message_bytes)
    name = url.removeprefix("memory://")
    if "/" in name:
        raise ConfigurationError(f"{without_secrets(url)!r} names no memory store: write memory:// or memory://name")
    data = (_named.get(name) or _named.setdefault(name, MemoryData())) if name else MemoryData()
    return MemoryStore(data, named=bool(name), max_message_bytes=max_message_bytes)
