"""`postgresql://`: sessions in PostgreSQL, by asyncpg."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any

from leafward.core.errors import ConfigurationError, LeafwardError, StorageFull, StoreError
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability, Head, check_options
from leafward.stores.leases import Fence
from leafward.stores.servers import setup
from leafward.stores.servers.heads import Asked
from leafward.stores.servers.positions import Attached, Placed, Planned
from leafward.stores.servers.postgres_appending import PostgresAppending
from leafward.stores.servers.postgres_leases import PostgresLeases
from leafward.stores.servers.postgres_new_sessions import PostgresNewSessions
from leafward.stores.servers.postgres_points import PostgresPoints
from leafward.stores.servers.server import Failure, Server
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql import tables
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import STATES_IN_A_SCHEMA, Postgres, StatesTable
from leafward.stores.sql.operations import Many
from leafward.stores.sql.points import HeadOf, StatesOf
from leafward.stores.urls import need_driver, without_secrets

MOST_CONNECTIONS = 16
CONNECT_S = 10.0
ANSWER_S = 120.0
"""How long an answer is waited for, before the connection counts as lost."""

HAS_META = "SELECT to_regclass(quote_ident(current_schema()) || '.' || quote_ident($1)) IS NOT NULL"
NOT_DETERMINISTIC = "SELECT collname FROM pg_collation WHERE NOT collisdeterministic"
SETTINGS = """
    SELECT current_setting('transaction_read_only'), current_setting('fsync'), current_setting('full_page_writes'),
        current_setting('synchronous_commit'), current_schema(), current_setting('server_encoding')"""


class PostgresServer(Server):
    """A pool of asyncpg's."""

    durability: Durability = "power"

    def __init__(self, pool: Any, where: str, prefix: str, states: StatesTable, *, ours: bool) -> None:
        super().__init__(pool.get_max_size(), keeps=ours)
        self.dialect = Postgres(prefix, states)
        self.where = where
        self.errors = _errors()
        self._prefix = prefix
        self._pool = pool
        self._ours = ours
        self._appending = PostgresAppending(self.dialect)
        self._new_sessions = PostgresNewSessions(self.dialect)
        self._points = PostgresPoints(self.dialect)
        self.leases = PostgresLeases(self.dialect)

    async def acquire(self) -> Any:
        return await self._pool.acquire(timeout=CONNECT_S)

    async def release(self, connection: Any) -> None:
        if _is_alive(connection) and connection.is_in_transaction():
            connection.terminate()
        await self._pool.release(connection)

    def abandon(self, connection: Any) -> None:
        if _is_alive(connection):
            connection.terminate()

    def is_usable(self, connection: Any) -> bool:
        return _is_alive(connection) and not connection.is_in_transaction()

    async def begin(self, connection: Any, *, writing: bool) -> None:
        await connection.execute(
            "BEGIN ISOLATION LEVEL READ COMMITTED" if writing else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        )

    async def commit(self, connection: Any) -> None:
        await connection.execute("COMMIT")

    async def rollback(self, connection: Any) -> None:
        if _is_alive(connection):
            await connection.execute("ROLLBACK")

    async def execute(
        self, connection: Any, statement: str, parameters: tuple[Any, ...], *, writing: bool
    ) -> list[Any]:
        rendered = self.dialect.render(statement, writing=writing)
        if rendered.verbatim:
            return await connection.fetch(rendered.text, *parameters)
        return self.dialect.decode(await connection.fetch(rendered.text, *self.dialect.encode(parameters)))

    async def execute_many(self, connection: Any, statement: str, parameters: Many) -> None:
        if parameters:
            rendered = self.dialect.render(statement, writing=True)
            rows = parameters if rendered.verbatim else [self.dialect.encode(each) for each in parameters]
            await connection.executemany(rendered.text, rows)

    async def append_at(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        return await self._appending.at(connection, planned, at)

    async def append_quickly(self, connection: Any, command: Append, fence: Fence | None, at: int) -> Placed | None:
        if command.parent is None:
            return await self._new_sessions.begin(connection, command, fence, at)
        if not command.state:
            return await self._appending.find(connection, command, fence, at, None)
        return await self._paths.along(
            connection,
            command.scope,
            None,
            lambda path: self._appending.find(connection, command, fence, at, path),
        )

    async def attach_quickly(
        self, connection: Any, command: Append, fence: Fence | None, at: int, name: str
    ) -> Attached | None:
        return await self._paths.along(
            connection,
            command.scope,
            None,
            lambda path: self._points.attach(connection, command, fence, at, name, path),
        )

    async def answer(self, connection: Any, question: HeadOf | StatesOf) -> Head | None:
        asked = Asked.of(question)
        return await self._paths.head(connection, question, lambda path: self._points.head(connection, asked, path))

    def judge(self, error: Exception) -> Failure:
        asyncpg = _driver()
        if isinstance(error, (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.UniqueViolationError)):
            return Failure.RACE
        gone = (
            asyncpg.PostgresConnectionError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
            asyncpg.AdminShutdownError,
            asyncpg.CrashShutdownError,
            asyncpg.CannotConnectNowError,
            asyncpg.TooManyConnectionsError,
            asyncpg.IdleSessionTimeoutError,
            OSError,
            asyncio.TimeoutError,
        )
        return Failure.GONE if isinstance(error, gone) else Failure.FINAL

    def is_duplicate(self, error: Exception) -> bool:
        return isinstance(error, _driver().UniqueViolationError)

    def explain(self, error: Exception) -> LeafwardError:
        return explain(error, self.where)

    async def prepare(self) -> None:
        """See that the server can be used."""
        async with self.connection() as connection:
            read_only, fsync, pages, commit, schema, encoding = (await connection.fetch(SETTINGS))[0]
            if read_only == "on":
                raise _takes_no_writes(self.where)
            if schema is None:
                raise ConfigurationError(f"the user has no schema to make tables in on {self.where}: set search_path")
            if encoding != "UTF8":
                raise ConfigurationError(
                    f"the database on {self.where} has the encoding {encoding}: leafward needs UTF8"
                )
            if (fsync, pages) != ("on", "on") or commit == "off":
                self.durability = "process" if commit != "off" else "none"

    async def check_messages(self, connection: Any, max_message_bytes: int) -> None:
        """Do nothing: every message that leafward takes has room here."""

    async def make_tables(self, connection: Any) -> None:
        await self._migrate(connection)
        await setup.check_collations(self, connection, self._prefix, database="current_schema()", wanted="C")

    async def odd_collations(self, connection: Any, collations: set[str]) -> set[str]:
        # All but these compare bytes in the end.
        odd = {name for (name,) in await connection.fetch(NOT_DETERMINISTIC)} & collations
        if odd:
            raise ConfigurationError(
                f"the table of states on {self.where} has the collation {odd.pop()}, which takes one id for another: "
                "change it to a deterministic one, or name another table"
            )
        return set()

    async def _migrate(self, connection: Any) -> None:
        # Whatever goes wrong, a connection that is still in a transaction is thrown away.
        await connection.execute("BEGIN")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", zlib.crc32(self._prefix.encode()))
        has_meta = await connection.fetchval(HAS_META, f"{self._prefix}meta")
        await setup.check_names(self, connection, self._prefix, has_meta=has_meta, database="current_schema()")
        done = await setup.steps_done(self, connection, has_meta)
        if done < len(tables.STEPS):
            await connection.execute(self.dialect.named(tables.CREATE_META))
            async for one in setup.statements(self, connection, self._prefix, done=done, database="current_schema()"):
                await connection.execute(one)
            await setup.note_steps(self, connection)
        await setup.note_analyzer(self, connection)
        await connection.execute("COMMIT")

    async def close(self) -> None:
        if self._ours:
            await self.release_all()
            await self._pool.close()


def _driver() -> Any:
    return import_module("asyncpg")


def _is_alive(connection: Any) -> bool:
    # One that the server ended was taken back by the pool, and then tells nothing more.
    try:
        return not connection.is_closed()
    except import_module("asyncpg").InterfaceError:
        return False


def _errors() -> tuple[type[Exception], ...]:
    asyncpg = _driver()
    # An internal error is what comes of a connection that the server ended between two statements.
    return asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError, asyncio.TimeoutError


def _takes_no_writes(where: str) -> ConfigurationError:
    return ConfigurationError(f"{where} takes no writes (a read replica, or set read-only): give its primary's URL")


def explain(error: Exception, where: str) -> LeafwardError:
    """Say in our words what went wrong, and what to do, without secrets."""
    asyncpg = _driver()
    if isinstance(error, LeafwardError):
        return error
    if isinstance(error, (asyncpg.InvalidPasswordError, asyncpg.InvalidAuthorizationSpecificationError)):
        return ConfigurationError(f"{where} refused the user or the password: check both in the URL")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return ConfigurationError(f"there is no such database on {where}: create it, or check its name in the URL")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return ConfigurationError(f"the user may not do this on {where} ({error}): grant it what it needs")
    if isinstance(error, asyncpg.ReadOnlySQLTransactionError):
        return _takes_no_writes(where)
    if isinstance(error, (asyncpg.DiskFullError, asyncpg.OutOfMemoryError)):
        return StorageFull(where)
    if isinstance(error, asyncpg.TooManyConnectionsError):
        return StoreError(f"{where} takes no more connections: raise its limit, or share one store in the process")
    lost = (asyncpg.InterfaceError, asyncpg.InternalClientError, asyncpg.PostgresConnectionError)
    if isinstance(error, (OSError, asyncio.TimeoutError, *lost)):
        return StoreError(
            f"{where} cannot be reached ({type(error).__name__}): is it running, and is the address right?"
        )
    return StoreError(f"{where} could not do it: {type(error).__name__}: {error}")


async def open_postgres(
    url: str,
    *,
    durability: str = "power",
    table_prefix: str = setup.DEFAULT_PREFIX,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    client: Any = None,
) -> ServerStore:
    """Open `postgresql://user:password@host/database`, making the tables when they are missing.

    `client` is a pool of asyncpg's to be used instead of one of our own. `durability` is taken so that a program can
    keep its options when it changes the URL; a server's is its own, and `store.durability()` tells it.
    """
    check_options(durability, max_message_bytes)
    prefix = setup.check_prefix(table_prefix)
    states = STATES_IN_A_SCHEMA._replace(table=setup.states_table(prefix))
    async with connected(url, prefix, states, client) as server:
        async with server.connection() as connection:
            await server.make_tables(connection)
        return ServerStore(server, f"the store {server.where}", max_message_bytes)


@asynccontextmanager
async def connected(url: str, prefix: str, states: StatesTable, client: Any = None) -> AsyncGenerator[PostgresServer]:
    """Give a server that can be used; it is closed only if what follows fails."""
    asyncpg = need_driver("asyncpg", "postgres", url)
    where = without_secrets(url)
    setup.check_pool(client, "asyncpg")
    try:
        pool = client if client is not None else await _make_pool(asyncpg, url, where)
        server = PostgresServer(pool, where, prefix, states, ours=client is None)
        try:
            await server.prepare()
            yield server
        except BaseException:
            await server.close()
            raise
    except _errors() as error:
        raise explain(error, where) from error


async def _make_pool(asyncpg: Any, url: str, where: str) -> Any:
    with suppress(ValueError, OverflowError):
        return await asyncpg.create_pool(
            url,
            min_size=1,
            max_size=MOST_CONNECTIONS,
            timeout=CONNECT_S,
            command_timeout=ANSWER_S,
            reset=_leave_as_it_is,
        )
    # Raised out here, because the driver's words quote the URL, and with it the password.
    raise ConfigurationError(f"{where!r} is no URL of a server: write postgresql://user@host/name")


async def _leave_as_it_is(connection: Any) -> None:
    """Give a connection back without another round trip: nothing of ours outlives its transaction."""
