"""Reads beside the writer, each in a snapshot of its own."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
        self._gate = threading.Condition()
        self._reading = 0
        self._closed_gate = False

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on what is committed now, and see nothing that is committed meanwhile."""
        self._guard.check()
        return await self._guard.loop.run_in_executor(
            self._pool, guarded, self._database, lambda: self._in_snapshot(work)
        )

    def pause(self, patience: float) -> None:
        """Let no read begin, and give those that run some seconds to end."""
        with self._gate:
            self._closed_gate = True
            self._gate.wait_for(lambda: self._reading == 0, timeout=patience)

    def resume(self) -> None:
        with self._gate:
            self._closed_gate = False
            self._gate.notify_all()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Hold up reads for the length of the block."""
        self.pause(1)
        try:
            yield
        finally:
            self.resume()

    def _in_snapshot(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connection()
        with self._gate:
            self._gate.wait_for(lambda: not self._closed_gate)
            self._reading += 1
        try:
            connection.execute("BEGIN")
            return work(connection)
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            with self._gate:
                self._reading -= 1
                self._gate.notify_all()

    def _connection(self) -> sqlite3.Connection:
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._local.connection = self._database.connect()
            self._connections.append(connection)
        return connection

    def stop(self) -> None:
        """Wait for running reads."""
        self._pool.shutdown(wait=True)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
