"""The replicas a process keeps: those used last, as many as memory was set aside for."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from leafward.core.ids import Scope
from leafward.stores.replicated.replica import Replica

BUDGET = 64 * 1024 * 1024


class Replicas:
    """Replicas by session, each for one user at a time, first come first served."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._kept: OrderedDict[Scope, Replica] = OrderedDict()
        self.size = 0
        """About how many bytes of memory the replicas take."""
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @asynccontextmanager
    async def using(self, scope: Scope) -> AsyncGenerator[Replica]:
        """Lend the session's replica."""
        replica = self._kept.get(scope)
        if replica is None:
            replica = self._kept[scope] = Replica(scope)
            self.size += replica.size
        self._kept.move_to_end(scope)
        replica.users += 1
        self._users += 1
        self._idle.clear()
        try:
            async with replica.lock:
                before = replica.size
                try:
                    yield replica
                finally:
                    self.size += replica.size - before
        finally:
            replica.users -= 1
            self._users -= 1
            if not self._users:
                self._idle.set()
            self._make_room()

    def _make_room(self) -> None:
        if self.size <= self._budget:
            return
        for scope, replica in list(self._kept.items()):
            if not replica.users:
                self.size -= replica.size
                del self._kept[scope]
                replica.close()
            if self.size <= self._budget:
                return

    async def close(self) -> None:
        """Wait for those who use one, then let go of all."""
        await self._idle.wait()
        for replica in self._kept.values():
            replica.close()
        self._kept.clear()
