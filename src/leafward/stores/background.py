"""Work for a store's sessions that goes on after the call that began it has returned."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

PATIENCE_S = 5.0
"""How long a closing store waits for work that it has cancelled."""

_log = logging.getLogger("leafward.stores")


class BackgroundTasks:
    """Keeps tasks until they end; a store closes it first, which cancels those that still run."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Run some work, which handles its own errors, in a task of this event loop; `None` once it is closed."""
        if self._closed:
            work.close()
            return None
        task = asyncio.get_running_loop().create_task(work)
        # An event loop keeps no task alive.
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Start nothing more and cancel what runs; return when it has ended, and with it every write that had begun.

        What does not end when it is cancelled, such as a user's function that goes on regardless, is left behind
        after some seconds: what it still wants to write is refused by the closed store.
        """
        self._closed = True
        loop = asyncio.get_running_loop()
        running = [task for task in self._tasks if task is not asyncio.current_task()]
        here = [task for task in running if task.get_loop() is loop]
        for task in running:
            with suppress(RuntimeError):  # its event loop is closed, and the task has ended with it
                task.get_loop().call_soon_threadsafe(task.cancel)
        if here:
            _, going_on = await asyncio.wait(here, timeout=PATIENCE_S)
            if going_on:
                _log.warning(
                    "the store closes although background tasks did not end when they were cancelled: %s", going_on
                )


_without_store = BackgroundTasks()


def background_of(store: object) -> BackgroundTasks:
    """Return where the sessions of a store run work; a store of another maker may have no such place."""
    found = getattr(store, "background", None)
    return found if isinstance(found, BackgroundTasks) else _without_store
