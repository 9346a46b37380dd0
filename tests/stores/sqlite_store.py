"""What the tests of SQLite's own behaviour share."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

from leafward.stores.sqlite import SqliteStore


def rows(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


class Held:
    """Keeps the writer thread busy until let go, so that what is written meanwhile waits in one batch."""

    def __init__(self, store: SqliteStore) -> None:
        self._go = threading.Event()
        self._begun = threading.Event()
        self.write = asyncio.ensure_future(store._writer.run(self._work))

    def _work(self, _: sqlite3.Connection) -> None:
        self._begun.set()
        assert self._go.wait(20)

    async def __aenter__(self) -> Held:
        assert await asyncio.to_thread(self._begun.wait, 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._go.set()
        await self.write
