"""A lock that gives processes fair turns at one database file.

SQLite's own busy handler polls, so a busy writer starves the others and they end with "database is locked". Blocking
`flock`s on files beside the database queue them in the kernel instead, and are let go of when their holder dies.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

Share = Callable[[int], None]
"""Lets other users use a new file, of this descriptor, too."""


def owner_only(number: int) -> None:
    """Leave a new file to its owner."""


class WriterLock:
    """Held by the one process that is writing to, or checkpointing, the database.

    Who is woken has to compete, on a busy machine for long, with whoever just wrote and wants to again. So there is a
    place for one in front of the lock: who has it is the next to write, and the last writer has to queue for it too.
    """

    def __init__(self, path: str, share: Share = owner_only) -> None:
        self._lock = self._next = -1
        lock = _open(path, share)
        try:
            self._next = _open(f"{path}-next", share)
        except BaseException:
            os.close(lock)
            raise
        self._lock = lock

    def __enter__(self) -> Self:
        fcntl.flock(self._next, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            os.close(self._next)
            self._lock = self._next = -1


def _open(path: str, share: Share) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        # Only what is made here is shared: another user may have put a file of ours in its place.
        with suppress(FileExistsError):
            return make(path, flags, share)


def make(path: str, flags: int, share: Share) -> int:
    """Return a descriptor of a new file."""
    number = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        share(number)
    except BaseException:
        os.close(number)
        raise
    return number
