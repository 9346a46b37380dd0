"""A pool or client of the user's own serves a store of states by itself, and works after that was closed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import redis as blocking_redis
from redis.asyncio import Redis as Client
from redis.asyncio import RedisCluster as ClusterClient
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from leafward import ConfigurationError, Session, SessionKey, SessionManager, user
from leafward.core.ids import new_id
from leafward.stores import MysqlSession, RedisAgentStateStore, RedisSession, StateStore
from leafward.stores.redis.urls import read_url
from tests.stores.both_servers import KINDS, Kind, OnBothServers
from tests.stores.redis_store import forget
from tests.stores.states.test_store_behind import made
from tests.stores.test_servers_pools import ask, close

ALICE = SessionKey("s", "alice")
NOWHERE = {"postgres": "postgresql://app@nowhere.invalid/chat", "mysql": "mysql://app@nowhere.invalid/chat"}


async def use(states: StateStore) -> None:
    """Do what takes each kind of call."""
    await states.save(ALICE, "a", {"n": 1})
    await states.save_list(ALICE, "b", [{"n": 1}, {"n": 2}])
    assert await states.get_versioned(ALICE, "a") == ({"n": 1}, 1)
    assert await states.list_session_keys("alice") == {ALICE}
    async with states.leases.acquire("s", "alice") as lease:
        assert await states.with_lease(lease).save_if_version(ALICE, "a", {"n": 2}, 1) == 2
        session = Session(await states.with_lease(lease).open(), "s", user_id="alice")
        stored = await session.append_message(user("walnut"))
    assert await Session(states.store, "s", user_id="alice").get_history() == [stored]
    assert await SessionManager(states.store, user_id="alice").delete("s")
    assert not await states.exists(ALICE)


class TestAPool(OnBothServers):
    @pytest.fixture
    async def pool(self, kind: Kind, url: str) -> AsyncGenerator[Any]:
        options: dict[str, Any] = {"postgres": {"max_size": 1}, "mysql": {"maxsize": 1}}[kind.name]
        pool = await kind.pool(url, **options)
        yield pool
        await close(pool)

    async def test_is_used_and_stays_open(self, kind: Kind, prefix: str, pool: Any) -> None:
        for _ in range(2):
            # Only the pool can have led to the server.
            options = {"table": f"{prefix}agentscope_sessions", "table_prefix": prefix, "client": pool}
            async with made(kind, NOWHERE[kind.name], **options) as states:
                await use(states)
            await states.close()
            assert await ask(pool, "SELECT 1") == 1

    async def test_stays_open_when_the_store_cannot_be_opened(self, kind: Kind, prefix: str, pool: Any) -> None:
        table = f"{prefix}agentscope_sessions"
        async with made(kind, NOWHERE[kind.name], table=table, create=False, client=pool) as states:
            with pytest.raises(ConfigurationError, match="create=True"):
                await states.exists(ALICE)
        assert await ask(pool, "SELECT 1") == 1

    async def test_that_is_none_is_refused_at_once(self, kind: Kind, url: str) -> None:
        driver = {"postgres": "asyncpg", "mysql": "asyncmy"}[kind.name]
        with pytest.raises(ConfigurationError, match=f"client= is a pool of {driver}'s, not a builtins.dict"):
            made(kind, url, client={})


async def test_a_pool_of_mysql_serves_the_name_of_1x(mysql_url: str) -> None:
    pool = await KINDS["mysql"].pool(mysql_url)
    table = f"n{new_id()[:12]}_states"
    async with MysqlSession(NOWHERE["mysql"], True, table=table, client=pool) as states:
        await states.save("s", "a", {"n": 1})
        assert await states.get("s", "a") == {"n": 1}
    await close(pool)
    await KINDS["mysql"].ask(mysql_url, f"DROP TABLE {table}")


async def test_a_pool_of_mysql_that_would_lose_something_is_refused_at_the_first_use(mysql_url: str) -> None:
    pool = await KINDS["mysql"].pool(mysql_url, autocommit=False)
    async with made(KINDS["mysql"], mysql_url, client=pool) as states:
        for _ in range(2):
            with pytest.raises(ConfigurationError, match="autocommit=True and charset='utf8mb4'"):
                await states.exists("s")
    await close(pool)


class TestAClientOfRedis:
    @pytest.mark.parametrize("decode", [False, True])
    @pytest.mark.parametrize("kind", [RedisAgentStateStore, RedisSession])
    async def test_is_used_and_stays_open(
        self, redis_url: str, prefix: str, kind: type[RedisAgentStateStore], decode: bool
    ) -> None:
        async with Client.from_url(redis_url, decode_responses=decode) as client:
            async with kind("redis://nowhere.invalid", prefix, client=client) as states:
                await use(states)
            assert await client.ping()

    async def test_of_a_cluster_is_used_and_stays_open(self, redis_cluster_url: str) -> None:
        prefix = f"{new_id()}:"
        async with _cluster_client(redis_cluster_url, retries=0) as client:
            async with RedisAgentStateStore("redis+cluster://nowhere.invalid", prefix, client=client) as states:
                await use(states)
            assert await client.ping()
        forget(redis_cluster_url, prefix)
        forget(redis_cluster_url, f"leafward:{prefix}")

    async def test_that_cannot_be_used_is_refused_at_once(self, redis_url: str, redis_cluster_url: str) -> None:
        with (
            blocking_redis.Redis.from_url(redis_url) as client,
            pytest.raises(ConfigurationError, match=r"client= is a redis\.asyncio\.Redis"),
        ):
            RedisAgentStateStore(redis_url, client=client)
        async with _cluster_client(redis_cluster_url, retries=1) as client:
            with pytest.raises(ConfigurationError, match="repeats commands by itself"):
                RedisAgentStateStore(redis_cluster_url, client=client)

    async def test_of_a_cluster_takes_no_prefix_with_braces(self, redis_cluster_url: str) -> None:
        async with _cluster_client(redis_cluster_url, retries=0) as client:
            with pytest.raises(ConfigurationError, match="without braces"):
                RedisAgentStateStore("redis://nowhere.invalid", "{x}:", client=client)


def _cluster_client(url: str, *, retries: int) -> ClusterClient:
    address = read_url(url)
    host, port = address.hosts[0]
    return ClusterClient(host=host, port=port, password=address.password, retry=Retry(NoBackoff(), retries))
