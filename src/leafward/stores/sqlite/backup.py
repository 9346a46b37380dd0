"""Copies a database while it is written to."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from pathlib import Path

from leafward.core.errors import ConfigurationError
from leafward.stores.sqlite.connection import Database, guarded


def copy_database(source: Database, target: Path) -> None:
    """Copy `source` as of now to `target`, which appears whole and on disk or not at all."""
    if target.resolve() == Path(source.path):
        raise ConfigurationError(f"{target} is the store itself: give the backup another name")
    # Errors are told with the target's name, for it is the target that can be full or forbidden.
    guarded(Database(os.fspath(target), source.durability, ""), lambda: _copy(source, target))


def _copy(source: Database, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    number, unfinished = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    os.close(number)
    try:
        _backup(source, unfinished)
        fsync(unfinished)
        # What a user of the former copy left in its log must not be taken for part of this one.
        for name in (f"{target}-wal", f"{target}-shm"):
            Path(name).unlink(missing_ok=True)
        os.replace(unfinished, target)
        fsync(target.parent)
    except BaseException:
        for name in (unfinished, f"{unfinished}-wal", f"{unfinished}-shm"):
            Path(name).unlink(missing_ok=True)
        raise


def _backup(source: Database, target: str) -> None:
    connection, copy = source.connect(), sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
        connection.close()


def fsync(path: str | Path) -> None:
    """Make a file, or a directory's list of names, durable."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def copy_file(path: str, target: str) -> None:
    """Copy a database that may be anybody's, as of now; nothing is written to it.

    Raises:
        StoreError: it cannot be read, or the copy not be written.
    """
    database = Database(os.path.realpath(path), "process", "")
    guarded(database, lambda: _read(database))
    copy_database(database, Path(target))


def _read(database: Database) -> None:
    connection = database.connect()
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        connection.close()
