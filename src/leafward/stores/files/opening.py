"""Opens the index of a directory of journals; one that cannot be used is made anew, for the journals have it all."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
from pathlib import Path

from leafward.core.errors import CorruptStore, DirectoryRemoved, StoreError
from leafward.stores.files import names, positions
from leafward.stores.files.folder import Folder
from leafward.stores.sql import statements
from leafward.stores.sql.schema import GET_META, SET_META
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.lock import WriterLock
from leafward.stores.sqlite.setup import open_file

FORMAT = "journals"
"""The name in the meta table of the version of the table of positions."""
VERSION = "1"
_log = logging.getLogger("leafward.stores.files")


class DirectoryLock(WriterLock):
    """The one lock of a directory; it is found again when somebody removed its file."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._path = folder.shown((names.LOCK,))
        self._open()

    def _open(self) -> None:
        if not self._folder.is_there():
            raise DirectoryRemoved(self._folder.path)
        try:
            super().__init__(self._path)
        except FileNotFoundError as error:
            raise DirectoryRemoved(self._folder.path) from error
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise StoreError(f"{error.filename} is a link: it is not followed; remove it") from error

    def __enter__(self) -> DirectoryLock:
        if self._lock >= 0:
            super().__enter__()
        while self._lock < 0 or not self._is_named():
            # Whoever comes next locks the file that has the name.
            super().close()
            self._open()
            super().__enter__()
        return self

    def _is_named(self) -> bool:
        try:
            return os.path.samestat(os.lstat(self._path), os.fstat(self._lock))
        except FileNotFoundError:
            return False


def index_of(folder: Folder) -> Database:
    """Return the index of a directory; it need not survive a power cut, for it is made from the journals."""
    instead = {statements.GET_REVISION: positions.GET_REVISION}
    return Database(folder.shown((names.INDEX,)), "process", "leafward_", instead=instead)


def open_index(database: Database, *, unusable: bool = False) -> sqlite3.Connection:
    """Open the index, behind the lock; make it anew when it is missing, a link, damaged, or of another version."""
    links = [name for name in _files(database.path) if os.path.islink(name)]
    if links:
        _log.warning("%s: a link is not followed; it is removed, and the index made anew", ", ".join(links))
    if unusable or links:
        _remove(database.path)
    if not os.path.exists(database.path):
        # What a removed index left in its log must not be taken for part of the new one.
        _remove(database.path)
        return _open(database)
    try:
        return _open(database)
    except (sqlite3.DatabaseError, CorruptStore, StoreError) as error:
        if not _is_of_no_use(database, error):
            raise
        _log.warning("%s cannot be used and is made anew from the journals: %s", database.path, error)
        _remove(database.path)
        return _open(database)


def _is_of_no_use(database: Database, error: Exception) -> bool:
    ours = database.explain(error)
    return isinstance(ours, CorruptStore) or "newer leafward" in str(ours) or isinstance(error, _Outdated)


class _Outdated(StoreError):
    pass


def _open(database: Database) -> sqlite3.Connection:
    connection = open_file(database)
    try:
        os.chmod(database.path, 0o600)
        connection.execute("BEGIN IMMEDIATE")
        found = connection.execute(database.render(GET_META), (FORMAT,)).fetchall()
        if found and found[0][0] != VERSION:
            raise _Outdated(f"its positions are of version {found[0][0]!r}, not {VERSION!r}")
        connection.execute(database.render(positions.CREATE))
        connection.execute(database.render(positions.CREATE_INCARNATIONS))
        connection.execute(database.render(SET_META), (FORMAT, VERSION))
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _remove(path: str) -> None:
    for name in _files(path):
        Path(name).unlink(missing_ok=True)


def _files(path: str) -> tuple[str, ...]:
    return path, f"{path}-wal", f"{path}-shm"


def clear_unfinished(folder: Folder) -> None:
    """Remove what writes that were killed left unfinished; behind the lock, when nobody writes."""
    for name in folder.names((names.UNFINISHED,)):
        folder.remove((names.UNFINISHED, name))
