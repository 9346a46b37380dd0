"""States in the table of AgentScope's on a database server, without anything else."""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

from leafward.core.errors import ConfigurationError
from leafward.stores.leases import LeaseTable
from leafward.stores.leases.forwarding_table import ForwardingLeaseTable
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Server
from leafward.stores.servers.setup import DEFAULT_PREFIX, check_pool, check_prefix
from leafward.stores.servers.states import ServerStates
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql.dialect import STATES, StatesTable
from leafward.stores.states.standalone import Opened, Standalone
from leafward.stores.states.table import Layout, check_layout
from leafward.stores.urls import need_driver, without_secrets

T = TypeVar("T")


class _OnServer(Standalone):
    """Sessions and leases have tables of ours, which are made when they are first asked for."""

    distributed = True
    _scheme: str
    _driver: str
    _extra: str

    def __init__(
        self, url: str, states: StatesTable, *, layout: str, create: bool, client: object, table_prefix: str
    ) -> None:
        if not isinstance(url, str) or not url.startswith(f"{self._scheme}://"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{type(self).__name__} takes a URL such as {self._scheme}://user@host/database, "
                f"not {without_secrets(str(url))!r}"
            )
        if client is not None:
            need_driver(self._driver, self._extra, url)
            check_pool(client, self._driver)
        self._layout: Layout = check_layout(layout)
        self._url = url
        self._states = states
        self._create = create
        self._client = client
        self._prefix = check_prefix(table_prefix)
        super().__init__(f"the store of states {without_secrets(url)}", self._open_server)

    @abstractmethod
    def _connected(self) -> AbstractAsyncContextManager[Server]:
        """Connect to the server."""

    async def _open_server(self) -> Opened:
        async with self._connected() as server:
            store = ServerStore(server, self._what, layout=self._layout, create_states=self._create, tidies=False)
        tables = _Tables(store, server)
        return Opened(store.state_table, _Leases(store.runner, tables), store.close, tables.for_messages)


class MysqlAgentStateStore(_OnServer):
    """States in MySQL or MariaDB, in the table that AgentScope for Java has: `mysql://user@host/database`.

    With `create` the table is made if it is missing, and gets the columns it lacks at the first save. `client` is a
    pool of asyncmy's to use instead of one of our own; it is not closed. `table_prefix` is what the names of the tables
    begin with that keep leases and the sessions of `store`; they are made when one of these is first asked for.
    """

    _scheme = "mysql"
    _driver, _extra = "asyncmy", "mysql"

    def __init__(
        self,
        url: str,
        table: str = STATES.table,
        *,
        layout: str = "2.x",
        create: bool = True,
        client: object = None,
        table_prefix: str = DEFAULT_PREFIX,
    ) -> None:
        states = StatesTable(_identifier("table", table, r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}"))
        super().__init__(url, states, layout=layout, create=create, client=client, table_prefix=table_prefix)

    def _connected(self) -> AbstractAsyncContextManager[Server]:
        from leafward.stores.servers.mysql import connected

        return connected(self._url, self._prefix, self._states, self._client)


class PostgresAgentStateStore(_OnServer):
    """States in PostgreSQL, in the table that AgentScope for Java has: `postgresql://user@host/database`.

    With `create` the table is made if it is missing, and gets the columns it lacks at the first save. `client` is a
    pool of asyncpg's to use instead of one of our own; it is not closed. `table_prefix` is what the names of the tables
    begin with that keep leases and the sessions of `store`; they are made when one of these is first asked for.
    """

    _scheme = "postgresql"
    _driver, _extra = "asyncpg", "postgres"

    def __init__(
        self,
        url: str,
        schema: str = "agentscope",
        table: str = STATES.table,
        *,
        layout: str = "2.x",
        create: bool = True,
        client: object = None,
        table_prefix: str = DEFAULT_PREFIX,
    ) -> None:
        rule = "[a-zA-Z_][a-zA-Z0-9_]{0,62}"
        states = StatesTable(_identifier("table", table, rule), _identifier("schema", schema, rule))
        super().__init__(url, states, layout=layout, create=create, client=client, table_prefix=table_prefix)

    def _connected(self) -> AbstractAsyncContextManager[Server]:
        from leafward.stores.servers.postgres import connected

        return connected(self._url, self._prefix, self._states, self._client)


class MysqlSession(MysqlAgentStateStore):
    """The name that the store has in AgentScope 1.x, in its layout.

    Without `create` the table has to be there, and stays unchanged.
    """

    def __init__(
        self,
        url: str,
        create: bool = False,
        *,
        table: str = STATES.table,
        client: object = None,
        table_prefix: str = DEFAULT_PREFIX,
    ) -> None:
        super().__init__(url, table, layout="1.x", create=create, client=client, table_prefix=table_prefix)


class _Tables:
    """The tables of ours, made when they are first needed; all tables of states in a database share them."""

    def __init__(self, store: ServerStore, server: Server) -> None:
        self._store = store
        self._server = server
        self._are_made = self._take_messages = False
        self._making = asyncio.Lock()

    async def make(self) -> None:
        """Make those that are missing."""
        async with self._making:
            if not self._are_made:
                await self._store.runner.use(self._server.make_tables)
                self._are_made = True

    async def for_messages(self) -> ServerStore:
        """Return the store, once it has its tables and the server is known to take its messages."""
        store = self._store
        if not self._take_messages:
            await store.runner.use(lambda one: self._server.check_messages(one, store.max_message_bytes))
            await self.make()
            self._take_messages = True
            store.runner.tidy_later()
        return store


class _Leases(ForwardingLeaseTable):
    """Leases in tables of ours, made when a lease is first asked for."""

    def __init__(self, runner: ServerRunner, tables: _Tables) -> None:
        self._runner = runner
        self._tables = tables

    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        await self._tables.make()
        return await call(self._runner)


async def has_table(states: _OnServer) -> bool:
    """Return whether there is a table of the name that these states are to be in, whosever it is."""
    table = await states._table()  # pyright: ignore[reportPrivateUsage]
    assert isinstance(table, ServerStates)
    return await table.is_made()


def _identifier(kind: str, name: Any, rule: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(rule, name):
        raise ConfigurationError(f"{name!r} cannot be the name of a {kind}: it has to match {rule}")
    return name
