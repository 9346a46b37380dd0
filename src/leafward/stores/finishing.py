"""Work that goes on when the one who waits for it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from leafward.core.errors import OutcomeUnknown

T = TypeVar("T")


async def to_its_end(work: Awaitable[T]) -> T:
    """Do some work to its end, also for a caller that is cancelled meanwhile, once or more often.

    The cancellation is raised afterwards, with an error of the work as its cause.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError as cancelled:
        while not task.done():
            try:
                await asyncio.wait((task,))
            except asyncio.CancelledError:
                continue
        raise cancelled from None if task.cancelled() else task.exception()


async def in_a_thread(work: Callable[[], T]) -> T:
    """Do some work in a thread, and have it done when this returns, also for one who is cancelled meanwhile."""
    # The bare future: a task around it could be cancelled on its own, while the thread goes on.
    return await to_its_end(asyncio.get_running_loop().run_in_executor(None, work))


async def settled(step: Callable[[], Awaitable[T]]) -> T:
    """Do a step that may be repeated; repeat it when it is not known whether it was done."""
    try:
        return await step()
    except OutcomeUnknown:
        return await step()
