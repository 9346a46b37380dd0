"""The table of states on a server, which AgentScope for Java may have made and may share."""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import Any, NamedTuple

from leafward.core.errors import ConfigurationError
from leafward.stores.leases import Slot
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Failure, Server
from leafward.stores.sql import tables
from leafward.stores.sql.dialect import STATES
from leafward.stores.sql.state_statements import CHECKSUM, LOCK_NAME, Counted
from leafward.stores.sql.state_table import SqlStates
from leafward.stores.sql.states import StateRows
from leafward.stores.states.seen_values import SeenValues
from leafward.stores.states.table import Layout

_log = logging.getLogger(__name__)

COLUMNS = """
    SELECT column_name, data_type, coalesce(collation_name, 'default') FROM information_schema.columns
    WHERE table_schema = {schema} AND table_name = ?"""
HAS_SCHEMA = "SELECT 1 FROM information_schema.schemata WHERE schema_name = {schema}"

NEEDED = frozenset({"session_id", "state_key", "item_index", "state_data"})
OLD = frozenset({"session_id", "state_data"})
TEXTS = frozenset({"text", "mediumtext", "longtext", "varchar", "character varying"})
"""Types of columns that return a text as it was saved; JSON columns do not."""

LOOK_AGAIN_AFTER = 5.0
"""Seconds after which a table without versions is looked at again, where this process cannot add them."""

LACKING = {
    "version": "Versions of states are counted by each process for itself",
    CHECKSUM: "A save by AgentScope for Java 2.0.2 or earlier is noticed only by a process that has read or saved the "
    "state before",
}
"""What it means that a column is missing."""
_REWRITTEN = (
    "the column state_data of the table %s on %s has the type %s, which returns another text than was saved. A save by "
    "AgentScope for Java 2.0.2 or earlier right after a save of this process is not noticed: read a state with "
    "get_versioned() before each save_if_version(), or change the type to text"
)


class _Column(NamedTuple):
    type: str
    collation: str


class _Table(NamedTuple):
    """A table as it was found."""

    folds: bool
    """Whether it takes one id for another."""
    keeps_texts: bool
    """Whether a text is read as it was saved, and so has a checksum."""
    columns: frozenset[str]

    @property
    def missing(self) -> list[str]:
        wanted = ("version", CHECKSUM) if self.keeps_texts else ("version",)
        return [name for name in wanted if name not in self.columns]

    @property
    def counted(self) -> Counted:
        if "version" not in self.columns:
            return Counted.NOTHING
        return Counted.CHECKSUMS if self.keeps_texts and CHECKSUM in self.columns else Counted.VERSIONS


