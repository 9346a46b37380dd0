"""One turn: reason, act, and store each step before the next one begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from leafward.core.calls import Call
from leafward.core.errors import AgentShuttingDown, LeaseLost, SessionNotFound
from leafward.core.message import Message, body_to_read, message_sharing, user
from leafward.engine.acting import Acting, result_events, result_message
from leafward.engine.agent_store import Place
from leafward.engine.events import AgentEvent
from leafward.engine.model_call import ModelCall
from leafward.engine.models.model import ChatModel, ModelRequest
from leafward.engine.models.reply import Reply
from leafward.engine.recovery import interrupted_result, open_calls, plan_calls, rename_repeated, unknown_result
from leafward.engine.tree_log import TreeLog
from leafward.engine.turn_control import TurnStopped
from leafward.engine.turn_note import TurnNote
from leafward.engine.turn_queue import Held, enter_tool
from leafward.stores.contracts import Usage
from leafward.stores.finishing import to_its_end
from leafward.tools.definition import Tool
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext

REASON = "agentscope_generate_reason"
"""The key of a reply's metadata that says why the turn ended, in AgentScope's words."""
_EMPTY = "Your reply was empty. Answer the user, or call a tool."
_CUT_OFF = "Your reply was cut off. Go on where it ended."
_SUM_UP = "You have used all your steps. Call no more tools: say what is done and what is left."
_CANCELLED = "Cancelled while it ran. It may have taken effect: find out before you call it again."


@dataclass(frozen=True, slots=True)
class TurnSetup:
    """What an agent is made of, as far as a turn needs it."""

    name: str
    model: ChatModel
    system_prompt: str
    tools: Mapping[str, Tool]
    max_iterations: int
    retries: int


class Turn:
    """A turn of one session, which it has for itself until it ends."""

    def __init__(
        self, setup: TurnSetup, log: TreeLog, note: TurnNote, place: Place, held: Held, ctx: RuntimeContext
    ) -> None:
        self._setup = setup
        self._log = log
        self._present = note
        self._held = held
        self._control = held.control
        self._acting = Acting(setup.tools, ctx, held.lease, enter=lambda: enter_tool(place, held))
        self._reply: Reply | None = None
        """What the model is sending."""
        self._began = note.open
        """How the turn stood when this call took it over."""
        self._first = len(log.state.context) - len(note.input)
        """Where the messages of this turn begin in the context."""
        self.result: Message | None = None

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Run the turn whose input is stored; `result` is its reply.

        Raises:
            AgentShuttingDown: the turn is paused, and can be resumed by another process.
            LeaseLost: another process has the session; nothing more was stored.
        """
        try:
            async with aclosing(self._steps()) as steps:
                async for event in steps:
                    yield event
        except TurnStopped:
            await to_its_end(self._stop())
        except (LeaseLost, SessionNotFound):
            await to_its_end(self._abandon())
            raise
        except (asyncio.CancelledError, GeneratorExit):
            await to_its_end(self._close("cancelled"))
            raise
        except Exception as error:
            await to_its_end(self._fail(error))
            raise
        assert self.result is not None
        yield AgentEvent("AGENT_RESULT", self.result.id, message=self.result, committed=True)

    # One step after the other.

    async def _steps(self) -> AsyncGenerator[AgentEvent]:
        async for event in self._act_again():
            yield event
        if self.result is not None:
            return
        reminder: str | None = None
        for _ in range(self._setup.max_iterations):
            self._look()
            async for event in self._ask(reminder):
                yield event
            reply = self._reply
            assert reply is not None
            if reply.is_empty:
                reminder = _EMPTY
                continue
            reminder = None
            message = self._take(reply)
            calls = open_calls(self._log.state.context)
            if not calls:
                if not self._control.steering:
                    await self._finish(message, reply)
                    return
                await self._steer(reply)
                continue
            await self._log.commit(self._note(open="running"), usage=_usage(reply))
            self._reply = None
            self._look()
            async for event in self._act(message, calls):
                yield event
            if self.result is not None:
                return
        async for event in self._sum_up():
            yield event

    async def _ask(self, reminder: str | None, *, tools: bool = True) -> AsyncGenerator[AgentEvent]:
        request = self._request(reminder, tools=tools)
        call = ModelCall(self._setup.model, request, self._control, retries=self._setup.retries)
        async with aclosing(call.events()) as events:
            async for event in events:
                self._reply = call.reply
                yield event
        self._reply = call.reply

    def _request(self, reminder: str | None, *, tools: bool) -> ModelRequest:
        messages = list(self._log.state.context)
        if reminder is None and messages and messages[-1].role == "assistant":
            reminder = _CUT_OFF
        if reminder is not None:
            messages.append(user(reminder))
        return ModelRequest(messages, list(self._setup.tools.values()) if tools else (), self._setup.system_prompt)

    def _take(self, reply: Reply, **metadata: str) -> Message:
        """Put the model's reply into the conversation."""
        message = rename_repeated(reply.message(name=self._setup.name, metadata=metadata or None))
        self._log.state.context.append(message)
        return message

    async def _act(self, reply: Message, calls: Sequence[Call]) -> AsyncGenerator[AgentEvent]:
        """Run the calls of a reply, and store each result as it comes."""
        external = {call.id for call in calls if (tool := self._setup.tools.get(call.name)) and tool.external}
        self._acting.start([call for call in calls if call.id not in external])
        async for event in self._results(reply):
            yield event
        if external:
            await self._suspend(reply, [call for call in calls if call.id in external])
        elif self._control.steering:
            await self._steer(None)

    async def _results(self, reply: Message) -> AsyncGenerator[AgentEvent]:
        """Store each result as its tool ends; those that ended meanwhile go together."""
        while self._acting.running:
            stored = [(call, result_message(call, outcome)) for call, outcome in await self._acting.next_results()]
            self._log.state.context.extend(message for _, message in stored)
            await self._log.commit(self._note(open="running"))
            for call, message in stored:
                for event in result_events(reply.id, call, message):
                    yield event
        self._log.in_call_order()

    async def _act_again(self) -> AsyncGenerator[AgentEvent]:
        """Go on with the calls that an earlier process left without results."""
        calls = open_calls(self._log.state.context)
        if not calls:
            return
        reply = calls[0].message
        external = [call for call in calls if (tool := self._setup.tools.get(call.name)) and tool.external]
        begun = self._began == "running"
        plans = plan_calls(
            [call for call in calls if call not in external],
            self._setup.tools,
            begun=begun,
            attempts=self._present.attempts,
        )
        unknown = [plan.call for plan in plans if plan.action == "unknown"]
        self._log.state.context.extend(unknown_result(self._log.leaf_id, reply.id, call) for call in unknown)
        attempts = {**self._present.attempts, **{plan.key: plan.attempts for plan in plans if plan.attempts}}
        # Before anything runs again: a process that dies here has counted it.
        await self._log.commit(self._note(open="running", attempts=attempts))
        self._acting.start([plan.call for plan in plans if plan.action in ("run", "run_again")])
        self._acting.start([plan.call for plan in plans if plan.action == "probe"], probed=True)
        async for event in self._results(reply):
            yield event
        if external:
            await self._suspend(reply, external)

    async def _sum_up(self) -> AsyncGenerator[AgentEvent]:
        """Have the model say how far it came, when it may take no further step."""
        yield AgentEvent("EXCEED_MAX_ITERS")
        self._look()
        async for event in self._ask(_SUM_UP, tools=False):
            yield event
        assert self._reply is not None
        await self._finish(self._take(self._reply, **{REASON: "MAX_ITERATIONS"}), self._reply)

    # How a turn ends.

    async def _finish(self, message: Message, reply: Reply) -> None:
        await self._log.commit(self._closed(), usage=_usage(reply), at_boundary=True)
        self._reply = None
        await self._log.project()
        self.result = message

    async def _suspend(self, reply: Message, calls: Sequence[Call]) -> None:
        """Leave the turn open until the results of external tools are sent."""
        await self._log.commit(self._note(open="asking"), at_boundary=True)
        await self._log.project()
        self.result = _with_reason(reply, "TOOL_SUSPENDED")

    async def _steer(self, reply: Reply | None) -> None:
        """Store the messages that joined, below what came before."""
        steering = self._control.steering
        self._log.state.context.extend(steering)
        joined = (*self._present.joined, *(message.id for message in steering))
        self._control.steering = []
        await self._log.commit(
            self._note(open="running", joined=joined), usage=None if reply is None else _usage(reply)
        )
        self._reply = None

    async def _stop(self) -> None:
        """End an interrupted turn, or pause it for a shutdown."""
        if self._control.stop == "shutdown":
            self._log.state.shutdown_interrupted = True
            await self._log.commit(self._note(open="paused"), at_boundary=True)
            await self._log.project()
            raise AgentShuttingDown(self._setup.name)
        await self._settle(await self._acting.finish(), partial=True)
        self._log.state.context.extend(self._control.messages)
        joined = (*self._present.joined, *(message.id for message in self._control.messages))
        await self._log.commit(replace(self._closed(), joined=joined), at_boundary=True)
        await self._log.project()
        self.result = _with_reason(self._last_reply(), "INTERRUPTED")

    async def _close(self, failed: str) -> None:
        """Store what there is, and leave no call without a result."""
        await self._settle(await self._acting.stop(), partial=failed == "cancelled")
        await self._log.commit(self._closed(failed=failed), at_boundary=True)
        await self._log.project()

    async def _fail(self, error: Exception) -> None:
        try:
            await self._close(f"{type(error).__name__}: {error}"[:500])
        except Exception as second:  # noqa: BLE001  (reported beside the first, which is raised)
            error.add_note(f"and the turn could not be stored: {type(second).__name__}: {second}")

    async def _abandon(self) -> None:
        """Stop what runs; nothing more may be stored."""
        await self._acting.stop()

    async def _settle(self, ended: Sequence[tuple[Call, Outcome | None]], *, partial: bool) -> None:
        """Put into the conversation what has come of this step, and a result for every call without one."""
        context = self._log.state.context
        if partial and self._reply is not None and (said := self._reply.partial(name=self._setup.name)) is not None:
            context.append(rename_repeated(said))
        for call, outcome in ended:
            cut_off = interrupted_result(self._log.leaf_id, call.message.id, call, text=_CANCELLED)
            context.append(cut_off if outcome is None else result_message(call, outcome))
        for call in open_calls(context):
            context.append(interrupted_result(self._log.leaf_id, call.message.id, call))

    # What is noted of the turn.

    def _note(self, **changes: Any) -> TurnNote:
        self._present = replace(self._present, **changes)
        return self._present

    def _closed(self, failed: str | None = None) -> TurnNote:
        """Return the note of a turn that has ended; the slot is written next, and has one more version then."""
        return self._note(open=None, failed=failed, slot=self._log.slot_version + self._log.writes_slot)

    def _look(self) -> None:
        """Stop here if the turn was asked to."""
        if self._control.stop is not None:
            raise TurnStopped

    def _last_reply(self) -> Message:
        """Return the last message of the assistant in this turn, or an empty one."""
        said = [message for message in self._log.state.context[self._first :] if message.role == "assistant"]
        return said[-1] if said else Message("assistant", [], name=self._setup.name)


def _with_reason(message: Message, reason: str) -> Message:
    """Return a reply that says why the turn ended; what is stored says nothing."""
    body = body_to_read(message)
    metadata: dict[str, Any] = {**(body.get("metadata") or {}), REASON: reason}
    return message_sharing(message.id, message.role, message.at, {**body, "metadata": metadata})


def _usage(reply: Reply) -> Usage | None:
    used = reply.usage
    return None if used is None else Usage(used.input_tokens, used.output_tokens, used.cost or 0.0)
