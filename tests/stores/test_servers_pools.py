"""A pool of the user's own is used and left as it was; one of ours is of this process, this loop and this life."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import asyncmy.cursors
import asyncpg
import pytest

from leafward import ConfigurationError, MessageNotFound, Session, SessionManager, open_store, user
from leafward.stores.servers.mysql import MOST_CONNECTIONS
from leafward.stores.servers.store import ServerStore
from tests.servers.server import Server
from tests.stores.both_servers import KINDS, Kind, OnBothServers, OnPrivateServers, opened
from tests.stores.server_store import PREFIX, emptied

ISOLATION = {"postgres": "SHOW transaction_isolation", "mysql": "SELECT @@session.tx_isolation"}
LOCKS = {
    "postgres": "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'",
    "mysql": f"SELECT IS_USED_LOCK('leafward {PREFIX}')",
}


async def ask(pool: Any, statement: str) -> Any:
    """Ask one connection of a pool for one value."""
    async with pool.acquire() as connection:
        if hasattr(connection, "fetchval"):
            return await connection.fetchval(statement)
        async with connection.cursor(asyncmy.cursors.Cursor) as cursor:
            await cursor.execute(statement)
            return (await cursor.fetchone())[0]


async def close(pool: Any) -> None:
    closing = pool.close()
    await (closing if closing is not None else pool.wait_closed())


async def use(store: ServerStore) -> None:
    """Do what takes each kind of transaction."""
    session = Session(store, "s").with_context("notes")
    await session.append_message(user("walnut", id="a"))
    await session.append_messages([user("b", id="b"), user("c", id="c")])
    await session.replace_context_block("notes", "text")
    with pytest.raises(MessageNotFound):
        await session.update_message(user("x", id="none"))
    with pytest.raises(MessageNotFound):
        await session.get_history("none")
    await SessionManager(store).fork("s", "b", "copy")
    assert [one.id for one in await session.search("walnut")] == ["a"]
    async with store.leases.acquire("s") as lease:
        await session.with_lease(lease).append_message(user("d", id="d"))
    assert [one.id for one in await session.get_history()] == ["a", "b", "c", "d"]


class TestAPoolThatIsGiven(OnBothServers):
    @pytest.fixture
    async def pool(self, kind: Kind, url: str) -> AsyncGenerator[Any]:
        options: dict[str, Any] = {"postgres": {"max_size": 1}, "mysql": {"maxsize": 1}}[kind.name]
        pool = await kind.pool(url, **options)
        yield pool
        await close(pool)

    async def test_is_used_and_comes_back_clean(self, store: ServerStore, kind: Kind, url: str, pool: Any) -> None:
        before = await ask(pool, ISOLATION[kind.name])

        async with opened(url, table_prefix=PREFIX, client=pool) as given:
            await use(given)
            await given.settle()
            await kind.until_none_is_lent(given)
            await kind.until_idle(url, PREFIX)

        assert await ask(pool, ISOLATION[kind.name]) == before
        assert not await ask(pool, LOCKS[kind.name])
        assert await ask(pool, "SELECT 1") == 1

    async def test_is_not_closed_when_the_store_cannot_be_opened(self, kind: Kind, url: str, pool: Any) -> None:
        with pytest.raises(ConfigurationError):
            await open_store(url, table_prefix="No good", client=pool)
        assert await ask(pool, "SELECT 1") == 1


@pytest.mark.parametrize("lasting", [False, True])
async def test_a_pool_that_fails_to_take_a_connection_back_makes_no_failure_of_what_was_stored(
    private_postgres: Callable[[], Server], lasting: bool
) -> None:
    """Its reset is a round trip of its own, after the answer to what the connection was lent for."""
    with private_postgres() as server:
        kind, ends = KINDS["postgres"], list[bool]()

        async def reset(connection: Any) -> None:
            if ends:
                await (asyncio.to_thread(server.kill) if ends.pop() else kind.end_connections(server.url))
            await connection.execute("SELECT 1")

        pool = await asyncpg.create_pool(server.url, min_size=1, max_size=3, reset=reset)
        async with opened(server.url, table_prefix=PREFIX, client=pool) as store:
            session = Session(store, "s")
            await session.append_message(user("first"))
            lease = await store.leases.acquire("s")
            runner: Any = store._serving
            runner._appender._positions.clear()
            ends.append(lasting)
            stored = await session.with_lease(lease).append_message(user("second"))
            assert not ends
            if lasting:
                await asyncio.to_thread(server.start)
            assert [one.id for one in await session.get_history()][-1] == stored.id
            await lease.release()
        pool.terminate()


async def test_a_pool_without_prepared_statements_works(postgres_url: str) -> None:
    """As PgBouncer wants it."""
    kind = KINDS["postgres"]
    pool = await kind.pool(postgres_url, statement_cache_size=0)
    async with emptied(postgres_url), opened(postgres_url, table_prefix=PREFIX, client=pool) as store:
        await use(store)
    await close(pool)


@pytest.mark.parametrize("options", [{"autocommit": False}, {"charset": "latin1"}])
async def test_a_pool_of_mysql_that_would_lose_something_is_refused(mysql_url: str, options: dict[str, Any]) -> None:
    pool = await KINDS["mysql"].pool(mysql_url, **options)
    with pytest.raises(ConfigurationError, match="autocommit=True and charset='utf8mb4'"):
        await open_store(mysql_url, table_prefix=PREFIX, client=pool)
    await close(pool)


@pytest.mark.parametrize("mode", ["", "ANSI", "NO_ENGINE_SUBSTITUTION"])
async def test_a_pool_of_mysql_that_would_cut_texts_off_is_refused(mysql_url: str, mode: str) -> None:
    pool = await KINDS["mysql"].pool(mysql_url, sql_mode=f"'{mode}'")
    with pytest.raises(ConfigurationError, match="strict sql_mode"):
        await open_store(mysql_url, table_prefix=PREFIX, client=pool)
    assert await ask(pool, "SELECT 1") == 1
    await close(pool)


async def test_a_pool_of_mysql_may_have_other_cursors(mysql_url: str) -> None:
    pool = await KINDS["mysql"].pool(mysql_url, cursor_cls=asyncmy.cursors.DictCursor)
    async with emptied(mysql_url), opened(mysql_url, table_prefix=PREFIX, client=pool) as store:
        await use(store)
    await close(pool)


class TestAPoolOfOurs(OnPrivateServers):
    async def test_takes_no_more_connections_than_it_may(self, kind: Kind, store: ServerStore, url: str) -> None:
        session = Session(store, "s")
        await session.append_message(user("hi"))
        before = len(await kind.ask(url, kind.connections))

        await asyncio.gather(*(session.append_message(user("x")) for _ in range(200)))

        assert len(await kind.ask(url, kind.connections)) <= before + MOST_CONNECTIONS
        assert await session.get_path_length() == 201

    async def test_is_gone_when_the_store_is_closed(self, kind: Kind, url: str) -> None:
        before = {number for (number,) in await kind.ask(url, kind.connections)}
        async with opened(url, table_prefix=PREFIX) as store:
            await Session(store, "closing").append_message(user("hi"))
            during = {number for (number,) in await kind.ask(url, kind.connections)}
        assert during - before
        for _ in range(500):
            if not {number for (number,) in await kind.ask(url, kind.connections)} & (during - before):
                return
        pytest.fail("a connection was left open")
