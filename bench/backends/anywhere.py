"""leafward on the backend of a URL, through the calls that users have."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ours import Leafward

from backends.limits import Backend
from leafward import Message, open_store
from leafward.stores import Lease, StateStore

# Opening the first store loads these; that belongs to importing, which is measured apart.
_LOADED = {
    "postgresql": ("servers.postgres",),
    "mysql": ("servers.mysql",),
    "redis": ("redis.opening", "redis.checking", "redis.server"),
    "file": ("files",),
    "sqlite": ("sqlite.store",),
    "memory": ("memory",),
}


class Anywhere(Leafward, Backend):
    """`path` is the URL of a server, or a directory for what is kept in files."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        for module in _LOADED[kind]:
            import_module(f"leafward.stores.{module}")

    async def open(self, path: str) -> None:
        urls = {"file": f"file:///{path}/journals", "sqlite": f"sqlite:///{path}/leafward.db", "memory": "memory://"}
        self._store: Any = await open_store(urls.get(self._kind, path))

    @property
    def store(self) -> Any:
        return self._store

    @property
    def states(self) -> StateStore:
        return self._store.states

    async def settle(self) -> None:
        # Redis and memory have nothing to do in the background.
        if hasattr(self._store, "settle"):
            await self._store.settle()

    async def acquire(self, session: int) -> Lease:
        """Wait for the lease of a session."""
        return await self._store.leases.acquire(f"s{session}", f"u{session % 2}")

    async def append_behind(self, lease: Lease, session: int, message: Message) -> None:
        """Append one message behind a lease."""
        await self._session(session).with_lease(lease).append_message(message)
