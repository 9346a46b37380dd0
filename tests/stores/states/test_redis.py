"""States on Redis keep every promise by themselves, in a cluster too; those of a store have the contracts of stores."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator

import pytest
from redis.asyncio import Redis as Client

from leafward import SessionKey, StoreError, open_store
from leafward.stores import AgentStateStore, RedisAgentStateStore, RedisSession
from leafward.testing.our_states import OurStateContract
from tests.servers.redis_sentinel import RedisSentinel
from tests.stores.states.redis_states import own_prefix


class _OnAServer(OurStateContract):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url

    @pytest.fixture
    def prefix(self, url: str) -> Iterator[str]:
        yield from own_prefix(url)


class TestByThemselves(_OnAServer):
    @pytest.fixture(params=["2.x", "1.x"])
    async def states(self, request: pytest.FixtureRequest, url: str, prefix: str) -> AsyncGenerator[AgentStateStore]:
        made = RedisAgentStateStore if request.param == "2.x" else RedisSession
        async with made(url, prefix) as states:
            yield states


class TestInACluster(TestByThemselves):
    @pytest.fixture
    def url(self, redis_cluster_url: str) -> str:
        return redis_cluster_url


async def test_behind_sentinels_they_are_kept_as_well(redis_sentinel: RedisSentinel) -> None:
    async with RedisAgentStateStore(redis_sentinel.url) as states:
        await states.save("s", "a", {"n": 1})
        assert await states.get_versioned("s", "a") == ({"n": 1}, 1)
        assert {key.session_id for key in await states.list_session_keys()} == {"s"}


async def test_a_client_that_was_given_may_decode_what_it_gets(redis_url: str) -> None:
    for prefix in own_prefix(redis_url):
        async with (
            Client.from_url(redis_url, decode_responses=True) as client,
            open_store(redis_url, key_prefix=prefix, client=client) as store,
        ):
            states = store.states
            await states.save(SessionKey("s", "é:/"), "a", {"n": "é"})
            await states.save_list("s", "b", [{"n": 1}, {"n": "é"}])
            await states.save_list("s", "b", [{"n": 1}, {"n": "é"}, {"n": 2}])
            assert await states.get(SessionKey("s", "é:/"), "a") == {"n": "é"}
            assert await states.get_list("s", "b") == [{"n": 1}, {"n": "é"}, {"n": 2}]
            assert await states.list_session_keys("é:/") == {SessionKey("s", "é:/")}
            await states.delete("s")
            assert await states.list_session_keys() == set()


async def test_once_closed_they_are_not_to_be_had(redis_url: str) -> None:
    for prefix in own_prefix(redis_url):
        store = await open_store(redis_url, key_prefix=prefix)
        alone = RedisAgentStateStore(redis_url, prefix)
        for states, closing in ((store.states, store), (alone, alone)):
            await states.save("s", "a", {})
            await closing.close()
            for call in (states.get("s", "a"), states.save("s", "a", {}), states.list_session_keys()):
                with pytest.raises(StoreError, match="is closed"):
                    await call


async def test_a_server_that_is_not_there_is_told_without_its_password() -> None:
    states = RedisAgentStateStore("redis://:hunter2@127.0.0.1:1/0")
    with pytest.raises(StoreError, match="cannot be reached") as told:
        await states.save("s", "a", {})
    assert "hunter2" not in f"{told.value} {states!r}"
    await states.close()
