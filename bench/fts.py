"""The limit of search: SQLite's own FTS5 over the same text, in the same transaction as the message.

Two indexes stand side by side: `porter unicode61` as people use it, which takes a run of Chinese for one word
and so finds none inside, and one over character pairs, against which the Chinese query's time is compared.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import traffic
from driver import Driver, serve
from raw import connect

CREATE = """
CREATE TABLE IF NOT EXISTS messages (id INTEGER PRIMARY KEY, session INTEGER, user INTEGER, content TEXT);
CREATE INDEX IF NOT EXISTS messages_session ON messages (session);
CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5 (text, tokenize = 'porter unicode61');
CREATE VIRTUAL TABLE IF NOT EXISTS pairs USING fts5 (text, tokenize = 'unicode61');
"""
INSERT = "INSERT INTO messages (id, session, user, content) VALUES (?, ?, ?, ?)"
INSERT_WORDS = "INSERT INTO words (rowid, text) VALUES (?, ?)"
INSERT_PAIRS = "INSERT INTO pairs (rowid, text) VALUES (?, ?)"
SEARCH = """
SELECT messages.content FROM {index} JOIN messages ON messages.id = {index}.rowid
WHERE {index} MATCH ? AND messages.{column} = ? ORDER BY {index}.rank LIMIT 20
"""
COUNT = """
SELECT count(*) FROM {index} JOIN messages ON messages.id = {index}.rowid WHERE {index} MATCH ? AND messages.user = 0
"""
CHINESE_RUN = re.compile("[\u3040-\u30ff\u4e00-\u9fff]+")
USERS = 2


def pairs(text: str) -> str:
    """Return the character pairs of the Chinese and Japanese runs in `text`."""
    runs = CHINESE_RUN.findall(text)
    return " ".join(run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1)))


class Fts(Driver):
    """Session `s` belongs to user `s % 2`; searching a user means user 0."""

    def __init__(self) -> None:
        self._decode = msgspec.json.Decoder().decode

    async def open(self, path: str) -> None:
        self._connection = connect(Path(path) / "fts.db")
        self._connection.executescript(CREATE)
        self._next = self._connection.execute("SELECT coalesce(max(id), 0) + 1 FROM messages").fetchone()[0]

    async def prepare(self, message: dict[str, Any]) -> tuple[str, str]:
        return msgspec.json.encode(message).decode(), traffic.searched_text(message)

    async def append(self, session: int, message: tuple[str, str]) -> None:
        await self.extend(session, [message])

    async def extend(self, session: int, messages: list[tuple[str, str]]) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for content, text in messages:
            self._connection.execute(INSERT, (self._next, session, session % USERS, content))
            self._connection.execute(INSERT_WORDS, (self._next, text))
            self._connection.execute(INSERT_PAIRS, (self._next, pairs(text)))
            self._next += 1
        self._connection.execute("COMMIT")

    async def search(self, session: int | None, query: str, kind: str) -> int:
        if kind.startswith("count "):
            return self._connection.execute(COUNT.format(index=kind.removeprefix("count ")), (query,)).fetchone()[0]
        index = "pairs" if kind == "pairs" else "words"
        column, scope = ("user", 0) if session is None else ("session", session)
        statement = SEARCH.format(index=index, column=column)
        return len([self._decode(row[0]) for row in self._connection.execute(statement, (query, scope))])

    async def close(self) -> None:
        self._connection.close()


if __name__ == "__main__":
    serve(Fts)
