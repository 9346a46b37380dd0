"""A lock that gives processes fair turns at one database file.

SQLite's own busy handler polls, so a busy writer starves the others and they end with "database is locked". A blocking
`flock` on a file beside the database queues them in the kernel instead, and is let go of when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import Self


class WriterLock:
    """Held by the one process that is writing to, or checkpointing, the database."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)

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
