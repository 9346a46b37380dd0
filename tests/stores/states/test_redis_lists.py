"""Lists on Redis: long ones, what an append costs, and what a server without room does; and two processes at once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator, Callable, Iterator

import pytest

from leafward import StorageFull, StoreError
from leafward.stores import RedisAgentStateStore
from leafward.stores.redis.urls import read_url
from tests.servers.redis import Redis
from tests.stores.proxy import Fault, Proxy
from tests.stores.redis_store import command
from tests.stores.states.redis_states import own_prefix


@pytest.fixture(params=["redis_url", "redis_cluster_url"])
def url(request: pytest.FixtureRequest) -> str:
    return request.getfixturevalue(request.param)


@pytest.fixture
def prefix(url: str) -> Iterator[str]:
    yield from own_prefix(url)


@pytest.fixture
async def states(url: str, prefix: str) -> AsyncGenerator[RedisAgentStateStore]:
    async with RedisAgentStateStore(url, prefix) as states:
        yield states


async def test_ten_thousand_items_are_stored_changed_and_removed(states: RedisAgentStateStore) -> None:
    items = [{"n": n, "text": "word " * 100} for n in range(10_000)]
    await states.save_list("s", "list", items)
    assert await states.get_list("s", "list") == items
    items = [*items, {"n": -1, "text": ""}]
    await states.save_list("s", "list", items)
    items[5000] = {"n": -2, "text": "another"}
    await states.save_list("s", "list", items)
    assert await states.get_list("s", "list") == items
    await states.save_list("s", "list", items[:9000])
    assert await states.get_list("s", "list") == items[:9000]
    await states.delete("s", "list")
    assert not await states.exists("s")


class TestAnAppend:
    @pytest.mark.parametrize("length", [1, 2000])
    async def test_writes_no_more_than_what_is_new(self, private_redis: Callable[..., Redis], length: int) -> None:
        with private_redis() as server:
            async with RedisAgentStateStore(server.url) as states:
                items = [{"n": n, "text": "word " * 20} for n in range(length)]
                await states.save_list("s", "list", items)
                before = command(server.url, "INFO", "persistence")["aof_current_size"]
                await states.save_list("s", "list", [*items, {"n": 7}])
                after = command(server.url, "INFO", "persistence")["aof_current_size"]
                assert after - before < 1000

    async def test_sends_no_more_than_what_is_new(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sent: list[int] = []

        def judge(self: Proxy, data: bytes) -> Fault | None:
            sent.append(len(data))
            return None

        monkeypatch.setattr(Proxy, "judge", judge)
        for prefix in own_prefix(redis_url):
            async with Proxy(*read_url(redis_url).hosts[0]) as proxy:
                address = f"redis://:{read_url(redis_url).password}@127.0.0.1:{proxy.port}/0"
                async with RedisAgentStateStore(address, prefix) as states:
                    items = [{"n": n, "text": "word " * 20} for n in range(1000)]
                    await states.save_list("s", "list", items)
                    assert sum(sent) > 100_000
                    sent.clear()
                    await states.save_list("s", "list", [*items, {"n": 7}])
                    assert sum(sent) < 1500


async def test_a_server_without_room_keeps_what_it_has_and_lets_it_be_deleted(
    private_redis: Callable[..., Redis],
) -> None:
    with private_redis() as server:
        async with RedisAgentStateStore(server.url) as states:
            await states.save("s", "a", {"n": 1})
            await states.save_list("s", "b", [{"n": 1}, {"n": 2}])
            command(server.url, "CONFIG", "SET", "maxmemory", 100_000)
            for attempt in (
                states.save("s", "a", {"n": 2}),
                states.save("s", "b", {"n": 2}),
                states.save_list("s", "a", [{"n": 1}]),
                states.save_list("s", "b", [{"n": 2}]),
                states.save_list("s", "b", []),
            ):
                with pytest.raises(StorageFull):
                    await attempt
            assert await states.get_versioned("s", "a") == ({"n": 1}, 1)
            assert await states.get_list("s", "b") == [{"n": 1}, {"n": 2}]
            await states.delete("s", "nothing")
            await states.delete("s", "a")
            await states.delete("s")
            assert not await states.exists("s")


async def test_a_key_of_another_type_stops_a_write_before_it_begins(redis_url: str) -> None:
    for prefix in own_prefix(redis_url):
        async with RedisAgentStateStore(redis_url, prefix) as states:
            slot = f"{prefix}__anon__/s"
            await states.save("s", "a", {"n": 1})
            command(redis_url, "SET", f"{slot}:b:list", "text")
            with pytest.raises(StoreError, match="other data"):
                await states.save_list("s", "b", [{"n": 1}])
            command(redis_url, "DEL", f"{slot}:_keys")
            command(redis_url, "SET", f"{slot}:_keys", "text")
            for attempt in (states.save("s", "a", {"n": 2}), states.save_list("s", "c", [{"n": 1}])):
                with pytest.raises(StoreError, match="other data"):
                    await attempt
            assert command(redis_url, "GET", f"{slot}:a:ver") == b"1"
            assert command(redis_url, "EXISTS", f"{slot}:c:list") == 0


SAVER = """
import asyncio, sys
from leafward import StaleState
from leafward.stores import RedisAgentStateStore

async def main(url: str, prefix: str, name: str) -> None:
    async with RedisAgentStateStore(url, prefix) as states:
        await states.exists("s")
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for expected in range(100):
            try:
                await states.save_if_version("s", "a", {"writer": name, "expected": expected}, expected)
                print(expected, flush=True)
            except StaleState:
                pass

asyncio.run(main(*sys.argv[1:]))
"""


async def test_of_two_processes_at_one_version_one_saves(url: str, prefix: str) -> None:
    pipe = asyncio.subprocess.PIPE
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", SAVER, url, prefix, name, stdin=pipe, stdout=pipe)
        for name in ("one", "two")
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    told = await asyncio.gather(*(child.communicate(b"go\n") for child in children))
    versions = [int(line) for out, _ in told for line in out.split()]
    assert sorted(versions) == list(range(len(versions)))
    async with RedisAgentStateStore(url, prefix) as states:
        assert (await states.get_versioned("s", "a")).version == len(versions) > 0
