"""A connection to a Redis that many calls share."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator, Iterable
from typing import Any

from redis import exceptions as redis

SILENCE_S = 10.0
"""How long a server may take for one reply."""

GONE = (
    redis.ConnectionError,
    redis.TimeoutError,
    redis.ClusterError,
    redis.RedisClusterException,
    redis.TryAgainError,
)

Command = tuple[str | bytes | int, ...]


class Unsent(Exception):
    """There was no connection to send anything on."""

    def __init__(self, reason: Exception) -> None:
        self.reason = reason


class Pending:
    """A command, sent when it is first awaited; that gives the reply. One who was cancelled can await it again.

    Raises (when awaited):
        Unsent: it was not sent.
        RedisError: the server refused it, or the connection ended before the reply.
    """

    __slots__ = ("_reply", "_wire", "command")

    def __init__(self, command: Command, wire: Wire) -> None:
        self.command = command
        self._wire = wire
        self._reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def __await__(self) -> Generator[Any, None, Any]:
        if self._wire.is_idle and not self._reply.done():
            yield from self._wire.lead().__await__()
        return (yield from self._open().__await__())

    def answer(self, reply: object) -> None:
        self._open().set_result(reply)

    def fail(self, error: Exception) -> None:
        reply = self._open()
        reply.set_exception(error)
        # It is seen: nobody need be left to wait for it.
        reply.exception()

    def _open(self) -> asyncio.Future[Any]:
        # To cancel a task is to cancel the future it waits for.
        if self._reply.cancelled():
            self._reply = self._reply.get_loop().create_future()
        return self._reply


class Wire:
    """One connection of a pool. Calls that are made while others are under way are sent next, all at once."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._connection: Any = None
        self.is_idle = True
        self._next: list[Pending] = []
        self._under_way: deque[Pending] = deque()
        self._sent = False
        """Whether what is under way is on its way to the server."""
        self._going_on: asyncio.Task[None] | None = None

    @property
    def load(self) -> int:
        """How many calls a new one would wait with; -1 when it would be sent at once."""
        return -1 if self.is_idle else len(self._next)

    def call(self, command: Command) -> Pending:
        """Return a command, to be awaited at once."""
        pending = Pending(command, self)
        self._next.append(pending)
        return pending

    async def lead(self) -> None:
        """Send what waits and read the replies, in the task of the first who does; what comes later is left to another.

        One who has a connection to itself gets its reply as soon as it is there.
        """
        self.is_idle = False
        try:
            # While the pool makes a connection, nobody may be cancelled: it would lend it half made to the next one.
            if self._connection is not None:
                await self._exchange()
        finally:
            self._leave()

    async def _go_on(self) -> None:
        while self._under_way or self._next:
            await self._exchange()
            # Those who have their replies may have more to ask, which is then sent together.
            await asyncio.sleep(0)

    def _leave(self, _: asyncio.Task[None] | None = None) -> None:
        """Leave what is left to another, after a cancellation as well."""
        if self._under_way or self._next:
            self._going_on = asyncio.create_task(self._go_on())
            # Not at the end of the task itself: one that is cancelled before it began has none.
            self._going_on.add_done_callback(self._leave)
        else:
            self.is_idle = True

    async def _exchange(self) -> None:
        """Send commands and read the replies, which come in the same order; go on where another was cancelled."""
        if not self._under_way:
            self._under_way, self._next, self._sent = deque(self._next), [], False
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(SILENCE_S) as limit:
                if not self._sent:
                    connection = await self._connected()
                    self._sent = True
                    packed = [_pack(call.command) for call in self._under_way]
                    await connection.send_packed_command(b"".join(packed), check_health=False)
                while self._under_way:
                    try:
                        reply = await self._connection.read_response(disconnect_on_error=False)
                    except redis.ResponseError as refused:
                        self._under_way.popleft().fail(refused)
                    else:
                        self._under_way.popleft().answer(reply)
                    if self._under_way:
                        limit.reschedule(loop.time() + SILENCE_S)
        except Exception as error:  # noqa: BLE001  (told to those who wait)
            if not self._sent:
                # There is no connection for those that wait either.
                self._under_way.extend(self._next)
                self._next.clear()
            _fail(self._under_way, error, sent=self._sent)
            self._under_way.clear()
            await self._disconnect()
        except asyncio.CancelledError:
            if not self._sent:
                # It may not have logged in.
                await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        if self._connection is not None:
            await self._connection.disconnect(nowait=True)

    async def _connected(self) -> Any:
        if self._connection is None:
            self._connection = await self._pool.get_connection()
        else:
            # Anew, if the server has ended it since.
            await self._pool.ensure_connection(self._connection)
        return self._connection

    async def close(self) -> None:
        """Give the connection back when the calls have ended."""
        while self._going_on is not None and not self._going_on.done():
            await asyncio.wait((self._going_on,))
        if self._connection is not None:
            await self._pool.release(self._connection)


def _pack(command: Command) -> bytes:
    # In half the time that redis-py takes.
    found = [b"*%d\r\n" % len(command)]
    for one in command:
        part = one if isinstance(one, bytes) else str(one).encode()
        found.append(b"$%d\r\n%b\r\n" % (len(part), part))
    return b"".join(found)


def _fail(calls: Iterable[Pending], error: Exception, *, sent: bool) -> None:
    """Tell those who wait for replies that there will be none."""
    if isinstance(error, TimeoutError):
        error = redis.TimeoutError(f"no reply in {SILENCE_S:g} s")
    for number, call in enumerate(calls):
        if sent and number:
            # What became of the first need not go for those after it.
            call.fail(redis.ConnectionError("the connection ended before the reply"))
        elif sent or not isinstance(error, GONE):
            call.fail(error)
        else:
            call.fail(Unsent(error))
