"""What cannot be an address or a client is refused in one sentence that says what to give, without a secret."""

from __future__ import annotations

import asyncio
import socket
import traceback
from collections.abc import AsyncGenerator
from typing import Any

import asyncpg
import pytest
from redis.asyncio import ConnectionPool

from leafward import ConfigurationError, LeafwardError, StoreError, open_store
from leafward.stores.redis import sentinels
from tests.servers.redis_sentinel import MASTER, RedisSentinel
from tests.servers.server import HOST
from tests.stores.both_servers import KINDS
from tests.stores.test_servers_pools import close

SECRET = "s3cr3t"


async def refusal(url: str, **options: Any) -> LeafwardError:
    """Return the error with which a store is not opened, having looked at all that it says."""
    with pytest.raises((ConfigurationError, StoreError)) as caught:
        await open_store(url, **options)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)
    return caught.value


class TestAPort:
    @pytest.mark.parametrize("port", [65536, 99999])
    @pytest.mark.parametrize("scheme", ["postgresql", "mysql"])
    async def test_that_no_machine_has_is_refused(self, scheme: str, port: int) -> None:
        error = await refusal(f"{scheme}://someone:{SECRET}@127.0.0.1:{port}/chat")
        assert isinstance(error, ConfigurationError)
        assert f"write {scheme}://user@host/name" in str(error)

    @pytest.mark.parametrize("port", [0, 65536, 99999])
    @pytest.mark.parametrize("url", ["redis://{}/0", "rediss://{}", "redis+cluster://one,{}", "redis+sentinel://{}/m"])
    async def test_that_no_machine_has_is_refused_by_redis(self, url: str, port: int) -> None:
        error = await refusal(url.format(f"127.0.0.1:{port}").replace("://", f"://:{SECRET}@"))
        assert isinstance(error, ConfigurationError)
        assert "a port that no machine has" in str(error)


class TestAClient:
    @pytest.fixture
    async def connection(self, postgres_url: str) -> AsyncGenerator[Any]:
        connection = await asyncpg.connect(postgres_url)
        yield connection
        await connection.close()

    @pytest.mark.parametrize("scheme", ["postgresql", "mysql", "redis", "rediss", "redis+cluster"])
    @pytest.mark.parametrize("client", [7, 0, "", f"redis://:{SECRET}@host", {}, NotImplemented])
    async def test_that_is_none_is_refused(self, scheme: str, client: object) -> None:
        error = await refusal(f"{scheme}://", client=client)
        assert isinstance(error, ConfigurationError)
        assert "client= is a" in str(error)
        assert type(client).__name__ in str(error)

    async def test_that_is_one_connection_is_refused(self, connection: Any) -> None:
        for scheme, driver in (("postgresql", "asyncpg"), ("mysql", "asyncmy")):
            error = await refusal(f"{scheme}://", client=connection)
            assert isinstance(error, ConfigurationError)
            assert f"a pool of {driver}'s" in str(error)

    async def test_that_is_a_pool_of_the_other_driver_is_refused(self, postgres_url: str, mysql_url: str) -> None:
        urls = {"postgres": postgres_url, "mysql": mysql_url}
        for kind, other, driver in (("postgres", "mysql", "asyncpg"), ("mysql", "postgres", "asyncmy")):
            pool = await KINDS[other].pool(urls[other])
            error = await refusal(urls[kind], client=pool)
            await close(pool)
            assert isinstance(error, ConfigurationError)
            assert f"a pool of {driver}'s, not a " in str(error)

    async def test_that_is_a_pool_of_connections_to_redis_is_refused(self) -> None:
        error = await refusal("redis://", client=ConnectionPool())
        assert isinstance(error, ConfigurationError)
        assert "redis.asyncio.Redis" in str(error)


class TestSentinels:
    @staticmethod
    async def refusal(group: RedisSentinel, url: str) -> LeafwardError:
        error = await refusal(url)
        assert group.password not in "".join(traceback.format_exception(error))
        return error

    async def test_that_are_none_are_told(self, redis_sentinel: RedisSentinel) -> None:
        at = f"{HOST}:{redis_sentinel.nodes[0].port}/{MASTER}"
        error = await self.refusal(redis_sentinel, f"redis+sentinel://:{redis_sentinel.password}@{at}")
        assert isinstance(error, ConfigurationError)
        assert f"{at} is not a sentinel" in str(error)

    async def test_that_do_not_know_the_master_are_told(self, redis_sentinel: RedisSentinel) -> None:
        error = await self.refusal(redis_sentinel, redis_sentinel.url.removesuffix(MASTER) + "another")
        assert isinstance(error, ConfigurationError)
        assert "no sentinel there knows a master of that name" in str(error)

    async def test_that_do_not_let_us_in_are_told(self, redis_sentinel: RedisSentinel) -> None:
        for login in (f":{SECRET}@", f"bob:{SECRET}@", ""):
            url = redis_sentinel.url.replace(f":{redis_sentinel.password}@", login)
            error = await self.refusal(redis_sentinel, url)
            assert isinstance(error, ConfigurationError)
            assert "user or password of the sentinels are missing or wrong" in str(error)

    async def test_that_do_not_answer_this_user_are_told(self, redis_sentinel: RedisSentinel) -> None:
        one = redis_sentinel.sentinels[0]
        with one.client() as client:
            client.execute_command("ACL", "SETUSER", "bob", "on", f">{SECRET}", "+ping")
        error = await self.refusal(redis_sentinel, f"redis+sentinel://bob:{SECRET}@{HOST}:{one.port}/{MASTER}")
        assert isinstance(error, ConfigurationError)
        assert "does not let this user ask the sentinels" in str(error)
        assert "is not a sentinel" not in str(error)

    async def test_that_are_silent_are_not_waited_for_for_ever(
        self, redis_sentinel: RedisSentinel, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sentinels, "ANSWER_S", 0.2)
        with socket.create_server((HOST, 0)) as silent:
            at = f"{HOST}:{silent.getsockname()[1]}"
            async with asyncio.timeout(20):
                error = await refusal(f"redis+sentinel://:{SECRET}@{at}/{MASTER}")
                url = redis_sentinel.url.replace("@", f"@{at},")
                async with open_store(url) as store:
                    assert store.durability() == "power"
        assert not isinstance(error, ConfigurationError)
        assert "cannot be reached: no sentinel there answers" in str(error)

    async def test_whose_master_is_down_say_so(self, redis_sentinel: RedisSentinel) -> None:
        for node in redis_sentinel.nodes:
            node.kill()
        async with asyncio.timeout(20):
            while "say that it is down" not in str(error := await refusal(redis_sentinel.url)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert "cannot be reached" in str(error)
        assert not isinstance(error, ConfigurationError)

    async def test_are_no_stores(self, redis_sentinel: RedisSentinel) -> None:
        one = redis_sentinel.sentinels[0]
        for number in (0, 1):
            error = await self.refusal(redis_sentinel, f"redis://:{one.password}@{HOST}:{one.port}/{number}")
            assert isinstance(error, ConfigurationError)
            assert "redis+sentinel://" in str(error)
