"""What conversions of an event stream share: whole characters, whole messages, and the results in events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterator
from typing import Any, Protocol

from leafward.core.calls import Result, pair
from leafward.core.json import Plain
from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.models.model_events import ModelUsage, WholePart
from leafward.engine.models.reply import Reply

OF_THE_PROGRAM = frozenset({"compaction", "compaction_failed"})
"""Names of `CUSTOM` events whose data is no page's business: summaries of all that was said, and words of errors."""


class WholeCharacters:
    """Pieces of texts, each by the id of its text; a half character that ends a piece waits for the next one."""

    def __init__(self) -> None:
        self._halves: dict[str, str] = {}

    def take(self, id: str, piece: str) -> str:
        """Return what can be sent of a text now."""
        if piece.isascii() and not self._halves:
            return piece
        piece = self._halves.pop(id, "") + piece
        if "\ud800" <= piece[-1:] <= "\udbff":
            self._halves[id] = piece[-1]
            piece = piece[:-1]
        return Plain().text(piece)

    def end(self, id: str) -> str:
        """Return what is left of a text: nothing, or U+FFFD for half a character."""
        return Plain().text(self._halves.pop(id, ""))


def events_of_whole(message: Message) -> Iterator[AgentEvent]:
    """Yield the events that would show a reply, each part of it in one piece."""
    reply = Reply(id=message.id)
    for part in message.parts:
        yield from reply.add(WholePart(part))


def result_in(event: AgentEvent) -> Result | None:
    """Return the result that an event brings, `None` if it brings none."""
    if event.message is None:
        return None
    items = pair([event.message]).items[0]
    return next((item for item in items if isinstance(item, Result) and item.call_id == event.call_id), None)


def sum_of(one: ModelUsage, other: ModelUsage) -> ModelUsage:
    """Return what two calls of a model used together."""
    cost = None if one.cost is None and other.cost is None else (one.cost or 0) + (other.cost or 0)
    return ModelUsage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        cost,
    )


class Conversion(Protocol):
    """Converts the events of one stream, one at a time."""

    def add(self, event: AgentEvent) -> list[dict[str, Any]]: ...
    def fail(self, text: str) -> list[dict[str, Any]]: ...


async def converted(
    events: AsyncIterable[AgentEvent], conversion: Conversion, on_error: Callable[[Exception], str] | None
) -> AsyncGenerator[dict[str, Any]]:
    """Yield what a conversion makes of a stream, which is closed when this one is.

    Raises:
        Exception: as the stream, unless `on_error` says what its reader is shown instead.
    """
    failed: Exception | None = None
    try:
        reader = aiter(events)
        while True:
            try:
                event = await anext(reader)
            except StopAsyncIteration:
                break
            except Exception as error:
                if on_error is None:
                    raise
                failed = error
                break
            for one in conversion.add(event):
                yield one
        if failed is not None and on_error is not None:
            for one in conversion.fail(on_error(failed)):
                yield one
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
