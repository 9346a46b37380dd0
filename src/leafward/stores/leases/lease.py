"""A lease that is held."""

from __future__ import annotations

import asyncio
import time
import weakref
from typing import Self

from leafward.core.errors import LeafwardError, LeaseLost, OutcomeUnknown
from leafward.stores.finishing import settled, to_its_end
from leafward.stores.leases.contracts import Fence, LeaseTable, SentText
from leafward.stores.leases.local_queue import LocalQueue


class Lease:
    """The right to write to one session, renewed in the background until it is released.

    One that nobody refers to any more, be it by a handle that was made with it, is no longer renewed and runs out.
    """

    def __init__(
        self,
        table: LeaseTable,
        fence: Fence,
        holder: str,
        ttl: float,
        *,
        queue: LocalQueue,
        asked: float,
        label: str | None = None,
    ) -> None:
        self.fence = fence
        self.label = label
        self._table = table
        self._holder = holder
        self._ttl = ttl
        self._queue = queue
        self._left = False
        self._releasing = False
        self._waiting = False
        self._texts: list[SentText] = []
        """Texts that this holder has read, and the store still has, or may have."""
        self._in_doubt = False
        """Whether the store may have deleted them."""
        self._ready: list[str] = []
        """Texts that only this holder has."""
        self._seen: set[int] = set()
        """The numbers of the texts that `peek` returned and the store may still have."""
        self._receiving = asyncio.Lock()
        self._hold(asked + ttl)
        self._renewing: asyncio.TimerHandle | asyncio.Task[None] = self._timer()
        """Begins the next renewal, or is one. Most leases are released before, so that none of them costs a task."""

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

    @property
    def has_texts(self) -> bool:
        """Whether texts waited for this holder when the lease was last renewed, and were not received since."""
        return self._waiting

    @property
    def is_over(self) -> bool:
        """Whether it was released or lost: it will not be renewed."""
        renewing = self._renewing
        ended = renewing.cancelled() if isinstance(renewing, asyncio.TimerHandle) else renewing.done()
        return self._releasing or ended

    async def is_still_held(self) -> bool:
        """Tell whether the store says that this holder has the lease; if so, it is renewed."""
        return await self._renew()

    async def receive(self) -> list[str]:
        """Return the texts that were sent to this holder's label, or without one, in order, each once.

        A call that is cancelled, or fails, takes nothing away: the next one returns its texts.

        Raises:
            LeaseLost: the lease is no longer held; the texts wait for the next holder.
            OutcomeUnknown: whether they still wait is not known.
        """
        async with self._receiving:
            try:
                # What was read before is deleted before more is read: it may be deleted already.
                await self._have_received()
                # Before they are read: what a renewal finds meanwhile was sent later.
                self._waiting = False
                self._texts = await self._table.texts(self.fence.slot, self._holder)
                await self._have_received()
            except LeaseLost:
                if not self._ready:
                    raise
            ready, self._ready = self._ready, []
        return ready

    async def peek(self) -> list[SentText]:
        """Return the texts that wait for this holder, in order, and leave them with the store until `acknowledge`.

        Raises:
            LeaseLost: the lease is no longer held; the texts wait for the next holder.
        """
        # Before they are read: what a renewal finds meanwhile was sent later.
        self._waiting = False
        texts = await self._table.texts(self.fence.slot, self._holder)
        self._seen = {text.number for text in texts}
        return texts

    async def acknowledge(self, number: int) -> None:
        """Have the store delete the texts that `peek` returned, up to the one with this number.

        Raises:
            LeaseLost: the lease is no longer held; the texts wait for the next holder.
        """
        async with self._receiving:
            await settled(lambda: self._table.received(self.fence.slot, self._holder, number))
            # A `receive` that was cut off may have read them as well. What it deleted, `peek` has not returned.
            done = {seen for seen in self._seen if seen <= number}
            self._texts = [text for text in self._texts if text.number not in done]
            self._seen -= done
            self._in_doubt = self._in_doubt and bool(self._texts)

    async def _have_received(self) -> None:
        """Have the store delete the texts that are here; then they can be handed out."""
        if not self._texts:
            return
        number, in_doubt = self._texts[-1].number, self._in_doubt
        self._in_doubt = True
        try:
            try:
                await self._table.received(self.fence.slot, self._holder, number)
            except OutcomeUnknown:
                in_doubt = True
                await self._table.received(self.fence.slot, self._holder, number)
        except LeaseLost as error:
            self._texts, self._in_doubt = [], False
            if in_doubt:
                # An earlier try may have deleted them, when the lease was held.
                raise OutcomeUnknown(f"the lease of session {self.session_id!r}", unanswered=True) from error
            raise
        self._ready += [one.text for one in self._texts]
        self._texts, self._in_doubt = [], False

    async def release(self) -> None:
        """Let the next one in; a second call does nothing.

        Raises:
            StoreError: the store could not be reached; the lease is no longer renewed and runs out by itself.
        """
        self._releasing = True
        self._renewing.cancel()
        self._hold(0.0)
        if not self._left:
            await to_its_end(settled(lambda: self._table.leave(self.fence.slot, self._holder)))
            self._left = True
            self._queue.wake()

    def _hold(self, until: float) -> None:
        self._until = self._queue.held_until = until

    async def _renew(self) -> bool:
        asked = time.monotonic()
        try:
            renewed = await self._table.renew(self.fence.slot, self._holder, self._ttl)
        except LeafwardError:
            # Whoever writes meets the same error. The store may be back before somebody else can have come.
            return self.held
        self._hold(asked + self._ttl if renewed.held else 0.0)
        self._waiting = renewed.waiting
        return renewed.held

    def _timer(self) -> asyncio.TimerHandle:
        # It does not have the lease: what renews it must not be what keeps it alive.
        return asyncio.get_running_loop().call_later(self._ttl / 3, Lease._begin_renewal, weakref.ref[Lease](self))

    @staticmethod
    def _begin_renewal(ref: weakref.ref[Lease]) -> None:
        if (lease := ref()) is not None:
            lease._renewing = asyncio.create_task(lease._keep(), name=f"lease of {lease.session_id!r}")

    async def _keep(self) -> None:
        if await self._renew() and not self._releasing:
            self._renewing = self._timer()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def __repr__(self) -> str:
        return f"<Lease of {self.session_id!r}, user {self.user_id!r}, token {self.token}>"
