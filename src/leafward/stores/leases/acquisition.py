"""How a lease is acquired: a ticket is drawn, and the store asked until it is the first."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from leafward.core.errors import LeafwardError, LeaseBusy, StoreError
from leafward.core.ids import new_id
from leafward.stores.finishing import settled, to_its_end
from leafward.stores.leases.contracts import Fence, LeaseTable, Slot, ticket_ttl
from leafward.stores.leases.held_leases import HeldLeases
from leafward.stores.leases.lease import Lease
from leafward.stores.leases.local_queue import LocalQueue

_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.1

GRACE_S = 1.0
"""How long, beyond what was asked for, a store may take to answer."""


class Acquisition:
    """A lease about to be acquired: await it, or enter it to have it released as well."""

    def __init__(
        self,
        table: LeaseTable,
        queue: LocalQueue,
        slot: Slot,
        *,
        ttl: float,
        wait: float | None,
        label: str | None,
        asking: set[asyncio.Future[Lease]],
        held: HeldLeases,
    ) -> None:
        self._table = table
        self._queue = queue
        self._slot = slot
        self._ttl = ttl
        self._wait = math.inf if wait is None else wait
        self._label = label
        self._asking = asking
        self._held = held
        self._lease: Lease | None = None

    async def _acquire(self) -> Lease:
        holder = new_id()
        until = time.monotonic() + self._wait
        try:
            async with self._queue.drawing:
                lease = await self._ask(holder)
                if lease is not None:
                    return lease
                woken = self._queue.join()
            try:
                return await self._wait_in_queue(holder, woken, until)
            finally:
                self._queue.drop(woken)
        except (Exception, asyncio.CancelledError):
            # Nobody is to wait for one that has gone. If the store cannot be told, ticket and lease run out.
            with suppress(LeafwardError):
                await to_its_end(settled(lambda: self._table.leave(self._slot, holder)))
            self._queue.wake()
            raise

    async def _wait_in_queue(self, holder: str, woken: asyncio.Event, until: float) -> Lease:
        pause = _FIRST_PAUSE
        while True:
            left = until - time.monotonic()
            if left <= 0:
                raise LeaseBusy(self._slot.session_id)
            rest = min(left, max(pause, self._queue.rest(woken)), ticket_ttl(self._ttl) / 3)
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
        token = await settled(lambda: self._table.take(self._slot, holder, self._ttl, self._label))
        self._queue.answered = time.monotonic()
        if token is None:
            return None
        fence = Fence(self._slot, token)
        return Lease(self._table, fence, holder, self._ttl, queue=self._queue, asked=asked, label=self._label)

    async def _within_reason(self) -> Lease:
        """Acquire it, but wait for a store that does not answer no longer than was asked for."""
        await self._held.refuse(self._slot)
        began = time.monotonic()
        task = asyncio.ensure_future(self._acquire())
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)
        try:
            await asyncio.wait((task,), timeout=None if self._wait == math.inf else self._wait + GRACE_S)
            if task.done():
                # In the context of the caller: what it starts from here on knows of the lease.
                return self._held.add(task.result())
            if self._queue.answered < began:
                raise StoreError(
                    f"the store does not answer: the lease of session {self._slot.session_id!r} was asked for in vain "
                    f"for {self._wait + GRACE_S:g} s; is it running, and can it be reached?"
                )
            raise LeaseBusy(self._slot.session_id)
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                await to_its_end(task.result().release())
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
