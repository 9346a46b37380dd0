"""Stores of states that stand by themselves: made by a plain call, opened at the first use."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

from leafward.core.errors import StoreError
from leafward.stores.contracts import Store
from leafward.stores.leases import LeaseTable
from leafward.stores.leases.forwarding_table import ForwardingLeaseTable
from leafward.stores.leases.table_leases import TableLeases
from leafward.stores.sql.store import SqlStore
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import StateTable

T = TypeVar("T")


class Opened(NamedTuple):
    """What there is once such a store is open."""

    table: StateTable
    leases: LeaseTable
    close: Callable[[], Awaitable[None]]
    store: Callable[[], Awaitable[SqlStore]]
    """Returns the store that these states are of, once it can keep sessions."""


def opened_with(store: SqlStore, leases: LeaseTable) -> Opened:
    """Return what there is of a store that can keep sessions as soon as it is open."""

    async def whole() -> SqlStore:
        return store

    return Opened(store.state_table, leases, store.close, whole)


class Later(Generic[T]):
    """Opens something at its first use, once for all who ask; what could not be opened is tried again."""

    def __init__(self, what: str, open: Callable[[], Awaitable[T]]) -> None:
        self._what = what
        self._open = open
        self._opening: asyncio.Future[T] | None = None
        self._closed = False

    @property
    def is_open(self) -> bool:
        return self._opening is not None and self._opening.done() and not _has_failed(self._opening)

    def check(self) -> None:
        """Raise if it was closed."""
        if self._closed:
            raise StoreError(f"{self._what} is closed: make another")

    async def get(self) -> T:
        self.check()
        if self._opening is None or _has_failed(self._opening):
            self._opening = asyncio.ensure_future(self._open())
        # Whoever is cancelled leaves the opening to those who wait with it.
        return await asyncio.shield(self._opening)

    async def close(self) -> T | None:
        """Open nothing from now on, and return what is open, which is the caller's to close."""
        self._closed = True
        if self._opening is not None and not self._opening.done():
            await asyncio.wait((self._opening,))
        return None if self._opening is None or _has_failed(self._opening) else self._opening.result()


def _has_failed(opening: asyncio.Future[T]) -> bool:
    return opening.done() and (opening.cancelled() or opening.exception() is not None)


class Standalone(StateStore):
    """A store of states by itself; `async with` closes it."""

    distributed = False

    def __init__(self, what: str, open: Callable[[], Awaitable[Opened]]) -> None:
        self._what = what
        self._later = Later(what, open)
        self._store: SqlStore | None = None
        self.leases = TableLeases(_LaterLeases(self._later))

    async def _table(self) -> StateTable:
        return (await self._later.get()).table

    @property
    def store(self) -> Store:
        self._later.check()
        if self._store is None:
            raise StoreError(f"{self._what} is not open yet: `await states.open()` opens it and returns its store")
        return self._store

    async def open(self) -> Store:
        opened = await self._later.get()
        if self._store is None:
            store = await opened.store()
            # One queue for all who ask for a lease in this process, here or there.
            store.leases = self.leases
            self._store = store
        return self._store

    async def close(self) -> None:
        """Finish what was begun and let go of the store; a second call does nothing."""
        opened = await self._later.close()
        if opened is not None:
            await opened.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._what}>"


class _LaterLeases(ForwardingLeaseTable):
    """The leases of a store that is opened when one is first asked for."""

    def __init__(self, later: Later[Opened]) -> None:
        self._later = later

    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        return await call((await self._later.get()).leases)
