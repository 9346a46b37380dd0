"""Makes a file and its tables what this version of leafward expects."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from leafward.core.errors import ConfigurationError, CorruptStore, StoreError
from leafward.stores.sql import schema
from leafward.stores.sqlite.backup import fsync
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.lock import Share, WriterLock, make, owner_only
from leafward.stores.sqlite.mounts import refuse_network

_SMALLEST = 512
"""Bytes of a file that holds the smallest page there is."""
HAS_META = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{p}meta'"


def prepare(database: Database, share: Share = owner_only) -> tuple[WriterLock, sqlite3.Connection]:
    """Open the file for writing, one process at a time; make it first when it is missing."""
    path = Path(database.path)
    if path.is_dir():
        raise ConfigurationError(f"{path} is a directory: name a file in it")
    refuse_network(database.path)
    _make_directory(path.parent)
    lock = WriterLock(f"{path}-lock", share)
    try:
        with lock:
            return lock, open_file(database, share)
    except BaseException:
        lock.close()
        raise


def open_file(database: Database, share: Share = owner_only) -> sqlite3.Connection:
    """Open the file, made first when it is missing, with its tables up to date; behind the lock."""
    path = Path(database.path)
    if path.exists():
        if 0 < path.stat().st_size < _SMALLEST:
            # SQLite would take it for an empty one, and write over it.
            raise CorruptStore(str(path), "is not a SQLite database")
    else:
        # SQLite gives the files beside it the same rights.
        os.close(make(database.path, os.O_CLOEXEC, share))
        fsync(path.parent)
    database.note_file()
    connection = database.connect()
    try:
        _set_up(database, connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _make_directory(path: Path) -> None:
    if not path.exists():
        _make_directory(path.parent)
        path.mkdir(exist_ok=True)
        fsync(path.parent)


def _set_up(database: Database, connection: sqlite3.Connection) -> None:
    mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
    if mode != "wal":
        raise ConfigurationError(f"{database.path} is on a file system without shared memory: keep it on a local disk")
    migrate(database, connection, schema.MIGRATIONS)


def migrate(database: Database, connection: sqlite3.Connection, steps: tuple[tuple[str, ...], ...]) -> None:
    """Bring the tables up to the last step, in one transaction; nothing is written when they are there.

    Raises:
        StoreError: the file was written by a newer leafward.
    """
    done = _steps_done(database, connection)
    if done > len(steps):
        raise StoreError(
            f"{database.path} was written by a newer leafward (its tables are at version {done}, "
            f"this one knows {len(steps)}): upgrade leafward; the file was not touched"
        )
    if done == len(steps):
        return
    if ("ENABLE_FTS5",) not in connection.execute("PRAGMA compile_options").fetchall():
        raise ConfigurationError("this Python's SQLite lacks FTS5, which search needs: use a Python built with it")
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(database.render(schema.CREATE_META))
        for step in steps[done:]:
            for statement in step:
                connection.execute(database.render(statement))
        connection.execute(database.render(schema.SET_META), (schema.SCHEMA_VERSION, str(len(steps))))
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _steps_done(database: Database, connection: sqlite3.Connection) -> int:
    if not connection.execute(database.render(HAS_META)).fetchall():
        return 0
    rows = connection.execute(database.render(schema.GET_META), (schema.SCHEMA_VERSION,)).fetchall()
    if rows and not rows[0][0].isdecimal():
        raise CorruptStore(database.path, f"says its tables are at version {rows[0][0]!r}")
    return int(rows[0][0]) if rows else 0
