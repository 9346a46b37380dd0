"""The limit on each backend: one call of its driver that stores the same bytes as durably.

The keys are made here and not asked for, nothing is checked, and a body is all that is kept of a message.
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncmy
import asyncpg
import msgspec
import raw
from driver import Driver
from redis.asyncio import Redis as RedisClient

POOL = 16
"""As many connections as leafward's own pools on these servers have."""

_decode = msgspec.json.Decoder().decode


class Backend(Driver):
    """What a contender does on a backend besides what every driver does."""

    async def make(self) -> None:
        """Make what the first message needs."""

    async def widen(self) -> None:
        """Get ready for many calls at once."""

    async def at_once(self, session: int, message: Any) -> None:
        """Append one message while others do."""
        await self.append(session, message)


class Limit(Backend):
    """Numbers the messages of each session."""

    def __init__(self) -> None:
        self._next: Counter[int] = Counter()

    async def prepare(self, message: dict[str, Any]) -> Any:
        return msgspec.json.encode(message).decode()

    def _row(self, session: int, message: Any) -> tuple[int, int, Any]:
        self._next[session] += 1
        return session, self._next[session], message


class Postgres(Limit):
    """asyncpg: a prepared `INSERT` that commits by itself, on one connection."""

    CREATE = "CREATE TABLE IF NOT EXISTS raw (session int, n int, content text, PRIMARY KEY (session, n))"
    INSERT = "INSERT INTO raw (session, n, content) VALUES ($1, $2, $3)"
    INSERT_MANY = "INSERT INTO raw (session, n, content) SELECT * FROM unnest($1::int[], $2::int[], $3::text[])"
    SELECT = "SELECT content FROM raw WHERE session = $1 ORDER BY n"
    SELECT_RECENT = "SELECT content FROM raw WHERE session = $1 ORDER BY n DESC LIMIT $2"

    async def open(self, path: str) -> None:
        self._url = path
        self._pool: Any = None
        self._connection: Any = await asyncpg.connect(path)

    async def make(self) -> None:
        await self._connection.execute(self.CREATE)

    async def append(self, session: int, message: str) -> None:
        await self._connection.execute(self.INSERT, *self._row(session, message))

    async def extend(self, session: int, messages: list[str]) -> None:
        rows = [self._row(session, message) for message in messages]
        await self._connection.execute(self.INSERT_MANY, *map(list, zip(*rows, strict=True)))

    async def history(self, session: int) -> int:
        return len([_decode(content) for (content,) in await self._connection.fetch(self.SELECT, session)])

    async def recent(self, session: int, count: int) -> int:
        rows = await self._connection.fetch(self.SELECT_RECENT, session, count)
        return len([_decode(content) for (content,) in rows])

    async def widen(self) -> None:
        self._pool = await asyncpg.create_pool(self._url, min_size=POOL, max_size=POOL, reset=_as_it_is)

    async def at_once(self, session: int, message: str) -> None:
        async with self._pool.acquire() as connection:
            await connection.execute(self.INSERT, *self._row(session, message))

    async def close(self) -> None:
        await self._connection.close()
        if self._pool is not None:
            await self._pool.close()


async def _as_it_is(connection: Any) -> None:
    """Save the round trip after which a pool lends a connection again."""


