"""What the tests of both database servers share: the server under test, and questions to it that bypass the store."""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncmy
import asyncpg
import pytest

from leafward import open_store
from leafward.stores.servers.store import ServerStore
from tests.servers.server import Server
from tests.stores.proxy import Proxy
from tests.stores.server_store import emptied

_NUMBERS = count(1)


class Kind(ABC):
    """A kind of database server."""

    name: str
    connections: str
    """The numbers of the connections of this user, but the one that asks."""
    end_connection: str

    @abstractmethod
    async def ask(self, url: str, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements on a connection of its own and return the rows of the last."""

    @abstractmethod
    def holding(self, url: str, *statements: str) -> AbstractAsyncContextManager[None]:
        """Hold, in a transaction of its own, the rows that these statements read."""

    @abstractmethod
    async def is_idle(self, url: str, prefix: str) -> bool:
        """Whether no transaction is open that touched our tables."""

    async def until_idle(self, url: str, prefix: str) -> None:
        """Return once no transaction is open; a server takes a moment to see that a connection has ended."""
        for _ in range(1000):
            if await self.is_idle(url, prefix):
                return
            await asyncio.sleep(0.01)
        pytest.fail("a transaction was left open")

    @abstractmethod
    async def pool(self, url: str, **options: Any) -> Any:
        """Make a pool of the driver's."""

    @abstractmethod
    def lent(self, store: ServerStore) -> int:
        """How many connections of the store's pool are in use."""

    async def until_none_is_lent(self, store: ServerStore) -> None:
        """Return once all connections are back; words may just be cut in the background."""
        for _ in range(1000):
            if self.lent(store) == 0:
                return
            await asyncio.sleep(0.01)
        pytest.fail("a connection did not come back")

    async def end_connections(self, url: str) -> int:
        """End every other connection of this user, and tell how many there were."""
        numbers = [number for (number,) in await self.ask(url, self.connections)]
        for number in numbers:
            await self.ask(url, self.end_connection.format(number))
        return len(numbers)

    async def tables(self, url: str, prefix: str) -> list[str]:
        """Return the names of the tables of a prefix, but for that of states, which may be in another schema."""
        pattern = prefix.replace("_", "|_")
        condition = f"table_name LIKE '{pattern}%' ESCAPE '|' AND table_name NOT LIKE '%agentscope%'"
        rows = await self.ask(url, f"SELECT table_name FROM information_schema.tables WHERE {condition}")
        return sorted(name for (name,) in rows)


class PostgresKind(Kind):
    name = "postgres"
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

    @asynccontextmanager
    async def holding(self, url: str, *statements: str) -> AsyncGenerator[None]:
        connection = await asyncpg.connect(url)
        try:
            async with connection.transaction():
                for statement in statements:
                    await connection.fetch(statement)
                yield
        finally:
            await connection.close()

    async def is_idle(self, url: str, prefix: str) -> bool:
        return not await self.ask(url, f"{self.connections} AND xact_start IS NOT NULL")

    async def pool(self, url: str, **options: Any) -> Any:
        return await asyncpg.create_pool(url, min_size=1, **options)

    def lent(self, store: ServerStore) -> int:
        server: Any = store._server
        return server._pool.get_size() - server._pool.get_idle_size() - len(server._idle)


class MySQLKind(Kind):
    name = "mysql"
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

    @asynccontextmanager
    async def holding(self, url: str, *statements: str) -> AsyncGenerator[None]:
        connection = await asyncmy.connect(**_arguments(url))
        async with connection, connection.cursor() as cursor:
            # Or what is read past is held as well, on a server that scans.
            await cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            for statement in ("BEGIN", *statements):
                await cursor.execute(statement)
            await cursor.fetchall()
            yield

    async def is_idle(self, url: str, prefix: str) -> bool:
        # Which transactions are open is told to administrators only; but a row that one holds is not to be had.
        tables = [table for table in await self.tables(url, prefix) if table.endswith(("session", "done", "lease"))]
        try:
            await self.ask(url, "BEGIN", *(f"SELECT 1 FROM {table} FOR UPDATE NOWAIT" for table in tables))
        except asyncmy.errors.OperationalError:
            return False
        return True

    async def pool(self, url: str, **options: Any) -> Any:
        return await asyncmy.create_pool(minsize=1, **{**_arguments(url), **options})

    def lent(self, store: ServerStore) -> int:
        server: Any = store._server
        return len(server._pool._used) - len(server._idle)


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


class BehindAProxy(OnBothServers):
    """Adds a way to the server on which replies can be lost."""

    @pytest.fixture
    async def proxy(self, url: str) -> AsyncGenerator[Proxy]:
        parts = urlsplit(url)
        async with Proxy(str(parts.hostname), parts.port or 0) as proxy:
            yield proxy

    @pytest.fixture
    def through(self, url: str, proxy: Proxy) -> str:
        """The server's URL by way of the proxy."""
        return elsewhere(url, port=proxy.port)


async def drop_tables(kind: Kind, url: str, prefix: str) -> None:
    tables = await kind.tables(url, prefix)
    if tables:
        await kind.ask(url, *(f"DROP TABLE {table}" for table in tables))
    schema = "agentscope." if kind.name == "postgres" else ""
    await kind.ask(url, f"DROP TABLE IF EXISTS {schema}{prefix}agentscope_sessions")


class OnPrivateServers(OnBothServers):
    """Runs each test on servers that may be killed; one of each kind serves all tests of a class."""

    @pytest.fixture(scope="class", params=KINDS)
    @classmethod
    def private(
        cls,
        request: pytest.FixtureRequest,
        private_postgres: Callable[[], Server],
        private_mariadb: Callable[[], Server],
    ) -> Iterator[Server]:
        with {"postgres": private_postgres, "mysql": private_mariadb}[request.param]() as server:
            yield server

    @pytest.fixture
    def kind(self, private: Server) -> Kind:
        return KINDS["postgres" if private.url.startswith("postgresql") else "mysql"]

    @pytest.fixture
    def url(self, private: Server) -> Iterator[str]:
        yield private.url
        if not private.is_running:
            private.start()


async def run_writers(url: str, prefix: str, session_id: str, *, processes: int, messages: int) -> None:
    """Let processes `p0`, `p1`, … append messages `p0 0`, `p0 1`, … to one session.

    All open the store at once, and then all begin to append at once.
    """
    writers = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.stores.server_child", url, prefix, session_id, f"p{n}", str(messages)),
            cwd=Path(__file__).parent.parent.parent,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        for n in range(processes)
    ]
    await asyncio.gather(*map(_until_waiting, writers))
    for writer in writers:
        _tell(writer)
    await asyncio.gather(*map(_until_waiting, writers))
    said = await asyncio.gather(*(writer.communicate(b"go\n") for writer in writers))
    assert [errors.decode() for _, errors in said] == [""] * processes


async def _until_waiting(writer: asyncio.subprocess.Process) -> None:
    assert writer.stdout is not None
    await writer.stdout.readline()


def _tell(writer: asyncio.subprocess.Process) -> None:
    assert writer.stdin is not None
    writer.stdin.write(b"go\n")


@asynccontextmanager
async def opened(url: str, **options: Any) -> AsyncGenerator[ServerStore]:
    """Open a store on a server."""
    async with open_store(url, **options) as store:
        assert isinstance(store, ServerStore)
        yield store
