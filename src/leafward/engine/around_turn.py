"""A turn inside of the middlewares that go around it: it runs once, and ends also where one of them does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import cast

from leafward.core.errors import AgentShuttingDown, ConfigurationError
from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.middleware import AgentRequest
from leafward.engine.middleware_chain import Chain, Step, name_of
from leafward.engine.model_call import OpenStream, pieces
from leafward.engine.reply_reason import REASON
from leafward.engine.turn_control import TurnControl
from leafward.tools.runtime_context import RuntimeContext

Answer = Callable[[list[Message]], AsyncGenerator[AgentEvent | OpenStream]]
"""Answers the input of a call, once."""


async def around_turn(
    ctx: RuntimeContext, steps: Sequence[Step], control: TurnControl, request: AgentRequest, answer: Answer
) -> AsyncGenerator[AgentEvent]:
    """Answer a call inside of middlewares; a turn whose middleware is stopped comes to its end without it.

    Raises:
        ConfigurationError: they yield what is no event, or no result.
    """
    turn = _TurnOnce(answer, control)
    chain = Chain(ctx, steps, turn.events)
    result: AgentEvent | None = None
    try:
        control.begin_foreign_wait()
        async for event in chain.open(request):
            if not isinstance(cast(object, event), AgentEvent):
                raise ConfigurationError(f"on_agent yielded a {type(event).__name__}, not an AgentEvent")
            if event.type == "AGENT_RESULT":
                result = event
            yield event
            control.begin_foreign_wait()
        control.end_wait()
    except asyncio.CancelledError:
        if not control.was_ended():
            raise
        # The wait of a middleware was ended: the turn stops without it.
        if result is None:
            async for event in turn.rest(request):
                yield event
        return
    finally:
        try:
            await chain.aclose()
        finally:
            control.end_wait()
    if result is None or result.message is None:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            # A middleware has kept the cancellation to itself.
            raise asyncio.CancelledError
        raise ConfigurationError(
            f"no AGENT_RESULT with a message came out of {name_of(steps[0])}: pass on the events of "
            "call_next(request), or yield the result in their place"
        )


class _TurnOnce:
    """A turn as middlewares read it: once, and with its pieces as events."""

    def __init__(self, answer: Answer, control: TurnControl) -> None:
        self._answer = answer
        self._control = control
        self._running: AsyncGenerator[AgentEvent] | None = None

    def events(self, request: AgentRequest) -> AsyncGenerator[AgentEvent]:
        """Run the turn.

        Raises:
            ConfigurationError: it has run.
        """
        if self._running is not None:
            raise ConfigurationError(
                "on_agent called call_next twice: a turn runs once; ask the model again in on_reasoning"
            )
        self._running = pieces(self._answer(list(request.messages)), self._control, lends=True)
        return self._running

    async def rest(self, request: AgentRequest) -> AsyncGenerator[AgentEvent]:
        """Yield what is left of a turn that is to stop.

        Raises:
            AgentShuttingDown: it was paused.
        """
        running = self._running or self.events(request)
        has_result = False
        async for event in running:
            has_result = has_result or event.type == "AGENT_RESULT"
            yield event
        if not has_result:
            # The middleware has closed it.
            reply = Message("assistant", [], name=request.agent_name, metadata={REASON: "INTERRUPTED"})
            if self._control.is_shutting_down:
                raise AgentShuttingDown(request.agent_name)
            yield AgentEvent("AGENT_RESULT", reply.id, message=reply)
