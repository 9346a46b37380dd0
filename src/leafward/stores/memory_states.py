"""States in memory, without anything else."""

from __future__ import annotations

from leafward.stores.memory import MemoryData, MemoryStore
from leafward.stores.states.standalone import Opened, Standalone, opened_with
from leafward.stores.states.table import Layout, check_layout


class InMemoryAgentStateStore(Standalone):
    """States in this process's memory, gone with it."""

    def __init__(self, *, layout: str = "2.x") -> None:
        self._layout: Layout = check_layout(layout)
        super().__init__("this store of states in memory", self._open_memory)

    async def _open_memory(self) -> Opened:
        store = MemoryStore(MemoryData(), named=False, layout=self._layout)
        return opened_with(store, store.runner)


class InMemorySession(InMemoryAgentStateStore):
    """The name that the store has in AgentScope 1.x, in its layout."""

    def __init__(self) -> None:
        super().__init__(layout="1.x")
