"""Calls what users hand in: functions that are plain or async, that may fail, and that may never return."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from leafward.core.callables import ENDINGS, as_failure, cancelled_itself, is_async

TIMEOUT_S = 30.0
"""How long a provider may take to answer, unless its block says otherwise."""
_POLL_S = 0.002


class Turns:
    """One at a time in this process; within an event loop, first come, first served."""

    def __init__(self) -> None:
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()
        self._across = threading.Lock()

    async def begin(self) -> asyncio.Lock:
        """Wait for a turn; given up meanwhile, none is taken. It is ended by `end`, from any thread, then the lock."""
        lock = self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())
        await lock.acquire()
        try:
            # Only another event loop can be in the way, which is rare and has no queue with ours.
            while not self._across.acquire(blocking=False):  # noqa: ASYNC110  (it wakes no event loop)
                await asyncio.sleep(_POLL_S)
        except BaseException:
            lock.release()
            raise
        return lock

    def end(self) -> None:
        self._across.release()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Have a turn for the length of the block."""
        lock = await self.begin()
        try:
            yield
        finally:
            self.end()
            lock.release()


async def call(
    function: Callable[..., Any], *arguments: object, timeout: float | None = None, turns: Turns | None = None
) -> Any:
    """Call a function and return its result; a plain one runs on a thread of its own, one at a time within `turns`.

    Cancelled while it waits for its turn, the function is not called.

    Raises:
        TimeoutError: there was no answer in time. What runs on a thread cannot be stopped: its turn ends when it does.
        RuntimeError: the function raised `CancelledError`, and the caller was not cancelled.
    """
    async with asyncio.timeout(timeout):
        # A task that cleans up after its own cancellation has one to begin with.
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            return await _call(function, arguments, turns)
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling() > before:
                raise
            raise cancelled_itself(function, error) from error


async def _call(function: Callable[..., Any], arguments: Sequence[object], turns: Turns | None) -> Any:
    if is_async(function):
        return await _awaited(function, function(*arguments))
    if turns is None:
        result = await in_thread(function, *arguments)
    else:
        lock = await turns.begin()
        running = asyncio.ensure_future(in_thread(function, *arguments, ended=turns.end))
        running.add_done_callback(lambda ended: _end_turn(ended, lock))
        result = await asyncio.shield(running)
    return await _awaited(function, result) if inspect.isawaitable(result) else result


def _end_turn(ended: asyncio.Future[Any], lock: asyncio.Lock) -> None:
    lock.release()
    if not ended.cancelled():
        ended.exception()  # The caller may be gone.


async def _awaited(function: Callable[..., Any], awaitable: Awaitable[Any]) -> Any:
    try:
        return await awaitable
    except ENDINGS as error:
        raise as_failure(function, error) from error


async def in_thread(function: Callable[..., Any], *arguments: object, ended: Callable[[], None] | None = None) -> Any:
    """Call a plain function on a thread of its own, which does not keep the process from ending; then call `ended`."""
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
        except (*ENDINGS, KeyboardInterrupt) as error:
            failed = as_failure(function, error)
        except BaseException as error:  # noqa: BLE001  (raised to the caller)
            failed = error
        finally:
            if ended is not None:
                ended()
        # Where the loop was closed meanwhile, no caller waits.
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failed)

    threading.Thread(target=run, name="leafward callable", daemon=True).start()
    return await future
