"""A transaction beside the writes that somebody waits for."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager

from leafward.stores.sqlite.lock import WriterLock


@contextmanager
def unsynced(lock: WriterLock, connection: sqlite3.Connection) -> Generator[None]:
    """A transaction that need not survive a power cut by itself: what it does can be done again."""
    with lock:
        synchronous = connection.execute("PRAGMA synchronous").fetchone()[0]
        connection.execute("PRAGMA synchronous = NORMAL")
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        finally:
            connection.execute(f"PRAGMA synchronous = {synchronous}")
