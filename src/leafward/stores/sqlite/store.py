"""Opening, backing up and closing a SQLite store."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import tempfile
import warnings
from pathlib import Path
from typing import Self

from leafward.core.errors import ConfigurationError, StoreError
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability, check_durability
from leafward.stores.guard import Guard
from leafward.stores.signals import Signals
from leafward.stores.sql import schema
from leafward.stores.sqlite.connection import Database, guarded
from leafward.stores.sqlite.lock import WriterLock
from leafward.stores.sqlite.messages import SqliteMessages
from leafward.stores.sqlite.readers import Readers
from leafward.stores.sqlite.upkeep import SqliteUpkeep
from leafward.stores.sqlite.writer import Writer

DEFAULT_PREFIX = "leafward_"
_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,40}|")


class SqliteStore:
    """Sessions in one SQLite file, shared by any number of processes of one machine."""

    distributed = False

    def __init__(
        self,
        database: Database,
        guard: Guard,
        lock: WriterLock,
        connection: sqlite3.Connection,
        max_message_bytes: int,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self._database = database
        self._guard = guard
        self._lock = lock
        self._connection = connection
        self._durability: Durability = database.found_durability(connection)
        self._upkeep = SqliteUpkeep(database, lock)
        self._writer = Writer(database, guard, lock, self._upkeep)
        self._readers = Readers(database, guard)
        self._signals = Signals()
        self.messages = SqliteMessages(database, self._writer, self._readers, self._signals)
        self._writer.start(connection)

    def durability(self) -> Durability:
        return self._durability

    async def settle(self) -> None:
        """Return once the search index holds every message and cleared messages are gone from the file."""
        self._guard.check()
        await self._writer.settle()

    async def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the store as of now to `path`, while others go on writing.

        The copy appears under its name only when it is whole and on disk; a file of that name is replaced.

        Raises:
            ConfigurationError: `path` is the store's own file.
        """
        source, target = Path(self._database.path), Path(path)
        await self._readers.run_unbound(lambda connection: _copy(connection, source, target))

    async def close(self) -> None:
        """Finish what was begun, tidy the file and let go of it."""
        self._guard.check_process()
        if not self._guard.closed:
            self._guard.closed = True
            self._signals.notify_all()
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self._shut))

    def _shut(self) -> None:
        self._writer.stop()
        self._readers.close()
        guarded(self._database, self._close_connection)

    def _close_connection(self) -> None:
        try:
            self._upkeep.checkpoint(self._connection, "TRUNCATE")
        finally:
            # The last connection to close checkpoints by itself: that too only behind the lock.
            with self._lock:
                self._connection.close()
            self._lock.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __del__(self) -> None:
        if not self._guard.closed:
            warnings.warn(f"{self._guard.what} was not closed", ResourceWarning, source=self, stacklevel=1)


async def open_sqlite(
    url: str,
    *,
    durability: str = "power",
    table_prefix: str = DEFAULT_PREFIX,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
) -> SqliteStore:
    """Open `sqlite:///relative.db` or `sqlite:////absolute.db`, making the file and its directory when missing."""
    check_durability(durability)
    if not _PREFIX.fullmatch(table_prefix):
        raise ConfigurationError(f"a table prefix is letters, digits and underscores, not {table_prefix!r}")
    path = _path(url)
    guard = Guard(f"the store {url}")
    database = Database(path, durability, table_prefix)
    loop = asyncio.get_running_loop()
    opening = loop.run_in_executor(None, guarded, database, lambda: _prepare(database))
    try:
        lock, connection = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_abandon)
        raise
    return SqliteStore(database, guard, lock, connection, max_message_bytes)


def _path(url: str) -> str:
    path = url.removeprefix("sqlite:///")
    if path == url or not path or "\0" in path:
        raise ConfigurationError(f"{url!r} names no file: write sqlite:///relative.db or sqlite:////absolute.db")
    if path == ":memory:":
        raise ConfigurationError("for a store in memory write memory://")
    return path


def _prepare(database: Database) -> tuple[WriterLock, sqlite3.Connection]:
    """Make the file and its tables as they should be, one process at a time."""
    path = Path(database.path)
    if path.is_dir():
        raise ConfigurationError(f"{path} is a directory: name a file in it")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = WriterLock(f"{path}-lock")
    try:
        with lock:
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            connection = database.connect()
            try:
                _set_up(database, connection)
            except BaseException:
                connection.close()
                raise
    except BaseException:
        lock.close()
        raise
    return lock, connection


def _set_up(database: Database, connection: sqlite3.Connection) -> None:
    if ("ENABLE_FTS5",) not in connection.execute("PRAGMA compile_options").fetchall():
        raise ConfigurationError("this Python's SQLite lacks FTS5, which search needs: use a Python built with it")
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigurationError(f"{database.path} is on a file system without shared memory: keep it on a local disk")
    migrate(database, connection, schema.MIGRATIONS)


def migrate(database: Database, connection: sqlite3.Connection, steps: tuple[tuple[str, ...], ...]) -> None:
    """Bring the tables up to the last step, in one transaction.

    Raises:
        StoreError: the file was written by a newer leafward.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(database.render(schema.CREATE_META))
        rows = connection.execute(database.render(schema.GET_META), (schema.SCHEMA_VERSION,)).fetchall()
        done = int(rows[0][0]) if rows else 0
        if done > len(steps):
            raise StoreError(
                f"{database.path} was written by a newer leafward (its tables are at version {done}, "
                f"this one knows {len(steps)}): upgrade leafward; the file was not touched"
            )
        for step in steps[done:]:
            for statement in step:
                connection.execute(database.render(statement))
        if done < len(steps):
            connection.execute(database.render(schema.SET_META), (schema.SCHEMA_VERSION, str(len(steps))))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _abandon(opening: asyncio.Future[tuple[WriterLock, sqlite3.Connection]]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        lock, connection = opening.result()
        connection.close()
        lock.close()


def _copy(connection: sqlite3.Connection, source: Path, target: Path) -> None:
    if target.resolve() == source.resolve():
        raise ConfigurationError(f"{target} is the store itself: give the backup another name")
    target.parent.mkdir(parents=True, exist_ok=True)
    number, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(number)
    try:
        copy = sqlite3.connect(unfinished)
        try:
            connection.backup(copy)
        finally:
            copy.close()
        _fsync(unfinished, os.O_RDWR)
        os.replace(unfinished, target)
        _fsync(os.fspath(target.parent), os.O_RDONLY)
    except BaseException:
        for name in (unfinished, f"{unfinished}-wal", f"{unfinished}-shm"):
            Path(name).unlink(missing_ok=True)
        raise


def _fsync(path: str, flags: int) -> None:
    number = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
