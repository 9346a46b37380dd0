"""The limit on SQLite: the `sqlite3` module, one prepared insert and one commit of bytes made beforehand."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import msgspec
from driver import Driver, serve

CREATE = "CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, content TEXT)"
INSERT = "INSERT INTO messages (id, content) VALUES (?, ?)"
SELECT = "SELECT content FROM messages WHERE id BETWEEN ? AND ? ORDER BY id"
SELECT_RECENT = "SELECT content FROM messages WHERE id BETWEEN ? AND ? ORDER BY id DESC LIMIT ?"
LAST = "SELECT max(id) FROM messages WHERE id BETWEEN ? AND ?"


def connect(path: Path) -> sqlite3.Connection:
    """Open `path` in WAL mode with `synchronous=FULL`, transactions left to the caller."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=60)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def key_range(session: int) -> tuple[int, int]:
    """Return the first and last key of a session: its number stands in the upper half of the key."""
    return session << 32, (session + 1 << 32) - 1


class Raw(Driver):
    def __init__(self) -> None:
        self._next: dict[int, int] = {}
        self._decode = msgspec.json.Decoder().decode

    async def open(self, path: str) -> None:
        self._connection = connect(Path(path) / "raw.db")
        self._connection.execute(CREATE)

    async def prepare(self, message: dict[str, Any]) -> str:
        return msgspec.json.encode(message).decode()

    def _key(self, session: int) -> int:
        if session not in self._next:
            first, last = key_range(session)
            found = self._connection.execute(LAST, (first, last)).fetchone()[0]
            self._next[session] = first if found is None else found + 1
        key = self._next[session]
        self._next[session] = key + 1
        return key

    async def append(self, session: int, message: str) -> None:
        self._connection.execute(INSERT, (self._key(session), message))

    async def extend(self, session: int, messages: list[str]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, [(self._key(session), message) for message in messages])
        self._connection.execute("COMMIT")

    async def history(self, session: int) -> int:
        rows = self._connection.execute(SELECT, key_range(session))
        return len([self._decode(content) for (content,) in rows])

    async def recent(self, session: int, count: int) -> int:
        rows = self._connection.execute(SELECT_RECENT, (*key_range(session), count))
        return len([self._decode(content) for (content,) in rows])

    async def branch(self, session: int, at: int, message: str) -> None:
        await self.append(session, message)

    async def erase(self, session: int) -> list[str]:
        """Delete a session and have SQLite write the file anew without it."""
        self._connection.execute("DELETE FROM messages WHERE id BETWEEN ? AND ?", key_range(session))
        self._connection.execute("VACUUM")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        return []

    async def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    serve(Raw)
