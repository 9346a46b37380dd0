"""The same questions to every kind of server, asked through the drivers our stores use."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

import asyncmy
import asyncpg
import redis.asyncio


class Questions(Protocol):
    """What a test asks of a server."""

    async def keep(self, url: str, word: str) -> None:
        """Store a word."""
        ...

    async def kept(self, url: str) -> list[str]:
        """Return the words that are stored."""
        ...

    async def setting(self, url: str, name: str) -> str:
        """Return a setting of the server."""
        ...

    @property
    def refusal(self) -> type[Exception]:
        """What the driver raises for a wrong password."""
        ...


class AskPostgres:
    """Questions to PostgreSQL."""

    refusal = asyncpg.InvalidPasswordError

    async def keep(self, url: str, word: str) -> None:
        await self._run(url, "CREATE TABLE IF NOT EXISTS words (word text)")
        await self._run(url, "INSERT INTO words VALUES ($1)", word)

    async def kept(self, url: str) -> list[str]:
        return await self._run(url, "SELECT word FROM words")

    async def setting(self, url: str, name: str) -> str:
        return (await self._run(url, f"SHOW {name}"))[0]

    async def _run(self, url: str, statement: str, *values: str) -> list[str]:
        connection = await asyncpg.connect(url)
        try:
            return [row[0] for row in await connection.fetch(statement, *values)]
        finally:
            await connection.close()


class AskMariaDB:
    """Questions to MariaDB."""

    refusal = asyncmy.errors.OperationalError

    async def keep(self, url: str, word: str) -> None:
        await self._run(url, "CREATE TABLE IF NOT EXISTS words (word text)")
        await self._run(url, "INSERT INTO words VALUES (%s)", word)

    async def kept(self, url: str) -> list[str]:
        return await self._run(url, "SELECT word FROM words")

    async def setting(self, url: str, name: str) -> str:
        return str((await self._run(url, f"SELECT @@{name}"))[0])

    async def _run(self, url: str, statement: str, *values: str) -> list[str]:
        parts = urlsplit(url)
        connection = await asyncmy.connect(
            host=parts.hostname,
            port=parts.port or 3306,
            user=parts.username,
            password=parts.password or "",
            db=parts.path[1:],
            charset="utf8mb4",
            autocommit=True,
        )
        async with connection, connection.cursor() as cursor:
            await cursor.execute(statement, values)
            return [row[0] for row in await cursor.fetchall()]


class AskRedis:
    """Questions to Redis."""

    refusal = redis.AuthenticationError

    async def keep(self, url: str, word: str) -> None:
        async with redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
            await client.execute_command("RPUSH", "words", word)

    async def kept(self, url: str) -> list[str]:
        async with redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
            words: Any = await client.execute_command("LRANGE", "words", 0, -1)
        return words

    async def setting(self, url: str, name: str) -> str:
        async with redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
            settings: Any = await client.config_get(name)
        return settings[name]
