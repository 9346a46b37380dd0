"""Work for a store's sessions that goes on after the call that began it has returned."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any


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
        """Start nothing more and cancel what runs; return when it has ended, and with it every write that had begun."""
        self._closed = True
        loop = asyncio.get_running_loop()
        running = [task for task in self._tasks if task is not asyncio.current_task()]
        here = [task for task in running if task.get_loop() is loop]
        for task in running:
            with suppress(RuntimeError):  # its event loop is closed, and the task has ended with it
                task.get_loop().call_soon_threadsafe(task.cancel)
        if here:
            await asyncio.wait(here)


_without_store = BackgroundTasks()


def background_of(store: object) -> BackgroundTasks:
    """Return where the sessions of a store run work; a store of another maker may have no such place."""
    found = getattr(store, "background", None)
    return found if isinstance(found, BackgroundTasks) else _without_store
