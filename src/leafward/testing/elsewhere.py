"""Another caller of a store: a task that holds no lease."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextvars import Context
from typing import TypeVar

T = TypeVar("T")


async def _awaited(awaited: Awaitable[T]) -> T:
    return await awaited


def elsewhere(awaited: Awaitable[T]) -> asyncio.Task[T]:
    """Await it in a task that holds no lease, whatever the one that starts it holds."""
    return asyncio.get_running_loop().create_task(_awaited(awaited), context=Context())
