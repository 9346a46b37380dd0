"""Stores of states that stand by themselves: made by a plain call, opened at the first use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from leafward.core.errors import StoreError
from leafward.stores.leases import LeaseTable, Slot, TableLeases
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import StateTable


class Opened(NamedTuple):
    """What there is once such a store is open."""

    table: StateTable
    leases: LeaseTable
    close: Callable[[], Awaitable[None]]


class Standalone(StateStore):
    """A store of states by itself; `async with` closes it."""

    distributed = False

    def __init__(self, what: str, open: Callable[[], Awaitable[Opened]]) -> None:
        self._what = what
        self._open = open
        self._opening: asyncio.Future[Opened] | None = None
        self._closed = False
        self.leases = TableLeases(_LaterLeases(self))

    async def opened(self) -> Opened:
        """Return the open store; one that could not be opened is tried again."""
        if self._closed:
            raise StoreError(f"{self._what} is closed: make another")
        if self._opening is None or _has_failed(self._opening):
            self._opening = asyncio.ensure_future(self._open())
        # Whoever is cancelled leaves the opening to those who wait with it.
        return await asyncio.shield(self._opening)

    async def _table(self) -> StateTable:
        return (await self.opened()).table

    async def close(self) -> None:
        """Finish what was begun and let go of the store; a second call does nothing."""
        self._closed = True
        if self._opening is not None:
            if not self._opening.done():
                await asyncio.wait((self._opening,))
            if not _has_failed(self._opening):
                await self._opening.result().close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._what}>"


def _has_failed(opening: asyncio.Future[Opened]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


class _LaterLeases(LeaseTable):
    """The leases of a store that is opened when one is first asked for."""

    def __init__(self, store: Standalone) -> None:
        self._store = store

    async def take(self, slot: Slot, holder: str, ttl: float) -> int | None:
        return await (await self._store.opened()).leases.take(slot, holder, ttl)

    async def renew(self, slot: Slot, holder: str, ttl: float) -> bool:
        return await (await self._store.opened()).leases.renew(slot, holder, ttl)

    async def leave(self, slot: Slot, holder: str) -> None:
        await (await self._store.opened()).leases.leave(slot, holder)
