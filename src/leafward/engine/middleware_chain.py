"""The middlewares of one point as a chain of streams, each of which reads the next one."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from inspect import isasyncgen, isawaitable
from typing import Any, Generic, cast

from leafward.core.errors import ConfigurationError
from leafward.engine.middleware import CallNext, Event, Middleware, Request
from leafward.tools.runtime_context import RuntimeContext

Step = Callable[[RuntimeContext, Any, CallNext[Any, Any]], Any]
"""The method of a middleware at a point."""


def overriding(middlewares: Sequence[Middleware], point: str) -> tuple[Any, ...]:
    """Return the methods of those middlewares that override a point, the outermost first."""
    own = getattr(Middleware, point)
    methods = [getattr(one, point) for one in middlewares]
    return tuple(method for method in methods if getattr(method, "__func__", method) is not own)


class Chain(Generic[Request, Event]):
    """One run through the middlewares of a point, as the stream of the outermost one.

    Each stream is opened when the one around it calls for it. `aclose` closes them all, the innermost first, as nested
    context managers are left: a middleware need not close what it reads.
    """

    def __init__(self, ctx: RuntimeContext, steps: Sequence[Step], last: CallNext[Request, Event]) -> None:
        self._ctx = ctx
        self._steps = steps
        self._last = last
        self._opened: list[AsyncGenerator[Event]] = []
        self._next: Callable[[], Any] | None = None

    def open(self, request: Request) -> Chain[Request, Event]:
        """Open the outermost stream, which this object then reads."""
        self._next = self._open(0, request).__anext__
        return self

    def _open(self, row: int, request: Request) -> AsyncGenerator[Event]:
        if row == len(self._steps):
            stream = self._last(request)
        else:
            step = self._steps[row]
            found = step(self._ctx, request, partial(self._open, row + 1))
            stream = cast(AsyncGenerator[Event], found) if isasyncgen(found) else _read(step, found)
        self._opened.append(stream)
        return stream

    def __aiter__(self) -> Chain[Request, Event]:
        return self

    def __anext__(self) -> Any:
        # What the generator returns is awaited by the reader: no code of this class stands between two events.
        assert self._next is not None
        return self._next()

    async def aclose(self) -> None:
        """Close all streams."""
        opened, self._opened = self._opened, []
        # Usually all have ended, and have no frame any more.
        if left := [stream for stream in opened if getattr(stream, "ag_frame", stream) is not None]:
            async with AsyncExitStack() as stack:
                for stream in left:
                    stack.push_async_callback(stream.aclose)


async def _read(step: Step, found: object) -> AsyncGenerator[Any]:
    """Read what a method that is not an async generator has returned."""
    if isawaitable(found):
        found = await found
    if not isinstance(found, AsyncIterator):
        raise ConfigurationError(
            f"{name_of(step)} returned a {type(found).__name__}, not a stream: yield each event of call_next(request), "
            "or return call_next(request)"
        )
    stream = cast(AsyncIterator[Any], found)
    try:
        async for event in stream:
            yield event
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def name_of(step: object) -> str:
    """Return what a method is called, with its class."""
    owner = getattr(step, "__self__", None)
    name = str(getattr(step, "__name__", step))
    return name if owner is None else f"{type(owner).__name__}.{name}"
