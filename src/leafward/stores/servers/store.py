"""The store on a database server."""

from __future__ import annotations

from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability
from leafward.stores.guard import Guard
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Server
from leafward.stores.servers.states import ServerStates
from leafward.stores.sql.store import SqlStore
from leafward.stores.states.table import Layout


class ServerStore(SqlStore):
    """Sessions on a database server, shared by any number of processes and machines.

    With `tidies` off, the tables of sessions need not be there yet: `runner.tidy_later()` is then for the caller.
    """

    distributed = True

    def __init__(
        self,
        server: Server,
        what: str,
        max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES,
        *,
        layout: Layout = "2.x",
        create_states: bool = True,
        tidies: bool = True,
    ) -> None:
        self._server = server
        self._guard = Guard(what)
        self.runner = ServerRunner(server, self._guard, tidies=tidies)
        states = ServerStates(self.runner, server, layout, create=create_states)
        super().__init__(self.runner, states, max_message_bytes, layout)

    def durability(self) -> Durability:
        """Tell what a finished write survives, from the server's settings when the store was opened."""
        return self._server.durability

    async def settle(self) -> None:
        """Return once the search index holds every message and nothing of a deleted session is left in the tables."""
        await self.runner.settle()

    async def close(self) -> None:
        """Finish what was begun and let go of the connections; a pool that was given stays open."""
        self._guard.check_process()
        if not self._guard.closed:
            # Connections are those of the loop they were made in.
            self._guard.check()
        await self.background.close()
        if not self._guard.closed:
            self._guard.closed = True
            await self.runner.close()
            await self._server.close()
