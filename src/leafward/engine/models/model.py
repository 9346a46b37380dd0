"""What the engine asks of a model: one method that streams the answer to a request."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

from leafward.core.message import Message
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.model_events import ModelEvent

if TYPE_CHECKING:
    from leafward.tools import Tool, ToolSet


@dataclass(frozen=True, slots=True, init=False)
class ModelRequest:
    """What a model is asked: the conversation, the tools it may call, the system prompt, and its options.

    In `messages` every tool call has a result. `tools` is a `ToolSet`, also where a list of tools was given:
    `request.tools.to_openai()` and `request.tools.to_anthropic()` write it as providers want it. `options` are for the
    model, such as a temperature. `dataclasses.replace(request, system=…)` makes a changed copy.
    """

    messages: Sequence[Message]
    tools: ToolSet
    system: str
    options: Mapping[str, Any]

    def __init__(
        self,
        messages: Sequence[Message],
        tools: ToolSet | Iterable[Tool] = (),
        system: str = "",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        # The only way to set the fields of a frozen dataclass.
        put = object.__setattr__
        put(self, "messages", messages)
        put(self, "tools", _tool_set(tools))
        put(self, "system", system)
        put(self, "options", {} if options is None else options)


def _tool_set(tools: ToolSet | Iterable[Tool]) -> ToolSet:
    from leafward.tools import ToolSet

    return tools if isinstance(tools, ToolSet) else ToolSet(tools)


class ChatModel(Protocol):
    """A model: any object with a method `stream`, which is usually an async generator.

    A stream that ends without an error is a whole reply. So a model raises `ModelError` where its provider fails or
    breaks off, with `temporary=True` if the same request may succeed later.
    """

    def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        """Yield the answer to a request, piece by piece."""
        ...


@asynccontextmanager
async def open_stream(model: ChatModel, request: ModelRequest) -> AsyncGenerator[AsyncIterator[ModelEvent]]:
    """Ask a model, and close its stream when the block is left, so that a connection does not outlive its reader.

    Raises:
        ModelError: `stream` did not return an async iterator.
    """
    stream: object = model.stream(request)
    if inspect.isawaitable(stream):
        stream = await stream
    if not isinstance(stream, AsyncIterator):
        kind = type(stream).__name__
        raise ModelError(
            f"{type(model).__name__}.stream returned a {kind}, not an async iterator: use async def, yield"
        )
    # Once: it may make a new iterator each time it is asked, and a reader begins to read several times.
    events = aiter(cast(AsyncIterator[ModelEvent], stream))
    try:
        yield events
    finally:
        made: list[object] = [events] if events is stream else [events, stream]
        for one in made:
            close = getattr(one, "aclose", None)
            if close is not None:
                await close()
