"""The queue for one lease among the tasks of one open store."""

from __future__ import annotations

import asyncio
import math
import time


class LocalQueue:
    """Those who wait for one slot at one open store, in the order of their tickets, and who holds it there.

    Tickets are drawn one at a time, so no other can be served before the first in the queue: it asks often, and the
    others only to keep their tickets. While the holder is at the same store, the first need not ask, but is woken.
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
        """Have the first in the queue ask now."""
        if self._waiting:
            self._waiting[0].set()

    def rest(self, event: asyncio.Event) -> float:
        """Return for how many seconds the one who is woken by `event` cannot be served."""
        return self.held_until - time.monotonic() if self._waiting[0] is event else math.inf
