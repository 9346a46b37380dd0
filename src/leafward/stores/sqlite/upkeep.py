"""What the writer does when nobody waits: indexing, purging, checkpoints."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager

from leafward.core.text import analyzer_version, index_tokens
from leafward.stores.sql.schema import GET_META
from leafward.stores.sqlite import index
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.lock import WriterLock

CHECKPOINT_AFTER = 1000
"""Pages, about, after which the log is copied into the database even while more are coming. The log then starts again
at its beginning, and overwriting it is faster than letting it grow."""
CHECKPOINT_WHEN_IDLE = 100
PAGE = 4096
INDEX_AFTER = 5000
"""Messages that may wait for the index before slices take turns with writes; a search reads those that wait."""


class SqliteUpkeep:
    """Decides what is due and does one slice of it, behind the lock that writers of all processes share."""

    def __init__(self, database: Database, lock: WriterLock) -> None:
        self._database = database
        self._lock = lock
        self._unindexed = 0
        self._uncopied = 0
        self._maybe_more = True
        self._checked = False
        self._warming: threading.Thread | None = None

    def wrote(self, writes: int, rows: int, size: int) -> None:
        self._unindexed += writes
        self._uncopied += 2 * writes + rows + size // PAGE
        self._maybe_more = True

    def due(self, *, idle: bool) -> bool:
        if idle:
            return self._maybe_more or self._uncopied >= CHECKPOINT_WHEN_IDLE
        return self._uncopied >= CHECKPOINT_AFTER or self._unindexed >= INDEX_AFTER

    def step(self, connection: sqlite3.Connection) -> None:
        if self._uncopied >= CHECKPOINT_AFTER or not self._maybe_more:
            self.checkpoint(connection, "PASSIVE")
        elif self._warming is None or self._warming.is_alive():
            self._warm_up()
        elif not self._tidy(connection):
            self._maybe_more = False
            self._unindexed = 0

    def _warm_up(self) -> None:
        # Loading the stemmer takes longer than any slice, so no write shall wait for it.
        if self._warming is None:
            self._warming = threading.Thread(target=_load_analyzer, name="leafward warm-up", daemon=True)
            self._warming.start()
        self._warming.join(0.01)

    def checkpoint(self, connection: sqlite3.Connection, mode: str) -> None:
        """Copy the log into the database; never beside a writer, for SQLite before 3.51.3 can lose data then."""
        with self._lock:
            connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()
        self._uncopied = 0

    def _tidy(self, connection: sqlite3.Connection) -> bool:
        """Do a slice of indexing or purging, and tell whether there was anything to do."""
        run, render = self._database.run, self._database.render
        if connection.execute(render(index.ANY_DISCARDED)).fetchall():
            with self._unsynced(connection):
                run(connection, index.purge_slice())
            return True
        if not connection.execute(render(index.ANY_QUEUED)).fetchall() and self._checked:
            return False
        if not self._is_current(connection):
            with self._unsynced(connection):
                run(connection, index.rebuild())
        self._checked = True
        # Tokens are made before the lock is taken, for that is most of the work.
        prepared = run(connection, index.prepare_slice())
        if prepared:
            with self._unsynced(connection):
                if self._is_current(connection):
                    run(connection, index.index_slice(prepared))
        return bool(prepared)

    def _is_current(self, connection: sqlite3.Connection) -> bool:
        rows = connection.execute(self._database.render(GET_META), (index.ANALYZER,)).fetchall()
        return bool(rows) and rows[0][0] == analyzer_version()

    @contextmanager
    def _unsynced(self, connection: sqlite3.Connection) -> Generator[None]:
        """A transaction that need not survive a power cut by itself: what it derives can be derived again."""
        with self._lock:
            synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
            connection.execute("PRAGMA synchronous = NORMAL")
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                    raise
            finally:
                connection.execute(f"PRAGMA synchronous = {synchronous}")


def _load_analyzer() -> None:
    analyzer_version()
    index_tokens("warm up 预热")
