"""Calls what users hand in: functions that are plain or async, that may fail, and that may never return."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import weakref
from collections.abc import Callable
from typing import Any

TIMEOUT_S = 30.0
"""How long a provider may take to answer, unless its block says otherwise."""


def is_async(function: Callable[..., Any]) -> bool:
    """Tell whether calling `function` gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


class Turns:
    """One at a time, in each event loop."""

    def __init__(self) -> None:
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    def lock(self) -> asyncio.Lock:
        return self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


async def call(
    function: Callable[..., Any], *arguments: object, timeout: float | None = None, turns: Turns | None = None
) -> Any:
    """Call a function and return its result; a plain one runs on a thread of its own, one at a time within `turns`.

    Raises:
        TimeoutError: there was no answer in time. What runs on a thread cannot be stopped: its turn ends when it does.
    """
    if is_async(function):
        async with asyncio.timeout(timeout):
            return await function(*arguments)
    running = asyncio.ensure_future(_in_turn(function, arguments, turns))
    try:
        async with asyncio.timeout(timeout):
            result = await asyncio.shield(running)
            return await result if inspect.isawaitable(result) else result
    except BaseException:
        # Nobody will look at how it ends.
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        raise


async def _in_turn(function: Callable[..., Any], arguments: tuple[object, ...], turns: Turns | None) -> Any:
    if turns is None:
        return await in_thread(function, *arguments)
    async with turns.lock():
        return await in_thread(function, *arguments)


async def in_thread(function: Callable[..., Any], *arguments: object) -> Any:
    """Call a plain function on a thread of its own, which does not keep the process from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def run() -> None:
        result, failed = None, None
        try:
            result = context.run(function, *arguments)
        except StopIteration as error:
            failed = RuntimeError(f"{function!r} raised {error!r}")
        except BaseException as error:  # noqa: BLE001  (told to whoever waits)
            failed = error
        # A loop that was closed meanwhile has nobody who waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="leafward callable", daemon=True).start()
    return await future
