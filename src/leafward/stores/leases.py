"""The contract for leases: one holder at a time per user and session, first come first served, across processes."""

from __future__ import annotations

import asyncio
import math
import time
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from leafward.core.errors import ConfigurationError, LeafwardError, LeaseBusy, OutcomeUnknown, StoreError
from leafward.core.ids import Scope, check_id, new_id
from leafward.stores.contracts import DEFAULT_TTL

T = TypeVar("T")

TICKET_TTL = 10.0
"""Seconds after which a waiter that no longer asks has lost its turn, or sooner if its lease would not last as long."""
LONGEST_TTL = 366 * 86_400.0
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1


class Slot(NamedTuple):
    """What is leased: a session of a user, whatever the agent."""

    user_id: str | None
    session_id: str


class Fence(NamedTuple):
    """What a leased handle's writes carry along, to be checked inside each of their transactions."""

    slot: Slot
    token: int

    def check(self, written: Scope | Slot) -> None:
        """Raise unless a write to this session is one that the lease is for."""
        slot = written if isinstance(written, Slot) else Slot(written.owner.user_id, written.session_id)
        if self.slot != slot:
            raise ConfigurationError(
                f"the lease is for session {self.slot.session_id!r} of user {self.slot.user_id!r}: "
                f"it cannot guard a write to session {slot.session_id!r} of user {slot.user_id!r}"
            )


class LeaseTable(Protocol):
    """What a backend does for leases; each call is one atomic step by the store's own clock, and may be repeated.

    A token is larger than every earlier one of its slot. A holder is known by a name of its own, never used again.
    """

    async def take(self, slot: Slot, holder: str, ttl: float) -> int | None:
        """Return a token when it is this holder's turn and nobody has the lease; else queue up, or stay in the queue.

        Turns are in the order of first asking. A place in the queue is lost `ticket_ttl(ttl)` seconds after it was
        last asked for, if not before half of that. A holder that has the lease gets the same token again.
        """
        ...

    async def renew(self, slot: Slot, holder: str, ttl: float) -> bool:
        """Let the lease last `ttl` seconds from now, also one that ran out; False when another holder came."""
        ...

    async def leave(self, slot: Slot, holder: str) -> None:
        """Give back the lease, or the place in the queue, if there is one."""
        ...


def ticket_ttl(ttl: float) -> float:
    """Return for how many seconds a place in the queue is kept without being asked for."""
    return min(ttl, TICKET_TTL)


class _Line:
    """Those who wait for one slot at one open store, in the order of their tickets, and who holds it there.

    Tickets are drawn one at a time, so no other can be served before the first in line: it asks often, and the others
    only to keep their tickets. While the holder is at the same store, the first need not ask either: it is woken.
    """

    def __init__(self) -> None:
        self.drawing = asyncio.Lock()
        self.held_until = 0.0
        """Until when the holder at this store surely has the lease, unless it says otherwise before."""
        self.answered = -math.inf
        """When the store last answered one who asked."""
        self._waiting: list[asyncio.Event] = []

    def join(self) -> asyncio.Event:
        """Return what wakes the one who joins."""
        event = asyncio.Event()
        self._waiting.append(event)
        return event

    def drop(self, event: asyncio.Event) -> None:
        self._waiting.remove(event)

    def wake(self) -> None:
        """Have the first in line ask now."""
        if self._waiting:
            self._waiting[0].set()

    def rest(self, event: asyncio.Event) -> float:
        """Return for how many seconds the one who is woken by `event` cannot be served."""
        return self.held_until - time.monotonic() if self._waiting[0] is event else math.inf


class Lease:
    """The right to write to one session, renewed in the background until it is released.

    One that nobody refers to any more, be it by a handle that was made with it, is no longer renewed and runs out.
    """

    def __init__(self, table: LeaseTable, fence: Fence, holder: str, ttl: float, *, line: _Line, asked: float) -> None:
        self.fence = fence
        self._table = table
        self._holder = holder
        self._ttl = ttl
        self._line = line
        self._left = False
        self._hold(asked + ttl)
        keeping = self._keep(weakref.ref(self), ttl / 3)
        self._renewing = asyncio.create_task(keeping, name=f"lease of {fence.slot.session_id!r}")

    @property
    def session_id(self) -> str:
        return self.fence.slot.session_id

    @property
    def user_id(self) -> str | None:
        return self.fence.slot.user_id

    @property
    def token(self) -> int:
        """A number larger than that of every earlier holder."""
        return self.fence.token

    @property
    def held(self) -> bool:
        """Whether it is held, as far as is known here: not released, renewed in time. Only a write tells for sure."""
        return time.monotonic() < self._until

    async def release(self) -> None:
        """Let the next one in; a second call does nothing.

        Raises:
            StoreError: the store could not be told; the lease is no longer renewed and runs out by itself.
        """
        self._renewing.cancel()
        self._hold(0.0)
        if not self._left:
            await _to_the_end(_settled(lambda: self._table.leave(self.fence.slot, self._holder)))
            self._left = True
            self._line.wake()

    def _hold(self, until: float) -> None:
        self._until = self._line.held_until = until

    async def _renew(self) -> bool:
        asked = time.monotonic()
        try:
            renewed = await self._table.renew(self.fence.slot, self._holder, self._ttl)
        except LeafwardError:
            # Whoever writes meets the same error. The store may be back before somebody else can have come.
            return self.held
        self._hold(asked + self._ttl if renewed else 0.0)
        return renewed

    @staticmethod
    async def _keep(ref: weakref.ref[Lease], pause: float) -> None:
        # Nothing here has the lease while it sleeps: what renews it must not be what keeps it alive.
        renewed = True
        while renewed:
            await asyncio.sleep(pause)
            lease = ref()
            renewed = lease is not None and await lease._renew()
            del lease

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def __repr__(self) -> str:
        return f"<Lease of {self.session_id!r}, user {self.user_id!r}, token {self.token}>"


