"""The states workload: saving and getting a value of 100 KB, and saving a list with one more item, on each backend.

The limit stores the same text by one call of the backend's driver. For a list it reads what is stored, encodes all
items, compares them and adds one row, which is what has to be done if contents are to decide.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, Protocol

import msgspec

from backends.limits import File, Memory, Mysql, Postgres, Redis, Sqlite, ask

VALUE_BYTES = 100_000


def value(number: int) -> dict[str, Any]:
    """Return a state of about 100 KB: a conversation of forty messages."""
    text = "The quick brown fox 跳过 the lazy dog. " * 60
    return {"n": number, "context": [{"id": f"m{n}", "role": "USER", "text": text} for n in range(40)]}


def item(number: int) -> dict[str, Any]:
    """Return an item of a list: a message of a few hundred bytes."""
    return {"id": f"m{number}", "role": "USER", "content": [{"type": "text", "text": f"{number} words and more " * 12}]}


class StateLimit(Protocol):
    """What a driver does at the least."""

    async def make_states(self) -> None: ...

    async def put(self, key: int, text: str) -> None:
        """Store a text in place of another, durably."""
        ...

    async def get(self, key: int) -> str: ...

    async def items(self, key: int) -> list[Any]: ...

    async def add(self, key: int, index: int, text: str) -> None: ...


async def save_list(limit: StateLimit, key: int, items: list[dict[str, Any]]) -> None:
    """Add the last of some items, if the others are what is stored."""
    stored = await limit.items(key)
    texts = [msgspec.json.encode(one).decode() for one in items]
    if stored != texts[: len(stored)]:
        raise AssertionError("the stored list is another")
    for index in range(len(stored), len(texts)):
        await limit.add(key, index, texts[index])


class PostgresStates(Postgres):
    async def make_states(self) -> None:
        await self._connection.execute("CREATE TABLE rawstate (k int, n int, content text, PRIMARY KEY (k, n))")

    async def put(self, key: int, text: str) -> None:
        await self._connection.execute(
            "INSERT INTO rawstate VALUES ($1, 0, $2) ON CONFLICT (k, n) DO UPDATE SET content = excluded.content",
            key,
            text,
        )

    async def get(self, key: int) -> str:
        return await self._connection.fetchval("SELECT content FROM rawstate WHERE k = $1 AND n = 0", key)

    async def items(self, key: int) -> list[Any]:
        rows = await self._connection.fetch("SELECT content FROM rawstate WHERE k = $1 ORDER BY n", key)
        return [content for (content,) in rows]

    async def add(self, key: int, index: int, text: str) -> None:
        await self._connection.execute("INSERT INTO rawstate VALUES ($1, $2, $3)", key, index, text)


class MysqlStates(Mysql):
    async def make_states(self) -> None:
        await ask(
            self._connection,
            "CREATE TABLE rawstate (k INT, n INT, content LONGTEXT CHARACTER SET utf8mb4, PRIMARY KEY (k, n))",
        )

    async def put(self, key: int, text: str) -> None:
        upsert = "INSERT INTO rawstate VALUES (%s, 0, %s) ON DUPLICATE KEY UPDATE content = VALUES(content)"
        await ask(self._connection, upsert, (key, text))

    async def get(self, key: int) -> str:
        return (await ask(self._connection, "SELECT content FROM rawstate WHERE k = %s AND n = 0", (key,)))[0][0]

    async def items(self, key: int) -> list[Any]:
        rows = await ask(self._connection, "SELECT content FROM rawstate WHERE k = %s ORDER BY n", (key,))
        return [content for (content,) in rows]

    async def add(self, key: int, index: int, text: str) -> None:
        await ask(self._connection, "INSERT INTO rawstate VALUES (%s, %s, %s)", (key, index, text))


class RedisStates(Redis):
    async def make_states(self) -> None:
        """There is nothing to make."""

    async def put(self, key: int, text: str) -> None:
        await self._client.set(f"rawstate:{key}", text)

    async def get(self, key: int) -> str:
        return (await self._client.get(f"rawstate:{key}")).decode()

    async def items(self, key: int) -> list[Any]:
        return [one.decode() for one in await self._client.lrange(f"rawlist:{key}", 0, -1)]

    async def add(self, key: int, index: int, text: str) -> None:
        await self._client.rpush(f"rawlist:{key}", text)


class FileStates(File):
    async def make_states(self) -> None:
        self._parent = os.open(self._directory, os.O_RDONLY)

    def _at(self, key: int) -> Path:
        return self._directory / f"rawstate-{key}"

    async def put(self, key: int, text: str) -> None:
        file = os.open(f"{self._at(key)}.new", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
        os.write(file, text.encode())
        os.fsync(file)
        os.close(file)
        os.rename(f"{self._at(key)}.new", self._at(key))
        os.fsync(self._parent)

    async def get(self, key: int) -> str:
        return self._at(key).read_text(encoding="utf-8")

    async def items(self, key: int) -> list[Any]:
        path = self._at(key)
        return path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []

    async def add(self, key: int, index: int, text: str) -> None:
        file = os.open(self._at(key), os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.write(file, f"{text}\n".encode())
        os.fsync(file)
        os.close(file)


class SqliteStates(Sqlite):
    _connection: sqlite3.Connection

    async def make_states(self) -> None:
        self._connection.execute("CREATE TABLE rawstate (k INT, n INT, content TEXT, PRIMARY KEY (k, n))")

    async def put(self, key: int, text: str) -> None:
        self._connection.execute("INSERT OR REPLACE INTO rawstate VALUES (?, 0, ?)", (key, text))

    async def get(self, key: int) -> str:
        return self._connection.execute("SELECT content FROM rawstate WHERE k = ? AND n = 0", (key,)).fetchone()[0]

    async def items(self, key: int) -> list[Any]:
        rows = self._connection.execute("SELECT content FROM rawstate WHERE k = ? ORDER BY n", (key,))
        return [content for (content,) in rows]

    async def add(self, key: int, index: int, text: str) -> None:
        self._connection.execute("INSERT INTO rawstate VALUES (?, ?, ?)", (key, index, text))


class MemoryStates(SqliteStates, Memory):
    """The same without a file."""


STATE_LIMITS: dict[str, Any] = {
    "postgresql": PostgresStates,
    "mysql": MysqlStates,
    "redis": RedisStates,
    "file": FileStates,
    "sqlite": SqliteStates,
    "memory": MemoryStates,
}
