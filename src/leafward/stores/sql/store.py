"""The contracts of a store, served by one runner."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from typing import Self

from leafward.stores.background import BackgroundTasks
from leafward.stores.contracts import Durability, Store
from leafward.stores.leases import Leases
from leafward.stores.leases.lease import Lease
from leafward.stores.leases.table_leases import TableLeases
from leafward.stores.sql.context import SqlEntries
from leafward.stores.sql.messages import SqlMessages
from leafward.stores.sql.running import Serving
from leafward.stores.sql.sessions import SqlRegistry
from leafward.stores.states.store import Fenced as FencedStates
from leafward.stores.states.store import OpenStates, StateStore
from leafward.stores.states.table import Layout, StateTable


class SqlStore(ABC):
    """What all stores on a runner have in common; a backend adds how it is opened and how it ends."""

    distributed = False
    leases: Leases
    _states: weakref.ref[StateStore] | None = None

    def __init__(self, runner: Serving, states: StateTable, max_message_bytes: int, layout: Layout = "2.x") -> None:
        self._serving = runner
        self.state_table = states
        self._layout: Layout = layout
        self.max_message_bytes = max_message_bytes
        self.background = BackgroundTasks()
        self.messages = SqlMessages(runner)
        self.entries = SqlEntries(runner)
        self.registry = SqlRegistry(runner, states)
        self.leases = TableLeases(runner)

    @property
    def states(self) -> StateStore:
        """Typed state, in slots of users and sessions."""
        states = None if self._states is None else self._states()
        if states is None:
            states = self._make_states()
            # They refer to the store: if it referred to them too, a store that is dropped would wait to be collected.
            self._states = weakref.ref(states)
        return states

    def _make_states(self) -> StateStore:
        return OpenStates(self.state_table, self, self._layout)

    def fenced(self, lease: Lease) -> Store:
        """Return this store for writing behind a lease: each write is refused in its transaction once it is lost."""
        return Fenced(self, self._serving, lease)

    @abstractmethod
    def durability(self) -> Durability:
        """Tell what a finished write survives."""

    @abstractmethod
    async def close(self) -> None:
        """Finish what was begun and let go of the store; a second call does nothing."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Fenced(SqlStore):
    """A store whose messages, entries and states are written behind a lease."""

    def __init__(self, store: SqlStore, runner: Serving, lease: Lease) -> None:
        self.unfenced = store
        self.distributed = store.distributed
        self.max_message_bytes = store.max_message_bytes
        self.background = store.background
        self.leases = store.leases
        self.registry = store.registry
        self.messages = SqlMessages(runner, lease.fence, store.messages)
        self.entries = SqlEntries(runner, lease.fence)
        # A lease is renewed as long as somebody has it: whoever writes behind it does.
        self._lease = lease

    def _make_states(self) -> StateStore:
        return FencedStates(self.unfenced.states, self._lease, self)

    def fenced(self, lease: Lease) -> Store:
        return self.unfenced.fenced(lease)

    def durability(self) -> Durability:
        return self.unfenced.durability()

    async def close(self) -> None:
        await self.unfenced.close()
