"""The replicas a process keeps: those used last, as many as memory was set aside for.

Of those that were used before, what an append needs is kept, in a small part of that memory.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from leafward.core.ids import Scope
from leafward.stores.replicated.replica import Replica

BUDGET = 64 * 1024 * 1024
SHRUNK_PART = 1 / 8
"""How much of it is for those without tables."""


class Replicas:
    """Replicas by session, each for one user at a time, first come first served."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._kept: OrderedDict[Scope, Replica] = OrderedDict()
        self._shrunk: OrderedDict[Scope, Replica] = OrderedDict()
        """Those without tables that nobody uses."""
        self._shrunk_size = 0
        self.size = 0
        """About how many bytes of memory the others take."""
        self._users = 0
        self._idle = asyncio.Event()
        self._idle.set()

    def using(self, scope: Scope) -> _Using:
        """Lend the session's replica."""
        return _Using(self, scope)

    async def lend(self, scope: Scope) -> Replica:
        """Return the session's replica when it is one's turn."""
        replica = self._kept.get(scope)
        if replica is None:
            replica = self._kept[scope] = self._unshelve(scope) or Replica(scope)
            self.size += replica.size
        self._kept.move_to_end(scope)
        replica.users += 1
        self._users += 1
        self._idle.clear()
        try:
            await replica.lock.acquire()
        except BaseException:
            self._leave(replica)
            raise
        return replica

    def take_back(self, replica: Replica, before: int) -> None:
        """Let the next one have a replica, which had a size of `before`."""
        self.size += replica.size - before
        replica.lock.release()
        self._leave(replica)

    def _leave(self, replica: Replica) -> None:
        replica.users -= 1
        self._users -= 1
        if not self._users:
            self._idle.set()
        if replica.is_blank and not replica.users:
            self.size -= replica.size
            del self._kept[replica.scope]
        elif replica.is_shrunk and not replica.users:
            self._shelve(replica)
        self._make_room()

    def _make_room(self) -> None:
        if self.size <= self._budget * (1 - SHRUNK_PART):
            return
        for replica in list(self._kept.values()):
            if not replica.users:
                self._shelve(replica)
            if self.size <= self._budget * (1 - SHRUNK_PART):
                return

    def _shelve(self, replica: Replica) -> None:
        """Keep what an append needs, if it is at hand, at the cost of those that were not used for longer."""
        self.size -= replica.size
        del self._kept[replica.scope]
        if not replica.is_shrunk and not replica.shrink():
            replica.close()
            return
        self._shrunk[replica.scope] = replica
        self._shrunk_size += replica.size
        while self._shrunk_size > self._budget * SHRUNK_PART:
            self._unshelve(next(iter(self._shrunk)))

    def _unshelve(self, scope: Scope) -> Replica | None:
        replica = self._shrunk.pop(scope, None)
        if replica is not None:
            self._shrunk_size -= replica.size
        return replica

    async def close(self) -> None:
        """Wait for those who use one, then let go of all."""
        await self._idle.wait()
        for replica in self._kept.values():
            replica.close()
        self._kept.clear()
        self._shrunk.clear()


class _Using:
    # A generator would take as long as the rest of what is done here for an append.
    def __init__(self, replicas: Replicas, scope: Scope) -> None:
        self._replicas = replicas
        self._scope = scope

    async def __aenter__(self) -> Replica:
        self._replica = await self._replicas.lend(self._scope)
        self._before = self._replica.size
        return self._replica

    async def __aexit__(self, *_: object) -> None:
        self._replicas.take_back(self._replica, self._before)
