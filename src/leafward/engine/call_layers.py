"""What surrounds the work of one call: its middlewares, and inside of them its hooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any, TypeVar, cast

from leafward.core.calls import Call
from leafward.core.errors import ConfigurationError
from leafward.core.message import Message, own_copy
from leafward.engine.around_turn import Answer, around_turn
from leafward.engine.call_results import TEXTS
from leafward.engine.events import AgentEvent
from leafward.engine.hook_calls import CallHooks
from leafward.engine.hooks import (
    ActingChunkEvent,
    Hook,
    PostActingEvent,
    PostReasoningEvent,
    PostSummaryEvent,
    PreActingEvent,
    PreCallEvent,
    PreReasoningEvent,
    PreSummaryEvent,
    ReasoningChunkEvent,
    SummaryChunkEvent,
)
from leafward.engine.middleware import AgentRequest, Middleware, ToolRequest
from leafward.engine.middleware_chain import Chain, name_of, overriding
from leafward.engine.model_call import OpenStream, pieces
from leafward.engine.models.model import ChatModel, ModelRequest, open_stream
from leafward.engine.models.model_events import ModelEvent
from leafward.engine.turn_control import TurnControl, TurnStopped
from leafward.tools.outputs import text_part
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext

Shown = AsyncGenerator[AgentEvent | OpenStream]
Ask = Callable[[ModelRequest], Shown]
"""Asks the model, and shows its reply."""
Attempt = Callable[[object], Awaitable[Outcome | None]]
"""Runs a tool with some arguments; `None` if nothing finds out what became of it."""

_DELTAS = frozenset({"TEXT_BLOCK_DELTA", "THINKING_BLOCK_DELTA", "TOOL_CALL_DELTA", "DATA_BLOCK_DELTA"})

T = TypeVar("T")


class Layers:
    """The middlewares of an agent, by the points that they override; only these cost anything.

    Raises:
        ConfigurationError: one of them is not an object of a subclass of `Middleware`.
    """

    def __init__(self, middlewares: Iterable[Middleware] = ()) -> None:
        if not isinstance(middlewares, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"middlewares are given as a list, not as {middlewares!r}")
        found = list(middlewares)
        for one in cast(list[object], found):
            if not isinstance(one, Middleware):
                raise ConfigurationError(f"middlewares are objects of subclasses of Middleware, not {one!r}")
        self.agent = overriding(found, "on_agent")
        self.reasoning = overriding(found, "on_reasoning")
        self.model = overriding(found, "on_model_call")
        self.acting = overriding(found, "on_acting")
        self.prompt = overriding(found, "on_system_prompt")


class CallLayers:
    """The middlewares and hooks of an agent, around one call."""

    def __init__(self, layers: Layers, hooks: Sequence[Hook], ctx: RuntimeContext, control: TurnControl) -> None:
        self._layers = layers
        self._ctx = ctx
        self._control = control
        self._hooks = CallHooks(hooks, ctx, control) if hooks else None

    # A call.

    def agent(self, request: AgentRequest, answer: Answer) -> Shown:
        """Answer a call, inside of what surrounds it; `answer` is used at most once."""
        within = answer if self._hooks is None else self._with_hooks(self._hooks, answer)
        steps = self._layers.agent
        if not steps:
            return within(list(request.messages))
        return around_turn(self._ctx, steps, self._control, request, within)

    def _with_hooks(self, hooks: CallHooks, answer: Answer) -> Answer:
        async def answered(messages: list[Message]) -> Shown:
            try:
                with suppress(TurnStopped):  # The turn stops at its first step.
                    messages = list((await hooks.tell(PreCallEvent(messages))).messages)
                async with aclosing(answer(messages)) as events:
                    async for event in events:
                        if isinstance(event, AgentEvent) and event.message is not None and event.type == "AGENT_RESULT":
                            await hooks.tell_result(event.message)
                        yield event
            except (Exception, asyncio.CancelledError) as error:
                await hooks.tell_error(error)
                raise

        return answered

    # The model.

    def reasoning(self, request: ModelRequest, ask: Ask, *, is_summary: bool = False) -> Shown:
        """Ask the model once, inside of what surrounds a round."""
        hooks, steps = self._hooks, self._layers.reasoning
        if hooks is None and not steps:
            return ask(request)
        within: Ask = ask if hooks is None else self._told_of_round(hooks, ask, is_summary=is_summary)
        return self._around_round(request, within) if steps else within(request)

    def _told_of_round(self, hooks: CallHooks, ask: Ask, *, is_summary: bool) -> Ask:
        before = PreSummaryEvent if is_summary else PreReasoningEvent
        chunk = SummaryChunkEvent if is_summary else ReasoningChunkEvent

        async def asked(request: ModelRequest) -> Shown:
            changed = await hooks.tell(before(request))
            events = ask(changed.request)
            async with aclosing(pieces(events, self._control) if hooks.listening(chunk) else events) as shown:
                async for event in shown:
                    if isinstance(event, AgentEvent) and event.type in _DELTAS:
                        await hooks.tell(chunk(event))
                    yield event

        return asked

    async def _around_round(self, request: ModelRequest, ask: Ask) -> Shown:
        control = self._control
        newest: AsyncGenerator[AgentEvent] | None = None

        async def again(earlier: AsyncGenerator[AgentEvent], request: ModelRequest) -> Shown:
            await earlier.aclose()
            async with aclosing(ask(request)) as events:
                async for event in events:
                    yield event

        def asked(request: ModelRequest) -> AsyncGenerator[AgentEvent]:
            nonlocal newest
            events = ask(request) if newest is None else again(newest, request)
            newest = pieces(events, control, lends=True)
            return newest

        chain = Chain(self._ctx, self._layers.reasoning, asked)
        try:
            control.begin_wait()
            async for event in chain.open(request):
                if not isinstance(cast(object, event), AgentEvent):
                    raise ConfigurationError(f"on_reasoning yielded a {type(event).__name__}, not an AgentEvent")
                yield event
                control.begin_wait()
        except asyncio.CancelledError:
            if control.was_ended():
                raise TurnStopped from None
            raise
        finally:
            try:
                await chain.aclose()
            finally:
                control.end_wait()

    def model(self, model: ChatModel) -> ChatModel:
        """Return the model inside of what surrounds each attempt."""
        return _SurroundedModel(model, self._layers.model, self._ctx) if self._layers.model else model

    async def replied(self, message: Message, *, is_summary: bool = False) -> Message:
        """Return the model's reply as hooks have left it.

        Raises:
            ConfigurationError: it is no longer a reply of the assistant's with this id.
        """
        hooks = self._hooks
        kind = PostSummaryEvent if is_summary else PostReasoningEvent
        if hooks is None or not hooks.listening(kind):
            return message
        given = kind(own_copy(message))
        changed = await hooks.tell(given)
        if changed is given:
            return message
        found = changed.message
        if found.id != message.id or found.role != "assistant":
            raise ConfigurationError("a hook gave the reply another id or role: change its parts alone")
        return own_copy(found)

    # Tools.

    async def acting(self, call: Call, ctx: RuntimeContext, attempt: Attempt) -> Outcome | None:
        """Run a tool inside of what surrounds it."""
        hooks, steps = self._hooks, self._layers.acting
        if hooks is None and not steps:
            return await attempt(call.written)
        request = ToolRequest(call.id, call.name, call.object_input, call.message.id)
        is_known = True

        async def run(now: ToolRequest) -> Outcome | None:
            arguments = dict(_same_tool(call, now).arguments)
            # What the model wrote need not be JSON: it is answered with its mistake.
            return await attempt(call.written if arguments == call.object_input else arguments)

        async def acted(now: ToolRequest) -> AsyncGenerator[Outcome]:
            nonlocal is_known
            outcome = await self._told_of_tool(_same_tool(call, now), run)
            if outcome is None:
                is_known = False
            else:
                yield outcome

        found: Outcome | None = None
        chain = Chain(ctx, steps, acted)
        try:
            async for outcome in chain.open(request):
                if not isinstance(cast(object, outcome), Outcome):
                    raise ConfigurationError(f"on_acting yielded a {type(outcome).__name__}, not an Outcome")
                found = outcome
        finally:
            await chain.aclose()
        if found is None and is_known:
            raise ConfigurationError(
                f"no Outcome came out of {name_of(steps[0])} for the tool {call.name!r}: pass on that of "
                "call_next(request), or yield one in its place"
            )
        return found

    async def _told_of_tool(
        self, request: ToolRequest, attempt: Callable[[ToolRequest], Awaitable[Outcome | None]]
    ) -> Outcome | None:
        hooks = self._hooks
        if hooks is None:
            return await attempt(request)
        try:
            before = await hooks.tell_in_tool(PreActingEvent(request))
        except TurnStopped:
            return Outcome([text_part(TEXTS["not begun"])], "interrupted")
        request = before.request
        outcome = await attempt(request)
        if outcome is None:
            return None
        try:
            if hooks.listening(ActingChunkEvent):
                await hooks.tell_in_tool(ActingChunkEvent(request, outcome.text))
            return (await hooks.tell_in_tool(PostActingEvent(request, outcome))).outcome
        except TurnStopped:
            # The tool has ended, whatever hooks would have said to it.
            return outcome

    # The end of a turn, before it is stored.

    async def replies(self, message: Message) -> None:
        """Report the reply of a turn that is about to be stored."""
        if self._hooks is not None:
            await self._hooks.tell_reply(message)

    async def stops(self, message: Message) -> None:
        """Report the reply of a turn that was interrupted."""
        if self._hooks is not None:
            await self._hooks.tell_reply(message, is_ending=True)

    async def fails(self, error: BaseException) -> None:
        """Report what a call raises."""
        if self._hooks is not None:
            await self._hooks.tell_error(error)


class _SurroundedModel:
    """A model inside of middlewares."""

    def __init__(self, model: ChatModel, steps: Sequence[Any], ctx: RuntimeContext) -> None:
        self._model = model
        self._steps = steps
        self._ctx = ctx

    def stream(self, request: ModelRequest) -> Chain[ModelRequest, ModelEvent]:
        return Chain(self._ctx, self._steps, self._asked).open(request)

    async def _asked(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        async with open_stream(self._model, request) as events:
            async for event in events:
                yield event


def _same_tool(call: Call, request: ToolRequest) -> ToolRequest:
    if (request.call_id, request.name) != (call.id, call.name):
        raise ConfigurationError(
            f"the call {call.id!r} of the tool {call.name!r} was changed into {request.call_id!r} of {request.name!r}: "
            "only the arguments can be changed"
        )
    return request
