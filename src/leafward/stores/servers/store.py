"""The store on a database server."""

from __future__ import annotations

from leafward.stores.contracts import Durability
from leafward.stores.guard import Guard
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Server
from leafward.stores.servers.states import ServerStates
from leafward.stores.sql.store import SqlStore


class ServerStore(SqlStore):
    """Sessions on a database server, shared by any number of processes and machines."""

    distributed = True

    def __init__(self, server: Server, what: str, max_message_bytes: int) -> None:
        self._server = server
        self._guard = Guard(what)
        self._runner = ServerRunner(server, self._guard)
        super().__init__(self._runner, ServerStates(self._runner, server, "2.x"), max_message_bytes)

    def durability(self) -> Durability:
        """Tell what a finished write survives, from the server's settings when the store was opened."""
        return self._server.durability

    async def settle(self) -> None:
        """Return once the search index holds every message and nothing of a deleted session is left in the tables."""
        await self._runner.settle()

    async def close(self) -> None:
        """Finish what was begun and let go of the connections; a pool that was given stays open."""
        self._guard.check_process()
        if not self._guard.closed:
            # Connections are those of the loop they were made in.
            self._guard.check()
        await self.background.close()
        if not self._guard.closed:
            self._guard.closed = True
            await self._runner.close()
            await self._server.close()
