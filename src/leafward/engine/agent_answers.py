"""One call of an agent: its session is taken up, and its input answered, inside of middleware and hooks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from leafward.core.errors import AgentShuttingDown
from leafward.core.ids import Scope
from leafward.core.message import Message, own_copy
from leafward.engine.agent_context import AgentContext
from leafward.engine.agent_store import Place
from leafward.engine.call_layers import CallLayers, Layers
from leafward.engine.child_sessions import begin_child
from leafward.engine.events import AgentEvent
from leafward.engine.hooks import Hook
from leafward.engine.memory import MemoryOfAgent
from leafward.engine.middleware import AgentRequest
from leafward.engine.model_call import OpenStream
from leafward.engine.reply_reason import interrupted_reply
from leafward.engine.step_log import LogOptions, StepLog
from leafward.engine.turn import Turn, TurnSetup
from leafward.engine.turn_input import TakenInput, read_input, take_input
from leafward.engine.turn_queue import Held
from leafward.tools.runtime_context import RuntimeContext, for_call

Shown = AsyncGenerator[AgentEvent | OpenStream]


@dataclass(frozen=True, slots=True)
class AgentAnswers:
    """How an agent answers; the same for all of its calls."""

    setup: TurnSetup
    options: LogOptions
    context: AgentContext
    memory: MemoryOfAgent
    layers: Layers
    hooks: Callable[[], Sequence[Hook]]
    """Returns the hooks of a call that begins."""
    ask_timeout: float | None

    async def events(self, given: list[Message], log: StepLog, place: Place, held: Held, ctx: RuntimeContext) -> Shown:
        """Answer the input of a call that has its turn on a session."""
        name, agent_id, key = self.setup.name, self.options.agent_id, log.key
        await begin_child(ctx, place, Scope.of(key.session_id, user_id=key.user_id, agent_id=agent_id))
        await self._load(given, log, held)
        with self.memory.showing(log.state) as held.on_tool:
            yield AgentEvent("AGENT_START", name=name)
            if held.control.is_shutting_down:
                raise AgentShuttingDown(name)
            context = for_call(ctx, user_id=key.user_id, session_id=key.session_id, agent_state=log.state)
            layers = CallLayers(self.layers, self.hooks(), context, held.control)
            model = getattr(self.setup.model, "name", "")
            request = AgentRequest(given, name, agent_id, model if isinstance(model, str) else "")
            answered = layers.agent(request, partial(self._answer, log, place, held, context, layers))
            async with aclosing(answered) as events:
                async for event in events:
                    yield event
        yield AgentEvent("AGENT_END", name=name)

    async def _load(self, given: Sequence[Message], log: StepLog, held: Held) -> None:
        asked: list[Coroutine[Any, Any, None]] = [
            log.load(self.options.new_state(log.key), [message.id for message in given])
        ]
        if held.mail is not None:
            # What an earlier turn did not receive is asked for beside it.
            asked.append(held.mail.read())
        for error in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(error, BaseException):
                raise error
        if held.control.earlier:
            await _leave_out_stored(log, held)

    async def _answer(
        self,
        log: StepLog,
        place: Place,
        held: Held,
        context: RuntimeContext,
        layers: CallLayers,
        given: list[Message],
    ) -> Shown:
        """Take the input, and run its turn, or return the reply it has."""
        setup = await self.context.setup_for(self.setup, place, log.key, held)
        taken = await take_input(
            read_input(given or None),
            log,
            held.control,
            tools=setup.tools,
            state_name=self.options.state_name,
            ask_timeout=self.ask_timeout,
        )
        if isinstance(taken, TakenInput):
            held.control.interrupt_control = log.state.interrupt_control
            turn = Turn(setup, log, taken, place, held, context, layers)
            async with aclosing(turn.events()) as events:
                async for event in events:
                    yield event
            return
        if not log.is_projected:
            await log.project()
        reply = taken or interrupted_reply(setup.name)
        yield AgentEvent("AGENT_RESULT", reply.id, message=own_copy(reply), committed=True)


async def _leave_out_stored(log: StepLog, held: Held) -> None:
    """Leave out what an earlier turn has stored, but was lost before the store knew."""
    sent, held.control.earlier = held.control.earlier, await log.unknown(held.control.earlier)
    if held.mail is not None:
        await held.mail.acknowledge({message.id for message in sent} - {message.id for message in held.control.earlier})
