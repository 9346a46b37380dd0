"""The contract for leases: one holder at a time per user and session, first come first served, across processes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Generator
from typing import Any, NamedTuple, Protocol, Self

from leafward.core.errors import ConfigurationError, LeafwardError, LeaseBusy
from leafward.core.ids import Scope, check_id, new_id

DEFAULT_TTL = 30.0
TICKET_TTL = 10.0
"""Seconds after which a waiter that no longer asks has lost its turn."""
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1
_log = logging.getLogger(__name__)


class Slot(NamedTuple):
    """What is leased: a session of a user, whatever the agent."""

    user_id: str | None
    session_id: str


class Fence(NamedTuple):
    """What a leased handle's writes carry along, to be checked inside each of their transactions."""

    slot: Slot
    token: int

    def check(self, scope: Scope) -> None:
        """Raise unless a write to this session is one that the lease is for."""
        if self.slot != (scope.owner.user_id, scope.session_id):
            raise ConfigurationError(
                f"the lease is for session {self.slot.session_id!r} of user {self.slot.user_id!r}: "
                f"it cannot guard a write to session {scope.session_id!r} of user {scope.owner.user_id!r}"
            )


class LeaseTable(Protocol):
    """What a backend does for leases; each call is one atomic step by the store's own clock.

    A token is larger than every earlier one of its slot. A holder is known by a name of its own.
    """

    async def take(self, slot: Slot, holder: str, ttl: float) -> int | None:
        """Queue up, or stay in the queue; return a token when it is this holder's turn and nobody has the lease."""
        ...

    async def renew(self, slot: Slot, holder: str, ttl: float) -> bool:
        """Let the lease last `ttl` seconds from now; False when another holder came."""
        ...

    async def leave(self, slot: Slot, holder: str) -> None:
        """Give back the lease, or the place in the queue."""
        ...


class Lease:
    """The right to write to one session, renewed in the background until it is released."""

    def __init__(self, table: LeaseTable, fence: Fence, holder: str, ttl: float) -> None:
        self.fence = fence
        self._table = table
        self._holder = holder
        self._ttl = ttl
        self._lost = False
        self._released = False
        self._renewing = asyncio.create_task(self._renew(), name=f"lease of {fence.slot.session_id!r}")

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
        """Whether it is held, as far as is known here; only a write tells for sure."""
        return not (self._lost or self._released)

    async def _renew(self) -> None:
        known = time.monotonic()
        while not self._lost:
            await asyncio.sleep(self._ttl / 3)
            asked = time.monotonic()
            try:
                if await self._table.renew(self.fence.slot, self._holder, self._ttl):
                    known = asked
                else:
                    self._lost = True
            except LeafwardError as error:
                # The store may be back in time; until then the lease is still ours.
                _log.warning("the lease of session %r could not be renewed: %s", self.session_id, error)
                self._lost = time.monotonic() - known > self._ttl

    async def release(self) -> None:
        """Let the next one in; a second call does nothing."""
        if self._released:
            return
        self._released = True
        self._renewing.cancel()
        await asyncio.shield(self._table.leave(self.fence.slot, self._holder))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def __repr__(self) -> str:
        return f"<Lease of {self.session_id!r}, user {self.user_id!r}, token {self.token}>"


class Acquiring:
    """A lease about to be acquired: await it, or enter it to have it released as well."""

    def __init__(self, table: LeaseTable, slot: Slot, ttl: float, wait: float | None) -> None:
        self._table = table
        self._slot = slot
        self._ttl = ttl
        self._wait = wait
        self._lease: Lease | None = None

    async def _acquire(self) -> Lease:
        holder = new_id()
        began = time.monotonic()
        pause = _FIRST_PAUSE
        try:
            while True:
                token = await self._table.take(self._slot, holder, self._ttl)
                if token is not None:
                    return Lease(self._table, Fence(self._slot, token), holder, self._ttl)
                left = None if self._wait is None else self._wait - (time.monotonic() - began)
                if left is not None and left <= 0:
                    raise LeaseBusy(self._slot.session_id)
                await asyncio.sleep(pause if left is None else min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)
        except BaseException:
            # Also when cancelled: nobody is to wait for one that has gone.
            await asyncio.shield(self._table.leave(self._slot, holder))
            raise

    def __await__(self) -> Generator[Any, Any, Lease]:
        return self._acquire().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self._acquire()
        return self._lease

    async def __aexit__(self, *_: object) -> None:
        if self._lease is not None:
            await self._lease.release()


class Leases(Protocol):
    """Hands out leases."""

    def acquire(
        self, session_id: str, user_id: str | None = None, ttl: float = DEFAULT_TTL, wait: float | None = None
    ) -> Acquiring:
        """Wait for one's turn and hold the session: `async with store.leases.acquire(...) as lease`, or `await` it.

        The lease is renewed until it is released; a holder that died is followed by the next after `ttl` seconds.

        Raises:
            LeaseBusy: it was not one's turn within `wait` seconds.
        """
        ...


class TableLeases:
    """Leases by what a backend's `LeaseTable` does."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table

    def acquire(
        self, session_id: str, user_id: str | None = None, ttl: float = DEFAULT_TTL, wait: float | None = None
    ) -> Acquiring:
        check_id("session id", session_id)
        if user_id is not None:
            check_id("user id", user_id)
        if not ttl > 0 or (wait is not None and not wait >= 0):
            raise ConfigurationError(f"a lease lasts some time and is waited for: ttl={ttl!r}, wait={wait!r} will not do")
        return Acquiring(self._table, Slot(user_id, session_id), ttl, wait)
