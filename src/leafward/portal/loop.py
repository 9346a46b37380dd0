"""The thread whose event loop does the work, and how other threads wait for it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from leafward.core.errors import StoreError

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]

_LOOK_UP_S = 0.5

_finishing: set[asyncio.Task[None]] = set()
"""An event loop only borrows its tasks: these keep the last ones alive when nobody waits for them."""


class _Call(Generic[T]):
    """One piece of work on its way through the loop, in the context of the thread that asked for it."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._before = copy_context()
        self._context = copy_context()
        self._task: asyncio.Task[None] | None = None
        self._result: T
        self._error: BaseException | None = None
        self._over = False
        # A bare lock, because a signal may strike anywhere: inside a condition or a future it would leave a lock
        # taken, for which the loop would then wait.
        self._done = threading.Lock()
        self._done.acquire()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._perform(), context=self._context)

    def cancel(self) -> None:
        """End the work; told to the loop after `start`, if that was told at all."""
        if self._task is not None:
            self._task.cancel()
        elif not self._over:
            self._error = asyncio.CancelledError()
            self._end()

    def wait(self) -> None:
        """Return when the work has ended; what interrupts the waiting is raised, and one may wait again."""
        while not self._over:
            # Woken now and then: Python does not notice a signal that strikes just before a thread falls asleep.
            self._done.acquire(timeout=_LOOK_UP_S)

    def result(self) -> T:
        """Return or raise what the work did, and set in the calling thread what it set for its context.

        So the thread's context is as if the work had been awaited in it.
        """
        for variable, value in self._context.items():
            if self._before.get(variable, self) is not value:
                variable.set(value)
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Or the error, its traceback and this call would keep each other, and the store, alive.
                self._error = None
        return self._result

    async def _perform(self) -> None:
        try:
            self._result = await self._work()
        except BaseException as error:  # noqa: BLE001  (whatever it is, it is for the thread that waits)
            self._error = error
        self._end()

    def _end(self) -> None:
        self._over = True
        self._done.release()


class LoopThread:
    """An event loop on a thread of its own, for calls from any other thread of this process.

    The thread is a daemon: a program that ends without closing does not wait for it.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._loop = asyncio.new_event_loop()
        # Entered again when a collection inside it runs a finalizer that calls.
        self._gate = threading.RLock()
        self._closing: Future[None] | None = None
        self._pid = os.getpid()
        self._thread = threading.Thread(target=_serve, args=(self._loop,), name="leafward blocking", daemon=True)
        self._thread.start()

    @property
    def closed(self) -> bool:
        return self._closing is not None

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process that has the thread."""
        return os.getpid() != self._pid

    def run(self, work: Work[T]) -> T:
        """Do the work in the loop and return or raise its outcome.

        An exception that interrupts the waiting, such as Ctrl-C, cancels the work and is raised when that has ended: a
        write that began is then finished. A second one does not wait any more.

        Raises:
            StoreError: closed, in a forked child, or called from the loop itself.
        """
        self.check_place()
        call = _Call(work)
        try:
            self._submit(call)
            call.wait()
        except StoreError:
            raise
        except BaseException:
            self._tell_loop(call.cancel)
            call.wait()
            raise
        try:
            return call.result()
        except asyncio.CancelledError:
            if self.closed:
                raise StoreError(f"{self.what} was closed while this call was waiting") from None
            raise

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Refuse further calls, do `last` in the loop, end what still waits, and end the thread.

        A second call waits for the first. Raises what `last` raised.
        """
        self.check_place()
        closing = self.begin_closing(last)
        self._thread.join()
        closing.result()

    def begin_closing(self, last: Callable[[], Awaitable[None]]) -> Future[None]:
        """Begin what `close` does without waiting for it."""
        with self._gate:
            closing = self._closing = self._closing or Future()
        # Told each time: the call before may have been interrupted just before it told.
        self._tell_loop(_start_finishing, last, closing)
        return closing

    def _submit(self, call: _Call[Any]) -> None:
        with self._gate:
            # Nothing is handed to the loop after its last task: it would never be done, and waited for without end.
            if self.closed:
                raise StoreError(f"{self.what} is closed: open it again with leafward.blocking")
            self._loop.call_soon_threadsafe(call.start)

    def _tell_loop(self, callback: Callable[..., None], *args: Any) -> None:
        with suppress(RuntimeError):  # the loop has ended, and with it all that was to be told
            self._loop.call_soon_threadsafe(callback, *args)

    def check_place(self) -> None:
        """Raise unless the calling thread may wait for the loop."""
        if self.forked:
            raise StoreError(
                f"{self.what} was opened before this process was forked: call leafward.blocking in the child"
            )
        if threading.current_thread() is self._thread:
            raise StoreError(
                f"{self.what} was called from inside its own event loop, which would wait for itself: "
                "in an async function of yours, await the async objects instead"
            )


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        while not _ran(loop):
            pass
    finally:
        loop.close()


def _ran(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        # Raised in a task, whose outcome has it too: it is for the thread that waits, not for this one.
        return False
    return True


def _start_finishing(last: Callable[[], Awaitable[None]], outcome: Future[None]) -> None:
    if not outcome.running() and not outcome.done():
        outcome.set_running_or_notify_cancel()
        task = asyncio.get_running_loop().create_task(_finish(last, outcome))
        _finishing.add(task)
        task.add_done_callback(_finishing.discard)


async def _finish(last: Callable[[], Awaitable[None]], outcome: Future[None]) -> None:
    loop = asyncio.get_running_loop()
    try:
        await last()
    except BaseException as error:  # noqa: BLE001  (for whoever closes)
        outcome.set_exception(error)
    else:
        outcome.set_result(None)
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    # Their errors go to those who wait for them.
    await asyncio.gather(*rest, return_exceptions=True)
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()
    loop.stop()
