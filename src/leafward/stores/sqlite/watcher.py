"""Notices what other processes commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from leafward.core.errors import StoreError
from leafward.core.ids import Scope
from leafward.stores.signals import Signals
from leafward.stores.sql import reads
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.readers import Readers

POLL_S = 0.05


class Watcher:
    """Looks at the file every so often while somebody waits, once for all who do; our own commits need no look."""

    def __init__(self, database: Database, readers: Readers, signals: Signals) -> None:
        self._database = database
        self._readers = readers
        self._signals = signals
        self._waiting = 0
        self._commits: dict[sqlite3.Connection, int] = {}
        self._versions: dict[Scope, int] = {}

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Wake those who listen whenever another process has committed."""
        self._waiting += 1
        if self._waiting == 1:
            self._task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            self._waiting -= 1
            if self._waiting == 0:
                self._task.cancel()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            try:
                for scope in await self._readers.run(self._changed):
                    self._signals.notify(scope)
            except StoreError:
                # Those who wait read for themselves, and are told.
                self._signals.notify_all()

    def _changed(self, connection: sqlite3.Connection) -> list[Scope]:
        """Return the sessions that somebody waits for and that are not as they were at the last look."""
        # SQLite's number means something only beside an earlier one of the same connection.
        commits: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if commits == self._commits.get(connection):
            return []
        self._commits[connection] = commits
        before = self._versions
        self._versions = {
            scope: self._database.run(connection, reads.version(scope)) for scope in self._signals.awaited()
        }
        return [scope for scope, version in self._versions.items() if version != before.get(scope)]
