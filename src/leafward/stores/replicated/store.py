"""The store on a server that keeps journals."""

from __future__ import annotations

from leafward.stores.contracts import Durability
from leafward.stores.guard import Guard
from leafward.stores.replicated.journals import Server
from leafward.stores.replicated.listing import ReplicatedRegistry
from leafward.stores.replicated.replicas import BUDGET
from leafward.stores.replicated.running import ReplicatedRunner
from leafward.stores.sql.store import SqlStore
from leafward.stores.states.table import Layout, StateTable


class ReplicatedStore(SqlStore):
    """Sessions in journals on a server, shared by any number of processes and machines.

    Each process keeps the sessions it uses in up to `budget` bytes of memory, and asks the server for what is new
    before every answer.
    """

    distributed = True

    def __init__(
        self,
        server: Server,
        states: StateTable,
        guard: Guard,
        max_message_bytes: int,
        budget: int = BUDGET,
        *,
        layout: Layout = "2.x",
    ) -> None:
        self._guard = guard
        self._server = server
        self.runner = ReplicatedRunner(server, guard, budget)
        super().__init__(self.runner, states, max_message_bytes, layout)
        self.registry = ReplicatedRegistry(self.runner, server, states, guard)

    def durability(self) -> Durability:
        """Tell what a finished write survives, from the server's settings when the store was opened."""
        return self._server.durability()

    async def close(self) -> None:
        """Finish what was begun and let go of the server; a second call does nothing."""
        self._guard.check_process()
        if not self._guard.closed:
            # Connections are those of the loop they were made in.
            self._guard.check()
        await self.background.close()
        if not self._guard.closed:
            self._guard.closed = True
            await self.runner.close()
