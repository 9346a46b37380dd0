"""Redis as a cluster, and Redis with sentinels, are real ones."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from urllib.parse import urlsplit

import pytest
import redis.asyncio
from redis.asyncio.sentinel import Sentinel

from tests.servers.processes import wait_until
from tests.servers.redis_cluster import RedisCluster
from tests.servers.redis_sentinel import MASTER, RedisSentinel

pytestmark = pytest.mark.server
WORDS = [f"word-{number}" for number in range(50)]


def hosts(url: str) -> list[tuple[str, int]]:
    pairs = [pair.rpartition(":") for pair in urlsplit(url).netloc.rpartition("@")[2].split(",")]
    return [(host, int(port)) for host, _, port in pairs]


def password(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[0].lstrip(":")


def cluster_client(url: str) -> redis.asyncio.RedisCluster:
    host, port = hosts(url)[0]
    return redis.asyncio.RedisCluster(host=host, port=port, password=password(url), decode_responses=True)


@asynccontextmanager
async def master_client(url: str) -> AsyncGenerator[redis.asyncio.Redis]:
    secret = password(url)
    group = Sentinel(hosts(url), sentinel_kwargs={"password": secret}, password=secret, decode_responses=True)
    async with AsyncExitStack() as clients:
        for sentinel in group.sentinels:
            clients.push_async_callback(sentinel.aclose)
        yield await clients.enter_async_context(group.master_for(MASTER))


async def test_a_cluster_spreads_keys_over_three_nodes(redis_cluster_url: str) -> None:
    async with cluster_client(redis_cluster_url) as client:
        for word in WORDS:
            await client.set(f"spread:{word}", word)
        assert [await client.get(f"spread:{word}") for word in WORDS] == WORDS
        holders = {getattr(client.get_node_from_key(f"spread:{word}"), "port", None) for word in WORDS}

    assert len(hosts(redis_cluster_url)) == 3
    assert holders == {port for _, port in hosts(redis_cluster_url)}


async def test_a_cluster_keeps_its_words_when_all_nodes_are_killed() -> None:
    with RedisCluster(fast=True) as cluster:
        async with cluster_client(cluster.url) as client:
            for word in WORDS:
                await client.set(word, word)

        cluster.kill()
        cluster.start()

        async with cluster_client(cluster.url) as client:
            assert [await client.get(word) for word in WORDS] == WORDS


async def test_sentinels_send_clients_to_the_promoted_replica(redis_sentinel: RedisSentinel) -> None:
    old, url = redis_sentinel.master, redis_sentinel.url
    async with master_client(url) as client:
        await client.set("word", "kept")
        assert await client.execute_command("WAIT", 1, 10_000) == 1

    redis_sentinel.failover()

    assert redis_sentinel.master is not old
    assert not old.is_running
    async with master_client(redis_sentinel.url) as client:
        assert await client.get("word") == "kept"
        await client.set("word", "changed")
    assert redis_sentinel.url == url


async def test_a_killed_master_comes_back_to_a_group_with_one_master(redis_sentinel: RedisSentinel) -> None:
    redis_sentinel.failover()

    redis_sentinel.start()

    # Which of them is master may change again, if sentinels take a slow node for a dead one; but never who is believed.
    wait_until(lambda: _named(redis_sentinel) == redis_sentinel.roles(), "the node that is not master to follow")
    assert sorted(redis_sentinel.roles()) == ["master", "slave"]


def _named(group: RedisSentinel) -> list[str]:
    """Return the roles of the nodes by what the sentinels send clients to."""
    master = group.master
    return ["master" if node is master else "slave" for node in group.nodes]


def test_a_group_that_ends_takes_all_its_servers_along() -> None:
    with ExitStack() as groups:
        cluster = groups.enter_context(RedisCluster(fast=True))
        watched = groups.enter_context(RedisSentinel(fast=True))
        servers = [*cluster.nodes, *watched.nodes, *watched.sentinels]
        assert all(server.is_running for server in servers)

    assert not any(server.is_running or server.directory.exists() for server in servers)
