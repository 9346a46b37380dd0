"""The limit of a fork: one `INSERT … SELECT` over a table with leafward's columns, index, bytes and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from driver import Driver, serve
from raw import connect, key_range

from leafward import Message
from leafward.core.tokens import count_tokens

CREATE = """
CREATE TABLE IF NOT EXISTS message (
    place INTEGER PRIMARY KEY, tree_no INTEGER NOT NULL, seq INTEGER NOT NULL, id TEXT NOT NULL, role TEXT NOT NULL,
    tokens INTEGER NOT NULL, created_at INTEGER NOT NULL, body TEXT NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS message_id ON message (tree_no, id);
"""
INSERT = "INSERT INTO message VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
COPY = """
INSERT INTO message
SELECT place + ?, ?, 1, id, role, tokens, created_at, body FROM message WHERE place BETWEEN ? AND ? ORDER BY place
"""
FIRST_COPY = 1_000


class RawCopy(Driver):
    """A session is a tree; places are its number in the upper half of the key and a count in the lower."""

    def __init__(self) -> None:
        self._rows = 0
        self._copies = FIRST_COPY

    async def open(self, path: str) -> None:
        self._connection = connect(Path(path) / "copy.db")
        for pragma in ("wal_autocheckpoint = 0", "secure_delete = ON", "cache_size = -16000"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.executescript(CREATE)

    async def prepare(self, message: dict[str, Any]) -> tuple[Any, ...]:
        sealed, body = Message.from_dict(message).sealed()
        return sealed.id, sealed.role, count_tokens(sealed), sealed.at, body.decode()

    async def extend(self, session: int, messages: list[tuple[Any, ...]]) -> None:
        first, _ = key_range(session)
        numbered = enumerate(messages, start=self._rows)
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT, [(first + n, session, n, *row) for n, row in numbered])
        self._connection.execute("COMMIT")
        self._rows += len(messages)

    async def fork(self, session: int, at: int) -> None:
        """Copy the rows up to number `at`."""
        first, _ = key_range(session)
        self._copies += 1
        distance = key_range(self._copies)[0] - first
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute(COPY, (distance, self._copies, first, first + at))
        self._connection.execute("COMMIT")

    async def settle(self) -> None:
        """Copy the log into the database, as leafward does beside its writes."""
        self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    async def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    serve(RawCopy)
