"""The table of states on a server, which AgentScope for Java may have made and may share."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

from leafward.core.errors import ConfigurationError
from leafward.stores.leases import Slot
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Server
from leafward.stores.sql import tables
from leafward.stores.sql.dialect import STATES
from leafward.stores.sql.state_table import SqlStates
from leafward.stores.sql.states import LOCK_NAME, StateRows
from leafward.stores.states.table import Layout

COLUMNS = """
    SELECT column_name, coalesce(collation_name, 'default') FROM information_schema.columns
    WHERE table_schema = {schema} AND table_name = ?"""
HAS_SCHEMA = "SELECT 1 FROM information_schema.schemata WHERE schema_name = {schema}"

NEEDED = frozenset({"session_id", "state_key", "item_index", "state_data"})
OLD = frozenset({"session_id", "state_data"})


class _Table(NamedTuple):
    """A table as it was found."""

    folds: bool
    """Whether it takes one id for another."""
    versions: bool


class ServerStates(SqlStates):
    """States in a table that is looked at, and made if need be, when it is first used."""

    def __init__(self, runner: ServerRunner, server: Server, layout: Layout, *, create: bool = True) -> None:
        super().__init__(runner, StateRows(layout))
        self._runner: ServerRunner = runner
        self._server = server
        self._layout: Layout = layout
        self._create = create
        self._has_versions = False
        """Whether the table is known to have all that is needed; then it is looked at no more."""
        self._looking = asyncio.Lock()

    async def _ready(self, *, saving: bool = False) -> StateRows:
        if self._has_versions:
            return self._rows
        async with self._looking:
            # Until there are versions, each time: whoever saves next adds them.
            table = await self._runner.use(self._prepare)
            if saving and not table.versions:
                await self._runner.use(self._add_versions)
                table = table._replace(versions=True)
            self._rows = StateRows(self._layout, folds=table.folds, versions=table.versions)
            self._has_versions = table.versions
            return self._rows

    async def forget(self, slot: Slot) -> bool:
        # Whoever deletes a session need not have a table of states, nor get one; nor one that we could save in.
        if not self._has_versions:
            columns = await self._runner.use(self._columns)
            if not columns.keys() >= NEEDED:
                return False
            if not self._server.keeps_every_id(_collations(columns)):
                return await self._runner.change(lambda _: self._rows.forget_spelled(slot), None)
        return await super().forget(slot)

    async def is_made(self) -> bool:
        """Tell whether there is a table of this name, whosever."""
        return bool(await self._runner.use(self._columns))

    async def _prepare(self, connection: Any) -> _Table:
        """See that there is a table that can be used, and how.

        Raises:
            ConfigurationError: it is missing and not to be made, of an older shape, or somebody else's.
        """
        table = self._server.dialect.states.table
        columns = await self._columns(connection)
        if not columns:
            if not self._create:
                raise ConfigurationError(
                    f"there is no table {table} on {self._server.where}: make it, or give create=True"
                )
            await self._make(connection)
            columns = await self._columns(connection)
        if not columns.keys() >= NEEDED:
            raise self._refused(table, columns.keys() >= OLD)
        odd = await self._server.odd_collations(connection, _collations(columns))
        return _Table(not self._server.dialect.bytewise.issuperset(odd), "version" in columns)

    async def _columns(self, connection: Any) -> dict[str, str]:
        """Return the names of the table's columns, with their collations."""
        rows = await self._server.execute(connection, COLUMNS, (self._server.dialect.states.table,), writing=False)
        return {name.lower(): collation for name, collation in rows}

    async def _make(self, connection: Any) -> None:
        server = self._server
        schema = server.dialect.states.schema
        await server.begin(connection, writing=True)
        await server.execute(connection, LOCK_NAME, (f"leafward {server.dialect.states.table}",), writing=True)
        if schema is not None and not await server.execute(connection, HAS_SCHEMA, (), writing=True):
            await server.execute(connection, f'CREATE SCHEMA "{schema}"', (), writing=True)
        await server.execute(connection, tables.CREATE_STATES, (), writing=True)
        await server.commit(connection)

    async def _add_versions(self, connection: Any) -> None:
        # As Java does, whoever may make tables.
        try:
            await self._server.execute(connection, tables.ADD_STATE_VERSIONS, (), writing=True)
        except self._server.errors:
            # Another process may have been first.
            if "version" not in await self._columns(connection):
                raise

    def _refused(self, table: str, old: bool) -> ConfigurationError:
        where = f"the table {table} on {self._server.where}"
        if old:
            rename = "" if table == STATES.table else f"rename it to {STATES.table}, where "
            return ConfigurationError(
                f"{where} is of AgentScope 1.0.4 or earlier: {rename}`leafward migrate` moves what is in it, and keeps "
                "it"
            )
        return ConfigurationError(f"{where} is somebody else's: nothing was touched; name another table")


def _collations(columns: dict[str, str]) -> set[str]:
    return {columns["session_id"], columns["state_key"]}
