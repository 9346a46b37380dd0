"""Work that goes on when the one who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> T:
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


async def apart(work: Coroutine[Any, Any, T]) -> T:
    """Do some work in a task of its own; one who is cancelled meanwhile goes at once, and the work is not disturbed."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_heed)
    return await asyncio.shield(task)


def _heed(task: asyncio.Task[Any]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()
