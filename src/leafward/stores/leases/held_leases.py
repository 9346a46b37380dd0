"""The leases that a task holds, or a task that it was started in."""

from __future__ import annotations

import weakref
from contextvars import ContextVar

from leafward.core.errors import ConfigurationError
from leafward.stores.leases.contracts import Slot
from leafward.stores.leases.lease import Lease

_held: ContextVar[tuple[weakref.ref[Lease], ...]] = ContextVar("leafward_held_leases", default=())
"""Leases acquired in this context. By weak references: a lease that nobody refers to runs out."""


class HeldLeases:
    """The leases of one open store that the running task holds; tasks that it starts inherit them."""

    def __init__(self) -> None:
        self._ours: weakref.WeakSet[Lease] = weakref.WeakSet()

    async def refuse(self, slot: Slot) -> None:
        """Raise if the task would wait for itself; the store is asked whether it still has the lease."""
        for ref in _held.get():
            lease = ref()
            if lease is None or lease.fence.slot != slot or lease not in self._ours or lease.is_over:
                continue
            if await lease.is_still_held():
                raise ConfigurationError(
                    f"this task, or one that it was started in, holds the lease of session {slot.session_id!r} of user "
                    f"{slot.user_id!r} and would wait for itself: pass the leased handle on, or release the lease first"
                )

    def add(self, lease: Lease) -> Lease:
        """Note a lease of the running task."""
        self._ours.add(lease)
        alive = [ref for ref in _held.get() if (one := ref()) is not None and not one.is_over]
        _held.set((*alive, weakref.ref(lease)))
        return lease
