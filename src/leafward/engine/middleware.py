"""Middleware: what a user puts around an agent's turns, its questions to the model, and its tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_events import ModelEvent
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext

Request = TypeVar("Request")
Event = TypeVar("Event")

CallNext = Callable[[Request], AsyncGenerator[Event]]
"""Does what is inside of a middleware: the next middleware, and in the end the agent itself."""
Events = AsyncIterator[Event] | Awaitable[AsyncIterator[Event]]
"""What a method of a middleware returns: an async generator, or what `call_next(request)` returned."""


@dataclass(frozen=True, slots=True)
class AgentRequest:
    """A call of an agent. `dataclasses.replace(request, messages=…)` makes a changed copy."""

    messages: Sequence[Message]
    """The input; empty where a turn is resumed."""
    agent_name: str = ""
    agent_id: str = ""
    model_name: str = ""
    """The name of the agent's model; empty for a model without one."""


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A call of a tool, which is allowed to run. `dataclasses.replace(request, arguments=…)` makes a changed copy."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    reply_id: str = ""
    """The assistant's message that made the call."""


class Middleware:
    """Something around an agent's work: subclass it, and override the points that it is about.

    Four points are streams. A method is an async generator that passes on what comes from `call_next(request)`:

        async def on_model_call(self, ctx, request, call_next):
            async for event in call_next(request):
                yield event

    It may look at the request and at each event, change them, ask again, or not ask at all. `ctx` is the context of the
    call, with its `agent_state`. One object serves all calls at once: what belongs to a call is a local variable.
    """

    def on_agent(
        self, ctx: RuntimeContext, request: AgentRequest, call_next: CallNext[AgentRequest, AgentEvent]
    ) -> Events[AgentEvent]:
        """Go around a whole turn; the event `AGENT_RESULT` brings its reply, and comes last.

        A turn runs once, so `call_next` is called at most once. Without it, nothing is stored, and the reply is that of
        an `AGENT_RESULT` that this method yields.
        """
        return call_next(request)

    def on_reasoning(
        self, ctx: RuntimeContext, request: ModelRequest, call_next: CallNext[ModelRequest, AgentEvent]
    ) -> Events[AgentEvent]:
        """Go around one round of asking the model, its attempts after temporary errors included.

        Events are what the reader of the stream sees; the reply that is stored is changed in `on_model_call`. To ask
        again, call `call_next` again: the first reply is discarded. To answer without the model, or in its place,
        yield an `AgentEvent("MODEL_CALL_END", message=reply)`.
        """
        return call_next(request)

    def on_model_call(
        self, ctx: RuntimeContext, request: ModelRequest, call_next: CallNext[ModelRequest, ModelEvent]
    ) -> Events[ModelEvent]:
        """Go around one attempt of asking the model; what is yielded is the reply.

        To ask again, call `call_next` again before an event was passed on; later, raise a temporary `ModelError`.
        """
        return call_next(request)

    def on_acting(
        self, ctx: RuntimeContext, request: ToolRequest, call_next: CallNext[ToolRequest, Outcome]
    ) -> Events[Outcome]:
        """Go around one call of a tool, after permissions and questions; `ctx` is that of the tool.

        The stream brings one `Outcome`, also for a tool that failed; the last one that is yielded is the result. The
        arguments may be changed, the tool may not. An error that is raised here ends the turn.
        """
        return call_next(request)

    def on_system_prompt(self, ctx: RuntimeContext, prompt: str) -> str | Awaitable[str]:
        """Return the system prompt of one request, made of that of the middleware before; an empty one is left out."""
        return prompt
