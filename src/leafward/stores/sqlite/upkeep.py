"""What the writer does when nobody waits: indexing, purging, cutting words, checkpoints, the rest of an erasure."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from leafward.stores.sql.operations import Operation
from leafward.stores.sqlite import erase, index, purge, uncut
from leafward.stores.sqlite.connection import BUSY_TIMEOUT_S, Database
from leafward.stores.sqlite.lock import WriterLock
from leafward.stores.sqlite.readers import Readers
from leafward.stores.sqlite.scrub import Scrubber
from leafward.stores.sqlite.transaction import unsynced

CHECKPOINT_AFTER = 1000
"""Pages, about, after which the log is copied into the database even while more are coming. The log then starts again
at its beginning, and overwriting it is faster than letting it grow."""
CHECKPOINT_WHEN_IDLE = 100
LARGEST_LOG = 16_000
"""Pages of log after which reads are held up for a moment, for while one is open the log cannot start again."""
PAGE = 4096
INDEX_AFTER = 20_000
"""Messages that may wait for the index before slices take turns with writes; a search reads those that wait."""

Slice = Callable[[sqlite3.Connection], None]


class SqliteUpkeep:
    """Decides what is due and does one slice of it, behind the lock that writers of all processes share.

    A slice is prepared on a thread of its own, which reads and cuts words, so that the writer only writes.
    """

    def __init__(self, database: Database, lock: WriterLock, readers: Readers) -> None:
        self._database = database
        self._lock = lock
        self._readers = readers
        self.scrubber = Scrubber(database, lock, readers)
        self._looked = False
        self._unindexed = 0
        self._uncopied = 0
        self._last_rows = 0
        self._maybe_more = True
        self._written = False
        self._damaged = False
        self._rebuilt = False
        self._unmerged = False
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="leafward indexer")
        self._preparing: Future[Slice | None] | None = None
        self._connection: sqlite3.Connection | None = None
        self.in_sqlite = threading.Lock()
        """Held while the indexer's thread uses its connection."""

    def wrote(self, rows: int, size: int) -> None:
        """Take note of a commit that changed so many rows, with so many bytes of content."""
        self._last_rows = rows
        self._unindexed += max(rows - 1, 1)
        self._uncopied += 2 * rows + size // PAGE
        self._maybe_more = self._written = True

    def report_damage(self) -> None:
        """Have the index made anew."""
        self._damaged = self._maybe_more = self._written = True

    def due(self, *, idle: bool) -> bool:
        if idle:
            return self._maybe_more or self._uncopied >= CHECKPOINT_WHEN_IDLE
        return self._uncopied >= CHECKPOINT_AFTER or self._unindexed >= INDEX_AFTER or self.scrubber.pending

    def step(self, connection: sqlite3.Connection) -> None:
        """Do one slice of what is due."""
        if self._uncopied >= CHECKPOINT_AFTER or not self._maybe_more:
            self._checkpoint(connection)
        else:
            before = connection.total_changes
            self._tidy(connection)
            self._uncopied += connection.total_changes - before

    def stop(self) -> None:
        """Wait for the slice that is being prepared."""
        self._pool.shutdown(wait=True)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _checkpoint(self, connection: sqlite3.Connection) -> None:
        """Copy the log into the database; never beside a writer, for SQLite before 3.51.3 can lose data then."""
        with self._lock:
            _, pages, copied = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        self._uncopied = pages - copied if copied < pages - CHECKPOINT_AFTER else 0
        if pages > LARGEST_LOG:
            self._restart_log(connection)

    def _restart_log(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA busy_timeout = 100")
        try:
            with self._readers.paused(), self._lock:
                connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}")

    def _tidy(self, connection: sqlite3.Connection) -> None:
        """Do a slice of indexing, purging or erasing if one is ready, and see to the next."""
        if not self._looked:
            self._looked = True
            if self._database.run(connection, erase.found_mark()) is not None:
                self.scrubber.ask()
        if self._preparing is None:
            self._written = False
            self._preparing = self._pool.submit(self._prepare)
        if not self._preparing.done():
            return
        preparing, self._preparing = self._preparing, None
        ready = preparing.result()
        if ready is not None:
            ready(connection)
        elif self._unmerged:
            self._merge(connection)
        elif not self._written:
            # What was looked for before a write says nothing of what that left to do.
            self._maybe_more = False
            self._unindexed = 0

    def _apply(self, operation: Callable[[], Operation[None]]) -> Slice:
        def write(connection: sqlite3.Connection) -> None:
            with unsynced(self._lock, connection):
                self._database.run(connection, operation())
            self._unindexed = max(0, self._unindexed - index.SLICE)
            self._unmerged = True

        return write

    def _prepare(self) -> Slice | None:
        """Read what is next and make its tokens; runs on the indexer's thread."""
        with self.in_sqlite:
            return self._choose()

    def _choose(self) -> Slice | None:
        if self._connection is None:
            self._connection = self._database.connect()
        run, connection = self._database.run, self._connection
        if self._damaged:
            self._damaged = False
            return self._apply(index.rebuild)
        discarded = run(connection, purge.prepare())
        if discarded:
            return self._apply(lambda: purge.apply(discarded))
        if self.scrubber.pending:
            return self.scrubber.step
        found = run(connection, index.found_analyzer())
        if found != index.analyzer_version():
            # Where two versions of leafward share a file, each makes the index anew once, not in turns for ever.
            again = found in (None, index.DAMAGED) or not self._rebuilt
            self._rebuilt = True
            return self._apply(index.rebuild) if again else None
        # Under load a slice is as large as what was just committed, so that the queue stops growing.
        queued = run(connection, index.prepare_slice(max(index.SLICE, min(self._last_rows, index.LARGEST_SLICE))))
        if queued:
            return self._apply(lambda: index.apply_slice(queued))
        cut = run(connection, uncut.prepare())
        return self._apply(lambda: uncut.apply(cut)) if cut else None

    def _merge(self, connection: sqlite3.Connection) -> None:
        """Join the index's segments a little, which makes it smaller and searches faster, until there is one."""
        before = connection.total_changes
        with unsynced(self._lock, connection):
            self._database.run(connection, index.merge())
        self._unmerged = connection.total_changes - before > 1