GRACE_S = 1.0
"""How long, beyond what was asked for, a store may take to answer."""


class Acquiring:
    """A lease about to be acquired: await it, or enter it to have it released as well."""

    def __init__(
        self,
        table: LeaseTable,
        line: _Line,
        slot: Slot,
        *,
        ttl: float,
        wait: float | None,
        asking: set[asyncio.Future[Lease]],
    ) -> None:
        self._table = table
        self._line = line
        self._slot = slot
        self._ttl = ttl
        self._wait = math.inf if wait is None else wait
        self._asking = asking
        self._lease: Lease | None = None

    async def _acquire(self) -> Lease:
        holder = new_id()
        until = time.monotonic() + self._wait
        try:
            async with self._line.drawing:
                lease = await self._ask(holder)
                if lease is not None:
                    return lease
                woken = self._line.join()
            try:
                return await self._wait_in_line(holder, woken, until)
            finally:
                self._line.drop(woken)
        except (Exception, asyncio.CancelledError):
            # Nobody is to wait for one that has gone. If the store cannot be told, ticket and lease run out.
            with suppress(LeafwardError):
                await _to_the_end(_settled(lambda: self._table.leave(self._slot, holder)))
            self._line.wake()
            raise

    async def _wait_in_line(self, holder: str, woken: asyncio.Event, until: float) -> Lease:
        pause = _FIRST_PAUSE
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise LeaseBusy(self._slot.session_id)
            rest = min(left, max(pause, self._line.rest(woken)), ticket_ttl(self._ttl) / 3)
            with suppress(TimeoutError):
                async with asyncio.timeout(rest):
                    await woken.wait()
            pause = _FIRST_PAUSE if woken.is_set() else min(2 * pause, _LONGEST_PAUSE)
            woken.clear()
            lease = await self._ask(holder)
            if lease is not None:
                return lease

    async def _ask(self, holder: str) -> Lease | None:
        asked = time.monotonic()
        token = await _settled(lambda: self._table.take(self._slot, holder, self._ttl))
        self._line.answered = time.monotonic()
        if token is None:
            return None
        return Lease(self._table, Fence(self._slot, token), holder, self._ttl, line=self._line, asked=asked)

    async def _within_reason(self) -> Lease:
        """Acquire it, but wait for a store that does not answer no longer than was asked for."""
        began = time.monotonic()
        task = asyncio.ensure_future(self._acquire())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        try:
            await asyncio.wait((task,), timeout=None if self._wait == math.inf else self._wait + GRACE_S)
            if task.done():
                return task.result()
            if self._line.answered < began:
                raise StoreError(
                    f"the store does not answer: the lease of session {self._slot.session_id!r} was asked for in vain "
                    f"for {self._wait + GRACE_S:g} s; is it running, and can it be reached?"
                )
            raise LeaseBusy(self._slot.session_id)
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                await _to_the_end(task.result().release())
            raise
        finally:
            if not task.done():
                # It goes on to withdraw what it asked for.
                task.cancel()
                await asyncio.wait((task,), timeout=GRACE_S)

    def __await__(self) -> Generator[Any, Any, Lease]:
        return self._within_reason().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self._within_reason()
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        if self._lease is not None:
            await self._lease.release()


async def _settled(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step that may be repeated; repeat it when nobody knows whether it was done."""
    try:
        return await step()
    except OutcomeUnknown:
        return await step()


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do some work to its end, also for one who is cancelled meanwhile; that is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        await asyncio.wait((task,))
        raise cancelled from None if task.cancelled() else task.exception()


class Leases(Protocol):
    """Hands out leases."""

    def acquire(
        self, session_id: str, user_id: str | None = None, ttl: float = DEFAULT_TTL, wait: float | None = None
    ) -> Acquiring:
        """Wait for one's turn and hold the session: `async with store.leases.acquire(...) as lease`, or `await` it.

        The lease is renewed until it is released; a holder that died is followed by the next after `ttl` seconds.

        Raises:
            LeaseBusy: it was not one's turn within `wait` seconds.
            StoreError: the store failed, or did not answer within `wait` seconds and one more.
            InvalidId: one of the ids is refused.
            ConfigurationError: `ttl` or `wait` is no length of time.
        """
        ...


class TableLeases(Leases):
    """Leases by what a backend's `LeaseTable` does."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        # Those who wait and those who hold have the line; when all are gone, it goes.
        self._lines: weakref.WeakValueDictionary[Slot, _Line] = weakref.WeakValueDictionary()
        # Who asked may wait no longer; what was asked for must not be lost before it is withdrawn.
        self._asking: set[asyncio.Future[Lease]] = set()

    def acquire(
        self, session_id: str, user_id: str | None = None, ttl: float = DEFAULT_TTL, wait: float | None = None
    ) -> Acquiring:
        check_id("session id", session_id)
        if user_id is not None:
            check_id("user id", user_id)
        if not _is_number(ttl) or not 0 < ttl <= LONGEST_TTL:
            raise ConfigurationError(f"ttl is a number of seconds, above 0 and up to a year, not {ttl!r}")
        if wait is not None and (not _is_number(wait) or not wait >= 0):
            raise ConfigurationError(f"wait is a number of seconds, or None to wait for one's turn, not {wait!r}")
        slot = Slot(user_id, session_id)
        line = self._lines.setdefault(slot, _Line())
        return Acquiring(self._table, line, slot, ttl=ttl, wait=wait, asking=self._asking)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
