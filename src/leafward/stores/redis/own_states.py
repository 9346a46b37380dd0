"""States on Redis, without anything else."""

from __future__ import annotations

from leafward.core.errors import ConfigurationError
from leafward.stores.redis.opening import DEFAULT_PREFIX as KEY_PREFIX
from leafward.stores.redis.opening import connect
from leafward.stores.redis.state_keys import DEFAULT_PREFIX
from leafward.stores.redis.urls import read_url
from leafward.stores.states.standalone import Opened, Standalone, opened_with
from leafward.stores.states.table import Layout, check_layout
from leafward.stores.urls import need_driver


class RedisAgentStateStore(Standalone):
    """States on a Redis, in AgentScope's keys; in a cluster, where those cannot work, in keys of our own.

    With the prefixes of a `redis://` store it has the states, the leases and the sessions of that store. `client` is a
    client of `redis.asyncio` to use instead of one made from the URL; it is not closed.
    """

    distributed = True

    def __init__(self, url: str, prefix: str = DEFAULT_PREFIX, *, layout: str = "2.x", client: object = None) -> None:
        self._layout: Layout = check_layout(layout)
        address = read_url(url)
        if not isinstance(prefix, str) or not prefix.strip() or not prefix.isprintable():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"a prefix is text, such as {DEFAULT_PREFIX!r}, not {prefix!r}")
        in_a_cluster = address.kind == "cluster" if client is None else _is_cluster(client, url)
        if in_a_cluster and set(prefix) & set("{}"):
            raise ConfigurationError(f"in a cluster a prefix is without braces, not {prefix!r}")
        self._url = url
        self._prefix = prefix
        self._client = client
        super().__init__(f"the store of states {address.where}", self._connect)

    async def _connect(self) -> Opened:
        if self._prefix.endswith(DEFAULT_PREFIX):
            key_prefix = self._prefix.removesuffix(DEFAULT_PREFIX) or KEY_PREFIX
        else:
            key_prefix = f"{KEY_PREFIX}{self._prefix}"
        store = await connect(self._url, key_prefix, self._prefix, self._layout, client=self._client)
        return opened_with(store, store.runner)


class RedisSession(RedisAgentStateStore):
    """States in the keys of AgentScope 1.x."""

    def __init__(self, url: str, prefix: str = DEFAULT_PREFIX, *, client: object = None) -> None:
        super().__init__(url, prefix, layout="1.x", client=client)


def _is_cluster(client: object, url: str) -> bool:
    """Return whether a client that was given is one of a cluster; one that cannot be used is refused."""
    need_driver("redis", "redis", url)

    from leafward.stores.redis.clients import check_client, is_cluster

    return is_cluster(check_client(client))
