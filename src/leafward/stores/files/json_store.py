"""The store behind states in JSON files: its sessions are in the SQLite file beside them."""

from __future__ import annotations

from leafward.stores.contracts import Durability
from leafward.stores.files.folder import Folder
from leafward.stores.sql.store import SqlStore
from leafward.stores.sqlite import SqliteStore
from leafward.stores.states.table import Layout, StateTable


class JsonFileStore(SqlStore):
    """Messages, context, leases and the list of sessions in SQLite; states in files that AgentScope for Java shares.

    Deleting or erasing a session removes its files as well.
    """

    def __init__(self, inner: SqliteStore, folder: Folder, states: StateTable, layout: Layout) -> None:
        self.runner = inner.runner
        super().__init__(self.runner, states, inner.max_message_bytes, layout)
        self._inner = inner
        self._folder = folder
        # Ended by the inner store, which knows when it may be.
        self.background = inner.background

    def durability(self) -> Durability:
        """Return what a finished write survives: `"power"`, or `"process"` on a file system in memory."""
        return self._inner.durability()

    async def survive_power_cuts(self) -> None:
        """Have every commit from now on survive a power cut; until then there were leases only, which need not."""
        await self._inner.survive_power_cuts()

    async def settle(self) -> None:
        """Return once the search index holds every message and nothing of a cleared session is left in the tables."""
        await self._inner.settle()

    async def close(self) -> None:
        """Finish what was begun and close the files; every call returns when that is done."""
        await self._inner.close()
        self._folder.close()
