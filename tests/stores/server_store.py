"""A store on a shared server, empty for each test: what the tests of PostgreSQL and MySQL have in common."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from leafward import open_store
from leafward.stores import Store
from leafward.stores.servers.server import Server
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql.tables import TABLES
from leafward.testing.durable import Reopen
from tests.stores.every_contract import EveryContract

PREFIX = f"t{os.getpid()}_"
"""The tables of this test process; made once, since that takes longer than most tests do."""


@asynccontextmanager
async def emptied(url: str) -> AsyncGenerator[ServerStore]:
    """Open a store whose tables hold nothing; what the test leaves there is deleted before the next one."""
    async with open_store(url, table_prefix=PREFIX) as store:
        assert isinstance(store, ServerStore)
        # Made when it is first used.
        await store.states.exists("nobody")
        await empty(store._server)
        yield store


async def empty(server: Server) -> None:
    async with server.connection() as connection:
        await server.begin(connection, writing=True)
        for table in ("{states}", *(f"{{p}}{table}" for table in TABLES)):
            await server.execute(connection, f"DELETE FROM {table}", (), writing=True)
        await server.commit(connection)


class ServerContract(EveryContract):
    """Every promise, on a server whose URL the subclass gives."""

    @pytest.fixture
    async def store(self, url: str) -> AsyncGenerator[Store]:
        async with emptied(url) as store:
            yield store

    async def settle(self, store: Store) -> None:
        assert isinstance(store, ServerStore)
        await store.settle()

    @pytest.fixture
    async def reopen(self, url: str, store: Store) -> AsyncGenerator[Reopen]:
        async with AsyncExitStack() as opened:

            async def reopen() -> Store:
                return await opened.enter_async_context(open_store(url, table_prefix=PREFIX))

            yield reopen
