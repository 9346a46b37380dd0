"""Connections to one database file, and what SQLite's errors mean."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
from collections.abc import Callable, Mapping
from typing import TypeVar
from urllib.parse import quote

from leafward.core.errors import (
    ConfigurationError,
    CorruptStore,
    LeafwardError,
    OutcomeUnknown,
    StorageFull,
    StoreError,
)
from leafward.core.json import DecodeError
from leafward.stores.contracts import Durability
from leafward.stores.sql.operations import Operation, run_steps
from leafward.stores.sql.schema import spell
from leafward.stores.sqlite.mounts import IN_MEMORY, kind_of

T = TypeVar("T")

MINIMUM_SQLITE = (3, 35, 0)
BUSY_TIMEOUT_S = 60.0
"""Only another program's lock is ever waited for this long; ours queue at `WriterLock`."""

_FAILED_WRITES = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
    sqlite3.SQLITE_IOERR_TRUNCATE,
)
_SYNCHRONOUS = {"power": "FULL", "process": "NORMAL"}


class FileReplaced(StoreError):
    """The file that was opened is no longer the one of its name."""


class Database:
    """Opens connections to one file with the settings our promises rest on."""

    def __init__(self, path: str, durability: str, prefix: str, *, instead: Mapping[str, str] | None = None) -> None:
        if sqlite3.sqlite_version_info < MINIMUM_SQLITE:
            raise ConfigurationError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")
        self.path = path
        self.durability = durability
        self._prefix = prefix
        self._instead = instead or {}
        """Statements that take the place of others on this file."""
        self._rendered: dict[str, str] = {}
        self._file: tuple[int, int] | None = None

    def connect(self) -> sqlite3.Connection:
        if os.path.islink(self.path):
            # The path was resolved: somebody put the link there since, and it may lead to another's file.
            raise self._replaced()
        # Not made here: a file that vanished must be noticed, not replaced by an empty one.
        connection = sqlite3.connect(
            f"file:{quote(self.path)}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=BUSY_TIMEOUT_S,
            cached_statements=256,
        )
        self.set_synchronous(connection)
        for pragma in (
            "wal_autocheckpoint = 0",
            "secure_delete = ON",
            "trusted_schema = OFF",
            "cache_size = -16000",
        ):
            connection.execute(f"PRAGMA {pragma}")
        return connection

    def set_synchronous(self, connection: sqlite3.Connection) -> None:
        """Have commits on this connection survive what was asked for."""
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")

    def flush_commits(self, connection: sqlite3.Connection) -> None:
        """Have what is committed on this connection, and on later ones, survive a power cut."""
        self.durability = "power"
        self.set_synchronous(connection)

    def note_file(self) -> None:
        """Remember which file this is."""
        self._file = self._identity()

    def check_file(self) -> None:
        """Raise when the file was removed or replaced: what is written to it now would be lost with it."""
        if not self.is_there():
            raise self._replaced()

    def _replaced(self) -> FileReplaced:
        return FileReplaced(f"{self.path} was removed or replaced while it was open: close it and open it again")

    def is_there(self) -> bool:
        """Tell whether the file that was opened is still the one of its name."""
        return self._identity() == self._file

    def _identity(self) -> tuple[int, int] | None:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return None
        return found.st_dev, found.st_ino

    def render(self, statement: str) -> str:
        """Return a statement with the table prefix filled in."""
        try:
            return self._rendered[statement]
        except KeyError:
            return self._rendered.setdefault(statement, spell(self._instead.get(statement, statement), self._prefix))

    def run(self, connection: sqlite3.Connection, operation: Operation[T], at: int | None = None) -> T:
        """Run an operation to its end on this connection, now or as if at the time `at`."""
        execute, render = connection.execute, self.render
        return run_steps(operation, lambda statement, given: execute(render(statement), given).fetchall(), at)

    def found_durability(self) -> Durability:
        """Tell what a commit survives, from what was asked for and from what the file system is."""
        return "power" if self.durability == "power" and kind_of(self.path) not in IN_MEMORY else "process"

    def translate(self, error: Exception) -> Exception:
        """Return what the caller is to get: our word for a failure of the file, anything else as it is."""
        if not isinstance(error, (sqlite3.Error, OSError, DecodeError)):
            return error
        ours = self.explain(error)
        ours.__cause__ = error
        return ours

    def explain(self, error: Exception) -> LeafwardError:
        """Say in our words what went wrong, and what to do."""
        if isinstance(error, LeafwardError):
            return error
        if isinstance(error, DecodeError):
            return CorruptStore(self.path, f"holds a message that is not JSON ({error})")
        code = getattr(error, "sqlite_errorcode", None)
        kind = None if code is None else code & 0xFF
        if kind in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            what = "is not a SQLite database" if kind == sqlite3.SQLITE_NOTADB else f"is damaged ({error})"
            return CorruptStore(self.path, what)
        if kind == sqlite3.SQLITE_FULL or (code in _FAILED_WRITES and self._no_room()) or _is_full(error):
            return StorageFull(self.path)
        if code == sqlite3.SQLITE_IOERR_FSYNC:
            return OutcomeUnknown(self.path)
        if kind == sqlite3.SQLITE_BUSY:
            return StoreError(
                f"{self.path} has been locked by another program for {BUSY_TIMEOUT_S:.0f} s: end its transaction"
            )
        if kind in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM) or isinstance(
            error, OSError
        ):
            return StoreError(f"{self.path} cannot be opened for writing ({error}): check the path and its permissions")
        return StoreError(f"{self.path} could not be read or written: {error}")

    def _no_room(self) -> bool:
        """Tell whether a failed write was one for lack of space: a full disk, a quota, or a limit on file sizes."""
        # SQLite tells a full disk from other failures only for some of its files, and a limit for none.
        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
            return True
        space = os.statvfs(os.path.dirname(os.path.abspath(self.path)))
        return space.f_bavail * space.f_frsize < 1024 * 1024


def _is_full(error: Exception) -> bool:
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def guarded(database: Database, work: Callable[[], T]) -> T:
    """Run blocking work; whatever SQLite or the system raises comes out as one of our errors."""
    try:
        return work()
    except (sqlite3.Error, OSError, DecodeError) as error:
        raise database.explain(error) from error
