"""The limit of a search block: one FTS5 table of the same texts, with keys, one commit for each."""

from __future__ import annotations

from pathlib import Path

import traffic
from driver import Driver, serve
from raw import connect

CREATE = "CREATE VIRTUAL TABLE IF NOT EXISTS block{b} USING fts5 (name UNINDEXED, text, tokenize = 'porter unicode61')"
INSERT = "INSERT INTO block{b} (name, text) VALUES (?, ?)"
SEARCH = "SELECT name, text FROM block{b} WHERE block{b} MATCH ? ORDER BY rank LIMIT 10"


class FtsBlock(Driver):
    def __init__(self) -> None:
        self._next: list[tuple[str, str]] = []

    async def open(self, path: str) -> None:
        self._connection = connect(Path(path) / "block.db")

    async def put_all(self, block: int, size: int) -> None:
        """Write the entries of a block."""
        self._connection.execute(CREATE.format(b=block))
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(INSERT.format(b=block), [_row(number, size) for number in range(size)])
        self._connection.execute("COMMIT")

    async def ready(self, block: int, start: int, stop: int, size: int) -> None:
        """Make entries for `put_next`."""
        self._next = [_row(number, size) for number in range(start, stop)]

    async def put_next(self, block: int) -> None:
        """Write one more entry."""
        self._connection.execute(INSERT.format(b=block), self._next.pop())

    async def find(self, block: int, word: str) -> int:
        """Search a block and return how many entries came."""
        return len(self._connection.execute(SEARCH.format(b=block), (word,)).fetchall())

    async def close(self) -> None:
        self._connection.close()


def _row(number: int, size: int) -> tuple[str, str]:
    return f"note-{number}", traffic.entry(number, of=size)


if __name__ == "__main__":
    serve(FtsBlock)
