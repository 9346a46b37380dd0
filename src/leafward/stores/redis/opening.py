"""`redis://` and its kin: from a URL to a store."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from leafward.core.errors import ConfigurationError
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, check_options
from leafward.stores.guard import Guard
from leafward.stores.redis.state_keys import DEFAULT_PREFIX as STATES_PREFIX
from leafward.stores.redis.urls import read_url
from leafward.stores.replicated.store import ReplicatedStore
from leafward.stores.states.table import Layout
from leafward.stores.urls import need_driver

DEFAULT_PREFIX = "leafward:"


class RedisStore(ReplicatedStore):
    """Sessions on a Redis server, behind sentinels or in a cluster."""


async def open_redis(
    url: str,
    *,
    durability: str = "power",
    key_prefix: str = DEFAULT_PREFIX,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    client: Any = None,
) -> RedisStore:
    """Open `redis://`, `rediss://`, `redis+cluster://host1,host2` or `redis+sentinel://host1,host2/<master>`.

    `client` is a client of `redis.asyncio` to use instead of one made from the URL; it is not closed. One of a cluster
    must not repeat commands by itself. What a write survives is the server's to decide: `durability` is taken so that a
    program can keep its options when it changes the URL, and `store.durability()` tells what was found.
    """
    check_options(durability, max_message_bytes)
    if not isinstance(key_prefix, str) or not key_prefix.isprintable() or set(key_prefix) & set("{}"):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigurationError(f"a key prefix is text without braces, not {key_prefix!r}")
    states_prefix = STATES_PREFIX if key_prefix == DEFAULT_PREFIX else f"{key_prefix}{STATES_PREFIX}"
    return await connect(url, key_prefix, states_prefix, max_message_bytes=max_message_bytes, client=client)


async def connect(
    url: str,
    key_prefix: str,
    states_prefix: str,
    layout: Layout = "2.x",
    *,
    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
    client: Any = None,
) -> RedisStore:
    """Open a store with these prefixes, and with this layout of states."""
    need_driver("redis", "redis", url)
    address = read_url(url)

    from leafward.stores.redis.calls import Calls
    from leafward.stores.redis.checking import check
    from leafward.stores.redis.clients import check_client, is_cluster, make_client
    from leafward.stores.redis.keys import Keys
    from leafward.stores.redis.server import RedisServer
    from leafward.stores.redis.state_keys import OfACluster, OfAgentScope
    from leafward.stores.redis.states import RedisStates

    where = "the Redis client that was given" if client is not None else address.where
    guard = Guard(f"the store {where}")
    async with AsyncExitStack() as closing:
        used = await make_client(address, closing) if client is None else check_client(client)
        found = await check(used, where)
        calls = Calls(used, where, closing.pop_all())
    keys = Keys(key_prefix)
    names = OfACluster(states_prefix) if is_cluster(used) else OfAgentScope(states_prefix, layout)
    states = RedisStates(calls, names, keys, guard)
    return RedisStore(RedisServer(calls, keys, found), states, guard, max_message_bytes, layout=layout)
