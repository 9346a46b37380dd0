"""Work that goes on when the one who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Awaitable[T]) -> T:
    """Do some work to its end, also for one who is cancelled meanwhile; that is raised afterwards."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                continue
        _heed(task)
        raise


async def in_a_thread(work: Callable[[], T]) -> T:
    """Do some work in a thread, and have it done when this returns, also for one who is cancelled meanwhile."""
    # The bare future: a task around it could be cancelled on its own, while the thread goes on.
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, work))


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Do some work in a task of its own; one who is cancelled meanwhile goes at once, and the work is not disturbed."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_heed)
    return await asyncio.shield(task)


def _heed(task: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
