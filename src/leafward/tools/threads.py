"""The threads that plain functions of tools run on: a limited number, in parallel."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from leafward.core.callables import ENDINGS, as_failure, cancelled_itself
from leafward.core.errors import ToolError

RUNNING = 32
"""How many plain functions of tools run at a time, for each event loop; others wait for their turn."""
ABANDONED = 64
"""How many functions that were given up may still run, before no further one is started."""

Check = Callable[[], None]
"""Raises what keeps a tool from being started."""
Jobs = SimpleQueue[Callable[[], bool] | None]
"""What a thread has to do; `None` ends it. A job says whether another may follow."""

_inside: contextvars.ContextVar[bool] = contextvars.ContextVar("inside a tool's thread", default=False)


def always() -> None:
    """Keep no tool from being started."""


class ToolThreads:
    """Runs plain functions on threads that do not keep the process from ending.

    A thread cannot be stopped. A function that is given up, because its time is over or its caller was cancelled, goes
    on without a caller: it is counted in `abandoned` until it ends, and no longer among the running ones.
    """

    def __init__(self, *, running: int = RUNNING, abandoned: int = ABANDONED) -> None:
        self._free = asyncio.Semaphore(running)
        self._most_idle = running
        self._idle: list[Jobs] = []
        self._all: set[Jobs] = set()
        # The event loop may be gone before its threads: they end with the last reference to this object.
        weakref.finalize(self, _dismiss, self._all).atexit = False
        self._most_abandoned = abandoned
        self.abandoned = 0

    async def call(self, function: Callable[[], Any], check: Check = always) -> Any:
        """Call a function on a thread and return its result; context variables are those of the caller.

        Cancelled while it waits for its turn, the function is not called.

        Raises:
            ToolError: too many functions that were given up still run.
            Exception: what `check` raises when a thread is free; the function is not called then.
        """
        if _inside.get():
            # A tool whose thread waits for another tool would wait for ever if all threads did so.
            return await self._run(function, check)
        async with self._free:
            return await self._run(function, check)

    async def _run(self, function: Callable[[], Any], check: Check) -> Any:
        check()
        if self.abandoned >= self._most_abandoned:
            raise ToolError(
                f"no thread is free: {self.abandoned} earlier tool calls did not end in time and still run. "
                "Try again later, or go on without this tool."
            )
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        context = contextvars.copy_context()
        jobs = self._idle.pop() if self._idle else self._start()

        def settle(result: object, error: BaseException | None) -> None:
            self._rest(jobs)
            if future.cancelled():
                self.abandoned -= 1
            elif error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def run() -> bool:
            result, failed = None, None
            try:
                context.run(_inside.set, True)
                result = context.run(function)
            except asyncio.CancelledError as error:
                failed = cancelled_itself(function, error)
            except (*ENDINGS, KeyboardInterrupt) as error:
                failed = as_failure(function, error)
            except BaseException as error:  # noqa: BLE001  (raised to the caller)
                failed = error
            try:
                loop.call_soon_threadsafe(settle, result, failed)
            except RuntimeError:
                # The loop was closed meanwhile: no caller waits, and its count is gone with it.
                return False
            return True

        jobs.put(run)
        try:
            return await future
        except asyncio.CancelledError:
            if future.cancelled():
                self.abandoned += 1
            raise

    def _start(self) -> Jobs:
        jobs: Jobs = SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name="leafward tool", daemon=True).start()
        self._all.add(jobs)
        return jobs

    def _rest(self, jobs: Jobs) -> None:
        """Keep a thread that has ended its job for the next one, or end it if there are enough."""
        if len(self._idle) < self._most_idle:
            self._idle.append(jobs)
        else:
            self._all.discard(jobs)
            jobs.put(None)


def _serve(jobs: Jobs) -> None:
    job = jobs.get()
    while job is not None and job():
        # What the job holds, such as its result, is not kept while the thread is idle.
        del job
        job = jobs.get()


def _dismiss(threads: set[Jobs]) -> None:
    for jobs in threads:
        jobs.put(None)


_threads: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, ToolThreads] = weakref.WeakKeyDictionary()


def tool_threads() -> ToolThreads:
    """Return the threads for tools of the running event loop."""
    loop = asyncio.get_running_loop()
    found = _threads.get(loop)
    if found is None:
        found = _threads[loop] = ToolThreads()
    return found
