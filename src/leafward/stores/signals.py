"""Wakes whoever waits for a session to change."""

from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from leafward.core.ids import Scope


class Signals:
    """Events by session, set from any thread and any event loop of this process."""

    def __init__(self) -> None:
        self._waiting: defaultdict[Scope, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = defaultdict(set)
        self._lock = threading.Lock()

    def notify(self, scope: Scope) -> None:
        """Wake those that wait for this session."""
        if scope in self._waiting:
            with self._lock:
                waiting = list(self._waiting.get(scope, ()))
            _set_all(waiting)

    def notify_all(self) -> None:
        """Wake everyone, so that they notice a closed store."""
        with self._lock:
            waiting = [one for some in self._waiting.values() for one in some]
        _set_all(waiting)

    def awaited(self) -> list[Scope]:
        """Return the sessions that somebody waits for."""
        with self._lock:
            return list(self._waiting)

    @asynccontextmanager
    async def listening(self, scope: Scope) -> AsyncGenerator[asyncio.Event]:
        """Give an event that is set by each change from here on."""
        mine = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting[scope].add(mine)
        try:
            yield mine[1]
        finally:
            with self._lock:
                self._waiting[scope].discard(mine)
                if not self._waiting[scope]:
                    del self._waiting[scope]


def _set_all(waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    for loop, event in waiting:
        if not loop.is_closed():
            loop.call_soon_threadsafe(event.set)
