"""What is found out about a Redis before it is trusted with sessions."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from typing import Any, NamedTuple

from redis import exceptions as redis
from redis.asyncio.sentinel import MasterNotFoundError

from leafward.core.errors import ConfigurationError, LeafwardError, StoreError
from leafward.stores.contracts import Durability
from leafward.stores.redis.calls import explain, servers
from leafward.stores.redis.clients import is_cluster
from leafward.stores.redis.wires import SILENCE_S

LOADING_S = 10.0
"""How long a server that is still loading its data is waited for."""

_LEVELS: tuple[Durability, ...] = ("none", "process", "power")
_log = logging.getLogger(__name__)


class Facts(NamedTuple):
    """What a server says of itself; what it keeps to itself is empty."""

    info: dict[str, Any]
    fsync: str
    pauses: str
    """Whether it forgoes that while it writes its file anew."""


async def check(client: Any, where: str) -> Durability:
    """Return what a finished write survives on this server.

    Raises:
        ConfigurationError: it would lose sessions, takes no writes, or does not let us in.
        StoreError: it is not there.
    """
    until = time.monotonic() + LOADING_S
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                found = await _ask(client)
        except redis.BusyLoadingError as error:
            if time.monotonic() > until:
                raise explain(error, where) from error
            await asyncio.sleep(0.1)
        except (redis.RedisError, redis.RedisClusterException, ssl.SSLError, TimeoutError) as error:
            raise refusal(error, where) from error
        else:
            levels = [_judge(facts, where, cluster=is_cluster(client)) for facts in found]
            return next(level for level in _LEVELS if level in levels)


async def _ask(client: Any) -> list[Facts]:
    if is_cluster(client):
        await client.initialize()
    return [await _ask_one(server) for server in servers(client)]


async def _ask_one(server: Any) -> Facts:
    info: dict[str, Any] = {}
    fsync = pauses = ""
    try:
        info = await server.execute_command("INFO")
        fsync = await _setting(server, "appendfsync")
        pauses = await _setting(server, "no-appendfsync-on-rewrite")
    except redis.NoPermissionError:
        _log.info("the server does not let this user ask for all of its settings")
    except redis.ResponseError as error:
        # Some hosted servers have no CONFIG.
        if not info or "unknown command" not in str(error).lower():
            raise
    return Facts(info, fsync, pauses)


async def _setting(server: Any, wanted: str) -> str:
    found = await server.execute_command("CONFIG GET", wanted)
    return next((_text(value) for name, value in found.items() if _text(name) == wanted), "")


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _judge(facts: Facts, where: str, *, cluster: bool) -> Durability:
    info, fsync, pauses = facts
    if info.get("redis_mode") == "sentinel":
        raise ConfigurationError(
            f"{where} is a sentinel, which keeps no sessions: write redis+sentinel:// with the same host and the master"
        )
    if info.get("role") == "slave":
        raise ConfigurationError(f"{where} is a replica, which takes no writes: give the address of its master")
    if info.get("cluster_enabled") and not cluster:
        raise ConfigurationError(f"{where} is a node of a cluster: write redis+cluster:// with the same host")
    policy = info.get("maxmemory_policy", "noeviction")
    if info.get("maxmemory") and policy != "noeviction":
        raise ConfigurationError(
            f"{where} throws data away when its memory is full (maxmemory-policy {policy}): sessions would vanish; "
            "set maxmemory-policy noeviction"
        )
    if not info.get("aof_enabled"):
        _log.warning(
            "%s keeps no append-only file: what is written is lost when it stops; set appendonly yes and, "
            "to survive a power cut, appendfsync always",
            where,
        )
        return "none"
    return "power" if fsync == "always" and pauses != "yes" else "process"


def refusal(error: Exception, where: str) -> LeafwardError:
    """Return why a store cannot be opened, as an error of ours without secrets."""
    text = str(error).partition("\n")[0]
    chain = (error, error.__cause__, error.__context__)
    if isinstance(error, (redis.AuthenticationError, redis.AuthorizationError)) or text.startswith("NOAUTH"):
        return ConfigurationError(f"{where} does not let us in: user or password are missing or wrong")
    if "DB index is out of range" in text or "invalid DB index" in text:
        return ConfigurationError(f"{where} has no database of that number")
    if "unknown command 'SELECT'" in text:
        return ConfigurationError(f"{where} has no databases: write /0, or redis+sentinel:// if it is a sentinel")
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in chain):
        return ConfigurationError(
            f"{where} shows a certificate that cannot be verified: give client= with its authority"
        )
    if any(isinstance(one, ssl.SSLError) for one in chain):
        return ConfigurationError(f"{where} does not speak TLS as we do: write redis:// if it speaks none")
    if "cluster mode is not enabled" in text.lower() or "cluster support disabled" in text.lower():
        return ConfigurationError(f"{where} is no cluster: write redis:// with one host")
    if isinstance(error, MasterNotFoundError):
        return StoreError(f"{where} cannot be reached: the sentinels no longer name a master that is up")
    if isinstance(error, (redis.TimeoutError, TimeoutError)) and where.startswith("rediss:"):
        return StoreError(
            f"{where} cannot be reached: nothing answers in TLS; if the server speaks none, write redis://"
        )
    if "Connection closed" in text or "Connection reset" in text:
        return StoreError(f"{where} cannot be reached: it ends the connection; if it speaks TLS, write rediss://")
    return explain(error, where)
