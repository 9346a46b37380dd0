"""Sends appends to their server, those of several sessions together where there is something to wait for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

from leafward.core.ids import Scope
from leafward.core.times import now_micros
from leafward.stores.contracts import Appended
from leafward.stores.leases import Fence
from leafward.stores.servers.positions import Attached, Placed, Planned, Position
from leafward.stores.servers.server import Failure, Server
from leafward.stores.sql.commands import Append

MOST_AT_ONCE = 2
"""How many groups are on their way at the same time; what comes meanwhile goes with the next."""
LARGEST_GROUP = 64
LARGEST_BYTES = 1024 * 1024
MOST_POSITIONS = 10_000
STUCK_S = 0.1
"""After how long a group that is not answered no longer keeps others from being sent."""


class Unanswered(Exception):
    """The connection was lost before it was said whether the append was made."""


class _Job:
    """An append on its way."""

    def __init__(self, planned: Planned) -> None:
        self.planned = planned
        self.is_sent = False
        self._answered = asyncio.Event()
        self._done: asyncio.Future[Placed | None] = asyncio.get_running_loop().create_future()

    @property
    def is_wanted(self) -> bool:
        return not self._done.done()

    def settle(self, placed: Placed | BaseException | None) -> None:
        self._answered.set()
        if not self.is_wanted:
            return
        if isinstance(placed, asyncio.CancelledError):
            self._done.cancel()
        elif isinstance(placed, BaseException):
            self._done.set_exception(placed)
        else:
            self._done.set_result(placed)

    async def result(self) -> Placed | None:
        try:
            return await self._done
        except asyncio.CancelledError:
            while self.is_sent and not self._answered.is_set():
                with suppress(asyncio.CancelledError):
                    await self._answered.wait()
            raise


class Appender:
    """Appends to sessions that this process appended to before, and knows where."""

    def __init__(self, server: Server, keep: Callable[[asyncio.Task[None]], Any]) -> None:
        self._server = server
        self._keep = keep
        self._positions: dict[Scope, Position] = {}
        self._waiting: deque[_Job] = deque()
        self._senders = 0
        self._stuck = 0

    def appended(self, command: Append, placed: Placed) -> Appended:
        """Take note of where the next append to a session stands; return what the last one gives."""
        if len(self._positions) >= MOST_POSITIONS:
            self._positions.pop(next(iter(self._positions)))
        self._positions[command.scope] = placed.next
        return Appended(
            [draft.message for draft in command.drafts],
            len(command.drafts),
            placed.weight,
            version=placed.next.version,
            states=placed.states,
            attached_to=placed.next.leaf_id,
            counted=command.usage is not None,
        )

    def attached(self, command: Append, attached: Attached) -> Appended:
        """Take note that the next append stands below a leaf with other states; return what attaching them gives."""
        position = self._positions.pop(command.scope, None)
        before = attached.version - bool(attached.changed)
        if position is not None and (position.session_no, position.version) == (attached.session_no, before):
            self._positions[command.scope] = position.moved(
                attached.version, position.leaf, position.leaf_id, attached.states
            )
        return Appended([], 0, None, version=attached.version, states=attached.changed, attached_to=attached.leaf_id)

    async def append(self, command: Append, fence: Fence | None) -> Appended | None:
        """Append where the last append ended; `None`, with nothing written, when that cannot be done in one go.

        Cancelled before it is sent it leaves nothing; later the server's answer is waited for first.

        Raises:
            Unanswered: it may have been done.
        """
        # Taken out, so that a position at which something went wrong is not tried again.
        position = self._positions.pop(command.scope, None)
        planned = None if position is None else position.plan(command, fence)
        if planned is None:
            return None
        job = _Job(planned)
        self._waiting.append(job)
        self._send_more()
        placed = await job.result()
        return None if placed is None else self.appended(command, placed)

    def _send_more(self) -> None:
        if self._waiting and self._senders < MOST_AT_ONCE + self._stuck:
            self._senders += 1
            begun: list[bool] = []

            def ended(_: asyncio.Task[None]) -> None:
                # One that is cancelled before it began has no end of its own.
                if not begun:
                    self._sent()

            self._keep(asyncio.create_task(self._send(begun))).add_done_callback(ended)

    def _sent(self) -> None:
        self._senders -= 1
        self._send_more()

    async def _send(self, begun: list[bool]) -> None:
        begun.append(True)
        group: list[_Job] = []
        try:
            async with self._server.connection() as connection:
                while group := self._next_group():
                    with self._giving_way():
                        placed = await self._server.append_at(connection, [job.planned for job in group], now_micros())
                    for job, one in zip(group, placed, strict=True):
                        job.settle(one)
                    if self._server.is_exhausted:
                        # Others wait for a connection too.
                        break
        except self._server.errors as error:
            lost = group and self._server.judge(error) is Failure.GONE
            # Without a connection nothing is sent; the ordinary way knows how long to try.
            for job in group or self._next_group():
                job.settle(Unanswered() if lost else None)
        except BaseException as error:
            for job in group or self._next_group():
                job.settle(error)
            raise
        finally:
            # Before whoever was answered can append again, or that would begin another sender.
            self._sent()

    @contextmanager
    def _giving_way(self) -> Generator[None]:
        """Let another sender take the place of one that has to wait for a row which somebody holds."""
        stuck = 0

        def give_way() -> None:
            nonlocal stuck
            stuck = 1
            self._stuck += 1
            self._send_more()

        timer = asyncio.get_running_loop().call_later(STUCK_S, give_way)
        try:
            yield
        finally:
            timer.cancel()
            self._stuck -= stuck

    def _next_group(self) -> list[_Job]:
        group: list[_Job] = []
        size = 0
        while self._waiting and len(group) < LARGEST_GROUP and size < LARGEST_BYTES:
            job = self._waiting.popleft()
            if job.is_wanted:
                job.is_sent = True
                size += job.planned.command.size
                group.append(job)
        return group
