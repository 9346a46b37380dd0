"""Clients of redis-py that never repeat a command by themselves: what may be repeated is for us to know."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from leafward.core.errors import ConfigurationError
from leafward.stores.redis.calls import CONNECTIONS
from leafward.stores.redis.sentinels import follow_sentinels
from leafward.stores.redis.urls import Address
from leafward.stores.redis.wires import SILENCE_S

_SETTINGS: dict[str, Any] = {
    "protocol": 2,
    # Calls are timed by us: redis-py would begin a task to time each of them.
    "socket_timeout": None,
    "socket_connect_timeout": 5,
    "max_connections": CONNECTIONS + 8,
}


async def make_client(address: Address, closing: AsyncExitStack) -> Any:
    """Return a client for an address, to be closed with `closing`.

    Raises:
        ConfigurationError: sentinels that it names are none, do not let us in, or do not know the master.
        StoreError: no sentinel is there, or the master is down.
    """
    login: dict[str, Any] = {"username": address.username, "password": address.password}
    settings: dict[str, Any] = {**_SETTINGS, "retry": Retry(NoBackoff(), 0), **login}
    if address.kind == "cluster":
        settings["socket_timeout"] = SILENCE_S
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        client = RedisCluster(startup_nodes=nodes, **settings)
    elif address.kind == "sentinel":
        client = await follow_sentinels(address, login, settings, closing)
    else:
        host, port = address.hosts[0]
        client = Redis(host=host, port=port, db=address.db, ssl=address.tls, **settings)
    closing.push_async_callback(client.aclose)
    return client


def check_client(client: object) -> Any:
    """Return a client that was given, if a store can use it.

    Raises:
        ConfigurationError: it is not an asyncio client of redis-py, or it would repeat commands by itself.
    """
    if not isinstance(client, (Redis, RedisCluster)):
        raise ConfigurationError(
            f"client= is a redis.asyncio.Redis or redis.asyncio.RedisCluster, not a {type(client).__module__}."
            f"{type(client).__name__}"
        )
    # Of a plain client only the connections are used, which send what they are given once.
    if isinstance(client, RedisCluster) and client.retry.get_retries() != 0:
        raise ConfigurationError(
            "the RedisCluster that was given repeats commands by itself, and a write could be done twice: "
            "make it with retry=redis.asyncio.retry.Retry(redis.backoff.NoBackoff(), 0)"
        )
    return client


def is_cluster(client: Any) -> bool:
    return isinstance(client, RedisCluster)