class Mysql(Limit):
    """asyncmy: an `INSERT` that commits by itself, on one connection."""

    CREATE = (
        "CREATE TABLE IF NOT EXISTS raw (session INT, n INT, content LONGTEXT CHARACTER SET utf8mb4, "
        "PRIMARY KEY (session, n))"
    )
    INSERT = "INSERT INTO raw (session, n, content) VALUES (%s, %s, %s)"
    SELECT = "SELECT content FROM raw WHERE session = %s ORDER BY n"
    SELECT_RECENT = "SELECT content FROM raw WHERE session = %s ORDER BY n DESC LIMIT %s"

    async def open(self, path: str) -> None:
        parts = urlsplit(path)
        self._login: dict[str, Any] = {
            "host": parts.hostname,
            "port": parts.port or 3306,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
            "db": parts.path[1:],
            "charset": "utf8mb4",
            "autocommit": True,
        }
        self._pool: Any = None
        self._connection: Any = await asyncmy.connect(**self._login)

    async def make(self) -> None:
        await ask(self._connection, self.CREATE)

    async def append(self, session: int, message: str) -> None:
        await ask(self._connection, self.INSERT, self._row(session, message))

    async def extend(self, session: int, messages: list[str]) -> None:
        async with self._connection.cursor() as cursor:
            await cursor.executemany(self.INSERT, [self._row(session, message) for message in messages])

    async def history(self, session: int) -> int:
        return len([_decode(content) for (content,) in await ask(self._connection, self.SELECT, (session,))])

    async def recent(self, session: int, count: int) -> int:
        rows = await ask(self._connection, self.SELECT_RECENT, (session, count))
        return len([_decode(content) for (content,) in rows])

    async def widen(self) -> None:
        self._pool = await asyncmy.create_pool(minsize=POOL, maxsize=POOL, **self._login)

    async def at_once(self, session: int, message: str) -> None:
        async with self._pool.acquire() as connection:
            await ask(connection, self.INSERT, self._row(session, message))

    async def close(self) -> None:
        await self._connection.ensure_closed()
        if self._pool is not None:
            self._pool.close()
            await self._pool.wait_closed()


async def ask(connection: Any, statement: str, parameters: tuple[Any, ...] | None = None) -> Any:
    async with connection.cursor() as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall() if cursor.description else ()


class Redis(Limit):
    """redis-py: one script that adds to the session's list and sets the session's field in a hash."""

    APPEND = """
        for n = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[n]) end
        redis.call('HSET', KEYS[2], KEYS[1], ARGV[1])"""

    async def open(self, path: str) -> None:
        self._client: Any = RedisClient.from_url(path, protocol=2)

    async def make(self) -> None:
        self._sha = await self._client.script_load(self.APPEND)

    async def prepare(self, message: dict[str, Any]) -> bytes:
        return msgspec.json.encode(message)

    async def append(self, session: int, message: bytes) -> None:
        await self.extend(session, [message])

    async def extend(self, session: int, messages: list[bytes]) -> None:
        self._next[session] += len(messages)
        await self._client.evalsha(self._sha, 2, f"raw:{session}", "raw", self._next[session], *messages)

    async def history(self, session: int) -> int:
        return len([_decode(body) for body in await self._client.lrange(f"raw:{session}", 0, -1)])

    async def recent(self, session: int, count: int) -> int:
        return len([_decode(body) for body in await self._client.lrange(f"raw:{session}", -count, -1)])

    async def close(self) -> None:
        await self._client.aclose()


class File(Limit):
    """A file for each session, opened once: one line appended, one `fsync`."""

    TAIL = 1 << 18

    async def open(self, path: str) -> None:
        self._directory = Path(path)
        self._files: dict[int, int] = {}

    async def prepare(self, message: dict[str, Any]) -> bytes:
        return msgspec.json.encode(message) + b"\n"

    def _file(self, session: int) -> int:
        if session not in self._files:
            flags = os.O_CREAT | os.O_APPEND | os.O_RDWR
            self._files[session] = os.open(self._directory / f"raw-{session}.jsonl", flags, 0o600)
        return self._files[session]

    async def append(self, session: int, message: bytes) -> None:
        file = self._file(session)
        os.write(file, message)
        os.fsync(file)

    async def extend(self, session: int, messages: list[bytes]) -> None:
        await self.append(session, b"".join(messages))

    def _lines(self, session: int, most: int) -> list[bytes]:
        file = self._file(session)
        size = os.fstat(file).st_size
        return os.pread(file, min(most, size), max(0, size - most)).splitlines()

    async def history(self, session: int) -> int:
        return len([_decode(line) for line in self._lines(session, 1 << 40)])

    async def recent(self, session: int, count: int) -> int:
        return len([_decode(line) for line in self._lines(session, self.TAIL)[-count:]])

    async def close(self) -> None:
        for file in self._files.values():
            os.close(file)


class Sqlite(raw.Raw, Backend):
    """The `sqlite3` module: one prepared insert and one commit."""


class Memory(Sqlite):
    """The same without a file."""

    async def open(self, path: str) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._connection.execute(raw.CREATE)


LIMITS: dict[str, type[Backend]] = {
    "postgresql": Postgres,
    "mysql": Mysql,
    "redis": Redis,
    "file": File,
    "sqlite": Sqlite,
    "memory": Memory,
}
