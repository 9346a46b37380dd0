"""Tells those who wait for a session that it changed, whoever changed it."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from leafward.core.errors import StoreError
from leafward.core.ids import Scope
from leafward.stores.guard import Guard
from leafward.stores.replicated.journals import Journal, Mark, Server
from leafward.stores.signals import Signals

POLL_S = 0.1
"""How often is looked for what others wrote, while somebody waits for it."""

_log = logging.getLogger(__name__)


class Watcher:
    """Looks at the journals of all awaited sessions together; what is written here is told at once."""

    def __init__(self, server: Server, guard: Guard) -> None:
        self._server = server
        self._guard = guard
        self._signals = Signals()
        self._polling: asyncio.Task[None] | None = None

    def notify(self, scope: Scope) -> None:
        """Wake those that wait for this session."""
        self._signals.notify(scope)

    @asynccontextmanager
    async def listening(self, scope: Scope) -> AsyncGenerator[asyncio.Event]:
        """Give an event that is set by each change from here on."""
        async with self._signals.listening(scope) as changed:
            if self._polling is None or self._polling.done():
                self._polling = asyncio.create_task(self._poll())
            yield changed

    async def _poll(self) -> None:
        seen: dict[Scope, Mark] = {}
        while (awaited := self._signals.awaited()) and not self._guard.closed:
            try:
                found = await self._look(awaited)
            except StoreError as error:
                # Those who wait read for themselves, and hear of it if it lasts.
                _log.warning("could not look for changes: %s", error)
                found = seen
                self._signals.notify_all()
            for scope, mark in found.items():
                if seen.get(scope) != mark:
                    self._signals.notify(scope)
            seen = found
            await asyncio.sleep(POLL_S)

    async def _look(self, scopes: list[Scope]) -> dict[Scope, Mark]:
        users: defaultdict[str | None, list[Scope]] = defaultdict(list)
        for scope in scopes:
            users[scope.owner.user_id].append(scope)
        found: dict[Scope, Mark] = {}
        for theirs in users.values():
            marks = await self._server.marks([Journal(scope.owner, scope.session_id) for scope in theirs])
            found.update(zip(theirs, marks, strict=True))
        return found

    async def close(self) -> None:
        """Wake everyone, so that they notice a closed store."""
        self._signals.notify_all()
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.wait((self._polling,))
