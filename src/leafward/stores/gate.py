"""Turns in one process: calls that share a key run one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager


class Gate:
    """Calls that share a key run in the order they arrived.

    `asyncio.Lock` wakes its waiters first come, first served, and a cancelled waiter leaves the queue, so a lock for
    each key is the whole queue. Keys that nobody holds or waits for are forgotten.
    """

    def __init__(self) -> None:
        self._locks: dict[Hashable, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def turn(self, key: Hashable) -> AsyncGenerator[None]:
        """Have the turn of a key for the length of the block."""
        lock, users = self._locks.get(key) or (asyncio.Lock(), 0)
        self._locks[key] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[key]
            if users == 1:
                del self._locks[key]
            else:
                self._locks[key] = lock, users - 1
