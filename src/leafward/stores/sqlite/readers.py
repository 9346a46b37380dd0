"""Reads beside the writer, each in a snapshot of its own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from leafward.stores.guard import Guard
from leafward.stores.sqlite.connection import Database, guarded

T = TypeVar("T")

THREADS = 2


class Readers:
    """A few threads with a connection each, opened when first needed."""

    def __init__(self, database: Database, guard: Guard) -> None:
        self._database = database
        self._guard = guard
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="leafward reader")
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on what is committed now, and see nothing that is committed meanwhile."""
        self._guard.check()
        return await self._guard.loop.run_in_executor(
            self._pool, guarded, self._database, lambda: self._in_snapshot(work)
        )

    async def run_unbound(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on a connection without a transaction."""
        self._guard.check()
        return await self._guard.loop.run_in_executor(
            self._pool, guarded, self._database, lambda: work(self._connection())
        )

    def _in_snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection()
        connection.execute("BEGIN")
        try:
            return work(connection)
        finally:
            connection.execute("ROLLBACK")

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._database.connect()
            self._connections.append(connection)
        return connection

    def close(self) -> None:
        """Wait for running reads and close the connections."""
        self._pool.shutdown(wait=True)
        for connection in self._connections:
            connection.close()
