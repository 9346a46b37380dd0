"""Takes the bytes of erased sessions out of the file, in slices, once their rows are gone.

The words go first: the search index forgets them only when all its segments are joined. Then the log is copied into
the database and emptied. What is left are old copies of rows in unused parts of pages, see `pages`; these are
overwritten in place. That is safe behind the lock and inside a transaction with the log empty, when nobody else
writes to the file: whoever reads meanwhile finds everything that is stored as it was.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from struct import unpack_from

from leafward.core.errors import CorruptStore
from leafward.stores.sql.operations import Operation
from leafward.stores.sql.schema import GET_META, SET_META
from leafward.stores.sqlite import erase, index, purge
from leafward.stores.sqlite.connection import BUSY_TIMEOUT_S, Database
from leafward.stores.sqlite.lock import WriterLock
from leafward.stores.sqlite.pages import MalformedPage, wiped
from leafward.stores.sqlite.rawfile import raw_file
from leafward.stores.sqlite.readers import Readers
from leafward.stores.sqlite.transaction import unsynced

PATIENCE_S = 5.0
"""How long somebody else's read may keep the log from being emptied before the erasure goes without."""
PAUSE_S = 0.1
TRY_MS = 50
WINDOW = 8 * 1024 * 1024
"""Bytes of the file that are looked through in one slice."""
MOST_PAGES = 2**25
"""With more, a page of a table can no longer be told by its first byte."""

WIPED = "wiped"
"""The name in the meta table of a number that grows whenever pages were overwritten in place."""


class Pass:
    """One way through the file."""

    def __init__(self) -> None:
        self.over = False
        self.not_reached: list[str] = []
        """What had to be left."""
        self.failure: Exception | None = None
        """What ended it before its end."""
        self.mark: str | None = None
        """The mark that is taken away at its end; it stays when another pass may reach more."""
        self.place = 0
        self.blocked_since: float | None = None


Phase = Callable[[Pass, sqlite3.Connection], None]


