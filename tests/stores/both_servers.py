"""What the tests of both database servers share: the server under test, and questions to it that bypass the store."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncmy
import asyncpg
import pytest

from leafward import open_store
from leafward.stores.servers.store import ServerStore
from tests.servers.server import Server
from tests.stores.server_store import emptied

_NUMBERS = count(1)


class Kind(ABC):
    """A kind of database server."""

    name: str
    open_transactions: str
    """How many transactions are open, but the one that asks."""
    connections: str
    """The numbers of the connections of this user, but the one that asks."""
    end_connection: str

    @abstractmethod
    async def ask(self, url: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on a connection of its own and return the rows of the last."""

    @abstractmethod
    async def pool(self, url: str, **options: Any) -> Any:
        """Make a pool of the driver's."""

    @abstractmethod
    def lent(self, store: ServerStore) -> int:
        """How many connections of the store's pool are in use."""

    async def end_connections(self, url: str) -> int:
        """End every other connection of this user, and tell how many there were."""
        numbers = [number for (number,) in await self.ask(url, self.connections)]
        for number in numbers:
            await self.ask(url, self.end_connection.format(number))
        return len(numbers)

    async def tables(self, url: str, prefix: str) -> list[str]:
        """Return the names of the tables of a prefix."""
        pattern = prefix.replace("_", "|_")
        condition = f"table_name LIKE '{pattern}%' ESCAPE '|'"
        rows = await self.ask(url, f"SELECT table_name FROM information_schema.tables WHERE {condition}")
        return sorted(name for (name,) in rows)


class PostgresKind(Kind):
    name = "postgres"
    open_transactions = """
        SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid()"""
    connections = """
        SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"""
    end_connection = "SELECT pg_terminate_backend({})"

    async def ask(self, url: str, *statements: str) -> list[tuple[Any, ...]]:
        connection = await asyncpg.connect(url)
        try:
            rows = [await connection.fetch(statement) for statement in statements]
        finally:
            await connection.close()
        return [tuple(row) for row in rows[-1]]

    async def pool(self, url: str, **options: Any) -> Any:
        return await asyncpg.create_pool(url, min_size=1, **options)

    def lent(self, store: ServerStore) -> int:
        pool: Any = store._server._pool  # pyright: ignore[reportAttributeAccessIssue]
        return pool.get_size() - pool.get_idle_size()


class MySQLKind(Kind):
    name = "mysql"
    open_transactions = """
        SELECT count(*) FROM information_schema.innodb_trx WHERE trx_mysql_thread_id NOT IN (0, CONNECTION_ID())"""
    connections = """
        SELECT id FROM information_schema.processlist
        WHERE user = SUBSTRING_INDEX(CURRENT_USER(), '@', 1) AND id <> CONNECTION_ID()"""
    end_connection = "KILL {}"

    async def ask(self, url: str, *statements: str) -> list[tuple[Any, ...]]:
        connection = await asyncmy.connect(**_arguments(url))
        rows: list[tuple[Any, ...]] = []
        async with connection, connection.cursor() as cursor:
            for statement in statements:
                await cursor.execute(statement)
                rows = list(await cursor.fetchall()) if cursor.description else []
        return rows

    async def pool(self, url: str, **options: Any) -> Any:
        return await asyncmy.create_pool(minsize=1, **{**_arguments(url), **options})

    def lent(self, store: ServerStore) -> int:
        return len(store._server._pool._used)  # pyright: ignore[reportAttributeAccessIssue]


def _arguments(url: str) -> dict[str, Any]:
    parts = urlsplit(url)
    return {
        "host": parts.hostname,
        "port": parts.port or 3306,
        "user": parts.username,
        "password": parts.password or "",
        "db": parts.path[1:],
        "charset": "utf8mb4",
        "autocommit": True,
    }


KINDS = {kind.name: kind for kind in (PostgresKind(), MySQLKind())}


def elsewhere(url: str, *, port: int | None = None, user: str | None = None, database: str | None = None) -> str:
    """Return a server's URL with some of it changed; `user` is a name with a password."""
    parts = urlsplit(url)
    account = user if user is not None else parts.netloc.rpartition("@")[0]
    path = parts.path if database is None else f"/{database}"
    return urlunsplit(parts._replace(netloc=f"{account}@{parts.hostname}:{port or parts.port}", path=path))


class OnBothServers:
    """Runs each test on PostgreSQL and on MariaDB."""

    @pytest.fixture(params=KINDS)
    def kind(self, request: pytest.FixtureRequest) -> Kind:
        return KINDS[request.param]

    @pytest.fixture
    def url(self, kind: Kind, server_url: Callable[[str], str]) -> str:
        return server_url(kind.name)

    @pytest.fixture
    async def store(self, url: str) -> AsyncGenerator[ServerStore]:
        async with emptied(url) as store:
            yield store

    @pytest.fixture
    async def prefix(self, kind: Kind, url: str) -> AsyncGenerator[str]:
        """A prefix that no table has yet; those that have it afterwards are dropped."""
        prefix = f"n{os.getpid()}x{next(_NUMBERS)}_"
        yield prefix
        await drop_tables(kind, url, prefix)


async def drop_tables(kind: Kind, url: str, prefix: str) -> None:
    tables = await kind.tables(url, prefix)
    if tables:
        await kind.ask(url, *(f"DROP TABLE {table}" for table in tables))


class OnPrivateServers(OnBothServers):
    """Runs each test on servers that may be killed; one of each kind serves all tests of a class."""

    @pytest.fixture(scope="class", params=KINDS)
    def private(self, request: pytest.FixtureRequest) -> Iterator[Server]:
        maker = {"postgres": "private_postgres", "mysql": "private_mariadb"}[request.param]
        with request.getfixturevalue(maker)() as server:
            yield server

    @pytest.fixture
    def kind(self, private: Server) -> Kind:
        return KINDS["postgres" if private.url.startswith("postgresql") else "mysql"]

    @pytest.fixture
    def url(self, private: Server) -> Iterator[str]:
        yield private.url
        if not private.is_running:
            private.start()


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[ServerStore]:
    """Open a store on a server."""
    async with open_store(url, **options) as store:
        assert isinstance(store, ServerStore)
        yield store
