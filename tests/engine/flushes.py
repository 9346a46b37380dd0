"""Counts flushes to a disk."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from leafward.stores.sqlite.writer import Transaction

_FULL = 2
"""SQLite's number of the setting by which a commit is flushed."""


class Flushes:
    """How often something was made durable: commits of SQLite that wait for the disk, and files that are synced."""

    def __init__(self) -> None:
        self.commits = 0
        self.files = 0

    def __eq__(self, other: object) -> bool:
        return (self.commits, self.files) == other

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __repr__(self) -> str:
        return f"({self.commits} commits, {self.files} files)"


@contextmanager
def counted_flushes() -> Iterator[Flushes]:
    """Count the flushes of all stores in this process."""
    found = Flushes()
    commit, sync = Transaction.commit, os.fsync
    changes: dict[sqlite3.Connection, int] = {}

    def counting_commit(self: Transaction, connection: sqlite3.Connection) -> None:
        # A transaction that is only a lock writes nothing.
        has_written = connection.total_changes != changes.get(connection)
        changes[connection] = connection.total_changes
        found.commits += has_written and connection.execute("PRAGMA synchronous").fetchone()[0] == _FULL
        commit(self, connection)

    def counting_sync(number: Any) -> None:
        found.files += 1
        sync(number)

    Transaction.commit, os.fsync = counting_commit, counting_sync
    try:
        yield found
    finally:
        Transaction.commit, os.fsync = commit, sync
