"""`mysql://`: sessions in MySQL or MariaDB, by asyncmy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from importlib import import_module
from itertools import groupby
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from leafward.core.errors import ConfigurationError, LeafwardError, StorageFull, StoreError
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability, Head, check_options
from leafward.stores.leases import Fence
from leafward.stores.servers import mysql_appending as appending
from leafward.stores.servers import mysql_new_sessions, mysql_points, setup
from leafward.stores.servers.heads import Asked, Found
from leafward.stores.servers.indexing import LONGEST_WORD
from leafward.stores.servers.mysql_leases import MysqlLeases
from leafward.stores.servers.mysql_packets import Answer, Packet
from leafward.stores.servers.paths import Path
from leafward.stores.servers.positions import Attached, Placed, Planned, digested, first_states
from leafward.stores.servers.server import Failure, Server
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql import tables
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import MySQL, StatesTable
from leafward.stores.sql.operations import Many
from leafward.stores.sql.points import HeadOf, StatesOf
from leafward.stores.urls import need_driver, without_secrets

MOST_CONNECTIONS = 16
CONNECT_S = 10
ANSWER_S = 120
"""How long an answer is waited for, before the connection counts as lost."""
LONGEST_LOCK_S = 60
LONGEST_WAIT_S = 2
"""How long a statement waits for a row that somebody holds, with all that were sent along; then it is tried again."""
MOST_PREPARED = 8
"""How many statements a connection keeps prepared."""
ROOM = 65536
"""Bytes of a packet that are left for what is sent with a large text."""
LONGEST_ESCAPED = 300_000
"""Characters that take longer to escape, while others wait, than two more messages to the server and back."""
RAISE_PACKET = "raise its max_allowed_packet, or open the store with a smaller max_message_bytes"

READ_COMMITTED = "TRANSACTION ISOLATION LEVEL READ COMMITTED"
BEGIN_WRITING = f"SET {READ_COMMITTED}; START TRANSACTION"
BEGIN_READING = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"

SETTINGS = """
    SELECT VERSION(), @@global.read_only, @@global.innodb_read_only, @@global.innodb_flush_log_at_trx_commit,
        @@global.innodb_doublewrite, @@global.max_allowed_packet, DATABASE(), @@sql_mode"""
INDEX_SETTINGS = "SELECT @@global.innodb_ft_min_token_size, @@global.innodb_ft_max_token_size"
ISOLATION = "SHOW VARIABLES WHERE Variable_name IN ('tx_isolation', 'transaction_isolation')"
HAS_META = "SELECT 1 FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = %s"

ENGINES = """
    SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name LIKE ?"""

_TORN_PAGES = frozenset({"0", "OFF", "DETECT_ONLY"})
"""Settings of `innodb_doublewrite` by which a page that a power cut tore is not mended."""
_ALREADY_MADE = 1061
"""There is an index of that name."""
_DUPLICATE = 1062
_RACES = frozenset({_DUPLICATE, 1205, 1213})
_GONE = frozenset({0, 1040, 1053, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1927, 2002, 2003, 2006, 2013, 2014, 2055})
_FULL = frozenset({1021, 1041, 1114})
_READ_ONLY = frozenset({1290, 1792, 1836})
_REFUSED = frozenset({1045, 1698})
_DENIED = frozenset({1142, 1143, 1227, 1370})
_UNPREPARED = frozenset({1243, 1295, 1461})
"""The server, or what stands before it, has lost a prepared statement, or takes none of this kind, or no more."""


class MysqlServer(Server):
    """A pool of asyncmy's."""

    durability: Durability = "power"

    def __init__(self, pool: Any, where: str, prefix: str, states: StatesTable, *, ours: bool) -> None:
        super().__init__(pool.maxsize, keeps=ours)
        self.where = where
        self.errors = _errors()
        self._prefix = prefix
        self._states = states
        self._pool = pool
        self._ours = ours
        self._begin = "START TRANSACTION" if ours else BEGIN_WRITING
        self.leases = MysqlLeases(self._transact)
        # A pool that was given may have cursors of another kind.
        self._cursor = import_module("asyncmy.cursors").Cursor

    async def acquire(self) -> Any:
        async with asyncio.timeout(CONNECT_S):
            return await self._pool.acquire()

    async def release(self, connection: Any) -> None:
        # One that is in a transaction still is thrown away.
        self._pool.release(connection)

    def abandon(self, connection: Any) -> None:
        connection.close()

    def is_usable(self, connection: Any) -> bool:
        # One that the server ended counts as connected until it is used; the driver's own pool looks at this too.
        return connection.connected and not connection._stream_broken and not connection.get_transaction_status()

    async def _ask(self, connection: Any, text: str, parameters: Sequence[Any] = ()) -> list[Answer]:
        """Run statements that are sent together, and return what came back for each."""
        answers: list[Answer] = []
        # Its own timeout would take a task for each piece of an answer.
        async with asyncio.timeout(ANSWER_S), connection.cursor(self._cursor) as cursor:
            await cursor.execute(text, parameters or None)
            while True:
                rows = list(await cursor.fetchall()) if cursor.description else []
                answers.append(Answer(rows, cursor.rowcount, cursor.lastrowid))
                if not await cursor.nextset():
                    return answers

    async def begin(self, connection: Any, *, writing: bool) -> None:
        await self._ask(connection, self._begin if writing else BEGIN_READING)

    async def commit(self, connection: Any) -> None:
        await self._ask(connection, "COMMIT")

    async def rollback(self, connection: Any) -> None:
        if connection.connected:
            await self._ask(connection, "ROLLBACK")

    async def execute(
        self, connection: Any, statement: str, parameters: tuple[Any, ...], *, writing: bool
    ) -> list[Any]:
        rendered = self.dialect.render(statement, writing=writing)
        values = self.dialect.encode(parameters)
        if self._is_large(values):
            rows, key = await self._ask_unescaped(connection, rendered.text, values)
        else:
            rows, _, key = (await self._ask(connection, rendered.text, values))[0]
        return [(key,)] if rendered.gives_key else rows

    def _is_large(self, values: Sequence[Any]) -> bool:
        # A character takes up to four bytes, and twice as many escaped; escaping a long text holds others up.
        return sum(len(value) for value in values if isinstance(value, str)) > min(self._packet // 8, LONGEST_ESCAPED)

    async def _ask_unescaped(self, connection: Any, text: str, values: Sequence[Any]) -> tuple[list[Any], int]:
        """Run a statement whose values are sent as they are, because escaped they might not fit into a packet."""
        size = sum(len(value.encode()) for value in values if isinstance(value, str))
        if size > self._packet - ROOM:
            raise StoreError(f"{self.where} takes {self._packet:,} bytes at once, not {size:,}: {RAISE_PACKET}")
        async with asyncio.timeout(ANSWER_S):
            prepared = await connection.prepare(text.replace("%s", "?"))
            try:
                done = await prepared.execute(values)
            finally:
                await prepared.close()
        return list(done.rows or ()), done.insert_id

    async def execute_many(self, connection: Any, statement: str, parameters: Many) -> None:
        for large, some in groupby(parameters, self._is_large):
            if large:
                for each in some:
                    await self.execute(connection, statement, each, writing=True)
            else:
                text = self.dialect.render(statement, writing=True).text
                async with asyncio.timeout(ANSWER_S), connection.cursor(self._cursor) as cursor:
                    await cursor.executemany(text, [self.dialect.encode(each) for each in some])

    async def append_at(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        if sum(one.command.size for one in planned) > self._packet // 4:
            return [None] * len(planned)
        if len(planned) > 1:
            answers = await self._transact(connection, appending.at_positions(planned, at))
            return appending.were_placed_at(planned, answers)
        answers = await self._transact(connection, appending.at_position(planned[0], at))
        return [appending.was_placed_at(planned[0], answers)]

    async def append_quickly(self, connection: Any, command: Append, fence: Fence | None, at: int) -> Placed | None:
        if command.size > self._packet // 4:
            return None
        if command.parent is None:
            states = first_states(command)
            answers = await self._transact(connection, mysql_new_sessions.begin(command, states, fence, at))
            return mysql_new_sessions.was_begun(command, states, answers)
        states = digested(command.state)

        async def append(path: Path | None) -> Placed | None:
            packet = appending.below_the_leaf(command, states, fence, at, path)
            return appending.was_placed(command, states, fence, await self._transact(connection, packet))

        return await (self._paths.along(connection, command.scope, None, append) if states else append(None))

    async def attach_quickly(
        self, connection: Any, command: Append, fence: Fence | None, at: int, name: str
    ) -> Attached | None:
        if command.size > self._packet // 4:
            return None
        states = digested(command.state)

        async def attach(path: Path | None) -> Attached | None:
            packet = mysql_points.at_the_leaf(command, states, fence, at, name, path)
            return mysql_points.was_attached(states, fence, await self._transact(connection, packet))

        return await self._paths.along(connection, command.scope, None, attach)

    async def answer(self, connection: Any, question: HeadOf | StatesOf) -> Head | None:
        asked = Asked.of(question)

        async def look(path: Path | None) -> Found | None:
            text, parameters = mysql_points.head_of(asked, path)
            # A long path stands in its statement.
            ask = self._ask_once if path is not None and path.above else self._ask_prepared
            return mysql_points.found_head(asked, path, await ask(connection, self._named(text), parameters))

        return await self._paths.head(connection, question, look)

    async def _ask_once(self, connection: Any, text: str, values: Sequence[Any]) -> list[Any]:
        return (await self._ask(connection, text, values))[0].rows

    async def _ask_prepared(self, connection: Any, text: str, values: Sequence[Any]) -> list[Any]:
        """Run a statement that takes longer to parse than to run; each connection keeps the last ones prepared."""
        kept = _prepared_on(connection)
        try:
            async with asyncio.timeout(ANSWER_S):
                prepared = kept.pop(text, None) or await connection.prepare(text.replace("%s", "?"))
                kept[text] = prepared
                if len(kept) > MOST_PREPARED:
                    await kept.pop(next(iter(kept))).close()
                done = await prepared.execute(values)
        except self.errors as error:
            if _number(error) not in _UNPREPARED:
                raise
            kept.pop(text, None)
            return await self._ask_once(connection, text, values)
        return list(done.rows or ())

    async def _transact(self, connection: Any, packet: Packet) -> list[Answer]:
        """Run the statements of a packet as one transaction."""
        text = self._named(packet.text)
        try:
            answers = await self._ask(connection, f"{self._begin};{text}COMMIT", packet.parameters)
        except self.errors as error:
            if self.judge(error) is not Failure.GONE:
                await self.rollback(connection)
            raise
        return answers[self._begin.count(";") + 1 : -1]

    def judge(self, error: Exception) -> Failure:
        number = _number(error)
        if number in _RACES:
            return Failure.RACE
        return Failure.GONE if number in _GONE or isinstance(error, (OSError, EOFError)) else Failure.FINAL

    def is_duplicate(self, error: Exception) -> bool:
        return _number(error) == _DUPLICATE

    def explain(self, error: Exception) -> LeafwardError:
        return explain(error, self.where)

    async def prepare(self) -> None:
        """See that the server can be used."""
        async with self.connection() as connection:
            (settings,) = (await self._ask(connection, SETTINGS))[0][0]
            version, read_only, innodb, flush, pages, packet, database, mode = settings
            if database is None:
                raise ConfigurationError(f"the URL of {self.where} names no database: write mysql://…/name")
            if read_only not in (0, "OFF") or innodb:
                raise _takes_no_writes(self.where)
            (_, isolation), *_ = (await self._ask(connection, ISOLATION))[0].rows
            _check_pool(connection, isolation)
            if "STRICT_" not in mode:
                raise ConfigurationError(
                    "the pool's connections cut off what is too long: make it with a strict sql_mode"
                )
            self._packet = packet
            self.durability = "power" if flush in (1, 3) else "process" if flush == 2 else "none"
            if self.durability == "power" and str(pages) in _TORN_PAGES:
                self.durability = "process"
            collation = "utf8mb4_nopad_bin" if "MariaDB" in version else "utf8mb4_0900_bin"
            self.dialect = MySQL(self._prefix, self._states, collation=collation)
            self._collation = collation
            self._named = lru_cache(maxsize=64)(self.dialect.named)

    async def check_messages(self, connection: Any, max_message_bytes: int) -> None:
        if self._packet < max_message_bytes + ROOM:
            raise ConfigurationError(
                f"{self.where} takes {self._packet:,} bytes at once, and messages may have {max_message_bytes:,}: "
                f"{RAISE_PACKET}"
            )
        ((shortest, longest),) = (await self._ask(connection, INDEX_SETTINGS))[0][0]
        if shortest > 3 or longest < LONGEST_WORD + 2:
            raise ConfigurationError(
                f"{self.where} leaves words out of its index: set innodb_ft_min_token_size to at most 3 and "
                f"innodb_ft_max_token_size to at least {LONGEST_WORD + 2}"
            )

    async def make_tables(self, connection: Any) -> None:
        await self._migrate(connection)
        await setup.check_collations(self, connection, self._prefix, database="DATABASE()", wanted=self._collation)
        await self._check_engines(connection)

    async def _check_engines(self, connection: Any) -> None:
        """Raise unless our tables have transactions."""
        ours = {f"{self._prefix}{name}" for name in tables.TABLES}
        for table, engine in await self.execute(connection, ENGINES, (f"{self._prefix}%",), writing=False):
            if table in ours and engine != "InnoDB":
                raise ConfigurationError(
                    f"the table {table} on {self.where} has the engine {engine}, which undoes nothing and survives no "
                    "crash: change it to InnoDB, or give another table_prefix"
                )

    async def odd_collations(self, connection: Any, collations: set[str]) -> set[str]:
        if not self.keeps_every_id(collations):
            raise ConfigurationError(
                f"the table of states on {self.where} has the collations {', '.join(sorted(collations))}, which cannot "
                "keep every id: convert it to utf8mb4"
            )
        return collations

    def keeps_every_id(self, collations: set[str]) -> bool:
        return all(name.startswith("utf8mb4") for name in collations)

    async def _migrate(self, connection: Any) -> None:
        lock = f"leafward {self._prefix}"
        ((held,),) = (await self._ask(connection, "SELECT GET_LOCK(%s, %s)", (lock, LONGEST_LOCK_S)))[0][0]
        if held != 1:
            raise StoreError(f"the tables on {self.where} have been locked for {LONGEST_LOCK_S} s by another process")
        try:
            has_meta = bool((await self._ask(connection, HAS_META, (f"{self._prefix}meta",)))[0][0])
            await setup.check_names(self, connection, self._prefix, has_meta=has_meta, database="DATABASE()")
            done = await setup.steps_done(self, connection, has_meta)
            if done < len(tables.STEPS):
                await self._ask(connection, self.dialect.named(tables.CREATE_META))
                async for one in setup.statements(self, connection, self._prefix, done=done, database="DATABASE()"):
                    await self._make(connection, one)
                await setup.note_steps(self, connection)
            await setup.note_analyzer(self, connection)
        finally:
            if connection.connected:
                await self._ask(connection, "SELECT RELEASE_LOCK(%s)", (lock,))

    async def _make(self, connection: Any, statement: str) -> None:
        # Definitions are no part of a transaction here: a step that was killed is taken up where it ended.
        try:
            await self._ask(connection, statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
        except Exception as error:
            if _number(error) != _ALREADY_MADE:
                raise

    async def close(self) -> None:
        if self._ours:
            await self.release_all()
            self._pool.close()
            await self._pool.wait_closed()


def _errors() -> tuple[type[Exception], ...]:
    from asyncmy.errors import MySQLError

    return MySQLError, OSError, EOFError


def _number(error: Exception) -> int | None:
    number = error.args[0] if error.args else None
    return number if isinstance(number, int) else None


def _prepared_on(connection: Any) -> dict[str, Any]:
    # With the connection they end, and refer to it: kept anywhere else they would keep it alive.
    try:
        return connection.leafward_prepared
    except AttributeError:
        connection.leafward_prepared = kept = dict[str, Any]()
        return kept


def _takes_no_writes(where: str) -> ConfigurationError:
    return ConfigurationError(f"{where} takes no writes (a read replica, or set read-only): give its primary's URL")


def _check_pool(connection: Any, isolation: str) -> None:
    if isolation == "READ-UNCOMMITTED":
        raise ConfigurationError("the pool given as client= reads what is not committed: give it another isolation")
    if not connection.get_autocommit() or connection._charset != "utf8mb4":
        raise ConfigurationError("the pool given as client= must be made with autocommit=True and charset='utf8mb4'")


def explain(error: Exception, where: str) -> LeafwardError:
    """Say in our words what went wrong, and what to do, without secrets."""
    if isinstance(error, LeafwardError):
        return error
    number = _number(error)
    if number in _REFUSED:
        return ConfigurationError(f"{where} refused the user or the password: check both in the URL")
    if number == 1044:
        return ConfigurationError(
            f"there is no such database on {where}, or the user may not use it: create it, or grant it to the user"
        )
    if number == 1049:
        return ConfigurationError(f"there is no such database on {where}: create it, or check its name in the URL")
    if number in _READ_ONLY:
        return _takes_no_writes(where)
    if number in _DENIED:
        return ConfigurationError(f"the user may not do this on {where} ({error.args[-1]}): grant it what it needs")
    if number in _FULL:
        return StorageFull(where)
    if number == 1406:
        return StoreError(f"{where} takes no key of more than 700 characters: give a shorter one; nothing was written")
    if number == 1153:
        return StoreError(f"this is more than {where} takes at once: {RAISE_PACKET}")
    if number in (1040, 1203):
        return StoreError(f"{where} takes no more connections: raise its limit, or share one store in the process")
    if number in _GONE or isinstance(error, (OSError, EOFError)):
        return StoreError(
            f"{where} cannot be reached ({type(error).__name__}): is it running, and is the address right?"
        )
    return StoreError(f"{where} could not do it: {type(error).__name__}: {error}")


async def open_mysql(
    url: str,
    *,
    durability: str = "power",
    table_prefix: str = setup.DEFAULT_PREFIX,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    client: Any = None,
) -> ServerStore:
    """Open `mysql://user:password@host/database`, making the tables when they are missing.

    `client` is a pool of asyncmy's to be used instead of one of our own, with `autocommit=True`. `durability` is taken
    so that a program can keep its options when it changes the URL; a server's is its own, and `store.durability()`
    tells it.
    """
    check_options(durability, max_message_bytes)
    prefix = setup.check_prefix(table_prefix)
    async with connected(url, prefix, StatesTable(setup.states_table(prefix)), client) as server:
        async with server.connection() as connection:
            await server.check_messages(connection, max_message_bytes)
            await server.make_tables(connection)
        return ServerStore(server, f"the store {server.where}", max_message_bytes)


@asynccontextmanager
async def connected(url: str, prefix: str, states: StatesTable, client: Any = None) -> AsyncGenerator[MysqlServer]:
    """Give a server that can be used; it is closed only if what follows fails."""
    asyncmy = need_driver("asyncmy", "mysql", url)
    where = without_secrets(url)
    setup.check_pool(client, "asyncmy")
    try:
        pool = client
        if pool is None:
            async with asyncio.timeout(CONNECT_S):
                pool = await asyncmy.create_pool(minsize=1, maxsize=MOST_CONNECTIONS, **_arguments(url))
        server = MysqlServer(pool, where, prefix, states, ours=client is None)
        try:
            await server.prepare()
            yield server
        except BaseException:
            await server.close()
            raise
    except _errors() as error:
        raise explain(error, where) from error


def _parts(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        return None if parts.port == 0 else parts
    except ValueError:
        # The error quotes what it took for the port, which may be a part of the password.
        return None


def _arguments(url: str) -> dict[str, Any]:
    parts = _parts(url)
    if parts is None:
        raise ConfigurationError(f"{without_secrets(url)!r} is no URL of a server: write mysql://user@host/name")
    if parts.query or parts.fragment:
        raise ConfigurationError(
            "a mysql:// URL takes no parameters: for other settings give client=, a pool of asyncmy's"
        )
    return {
        "host": parts.hostname or "127.0.0.1",
        "port": parts.port or 3306,
        "user": unquote(parts.username or ""),
        # As bytes, because the driver knows only Latin letters.
        "password": unquote(parts.password or "").encode(),
        "db": unquote(parts.path.removeprefix("/")) or None,
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": CONNECT_S,
        "init_command": f"SET SESSION {READ_COMMITTED}; SET SESSION innodb_lock_wait_timeout = {LONGEST_WAIT_S}",
        "sql_mode": "'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'",
    }
