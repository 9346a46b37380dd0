"""States in the table of AgentScope's on a database server, without anything else."""

from __future__ import annotations

import asyncio
import re
from abc import abstractmethod
from contextlib import AbstractAsyncContextManager
from typing import Any

from leafward.core.errors import ConfigurationError
from leafward.stores.guard import Guard
from leafward.stores.leases import LeaseTable, Slot
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Server
from leafward.stores.servers.setup import DEFAULT_PREFIX
from leafward.stores.servers.states import ServerStates
from leafward.stores.sql.dialect import STATES, StatesTable
from leafward.stores.states.standalone import Opened, Standalone
from leafward.stores.states.table import Layout, check_layout
from leafward.stores.urls import without_secrets


class _OnServer(Standalone):
    distributed = True
    _scheme: str

    def __init__(self, url: str, states: StatesTable, *, layout: str, create: bool) -> None:
        if not isinstance(url, str) or not url.startswith(f"{self._scheme}://"):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(
                f"{type(self).__name__} takes a URL such as {self._scheme}://user@host/database, "
                f"not {without_secrets(str(url))!r}"
            )
        self._layout: Layout = check_layout(layout)
        self._url = url
        self._states = states
        self._create = create
        super().__init__(f"the store of states {without_secrets(url)}", self._open_server)

    @abstractmethod
    def _connected(self) -> AbstractAsyncContextManager[Server]:
        """Connect to the server."""

    async def _open_server(self) -> Opened:
        async with self._connected() as server:
            guard = Guard(self._what)
            runner = ServerRunner(server, guard, tidies=False)

            async def close() -> None:
                if not guard.closed:
                    guard.check()
                    guard.closed = True
                    await runner.close()
                    await server.close()

            table = ServerStates(runner, server, self._layout, create=self._create)
            return Opened(table, _Leases(runner, server), close)


class MysqlAgentStateStore(_OnServer):
    """States in MySQL or MariaDB, in the table that AgentScope for Java has: `mysql://user@host/database`.

    With `create` the table is made if it is missing, and gets the columns it lacks at the first save.
    """

    _scheme = "mysql"

    def __init__(self, url: str, table: str = STATES.table, *, layout: str = "2.x", create: bool = True) -> None:
        name = _identifier("table", table, r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
        super().__init__(url, StatesTable(name), layout=layout, create=create)

    def _connected(self) -> AbstractAsyncContextManager[Server]:
        from leafward.stores.servers.mysql import connected

        return connected(self._url, DEFAULT_PREFIX, self._states)


class PostgresAgentStateStore(_OnServer):
    """States in PostgreSQL, in the table that AgentScope for Java has: `postgresql://user@host/database`.

    With `create` the table is made if it is missing, and gets the columns it lacks at the first save.
    """

    _scheme = "postgresql"

    def __init__(
        self,
        url: str,
        schema: str = "agentscope",
        table: str = STATES.table,
        *,
        layout: str = "2.x",
        create: bool = True,
    ) -> None:
        rule = "[a-zA-Z_][a-zA-Z0-9_]{0,62}"
        states = StatesTable(_identifier("table", table, rule), _identifier("schema", schema, rule))
        super().__init__(url, states, layout=layout, create=create)

    def _connected(self) -> AbstractAsyncContextManager[Server]:
        from leafward.stores.servers.postgres import connected

        return connected(self._url, DEFAULT_PREFIX, self._states)


class MysqlSession(MysqlAgentStateStore):
    """The name that the store has in AgentScope 1.x, in its layout.

    Without `create` the table has to be there, and stays unchanged.
    """

    def __init__(self, url: str, create: bool = False, *, table: str = STATES.table) -> None:
        super().__init__(url, table, layout="1.x", create=create)


class _Leases(LeaseTable):
    """Leases in tables of ours, made when a lease is first asked for; all tables of states in a database share them."""

    def __init__(self, runner: ServerRunner, server: Server) -> None:
        self._runner = runner
        self._server = server
        self._made = False
        self._making = asyncio.Lock()

    async def _ready(self) -> ServerRunner:
        async with self._making:
            if not self._made:
                await self._runner.use(self._server.make_tables)
                self._made = True
        return self._runner

    async def take(self, slot: Slot, holder: str, ttl: float) -> int | None:
        return await (await self._ready()).take(slot, holder, ttl)

    async def renew(self, slot: Slot, holder: str, ttl: float) -> bool:
        return await (await self._ready()).renew(slot, holder, ttl)

    async def leave(self, slot: Slot, holder: str) -> None:
        await (await self._ready()).leave(slot, holder)


def _identifier(kind: str, name: Any, rule: str) -> str:
    if not isinstance(name, str) or not re.fullmatch(rule, name):
        raise ConfigurationError(f"{name!r} cannot be the name of a {kind}: it has to match {rule}")
    return name
