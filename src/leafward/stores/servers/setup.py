"""Makes the tables on a server what this version of leafward expects."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any

from leafward.core.errors import ConfigurationError, CorruptStore, StoreError
from leafward.core.text import analyzer_version
from leafward.stores.servers import indexing
from leafward.stores.servers.server import Server
from leafward.stores.sql import schema, tables
from leafward.stores.sql.dialect import STATES

DEFAULT_PREFIX = "leafward_"
_PREFIX = re.compile(r"[a-z][a-z0-9_]{0,30}")

COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = {schema} AND table_name LIKE ?"""
ANY_META = "SELECT name FROM {p}meta LIMIT 1"

COLLATIONS = """
    SELECT table_name, column_name, coalesce(collation_name, 'default') FROM information_schema.columns
    WHERE table_schema = {schema} AND table_name LIKE ? AND (collation_name IS NOT NULL OR data_type = 'text')"""


def check_prefix(prefix: object) -> str:
    """Return a table prefix if it may be one."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise ConfigurationError(
            f"a table prefix is a small letter and up to 30 small letters, digits and underscores, not {prefix!r}"
        )
    return prefix


def states_table(prefix: str) -> str:
    """Return the name of the table of states: AgentScope's, unless the tables are set apart by a prefix."""
    return STATES.table if prefix == DEFAULT_PREFIX else prefix + STATES.table


def check_pool(client: object, driver: str) -> None:
    """Raise when what was given instead of a pool of our own is none."""
    if client is not None and not isinstance(client, import_module(driver).Pool):
        kind = type(client)
        raise ConfigurationError(f"client= is a pool of {driver}'s, not a {kind.__module__}.{kind.__name__}")


async def check_names(server: Server, connection: Any, prefix: str, *, has_meta: bool, database: str) -> None:
    """Raise when a table that has a name of ours is somebody else's.

    The meta table is the first that is made: without it, not even a migration that was killed has left another.
    """
    columns = await _columns(server, connection, prefix, database)
    meta = f"{prefix}meta"
    if meta in columns and columns[meta] != {"name", "value"}:
        raise _foreign(server, meta)
    for name in () if has_meta else tables.TABLES:
        if f"{prefix}{name}" in columns:
            raise _foreign(server, f"{prefix}{name}")


async def _columns(server: Server, connection: Any, prefix: str, database: str) -> dict[str, set[str]]:
    """Return the names of the columns of tables that begin so, by table."""
    statement = COLUMNS.replace("{schema}", database)
    columns: dict[str, set[str]] = {}
    for table, column in await server.execute(connection, statement, (f"{prefix}%",), writing=False):
        columns.setdefault(table, set()).add(column)
    return columns


async def statements(server: Server, connection: Any, prefix: str, *, done: int, database: str) -> AsyncIterator[str]:
    """Yield what makes the tables those of this version, when so many steps are done; each is run before the next."""
    for step in tables.STEPS[done:]:
        added = [one for one in step if isinstance(one, tables.NewColumn)]
        columns = await _columns(server, connection, prefix, database) if added else {}
        for one in step:
            if isinstance(one, str):
                yield server.dialect.named(one)
            elif one.name not in columns[f"{prefix}{one.table}"]:
                yield server.dialect.named(one.statement)


def _foreign(server: Server, table: str) -> ConfigurationError:
    return ConfigurationError(
        f"the table {table} on {server.where} was not made by leafward: nothing was touched; "
        "give another table_prefix=, or remove it"
    )


async def steps_done(server: Server, connection: Any, has_meta: bool) -> int:
    """Return how many steps of the schema the server has.

    Raises:
        ConfigurationError: the meta table is somebody else's.
        CorruptStore: what is noted is no number.
        StoreError: more than this leafward knows.
    """
    if not has_meta:
        return 0
    meta = server.dialect.named("{p}meta")
    rows = await server.execute(connection, schema.GET_META, (schema.SCHEMA_VERSION,), writing=False)
    if not rows and await server.execute(connection, ANY_META, (), writing=False):
        raise _foreign(server, meta)
    version = rows[0][0] if rows else "0"
    if not version.isdecimal():
        raise CorruptStore(f"the table {meta} on {server.where}", f"says that the tables are at version {version!r}")
    done = int(version)
    if done > len(tables.STEPS):
        raise StoreError(
            f"the tables on {server.where} were made by a newer leafward (they are at version {done}, "
            f"this one knows {len(tables.STEPS)}): upgrade leafward; nothing was touched"
        )
    return done


async def note_steps(server: Server, connection: Any) -> None:
    """Write down that all steps are done."""
    number = str(len(tables.STEPS))
    rows = await server.execute(connection, schema.GET_META, (schema.SCHEMA_VERSION,), writing=True)
    if rows:
        await server.execute(connection, tables.CHANGE_META, (number, schema.SCHEMA_VERSION), writing=True)
    else:
        await server.execute(connection, tables.ADD_META, (schema.SCHEMA_VERSION, number), writing=True)


async def note_analyzer(server: Server, connection: Any) -> None:
    """Forget words that another version of the analyzer cut; what is not indexed is read by searches."""
    wanted = analyzer_version()
    rows = await server.execute(connection, schema.GET_META, (indexing.ANALYZER,), writing=True)
    if not rows:
        await server.execute(connection, tables.ADD_META, (indexing.ANALYZER, wanted), writing=True)
    elif rows[0][0] != wanted:
        for statement in indexing.FORGET:
            await server.execute(connection, statement, (), writing=True)
        await server.execute(connection, tables.CHANGE_META, (wanted, indexing.ANALYZER), writing=True)


async def check_collations(server: Server, connection: Any, prefix: str, *, database: str, wanted: str) -> None:
    """Raise unless our tables compare texts byte by byte: other rules would take one id for another."""
    statement = COLLATIONS.replace("{schema}", database)
    # An underscore in a pattern stands for any character, which finds a few tables too many; they are left out below.
    rows = await server.execute(connection, statement, (f"{prefix}%",), writing=False)
    ours = {f"{prefix}{name}" for name in tables.TABLES}
    for table, column, collation in rows:
        if table in ours and collation != wanted:
            raise ConfigurationError(
                f"the column {column} of the table {table} on {server.where} has the collation {collation}, "
                f"which may take one id for another: change it to {wanted}, or give another table_prefix"
            )
