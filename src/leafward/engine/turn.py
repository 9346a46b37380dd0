"""One turn: reason, act, and store each step before the next one begins."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from leafward.core.callables import words_of
from leafward.core.calls import Call
from leafward.core.errors import AgentShuttingDown, ConfigurationError, MessageTooLarge, SessionNotFound
from leafward.core.message import Message, body_to_read, ids_of, message_sharing, user
from leafward.engine.acting import Acting, Ended, result_events, result_message
from leafward.engine.agent_store import Place
from leafward.engine.events import AgentEvent
from leafward.engine.model_call import ModelCall
from leafward.engine.models.model import ChatModel, ModelRequest
from leafward.engine.models.reply import Reply
from leafward.engine.paired_requests import paired
from leafward.engine.recovery import interrupted_result, open_calls, plan_calls, rename_repeated, unknown_result
from leafward.engine.step_log import StepLog
from leafward.engine.turn_control import TurnStopped
from leafward.engine.turn_note import Openness, TurnNote
from leafward.engine.turn_queue import Held, enter_tool
from leafward.stores.contracts import Usage
from leafward.stores.finishing import to_its_end
from leafward.tools.definition import Tool
from leafward.tools.runner import Outcome, failed
from leafward.tools.runtime_context import RuntimeContext

REASON = "agentscope_generate_reason"
"""The key of a reply's metadata that says why the turn ended, in AgentScope's words."""
_EMPTY = "Your reply was empty. Answer the user, or call a tool."
_CUT_OFF = "Your reply was cut off. Go on where it ended."
_SUM_UP = "You have used all your steps. Call no more tools: say what is done and what is left."
_NO_STEPS = "Not run: no steps are left in this turn."
_CUT_OFF_CALL = "Cut off while it ran. It may have taken effect: find out before you call it again."

_log = logging.getLogger("leafward.engine")


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
        self, setup: TurnSetup, log: StepLog, note: TurnNote, place: Place, held: Held, ctx: RuntimeContext
    ) -> None:
        self._setup = setup
        self._log = log
        self._present = note
        self._held = held
        self._control = held.control
        self._control.end = self.stop
        forced = held.control.forced
        self._acting = Acting(setup.tools, ctx, held.lease, forced=forced, enter=lambda: enter_tool(place, held))
        self._call: ModelCall | None = None
        """What the model is asked, until its reply is in the context."""
        self._used: Usage | None = None
        """What the last reply used, until a commit counts it."""
        self._began = note.open
        """How the turn stood when this call took it over."""
        self._in_doubt = note.open == "running"
        """Whether calls without results may have begun in a process that was lost."""
        self._stopping: asyncio.Task[None] | None = None
        context = log.state.context
        self._first = next((row for row, one in enumerate(context) if one.id in note.input), len(context))
        """Where the messages of this turn begin in the context."""
        self._is_final = False
        """Whether the final commit was begun: whatever it raised, it may be stored."""
        self._is_stored = False
        """Whether the tree has all of this call; whatever happens to its slot changes nothing of that."""
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
                    if self._stopping is not None:
                        # It was ended while the stream was not read on.
                        raise TurnStopped
        except TurnStopped:
            await to_its_end(self.stop())
        except (asyncio.CancelledError, GeneratorExit) as error:
            stopping = self._stopping
            await to_its_end(self._fail(error, "cancelled") if stopping is None else asyncio.wait((stopping,)))
            raise
        except Exception as error:
            if isinstance(error, SessionNotFound) or self._acting.is_lost(error):
                await to_its_end(self._abandon())
                raise
            await to_its_end(self._fail(error, f"{type(error).__name__}: {words_of(error)}"[:500]))
            raise
        if self.result is None:
            raise AgentShuttingDown(self._setup.name)
        yield AgentEvent("AGENT_RESULT", self.result.id, message=self.result, committed=True)

    # One step after the other.

    async def _steps(self) -> AsyncGenerator[AgentEvent]:
        async for event in self._act_again():
            yield event
        if self.result is not None:
            return
        if self._control.steering:
            await self._steer()
        reminder: str | None = None
        for _ in range(self._setup.max_iterations):
            self._look()
            async with self._asked(reminder) as events:
                async for event in events:
                    yield event
            reply = self._reply
            assert reply is not None
            if reply.is_empty:
                reminder = _EMPTY
                await self._count(reply)
                continue
            reminder = None
            message = self._take(reply)
            calls = open_calls(self._log.state.context)
            if not calls:
                await self._look_once_more()
                if not self._control.steering:
                    await self._finish(message)
                    return
                await self._steer()
                continue
            await self._log.commit(self._note(open="running"), usage=self._uncounted())
            self._look()
            async for event in self._act(message, calls):
                yield event
            if self.result is not None:
                return
        async for event in self._sum_up():
            yield event

    def _asked(self, reminder: str | None, *, tools: bool = True) -> aclosing[AsyncGenerator[AgentEvent]]:
        """Ask the model; `_reply` is what it sends."""
        request = self._request(reminder, tools=tools)
        self._call = ModelCall(self._setup.model, request, self._control, retries=self._setup.retries)
        return aclosing(self._call.events())

    @property
    def _reply(self) -> Reply | None:
        return None if self._call is None else self._call.reply

    def _request(self, reminder: str | None, *, tools: bool) -> ModelRequest:
        messages = paired(self._log.state.context)
        if reminder is None and messages and messages[-1].role == "assistant":
            reminder = _CUT_OFF
        if reminder is not None:
            messages.append(user(reminder))
        return ModelRequest(messages, list(self._setup.tools.values()) if tools else (), self._setup.system_prompt)

    def _take(self, reply: Reply, **metadata: str) -> Message:
        """Put the model's reply into the conversation."""
        message = rename_repeated(reply.message(name=self._setup.name, metadata=metadata or None))
        self._log.state.context.append(message)
        self._call, self._used = None, _usage(reply)
        return message

    def _uncounted(self) -> Usage | None:
        """Return what the last reply used, for the commit that counts it."""
        used, self._used = self._used, None
        return used

    async def _act(self, reply: Message, calls: Sequence[Call]) -> AsyncGenerator[AgentEvent]:
        """Run the calls of a reply, and store each result as it comes."""
        external = [call for call in calls if self._is_external(call)]
        self._acting.start([call for call in calls if call not in external])
        async for event in self._results(reply):
            yield event
        if external:
            yield await self._suspend(reply, external)
        elif self._control.steering:
            await self._steer()

    def _is_external(self, call: Call) -> bool:
        tool = self._setup.tools.get(call.name)
        return tool is not None and tool.external

    async def _results(self, reply: Message) -> AsyncGenerator[AgentEvent]:
        """Store each result as its tool ends; those that ended meanwhile go together."""
        while self._acting.running:
            stored = [(call, self._result(call, outcome)) for call, outcome in await self._acting.next_results()]
            for call, message in await self._store_results(stored):
                for event in result_events(reply.id, call, message):
                    yield event

    def _result(self, call: Call, outcome: Outcome | None) -> Message:
        if outcome is None:
            return unknown_result(self._log.leaf_id, call.message.id, call)
        return result_message(call, outcome)

    async def _store_results(self, results: Sequence[tuple[Call, Message]]) -> Sequence[tuple[Call, Message]]:
        """Store results, and return them as they are stored: one that is too large says so instead."""
        context = self._log.state.context
        rest = list(context)
        context.extend(message for _, message in results)
        try:
            await self._log.commit(self._note(open="running"))
        except MessageTooLarge as error:
            found = [
                (call, _too_large(call, error) if message.id == error.message_id else message)
                for call, message in results
            ]
            if found == results:
                raise
            context[:] = rest
            return await self._store_results(found)
        return results

    async def _act_again(self) -> AsyncGenerator[AgentEvent]:
        """Go on with the calls that an earlier process left without results."""
        self._look()
        calls = open_calls(self._log.state.context)
        if not calls:
            self._in_doubt = False
            return
        reply = calls[0].message
        if any(call.part.get("state") == "asking" for call in calls):
            # The user is to answer first, and none of them has begun.
            await self._log.commit(self._note(open="asking"), at_boundary=True)
            await self._log.project()
            self.result = _with_reason(reply, "PERMISSION_ASKING")
            return
        external = [call for call in calls if self._is_external(call)]
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
        self._look()
        self._in_doubt = False
        self._acting.start([plan.call for plan in plans if plan.action in ("run", "run_again")])
        self._acting.start([plan.call for plan in plans if plan.action == "probe"], probed=True)
        async for event in self._results(reply):
            yield event
        if external:
            yield await self._suspend(reply, external)

    async def _sum_up(self) -> AsyncGenerator[AgentEvent]:
        """Have the model say how far it came, when it may take no further step."""
        yield AgentEvent("EXCEED_MAX_ITERS")
        self._look()
        async with self._asked(_SUM_UP, tools=False) as events:
            async for event in events:
                yield event
        reply = self._reply
        assert reply is not None
        if reply.is_empty:
            said = Message("assistant", [], name=self._setup.name, metadata={REASON: "MAX_ITERATIONS"})
            self._call, self._used = None, _usage(reply)
        else:
            said = self._take(reply, **{REASON: "MAX_ITERATIONS"})
            calls = open_calls(self._log.state.context)
            results = [interrupted_result(self._log.leaf_id, said.id, call, text=_NO_STEPS) for call in calls]
            self._log.state.context.extend(results)
        # A message that joins now could not be answered: the store keeps it for the next turn.
        await self._look_once_more()
        await self._finish(said)

    # How a turn ends.

    async def _finish(self, message: Message) -> None:
        self._is_final = True
        await self._conclude()
        self.result = message

    async def _conclude(self) -> None:
        """Store the final reply; done again, it stores nothing twice."""
        await self._log.commit(self._closed(), usage=self._uncounted(), at_boundary=True)
        self._is_stored = True
        await self._acknowledge()
        await self._log.project()

    async def _count(self, reply: Reply) -> None:
        """Count what a reply used of which nothing is stored."""
        await self._log.commit(self._note(open="running"), usage=_usage(reply))
        self._call = None

    async def _suspend(self, reply: Message, calls: Sequence[Call]) -> AgentEvent:
        """Leave the turn open until the results of external tools are sent; return what asks for them."""
        self._look()
        await self._log.commit(self._note(open="asking"), at_boundary=True)
        self._is_stored = True
        await self._acknowledge()
        await self._log.project()
        self.result = _with_reason(reply, "TOOL_SUSPENDED")
        return AgentEvent(
            "REQUIRE_EXTERNAL_EXECUTION", reply.id, message=reply, data=[call.part for call in calls], committed=True
        )

    async def _steer(self) -> None:
        """Store the messages that joined, below what came before."""
        steering, self._control.steering = self._control.steering, []
        await self._join(steering)
        await self._log.commit(self._note(open="running"), usage=self._uncounted())
        await self._acknowledge()

    async def stop(self) -> None:
        """End an interrupted turn, or pause it for a shutdown, where it stands; a second call waits for the first."""
        if self.result is not None:
            return
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="leafward turn that stops")
        await self._stopping

    async def _stop(self) -> None:
        ended = await self._acting.finish()
        if self._control.stop == "shutdown":
            await self._pause(ended)
            return
        await self._end(ended, partial=True)
        self.result = _with_reason(self._last_reply(), "INTERRUPTED")

    async def _pause(self, ended: Sequence[tuple[Call, Outcome | None]]) -> None:
        """Leave the turn for another process: calls that have begun get results, the others run there."""
        context = self._log.state.context
        for call, outcome in ended:
            unknown = unknown_result(self._log.leaf_id, call.message.id, call)
            context.append(unknown if outcome is None else result_message(call, outcome))
        said = None
        if self._reply is not None and self._control.keeps_partial:
            said = self._reply.said(name=self._setup.name)
        if said is not None:
            context.append(said)
        calls = open_calls(context)
        # Between calls and their results there is no place for a message: the store keeps it for the next turn.
        if not calls:
            await self._join_all()
        paused_as = self._paused_as(calls)
        # AgentScope runs what is open where it finds this flag.
        self._log.state.shutdown_interrupted = paused_as != "running"
        usage = None if said is None or self._reply is None else _usage(self._reply)
        await self._log.commit(self._note(open=paused_as), usage=usage, at_boundary=True)
        await self._acknowledge()
        await self._log.project()

    def _paused_as(self, calls: Sequence[Call]) -> Openness:
        """Return what the note says of a paused turn, so that its calls without results are treated as they must be."""
        if calls and self._in_doubt:
            return "running"
        return "asking" if calls and all(map(self._is_external, calls)) else "paused"

    async def _join_all(self) -> list[Message]:
        """Put all that was sent to the turn into the conversation, and return it."""
        sent = [*self._control.steering, *self._control.messages]
        await self._join(sent)
        return sent

    async def _join(self, sent: Sequence[Message]) -> None:
        """Put messages that were sent to the turn into the conversation, but those that are there, or stored."""
        context = self._log.state.context
        here = {message.id for message in context} if sent else set[str]()
        found = {message.id: message for message in sent if message.id not in here}
        new = await self._log.unknown(list(found.values())) if found else []
        context.extend(new)
        self._note(joined=(*self._present.joined, *(message.id for message in new)))

    async def _acknowledge(self) -> None:
        """Have the store forget what was sent to this turn and is stored."""
        mail = self._held.mail
        if mail is not None and mail.waits and self._log.is_saved:
            await mail.acknowledge(set(ids_of(self._log.state.context)))

    async def _close(self, failed: str) -> None:
        """Store what there is, and leave no call without a result."""
        await self._end(await self._acting.stop(), failed=failed, partial=failed == "cancelled")

    async def _end(self, ended: Sequence[Ended], *, failed: str | None = None, partial: bool) -> None:
        """Store the end of a turn; after an interrupt, with the messages that came with it."""
        sent: list[Message] = []
        try:
            self._settle(ended, partial=partial)
            sent = [] if failed else await self._join_all()
            await self._log.commit(self._closed(failed), usage=self._uncounted(), at_boundary=True)
        except ValueError as error:
            if isinstance(error, ConfigurationError):
                # The store takes no writes.
                raise
            # The model has sent, or a tool has put into the state, what cannot be stored.
            _log.warning("the last change of a turn of session %r is left out: %s", self._log.state.session_id, error)
            self._log.take_back()
            if isinstance(error, MessageTooLarge):
                context, ended = self._log.state.context, ()
                context[:] = [message for message in context if message.id != error.message_id]
            self._settle(ended, partial=False)
            sent = sent or ([] if failed else await self._join_all())
            await self._log.commit(self._closed(failed), at_boundary=True)
        await self._acknowledge()
        await self._log.project()

    async def _fail(self, error: BaseException, failed: str) -> None:
        if self._is_stored:
            return
        try:
            if self._is_final and not isinstance(error, ValueError):
                await self._conclude()
            else:
                await self._close(failed)
        except Exception as second:  # noqa: BLE001  (reported beside the first, which is raised)
            error.add_note(f"and the turn could not be stored: {type(second).__name__}: {second}")
            if not isinstance(error, Exception):
                # Nobody reads the notes of a cancellation.
                _log.warning(
                    "a cancelled turn of session %r could not be stored: %s", self._log.state.session_id, second
                )

    async def _abandon(self) -> None:
        """Stop what runs; nothing more may be stored."""
        await self._acting.stop()

    def _settle(self, ended: Sequence[Ended], *, partial: bool) -> None:
        """Put into the conversation what has come of this step, and a result for every call without one."""
        context = self._log.state.context
        if partial and self._reply is not None and (said := self._reply.partial(name=self._setup.name)) is not None:
            context.append(rename_repeated(said))
        outcomes = {call.id: outcome for call, outcome in ended}
        context.extend(self._closing(call, outcomes.get(call.id)) for call in open_calls(context))

    def _closing(self, call: Call, outcome: Outcome | None) -> Message:
        if outcome is not None:
            return result_message(call, outcome)
        if call.id in self._acting.begun:
            return interrupted_result(self._log.leaf_id, call.message.id, call, text=_CUT_OFF_CALL)
        closing = unknown_result if self._in_doubt else interrupted_result
        return closing(self._log.leaf_id, call.message.id, call)

    # What is noted of the turn.

    def _note(self, **changes: Any) -> TurnNote:
        self._present = replace(self._present, **changes)
        return self._present

    def _closed(self, failed: str | None = None) -> TurnNote:
        """Return the note of a turn that has ended."""
        return self._note(open=None, failed=failed)

    def _look(self) -> None:
        """Stop here if the turn was asked to."""
        if self._control.stop is not None:
            raise TurnStopped

    async def _look_once_more(self) -> None:
        """Stop before the final commit if the turn was interrupted; for a shutdown, it has come to its end."""
        lease, mail = self._held.lease, self._held.mail
        if lease is not None and lease.has_texts and mail is not None:
            await mail.read()
        if self._control.stop == "interrupt":
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
    return None if used is None else Usage(used.input_tokens, used.output_tokens, used.cost or 0.0, usage_id=reply.id)


def _too_large(call: Call, error: MessageTooLarge) -> Message:
    text = f"the result has {error.size:,} bytes, and {error.limit:,} can be stored: ask for less of it."
    return result_message(call, failed(text))