class Scrubber:
    """Goes through the file for all erasures that were asked for before; each step holds the lock briefly."""

    def __init__(self, database: Database, lock: WriterLock, readers: Readers) -> None:
        self._database = database
        self._lock = lock
        self._readers = readers
        self._next: Pass | None = None
        self._pass: Pass | None = None
        self._phase: Phase = self._join
        self._not_before = 0.0

    @property
    def pending(self) -> bool:
        return self._next is not None or self._pass is not None

    def ask(self) -> Pass:
        """Have the file gone through; what is deleted by then goes."""
        self._next = self._next or Pass()
        return self._next

    def step(self, connection: sqlite3.Connection) -> None:
        """Do one slice."""
        try:
            if self._pass is None:
                self._begin(connection)
            else:
                self._phase(self._pass, connection)
        except Exception as error:
            # The mark is still there: the next erasure, or opening the store, goes through all again.
            ended = self._pass or self._next
            if ended is not None:
                ended.failure = error
                self._next = None if ended is self._next else self._next
                self._end(ended)
            raise

    def _end(self, ended: Pass) -> None:
        self._pass = None
        ended.over = True

    def _begin(self, connection: sqlite3.Connection) -> None:
        # The mark first: whatever it stands for was deleted before, so it is gone once there is nothing to purge.
        mark = self._database.run(connection, erase.found_mark())
        if self._next is None or not self._database.run(connection, purge.is_over()):
            return
        with unsynced(self._lock, connection):
            joining = self._database.run(connection, index.begin_joining())
        self._pass, self._next = self._next, None
        self._pass.mark = mark
        self._phase = self._join if joining else self._empty_log

    def _join(self, current: Pass, connection: sqlite3.Connection) -> None:
        """Join segments of the index until there is nothing to join."""
        before = connection.total_changes
        with unsynced(self._lock, connection):
            self._database.run(connection, index.go_on_joining())
        if connection.total_changes - before < 2:
            self._phase = self._empty_log

    def _empty_log(self, current: Pass, connection: sqlite3.Connection) -> None:
        """Bring all pages into the database file, for what is stale is looked for there."""
        if self._is_patient():
            with self._readers.paused(), self._lock:
                emptied = self._truncate(connection)
            if self._goes_on(current, emptied):
                current.place = 0
                self._phase = self._wipe if self._is_known_layout(current) else self._finish

    def _wipe(self, current: Pass, connection: sqlite3.Connection) -> None:
        """Overwrite what pages of the next stretch of the file hold without use."""
        if not self._is_patient():
            return
        number = raw_file(self._database.path)
        size = _page_size(number)
        # Looked through beside other writers, so this only tells which pages to look at again.
        suspect = [at for at in _window(current.place, number, size) if _is_suspect(os.pread(number, size, at))]
        if not suspect or self._goes_on(current, self._overwrite(connection, number, size, suspect)):
            current.place += WINDOW
            if current.place >= os.fstat(number).st_size:
                os.fsync(number)
                self._phase = self._finish

    def _overwrite(self, connection: sqlite3.Connection, number: int, size: int, suspect: list[int]) -> bool:
        """Overwrite the unused parts of these pages; give False when the log could not be emptied first."""
        with self._readers.paused(), self._lock:
            self._database.check_file()
            if not self._truncate(connection):
                return False
            with closing(self._database.connect()) as beside:
                beside.execute("BEGIN IMMEDIATE")
                try:
                    if os.path.getsize(f"{self._database.path}-wal"):
                        return False  # Another program wrote something just now.
                    for at in suspect:
                        self._overwrite_page(number, size, at)
                    # A commit makes every other connection forget the pages it remembers:
                    # it would bring back their unused parts with the next change.
                    self._database.run(beside, _count_up())
                    beside.execute("COMMIT")
                finally:
                    if beside.in_transaction:
                        beside.execute("ROLLBACK")
        return True

    def _overwrite_page(self, number: int, size: int, at: int) -> None:
        try:
            clean = wiped(os.pread(number, size, at))
        except MalformedPage as error:
            raise CorruptStore(self._database.path, f"is damaged (page {at // size + 1})") from error
        if clean is not None and os.pwrite(number, clean, at) < size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _finish(self, current: Pass, connection: sqlite3.Connection) -> None:
        if current.mark is not None:
            with unsynced(self._lock, connection):
                self._database.run(connection, erase.clear_mark(current.mark))
        self._end(current)

    def _truncate(self, connection: sqlite3.Connection) -> bool:
        """Copy the log into the database and empty it; False while somebody reads from it."""
        connection.execute(f"PRAGMA busy_timeout = {TRY_MS}")
        try:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_S * 1000:.0f}")
        return not busy

    def _is_patient(self) -> bool:
        """Tell whether the pause since the last fruitless try is over."""
        return time.monotonic() >= self._not_before

    def _goes_on(self, current: Pass, emptied: bool) -> bool:
        """Take note of a try to empty the log; after too many, go without."""
        now = time.monotonic()
        if emptied:
            current.blocked_since = None
            return True
        self._not_before = now + PAUSE_S
        if current.blocked_since is None:
            current.blocked_since = now
        if now - current.blocked_since > PATIENCE_S:
            name = os.path.basename(self._database.path)
            current.not_reached.append(
                f"the log {name}-wal and unused parts of {name}: another program kept reading for {PATIENCE_S:.0f} s; "
                "end it and open the store again, which finishes this"
            )
            current.mark = None
            self._phase = self._finish
        return False

    def _is_known_layout(self, current: Pass) -> bool:
        number = raw_file(self._database.path)
        largest_root = unpack_from(">I", os.pread(number, 4, 52))[0]
        reserved = os.pread(number, 1, 20)[0]
        known = not largest_root and not reserved and os.fstat(number).st_size < MOST_PAGES * _page_size(number)
        if not known:
            name = os.path.basename(self._database.path)
            current.not_reached.append(
                f"unused parts of pages of {name}, which was made with auto_vacuum or reserved bytes, or is too large: "
                "VACUUM it while nobody uses it"
            )
        return known


def _page_size(number: int) -> int:
    size = unpack_from(">H", os.pread(number, 2, 16))[0]
    return 65536 if size == 1 else size


def _window(place: int, number: int, size: int) -> range:
    # The first page holds the names of tables and nothing of a session.
    return range(max(place, size), min(place + WINDOW, os.fstat(number).st_size), size)


def _is_suspect(page: bytes) -> bool:
    try:
        return wiped(page) is not None
    except MalformedPage:
        # Somebody may be writing it.
        return True


def _count_up() -> Operation[None]:
    rows = yield GET_META, (WIPED,)
    yield SET_META, (WIPED, str(int(rows[0][0]) + 1 if rows else 1))
