"""Notices what other processes commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple

from leafward.core.errors import StoreError
from leafward.core.ids import Scope
from leafward.stores.contracts import Revision
from leafward.stores.signals import Signals
from leafward.stores.sql import reads
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.readers import Readers

POLL_S = 0.05


class Look(NamedTuple):
    """What one look found: SQLite's count of commits, and if it had moved, the revisions of awaited sessions."""

    connection: sqlite3.Connection
    commits: int
    revisions: dict[Scope, Revision] | None


class Watcher:
    """Looks at the file every so often while somebody waits, once for all who do; our own commits need no look."""

    def __init__(self, database: Database, readers: Readers, signals: Signals) -> None:
        self._database = database
        self._readers = readers
        self._signals = signals
        self._waiting = 0
        self._task: asyncio.Task[None] | None = None

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
            if self._waiting == 0 and self._task is not None:
                self._task.cancel()
                self._task = None

    async def _watch(self) -> None:
        commits: dict[sqlite3.Connection, int] = {}
        revisions: dict[Scope, Revision] = {}
        while True:
            await asyncio.sleep(POLL_S)
            try:
                look = await self._readers.run(partial(self._look, commits))
            except StoreError:
                # Those who wait read for themselves, and are told.
                self._signals.notify_all()
                continue
            commits[look.connection] = look.commits
            if look.revisions is not None:
                for scope in look.revisions:
                    if look.revisions[scope] != revisions.get(scope):
                        self._signals.notify(scope)
                revisions = look.revisions

    def _look(self, commits: dict[sqlite3.Connection, int], connection: sqlite3.Connection) -> Look:
        # SQLite's number means something only beside an earlier one of the same connection.
        count: int = connection.execute("PRAGMA data_version").fetchone()[0]
        if count == commits.get(connection):
            return Look(connection, count, None)
        awaited = self._signals.awaited()
        return Look(
            connection, count, {scope: self._database.run(connection, reads.revision(scope)) for scope in awaited}
        )
