"""Clients of redis-py that never repeat a command by themselves: what may be repeated is for us to know."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, cast

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ResponseError

from leafward.core.errors import ConfigurationError
from leafward.stores.redis.calls import CONNECTIONS, SILENCE_S
from leafward.stores.redis.urls import Address

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
        MasterNotFoundError: no sentinel knows the master.
    """
    login: dict[str, Any] = {"username": address.username, "password": address.password}
    settings: dict[str, Any] = {**_SETTINGS, "retry": Retry(NoBackoff(), 0), **login}
    if address.kind == "cluster":
        settings["socket_timeout"] = SILENCE_S
        nodes = [ClusterNode(host, port) for host, port in address.hosts]
        client = RedisCluster(startup_nodes=nodes, **settings)
    elif address.kind == "sentinel":
        client = await _follow_sentinels(address, login, settings, closing)
    else:
        host, port = address.hosts[0]
        client = Redis(host=host, port=port, db=address.db, ssl=address.tls, **settings)
    closing.push_async_callback(client.aclose)
    return client


async def _follow_sentinels(
    address: Address, login: dict[str, Any], settings: dict[str, Any], closing: AsyncExitStack
) -> Any:
    refused: MasterNotFoundError | None = None
    # Sentinels are often set up without the password that the servers have.
    for credentials in (login, {}):
        own = {**settings, "username": None, "password": None, **credentials}
        sentinel = Sentinel(address.hosts, sentinel_kwargs=own, db=address.db, **settings)
        for one in sentinel.sentinels:
            closing.push_async_callback(one.aclose)
        try:
            await cast(Any, sentinel).discover_master(address.master)
        except MasterNotFoundError as error:
            refused = refused or error
        except ResponseError as error:
            raise ConfigurationError(f"{address.where} is not a sentinel: {error}") from error
        else:
            return cast(Any, sentinel).master_for(address.master)
    assert refused is not None
    raise refused


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