class ServerStates(SqlStates):
    """States in a table that is looked at, and made if need be, when it is first used.

    One that Java made gets the columns that it lacks at the first save, unless `create` is false or the account may not
    alter it. Then versions are those that the table has, or those that this process counts; a warning says so.
    """

    def __init__(self, runner: ServerRunner, server: Server, layout: Layout, *, create: bool = True) -> None:
        super().__init__(runner, StateRows(layout))
        self._runner: ServerRunner = runner
        self._server = server
        self._layout: Layout = layout
        self._create = create
        self._seen = SeenValues()
        self._has_versions = False
        """Whether the table is known to have versions; then it is not looked at again for a read."""
        self._is_complete = False
        """Whether it has all columns that it will get; then it is not looked at again for a save either."""
        self._has_warned = False
        self._has_warned_of_type = False
        self._next_look = 0.0
        self._looking = asyncio.Lock()

    async def _ready(self, *, saving: bool = False) -> StateRows:
        if self._is_usable(saving):
            return self._rows
        async with self._looking:
            if self._is_usable(saving):
                return self._rows
            # Until there are versions, again and again: another process may add them, and then counts on them.
            table = await self._runner.use(self._prepare)
            if saving and table.missing:
                table = await self._completed(table)
            self._rows = StateRows(
                self._layout,
                folds=table.folds,
                columns=table.counted,
                seen=self._seen,
                keeps_texts=table.keeps_texts,
            )
            self._has_versions = table.counted >= Counted.VERSIONS
            self._is_complete = self._has_versions and (saving or not table.missing)
            if self._has_warned or not self._create:
                self._next_look = monotonic() + LOOK_AGAIN_AFTER
            return self._rows

    def _is_usable(self, saving: bool) -> bool:
        """Tell whether the table need not be looked at now; the first save looks, because it may have to warn."""
        if saving and not self._has_warned:
            return self._is_complete
        return self._is_complete or self._has_versions or monotonic() < self._next_look

    async def _completed(self, table: _Table) -> _Table:
        if not self._create:
            self._warn(table, "the store was opened with create=False")
        # What was refused once is not tried again.
        return table if self._has_warned else await self._runner.use(lambda one: self._add_columns(one, table))

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
        folds = not self._server.dialect.bytewise.issuperset(odd)
        keeps_texts = columns["state_data"].type.lower() in TEXTS
        if not keeps_texts and not self._has_warned_of_type:
            self._has_warned_of_type = True
            _log.warning(_REWRITTEN, table, self._server.where, columns["state_data"].type)
        return _Table(folds, keeps_texts, frozenset(columns))

    async def _columns(self, connection: Any) -> dict[str, _Column]:
        """Return the table's columns by their names."""
        rows = await self._server.execute(connection, COLUMNS, (self._server.dialect.states.table,), writing=False)
        return {name.lower(): _Column(*rest) for name, *rest in rows}

    async def _make(self, connection: Any) -> None:
        server = self._server
        schema = server.dialect.states.schema
        await server.begin(connection, writing=True)
        await server.execute(connection, LOCK_NAME, (f"leafward {server.dialect.states.table}",), writing=True)
        if schema is not None and not await server.execute(connection, HAS_SCHEMA, (), writing=True):
            await server.execute(connection, f'CREATE SCHEMA "{schema}"', (), writing=True)
        await server.execute(connection, tables.CREATE_STATES, (), writing=True)
        await server.commit(connection)

    async def _add_columns(self, connection: Any, table: _Table) -> _Table:
        """Add the columns that are missing, as Java does with the one for versions; return the table as it is then."""
        for name in table.missing:
            try:
                await self._server.execute(connection, tables.ADD_STATE_COLUMNS[name], (), writing=True)
            except self._server.errors as error:
                if self._server.judge(error) is not Failure.FINAL:
                    raise
                # Another process may have been first.
                table = table._replace(columns=frozenset(await self._columns(connection)))
                if name not in table.columns:
                    self._warn(table, str(self._server.explain(error)))
                    break
            else:
                table = table._replace(columns=table.columns | {name})
        return table

    def _warn(self, table: _Table, reason: str) -> None:
        """Say once what does not hold in a table that lacks columns."""
        if self._has_warned:
            return
        self._has_warned = True
        missing, dialect = table.missing, self._server.dialect
        _log.warning(
            "the table %s on %s has no column %s, and none was added: %s. %s. To add what is missing: %s",
            dialect.states.table,
            self._server.where,
            " and no column ".join(missing),
            reason,
            ". ".join(LACKING[name] for name in missing),
            "; ".join(dialect.named(tables.ADD_STATE_COLUMNS[name]) for name in missing),
        )

    def _refused(self, table: str, old: bool) -> ConfigurationError:
        where = f"the table {table} on {self._server.where}"
        if old:
            rename = "" if table == STATES.table else f"rename it to {STATES.table}, where "
            return ConfigurationError(
                f"{where} is of AgentScope 1.0.4 or earlier: {rename}`leafward migrate` moves what is in it, and keeps "
                "it"
            )
        return ConfigurationError(f"{where} is somebody else's: nothing was touched; name another table")


def _collations(columns: dict[str, _Column]) -> set[str]:
    return {columns["session_id"].collation, columns["state_key"].collation}
