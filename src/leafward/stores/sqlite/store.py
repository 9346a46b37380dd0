"""The SQLite store: its parts, from opening to closing."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from leafward.core.errors import ConfigurationError
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability, check_options
from leafward.stores.guard import Guard
from leafward.stores.signals import Signals
from leafward.stores.sql.state_table import SqlStates
from leafward.stores.sql.states import StateRows
from leafward.stores.sql.store import SqlStore
from leafward.stores.sqlite import forking
from leafward.stores.sqlite.backup import copy_database, fsync
from leafward.stores.sqlite.connection import Database, guarded
from leafward.stores.sqlite.lock import Share, WriterLock, owner_only
from leafward.stores.sqlite.parts import Parts
from leafward.stores.sqlite.running import SqliteRunner
from leafward.stores.sqlite.setup import prepare
from leafward.stores.states.table import Layout
from leafward.stores.urls import without_secrets

DEFAULT_PREFIX = "leafward_"
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}|")


class SqliteStore(SqlStore):
    """Sessions in one SQLite file, shared by any number of processes of one machine."""

    def __init__(
        self,
        database: Database,
        guard: Guard,
        lock: WriterLock,
        connection: sqlite3.Connection,
        max_message_bytes: int,
        layout: Layout = "2.x",
    ) -> None:
        self._database = database
        self._guard = guard
        self._lock = lock
        self._connection = connection
        self._signals = Signals()
        self._parts = Parts(database, guard, lock, connection)
        self._writer, self._upkeep = self._parts.writer, self._parts.upkeep
        self.runner = SqliteRunner(self._parts, self._signals)
        super().__init__(self.runner, SqlStates(self.runner, StateRows(layout)), max_message_bytes, layout)
        self._closing: Future[None] | None = None
        forking.remember(self)
        self._parts.start()

    def durability(self) -> Durability:
        """Tell what a finished write survives; `"process"` when that was asked for, or on a file system in memory."""
        return self._database.found_durability()

    async def survive_power_cuts(self) -> None:
        """Have every commit from now on survive a power cut, also in a store opened with `durability="process"`."""
        self._guard.check()
        await self._guard.loop.run_in_executor(None, guarded, self._database, self._flush_from_now_on)

    def _flush_from_now_on(self) -> None:
        # Between two transactions: inside one, SQLite does not change this.
        with self._writer.in_sqlite:
            self._database.flush_commits(self._connection)
        # The log may have been made by a process that flushes nothing, and its name not be on the disk yet.
        fsync(Path(self._database.path).parent)

    async def settle(self) -> None:
        """Return once the search index holds every message and nothing of a cleared session is left in the tables."""
        self._guard.check()
        await self._writer.settle()

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store as of now to `path`, while others go on writing.

        The copy appears under its name only when it is whole and on disk; a file of that name is replaced, and must
        not be in use as a store.

        Raises:
            ConfigurationError: `path` is the store's own file.
            StoreError: the copy could not be written.
        """
        self._guard.check()
        await self._guard.loop.run_in_executor(None, copy_database, self._database, Path(path))

    async def close(self) -> None:
        """Finish what was begun, tidy the file and let go of it; every call returns when that is done."""
        self._guard.check_process()
        await self.background.close()
        if self._closing is None:
            self._guard.closed = True
            self._signals.notify_all()
            closer = ThreadPoolExecutor(1, thread_name_prefix="leafward closer")
            self._closing = closer.submit(guarded, self._database, self._shut)
            closer.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _shut(self) -> None:
        self._parts.shut()
        self._lock.close()
        forking.forget(self)

    def before_fork(self) -> None:
        """Wait until no thread is inside SQLite, but not for ever: somebody else may hold the file."""
        self._parts.pause()

    def after_fork(self) -> None:
        """Go on, in the parent."""
        self._parts.resume()

    def drop(self) -> None:
        """Close what a forked child inherited."""
        self._parts.drop()
        # Or a parent killed while writing would leave the file locked by this child.
        self._lock.close()

    def __del__(self) -> None:
        if not self._guard.closed:
            self._guard.closed = True
            warnings.warn(f"{self._guard.what} was not closed", ResourceWarning, source=self, stacklevel=1)
            if not sys.is_finalizing():
                threading.Thread(target=self._shut, daemon=True).start()


async def open_sqlite(
    url: str,
    *,
    durability: str = "power",
    table_prefix: str = DEFAULT_PREFIX,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    share: Share = owner_only,
    layout: Layout = "2.x",
) -> SqliteStore:
    """Open `sqlite:///relative.db` or `sqlite:////absolute.db`, making the file and its directory when missing.

    The files are for their owner alone, unless `share` lets others use them. States are in AgentScope's `layout`.
    """
    check_options(durability, max_message_bytes)
    if not isinstance(table_prefix, str) or not _PREFIX.fullmatch(table_prefix):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"a table prefix is letters, digits and underscores, not {table_prefix!r}")
    guard = Guard(f"the store {url}")
    database = Database(_path(url), durability, table_prefix)
    opening = guard.loop.run_in_executor(None, guarded, database, lambda: prepare(database, share))
    try:
        lock, connection = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_abandon)
        raise
    return SqliteStore(database, guard, lock, connection, max_message_bytes, layout)


def _path(url: str) -> str:
    path = url.removeprefix("sqlite:///")
    if path == url or not path or "\0" in path or not _is_text(path):
        raise ConfigurationError(
            f"{without_secrets(url)!r} names no file: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    if path == ":memory:":
        raise ConfigurationError("for a store in memory write memory://")
    # Resolved once: later connections must find the same file, and every name of a file must mean one lock.
    return os.path.realpath(path)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _abandon(opening: asyncio.Future[tuple[WriterLock, sqlite3.Connection]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        threading.Thread(target=_let_go, args=opening.result()).start()


def _let_go(lock: WriterLock, connection: sqlite3.Connection) -> None:
    with lock:
        connection.close()
    lock.close()
