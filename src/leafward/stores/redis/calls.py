"""Calls to a Redis: repeated where the reply was lost, and told in our words where they fail."""

from __future__ import annotations

import asyncio
import math
import socket
import time
from collections.abc import Awaitable, Generator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, NamedTuple

from redis import exceptions as redis
from redis.asyncio import RedisCluster
from redis.asyncio.sentinel import MasterNotFoundError

from leafward.core.errors import LeafwardError, OutcomeUnknown, StorageFull, StoreError
from leafward.stores.finishing import to_its_end
from leafward.stores.redis.scripts import Script
from leafward.stores.redis.wires import GONE, Command, Unsent, Wire

PATIENCE_S = 3.0
"""How long a server that is gone is waited for, from the first failure."""
DOUBT_S = 10.0
"""How long when it may have done what was asked and only the reply is missing."""
WIRES = 3
"""How many connections calls share: an agent that takes its turn asks three things at once."""
CONNECTIONS = 64
"""How many calls are made to a cluster at the same time; more wait for their turn."""

_UNDONE = (
    *(redis.BusyLoadingError, redis.MaxConnectionsError, MasterNotFoundError),
    *(redis.ClusterError, redis.RedisClusterException, redis.TryAgainError),
)
_KEPT_OUT = (redis.AuthenticationError, redis.AuthorizationError)


class Reply(NamedTuple):
    """What a script returned, and whether it was called before and may have been done then."""

    value: Any
    repeated: bool


class _Call:
    """One call of a script, repeated where the reply was lost. After a cancellation it can be gone on with."""

    __slots__ = (
        "_args",
        "_by_name",
        "_calls",
        "_changes",
        "_failing_since",
        "_in_doubt",
        "_keys",
        "_script",
        "_under_way",
    )

    def __init__(
        self, calls: Calls, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int], *, changes: bool
    ) -> None:
        self._calls = calls
        self._script = script
        self._keys = keys
        self._args = args
        self._changes = changes
        self._under_way: Awaitable[Any] | None = None
        self._by_name = True
        self._in_doubt = False
        self._failing_since = math.inf

    async def until_it_replies(self) -> Reply:
        where = self._calls.where
        pause = 0.01
        while True:
            if self._under_way is None:
                self._under_way = self._calls.send(self._command())
            try:
                return Reply(await self._under_way, self._in_doubt)
            except Unsent as unsent:
                error = unsent.reason
            except redis.NoScriptError:
                self._by_name, self._under_way = False, None
                continue
            except GONE as gone:
                error, self._in_doubt = gone, self._in_doubt or (self._changes and not _was_refused(gone))
            except redis.RedisError as refused:
                # The first try may have been done all the same.
                unknown = OutcomeUnknown(where, unanswered=True)
                raise unknown if self._in_doubt else explain(refused, where) from refused
            self._under_way = None
            # Not since the call began: the first silence alone may last as long as our patience.
            self._failing_since = min(self._failing_since, time.monotonic())
            patience = DOUBT_S if self._in_doubt else PATIENCE_S
            if isinstance(error, _KEPT_OUT) or time.monotonic() - self._failing_since > patience:
                unknown = OutcomeUnknown(where, unanswered=True)
                raise unknown if self._in_doubt else explain(error, where) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)

    def _command(self) -> Command:
        how = ("EVALSHA", self._script.sha) if self._by_name else ("EVAL", self._script.text)
        told = (b"1" if self._in_doubt else b"",) if self._changes else ()
        return (*how, len(self._keys), *self._keys, *told, *self._args)


class Calls:
    """Calls scripts on a client; `closing` is what to let go of at the end."""

    def __init__(self, client: Any, where: str, closing: AsyncExitStack) -> None:
        self.client = client
        self.where = where
        self._closing = closing
        self._wires: list[Wire] = []
        if not isinstance(client, RedisCluster):
            pool = client.connection_pool
            self._wires = [Wire(pool) for _ in range(min(WIRES, pool.max_connections))]
        self._turns = asyncio.Semaphore(CONNECTIONS)
        self._running = _Running()

    @property
    def in_a_cluster(self) -> bool:
        return isinstance(self.client, RedisCluster)

    async def ask(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int]) -> Any:
        """Call a script that changes nothing; one who is cancelled need not wait for it.

        Raises:
            StoreError: the server is gone, or refuses.
        """
        with self._running:
            return (await _Call(self, script, keys, args, changes=False).until_it_replies()).value

    async def change(self, script: Script, keys: Sequence[bytes], args: Sequence[bytes | int]) -> Reply:
        """Call a script until it replies; one who is cancelled hears of that when it has.

        It is told, by an argument before all others, whether it is called once more: it may have been done before.

        Raises:
            StoreError: the server is gone, or refuses.
            OutcomeUnknown: it is gone, and may have done it.
        """
        call = _Call(self, script, keys, args, changes=True)
        with self._running:
            try:
                return await call.until_it_replies()
            except asyncio.CancelledError:
                # What comes of it is for the next one to find out.
                with suppress(LeafwardError):
                    await to_its_end(call.until_it_replies())
                raise

    def send(self, command: Command) -> Awaitable[Any]:
        """Send a command once; what is returned can be awaited again by one who was cancelled."""
        if self._wires:
            return min(self._wires, key=_load).call(command)
        return _Shielded(asyncio.ensure_future(self._send_to_cluster(command)))

    async def _send_to_cluster(self, command: Command) -> Any:
        with self._running:
            async with self._turns:
                return await self.client.execute_command(*command)

    async def rewrite(self) -> None:
        """Have the server write its append-only file anew, in the background."""
        with self._running:
            for server in servers(self.client):
                await server.execute_command("BGREWRITEAOF")

    async def close(self) -> None:
        """Wait for the calls that run, then let go of the client."""
        await self._running.end()
        for wire in self._wires:
            await wire.close()
        await self._closing.aclose()


def servers(client: Any) -> list[Any]:
    """Return what to ask for something that is not about keys: each server that takes writes."""
    return client.get_primaries() if isinstance(client, RedisCluster) else [client]


class _Running:
    """Counts what is within."""

    def __init__(self) -> None:
        self._count = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        self._count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._idle.set()

    async def end(self) -> None:
        """Wait until nothing is."""
        await self._idle.wait()


class _Shielded:
    """A task that one who was cancelled can await again."""

    def __init__(self, task: asyncio.Future[Any]) -> None:
        self._task = task

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.shield(self._task).__await__()


def _load(wire: Wire) -> int:
    return wire.load


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
    if isinstance(error, GONE):
        return StoreError(f"{where} cannot be reached: {text}")
    return StoreError(f"{where} refused: {text}")
