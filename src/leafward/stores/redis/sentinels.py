"""Clients that follow the master that sentinels name."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from redis import exceptions as redis
from redis.asyncio.sentinel import Sentinel

from leafward.core.errors import ConfigurationError, LeafwardError, StoreError
from leafward.stores.redis.urls import Address

ANSWER_S = 3.0
"""How long a sentinel may take for one reply; then the next one is asked."""


async def follow_sentinels(
    address: Address, login: dict[str, Any], settings: dict[str, Any], closing: AsyncExitStack
) -> Any:
    """Return a client for the master that the sentinels name.

    Raises:
        ConfigurationError: they are none, do not let us in, or know no master of that name.
        StoreError: they are not there, or say that the master is down.
    """
    errors: list[redis.RedisError] = []
    knows_it: list[bool] = []
    # Sentinels are often set up without the password that the servers have.
    for credentials in (login, {}):
        own = {**settings, "socket_timeout": ANSWER_S, "username": None, "password": None, **credentials}
        group: Any = Sentinel(address.hosts, sentinel_kwargs=own, db=address.db, **settings)
        for one in group.sentinels:
            closing.push_async_callback(one.aclose)
        for one in group.sentinels:
            try:
                masters = await one.sentinel_masters()
            except redis.RedisError as error:
                errors.append(error)
                continue
            state = masters.get(address.master)
            if state is not None and group.check_master_state(state, address.master):
                return group.master_for(address.master)
            knows_it.append(state is not None)
        if not any(isinstance(error, (redis.AuthenticationError, redis.NoPermissionError)) for error in errors):
            break
    raise _refusal(address.where, errors, knows_it) from (errors[0] if errors else None)


def _refusal(where: str, errors: list[redis.RedisError], knows_it: list[bool]) -> LeafwardError:
    """Return why no sentinel leads to a master, by the best of their answers."""
    if any(knows_it):
        return StoreError(f"{where} cannot be reached: the sentinels know that master and say that it is down")
    if knows_it:
        return ConfigurationError(f"{where} leads nowhere: no sentinel there knows a master of that name")
    for error in errors:
        text = str(error).partition("\n")[0]
        if isinstance(error, redis.NoPermissionError):
            return ConfigurationError(f"{where} does not let this user ask the sentinels for their masters: {text}")
        if isinstance(error, redis.AuthenticationError):
            return ConfigurationError(
                f"{where} does not let us in: user or password of the sentinels are missing or wrong"
            )
        if isinstance(error, redis.ResponseError):
            return ConfigurationError(f"{where} is not a sentinel: {text}")
    return StoreError(f"{where} cannot be reached: no sentinel there answers")
