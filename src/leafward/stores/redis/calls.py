"""Calls to a Redis: repeated where the reply was lost, and told in our words where they fail."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from redis import exceptions as redis
from redis.asyncio import RedisCluster
from redis.asyncio.sentinel import MasterNotFoundError

from leafward.core.errors import LeafwardError, OutcomeUnknown, StorageFull, StoreError
from leafward.stores.redis.scripts import Script
from leafward.stores.replicated.finishing import apart

PATIENCE_S = 3.0
"""How long a server that is gone is waited for, from the first failure."""
DOUBT_S = 10.0
"""How long when it may have done what was asked and only the reply is missing."""
SILENCE_S = 10.0
"""How long a server may take for one reply."""
CONNECTIONS = 64
"""How many calls are made at the same time; more wait for their turn."""

_GONE = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ClusterError,
    redis.RedisClusterException,
    redis.TryAgainError,
)
_UNDONE = (
    *(redis.BusyLoadingError, redis.MaxConnectionsError, MasterNotFoundError),
    *(redis.ClusterError, redis.RedisClusterException, redis.TryAgainError),
)
_KEPT_OUT = (redis.AuthenticationError, redis.AuthorizationError)


class _Unsent(Exception):
    """There was no connection to send anything on."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


class Reply(NamedTuple):
    """What a script returned, and whether it was called before and may have been done then."""

    value: Any
    repeated: bool


class Calls:
    """Calls scripts on a client; `closing` is what to let go of at the end."""

    def __init__(self, client: Any, where: str, closing: AsyncExitStack) -> None:
        self.client = client
        self.where = where
        self._closing = closing
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def ask(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int]) -> Any:
        """Call a script that changes nothing; one who is cancelled need not wait for it.

        Raises:
            StoreError: the server is gone, or refuses.
        """
        return (await apart(self._until_it_replies(script, keys, args))).value

    async def change(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int]) -> Reply:
        """Call a script until it replies; never to be cancelled.

        It is told, by an argument before all others, whether it is called once more: it may have been done before.

        Raises:
            StoreError: the server is gone, or refuses.
            OutcomeUnknown: it is gone, and may have done it.
        """
        return await self._until_it_replies(script, keys, args, changes=True)

    async def _until_it_replies(
        self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int], *, changes: bool = False
    ) -> Reply:
        async with self._running_call():
            in_doubt = False
            failing_since, pause = math.inf, 0.01
            while True:
                told = (b"1" if in_doubt else b"",) if changes else ()
                try:
                    return Reply(await self._once(script, keys, (*told, *args)), in_doubt)
                except _Unsent as unsent:
                    error = unsent.reason
                except _GONE as gone:
                    error, in_doubt = gone, in_doubt or (changes and not _was_refused(gone))
                except redis.RedisError as refused:
                    raise explain(refused, self.where) from refused
                # Not since the call began: the first silence alone may last as long as our patience.
                failing_since = min(failing_since, time.monotonic())
                patience = DOUBT_S if in_doubt else PATIENCE_S
                if isinstance(error, _KEPT_OUT) or time.monotonic() - failing_since > patience:
                    unknown = OutcomeUnknown(self.where, unanswered=True)
                    raise unknown if in_doubt else explain(error, self.where) from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, 0.5)

    @asynccontextmanager
    async def _running_call(self) -> AsyncGenerator[None]:
        self._running += 1
        self._idle.clear()
        try:
            async with self._turns:
                yield
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _once(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int]) -> Any:
        try:
            return await self._send("EVALSHA", script.sha, len(keys), *keys, *args)
        except redis.NoScriptError:
            return await self._send("EVAL", script.text, len(keys), *keys, *args)

    async def _send(self, name: str, *args: bytes | int) -> Any:
        if isinstance(self.client, RedisCluster):
            return await self.client.execute_command(name, *args)
        # Step by step, to know whether the server can have got it.
        pool: Any = self.client.connection_pool
        try:
            async with asyncio.timeout(SILENCE_S):
                connection = await pool.get_connection()
        except (*_GONE, TimeoutError) as error:
            raise _Unsent(error) from error
        try:
            async with asyncio.timeout(SILENCE_S):
                await connection.send_packed_command(_pack(name, args), check_health=False)
                return await connection.read_response()
        except TimeoutError as error:
            raise redis.TimeoutError(f"no reply in {SILENCE_S:g} s") from error
        finally:
            await pool.release(connection)

    async def rewrite(self) -> None:
        """Have the server write its append-only file anew, in the background."""
        async with self._running_call():
            for server in servers(self.client):
                await server.execute_command("BGREWRITEAOF")

    async def close(self) -> None:
        """Wait for the calls that run, then let go of the client."""
        await self._idle.wait()
        await self._closing.aclose()


def servers(client: Any) -> list[Any]:
    """Return what to ask for something that is not about keys: each server that takes writes."""
    return client.get_primaries() if isinstance(client, RedisCluster) else [client]


def _pack(name: str, args: Sequence[bytes | int]) -> bytes:
    parts = [name.encode(), *(arg if isinstance(arg, bytes) else b"%d" % arg for arg in args)]
    return b"".join([b"*%d\r\n" % len(parts), *(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)])


def _was_refused(error: BaseException) -> bool:
    """Whether no server can have done it: there was no connection, or it said so."""
    chain = (error, error.__cause__, error.__context__)
    return isinstance(error, _UNDONE) or any(
        isinstance(one, (ConnectionRefusedError, socket.gaierror)) for one in chain
    )


def explain(error: Exception, where: str) -> LeafwardError:
    """Return what a failure means, as an error of ours without secrets."""
    text = str(error).partition("\n")[0]
    if isinstance(error, redis.OutOfMemoryError) or "No space left" in text:
        return StorageFull(where)
    if isinstance(error, redis.BusyLoadingError):
        return StoreError(f"{where} is still loading its data: try again when it is done")
    if isinstance(error, redis.ReadOnlyError):
        return StoreError(f"{where} is a replica now and takes no writes: give the address of the master")
    if text.startswith("WRONGTYPE"):
        return StoreError(f"{where} has other data under a key of ours: give another key_prefix")
    if isinstance(error, redis.NoPermissionError):
        return StoreError(f"{where} does not let this user do what a store has to: {text}")
    if isinstance(error, (redis.TimeoutError, TimeoutError)):
        return StoreError(f"{where} does not answer: see that it runs and can be reached")
    if isinstance(error, _GONE):
        return StoreError(f"{where} cannot be reached: {text}")
    return StoreError(f"{where} refused: {text}")
