"""What works on one open database file: its writer, its readers and their upkeep."""

from __future__ import annotations

import sqlite3
import threading

from leafward.stores.guard import Guard
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.lock import WriterLock
from leafward.stores.sqlite.rawfile import let_go
from leafward.stores.sqlite.readers import Readers
from leafward.stores.sqlite.upkeep import SqliteUpkeep
from leafward.stores.sqlite.writer import Transaction, Writer

_PATIENCE_S = 5
"""How long a fork waits for threads that are inside SQLite."""


class Parts:
    """Starts together, ends together; the lock is whose that made it."""

    def __init__(
        self,
        database: Database,
        guard: Guard,
        lock: WriterLock,
        connection: sqlite3.Connection,
        transaction: Transaction | None = None,
    ) -> None:
        self.database = database
        self.readers = Readers(database, guard)
        self.upkeep = SqliteUpkeep(database, lock, self.readers)
        self.writer = Writer(database, guard, lock, self.upkeep, transaction)
        self._lock = lock
        self._connection = connection
        self._paused: list[threading.Lock] = []

    def start(self) -> None:
        self.writer.start(self._connection)

    def shut(self) -> None:
        """Finish what was begun and close the file."""
        for part in (self.writer, self.readers, self.upkeep):
            part.stop()
        # The last connection to close copies the log into the database: only behind the lock, like any checkpoint.
        with self._lock:
            self._close()
            let_go()

    def pause(self) -> None:
        """Wait until no thread is inside SQLite, but not for ever."""
        locks = (self.writer.in_sqlite, self.upkeep.in_sqlite)
        self._paused = [lock for lock in locks if lock.acquire(timeout=_PATIENCE_S)]
        self.readers.pause(_PATIENCE_S)

    def resume(self) -> None:
        self.readers.resume()
        while self._paused:
            self._paused.pop().release()

    def drop(self) -> None:
        """Close what a forked child inherited."""
        self._close()

    def _close(self) -> None:
        self.readers.close()
        self.upkeep.close()
        self._connection.close()
