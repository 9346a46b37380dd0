"""An async iterator as a plain one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final, Self, TypeVar

from leafward.portal.loop import LoopThread

T = TypeVar("T")

_END: Final = object()


class BlockingIterator(Iterator[T]):
    """Gives what an async iterator yields, one step at a time, waiting for each.

    `close()`, leaving a `with` block or dropping it ends the async iterator. Closed by another thread, a step that
    waits ends the loop it is in, as if there were no more.
    """

    def __init__(self, thread: LoopThread, source: AsyncIterator[Any], mirror: Callable[[Any], T]) -> None:
        self._thread = thread
        self._source = source
        self._mirror = mirror
        self._turn = threading.Lock()
        self._closed = False
        self._step: asyncio.Task[Any] | None = None

    def __next__(self) -> T:
        # First of all: in a forked child nobody would ever give the turn back.
        self._thread.check_place()
        with self._turn:
            if self._closed:
                raise StopIteration
            try:
                item = self._thread.run(self._advance)
            except asyncio.CancelledError:
                if self._closed:
                    raise StopIteration from None
                raise
            if item is _END:
                self._closed = True
                raise StopIteration
            return self._mirror(item)

    def close(self) -> None:
        """End the iteration and what stands behind it; a second call does nothing."""
        # A portal that is closed has ended its iterators.
        if not self._closed and not self._thread.closed:
            self._thread.run(self._stop)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _advance(self) -> Any:
        self._step = asyncio.current_task()
        try:
            # Not `anext` with a default: cancelled, it leaves an async generator running for ever.
            return await self._source.__anext__()
        except StopAsyncIteration:
            return _END
        finally:
            self._step = None

    async def _stop(self) -> None:
        self._closed = True
        if self._step is not None:
            self._step.cancel()
            await asyncio.wait((self._step,))
        aclose = getattr(self._source, "aclose", None)
        if aclose is not None:
            await aclose()
