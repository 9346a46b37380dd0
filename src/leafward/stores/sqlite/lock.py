"""A lock that gives processes fair turns at one database file.

SQLite's own busy handler polls, so a busy writer starves the others and they end with "database is locked". A blocking
`flock` on a file beside the database queues them in the kernel instead, and is let go of when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import weakref
from types import TracebackType
from typing import Self

_open_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


class WriterLock:
    """Held by the one process that is writing to, or checkpointing, the database."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        _open_locks.add(self)

    def __enter__(self) -> Self:
        fcntl.flock(self._fd, fcntl.LOCK_EX)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _drop_inherited() -> None:
    # A forked child shares the parent's lock: unless it lets go of its copy,
    # a parent killed while writing would leave the database locked by the child.
    for lock in list(_open_locks):
        lock.close()


os.register_at_fork(after_in_child=_drop_inherited)
