"""One turn: reason, act, and store each step before the next one begins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from copy import deepcopy
from dataclasses import dataclass, replace

from leafward.core.calls import Call
from leafward.core.errors import AgentShuttingDown, ConfigurationError
from leafward.core.message import Message, message_copy, own_copy
from leafward.engine.agent_compaction import AgentCompaction
from leafward.engine.agent_store import Place
from leafward.engine.budget import Budget
from leafward.engine.call_checks import judge_calls, refused_again, waits_for_user
from leafward.engine.call_layers import CallLayers
from leafward.engine.call_results import closing_result, result_events, result_of
from leafward.engine.context_keeper import ContextKeeper, SessionOfTurn
from leafward.engine.events import AgentEvent, input_event
from leafward.engine.model_call import ModelCall, OpenStream
from leafward.engine.model_requests import ModelRequests
from leafward.engine.models.call_ids import with_own_ids
from leafward.engine.models.model import ChatModel, ModelRequest
from leafward.engine.models.model_error import ModelError
from leafward.engine.models.reply import Reply
from leafward.engine.plan_mode import PlanMode
from leafward.engine.questions import ALLOWED, ASKING, is_asked, with_states, without_verdicts
from leafward.engine.recovery import open_calls, plan_calls
from leafward.engine.reply_reason import REASON, with_reason
from leafward.engine.running_calls import RunningCalls
from leafward.engine.step_log import StepLog
from leafward.engine.turn_control import TurnStopped
from leafward.engine.turn_end import TurnEnd
from leafward.engine.turn_input import TakenInput
from leafward.engine.turn_queue import Held, enter_tool
from leafward.engine.turn_record import CallResult, TurnRecord
from leafward.tools.runner import Outcome
from leafward.tools.runtime_context import RuntimeContext
from leafward.tools.toolkit import Toolkit

Part = AsyncGenerator[AgentEvent | OpenStream]
"""A part of a turn's stream, which is read to its end before the next step is taken."""

_EMPTY = "Your reply was empty. Answer the user, or call a tool."
_SUM_UP = "You have used all your steps. Call no more tools: say what is done and what is left."


@dataclass(frozen=True, slots=True)
class TurnSetup:
    """What an agent is made of, as far as a turn needs it."""

    name: str
    model: ChatModel
    requests: ModelRequests
    tools: Toolkit
    max_iterations: int
    retries: int
    budget: Budget | None = None
    plan: PlanMode | None = None
    compaction: AgentCompaction | None = None
    session: SessionOfTurn | None = None
    """The session, where its prompt and its tools are those of the turn."""


class Turn:
    """A turn of one session, which it has for itself until it ends."""

    def __init__(
        self,
        setup: TurnSetup,
        log: StepLog,
        taken: TakenInput,
        place: Place,
        held: Held,
        ctx: RuntimeContext,
        layers: CallLayers,
    ) -> None:
        self._setup = setup
        self._ctx = ctx
        self._taken = taken
        self._held = held
        self._control = held.control
        self._layers = layers
        self._record = TurnRecord(log, taken.note, held, setup.budget)
        self._calls = RunningCalls(
            setup.tools,
            ctx,
            held.lease,
            control=held.control,
            enter=lambda: enter_tool(place, held),
            layers=layers,
        )
        self._end = held.control.turn = TurnEnd(self._record, self._calls, held.control, setup.name, layers)
        compaction = setup.compaction
        if compaction is not None:
            compaction = replace(compaction, model=layers.model(compaction.model))
        self._keeper = ContextKeeper(
            compaction, setup.session, setup.requests, self._record, held.control, ctx, self._calls.offered
        )
        self._end.has_input = not taken.is_new

    async def events(self) -> AsyncGenerator[AgentEvent | OpenStream]:
        """Store the input, if it is new, and run the turn; the last event brings its reply.

        The reader reads a model's stream itself.

        Raises:
            AgentShuttingDown: the turn is paused, and can be resumed by another process.
            LeaseLost: another process has the session; nothing more was stored.
        """
        end = self._end
        try:
            async with aclosing(self._parts()) as parts:
                async for part in parts:
                    async with aclosing(part):
                        async for event in part:
                            try:
                                yield event
                            except GeneratorExit:
                                # Before anything else is closed, which the garbage collector does in any order.
                                await end.cancel()
                                raise
                            if end.was_stopped:
                                # It was ended while the stream was not read on.
                                raise TurnStopped
        except TurnStopped:
            await end.stop()
        except asyncio.CancelledError:
            await end.cancel()
            raise
        except Exception as error:
            await end.fail(error)
            raise
        if end.result is None:
            raise AgentShuttingDown(self._setup.name)
        for event in end.events:
            yield event
        # The state may be kept for the next call, and the reply is the caller's.
        yield AgentEvent("AGENT_RESULT", end.result.id, message=own_copy(end.result), committed=True)

    # One step after the other.

    async def _parts(self) -> AsyncGenerator[Part]:
        """Take the steps of the turn, and yield the parts of its stream, each of which is read to its end."""
        for stage in (self._take_up, self._reason):
            async with aclosing(stage()) as parts:
                async for part in parts:
                    yield part
            if self._end.result is not None:
                return

    async def _take_up(self) -> AsyncGenerator[Part]:
        """Store the input, and go on with what an earlier process, or a question, has left open."""
        if not self._end.has_input:
            await self._record.store()
            self._end.has_input = True
            await self._record.acknowledge()
        for event in self._taken.events:
            yield _single(event)
        self._look()
        if left := open_calls(self._record.context):
            async with aclosing(self._go_on(left)) as parts:
                async for part in parts:
                    yield part

    async def _reason(self) -> AsyncGenerator[Part]:
        """Ask the model and do what it calls for, until it has answered or its steps are used up."""
        self._record.in_doubt = False
        if self._control.steering:
            yield self._joined(await self._steer())
        reminder: str | None = None
        is_paused = False
        for _ in range(self._setup.max_iterations):
            self._look()
            await self._record.check_budget()
            yield self._asked(reminder, is_paused=is_paused)
            reply = self._answer()
            if reply.is_empty:
                reminder = _EMPTY
                await self._count(reply)
                continue
            reminder, is_paused = None, reply.stop_reason == "paused"
            message = await self._take(reply)
            if open_calls(self._record.context):
                async with aclosing(self._act(message)) as parts:
                    async for part in parts:
                        yield part
            elif is_paused:
                await self._record.store(open="running")
            else:
                await self._look_once_more()
                if not self._control.steering:
                    await self._layers.replies(message)
                    await self._look_once_more()
                if not self._control.steering:
                    await self._end.finish(message)
            if self._end.result is not None:
                return
            if self._control.steering:
                yield self._joined(await self._steer())
        yield _single(AgentEvent("EXCEED_MAX_ITERS"))
        self._look()
        await self._record.check_budget()
        yield self._asked(_SUM_UP, tools=False)
        said, results = await self._sum_up(self._answer())
        yield self._shown(said, results)

    async def _go_on(self, left: Sequence[Call]) -> AsyncGenerator[Part]:
        """Go on with the calls that an earlier process, or a question, has left without results."""
        reply = left[0].message
        if any(map(is_asked, left)):
            # The user is to answer first, and none of them has begun.
            yield self._questions(reply, left)
            return
        denied: list[CallResult] = []
        if not self._record.in_doubt:
            # Rules may have changed meanwhile, and another writer may have left calls that were never judged.
            reply, denied = await self._judge(reply, self._not_out(left))
            named = {call.id for call, _ in denied}
            left = [call for call in open_calls(self._record.context) if call.id not in named]
            if any(map(is_asked, left)):
                yield self._questions(reply, left, denied)
                return
        yield self._shown(reply, await self._begin_again(left, denied))
        yield self._results(reply)
        if external := self._external(open_calls(self._record.context)):
            yield self._suspended(reply, external)

    async def _act(self, reply: Message) -> AsyncGenerator[Part]:
        """Do what a new reply calls for, once that is stored; a question, or an external tool, leaves the turn open."""
        reply, denied = await self._judge(reply, open_calls([reply]))
        named = {call.id for call, _ in denied}
        calls = [call for call in open_calls([reply]) if call.id not in named]
        if any(map(is_asked, calls)):
            yield self._questions(reply, calls, denied)
            return
        yield self._shown(reply, await self._record.store(denied, open="running"), is_all_denied=not calls)
        self._look()
        external = self._external(calls)
        self._calls.start([call for call in calls if call not in external])
        yield self._results(reply)
        if external:
            yield self._suspended(reply, external)

    async def _asked(self, reminder: str | None, *, tools: bool = True, is_paused: bool = False) -> Part:
        """Ask the model; `_answer` is what it sends. A conversation that is too long is made shorter first."""
        shown = await self._keeper.before_request()
        while True:
            for event in shown:
                yield event
            if reminder is not None:
                yield AgentEvent("HINT_BLOCK", text=reminder)
            offered = self._calls.offered() if tools else {}
            prompt = await self._keeper.prompt()
            request = self._setup.requests.make(
                self._record.context, self._ctx, prompt=prompt, tools=offered, reminder=reminder, is_paused=is_paused
            )
            try:
                async with aclosing(self._layers.reasoning(request, self._ask, is_summary=not tools)) as events:
                    async for event in events:
                        if (
                            isinstance(event, AgentEvent)
                            and event.message is not None
                            and event.type == "MODEL_CALL_END"
                        ):
                            # A middleware has answered, whose wait is over.
                            self._control.end_wait()
                            for discarded in await self._discarded():
                                yield discarded
                            asked = self._record.asked = self._model_call(request)
                            event = asked.answer(event.message, name=self._setup.name, stop_reason=event.stop_reason)
                        yield event
                return
            except ModelError as error:
                shown = await self._keeper.cure(error)
                self._record.asked = None

    async def _ask(self, request: ModelRequest) -> Part:
        """Ask the model; again, if a middleware wishes, and then nothing is kept of the first reply."""
        if self._record.asked is not None:
            for event in await self._discarded():
                yield event
            await self._record.check_budget()
        self._record.asked = self._model_call(request)
        async with aclosing(self._record.asked.events()) as events:
            async for event in events:
                yield event

    async def _discarded(self) -> Sequence[AgentEvent]:
        """Keep nothing of what was answered in this round so far, count it, and return what shows that."""
        if (earlier := self._record.asked) is None:
            return ()
        if earlier.has_ended:
            self._record.check_usage(earlier.reply)
        await self._count(earlier.reply)
        return earlier.discard()

    def _model_call(self, request: ModelRequest) -> ModelCall:
        return ModelCall(self._layers.model(self._setup.model), request, self._control, retries=self._setup.retries)

    def _answer(self) -> Reply:
        """Return the whole reply of the model.

        Raises:
            ConfigurationError: there is a budget, and the model has not said what it used; or a middleware has left
                out the reply.
        """
        asked = self._record.asked
        if asked is None or not asked.has_ended:
            raise ConfigurationError(
                "no whole reply came out of on_reasoning: pass on the events of call_next(request) to their end, or "
                'yield AgentEvent("MODEL_CALL_END", message=reply) in their place'
            )
        reply = asked.reply
        self._record.check_usage(reply)
        return reply

    async def _take(self, reply: Reply, *, is_summary: bool = False, **metadata: str) -> Message:
        """Put the model's reply into the conversation."""
        message = reply.message(name=self._setup.name, metadata=metadata or None)
        changed = await self._layers.replied(message, is_summary=is_summary)
        if changed is not message:
            # Hooks may have added calls.
            changed = with_own_ids(changed)
        # One that a middleware has kept, or a model has made up, may say that its calls were allowed.
        changed = without_verdicts(changed)
        self._record.take(reply, changed)
        return changed

    async def _count(self, reply: Reply) -> None:
        """Count what a reply used of which nothing is stored."""
        self._record.take(reply, None)
        await self._record.store(open="running")

    def _external(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls whose results the user sends."""
        offered = self._calls.offered()
        return [call for call in calls if waits_for_user(call, offered)]

    async def _judge(self, reply: Message, calls: Sequence[Call]) -> tuple[Message, list[CallResult]]:
        """Return the reply with what is done with its calls, which is now in the context, and results for denied ones.

        Nothing of it is stored yet.
        """
        self._record.take_changes()
        # A shutdown waits: what is stored without a verdict would run where the turn goes on.
        async with self._control.interruptible():
            verdicts = await judge_calls(calls, self._calls.offered(), self._ctx, self._setup.plan)
        if any(verdict.decision == "ask" for _, verdict in verdicts):
            states = {
                call.id: ASKING if verdict.decision == "ask" else ALLOWED
                for call, verdict in verdicts
                if verdict.decision != "deny"
            }
            marked, context = with_states(reply, states), self._record.context
            context[:] = [marked if message.id == reply.id else message for message in context]
            reply = marked
        leaf_id = self._record.log.leaf_id
        return reply, [
            (call, closing_result(leaf_id, call, "denied", verdict.reason))
            for call, verdict in verdicts
            if verdict.decision == "deny"
        ]

    async def _shown(
        self, reply: Message, results: Sequence[CallResult], *, is_all_denied: bool = False
    ) -> AsyncGenerator[AgentEvent]:
        """Show results of calls that were not run, which are stored."""
        for call, message in results:
            for event in result_events(reply.id, call, message):
                yield event
        if results and is_all_denied:
            yield AgentEvent("ALL_TOOLS_DENIED", reply.id)

    async def _questions(
        self, reply: Message, calls: Sequence[Call], denied: Sequence[CallResult] = ()
    ) -> AsyncGenerator[AgentEvent]:
        """Leave the turn open until the user has answered, and ask."""
        # Also a turn that ends before it asks does not run them.
        self._record.context.extend(message for _, message in denied)
        await self._layers.replies(with_reason(reply, "PERMISSION_ASKING"))
        self._look()
        await self._end.wait_for_user(reply, "PERMISSION_ASKING", denied)
        async with aclosing(self._shown(reply, denied)) as events:
            async for event in events:
                yield event
        asked = [deepcopy(call.part) for call in calls if is_asked(call)]
        yield AgentEvent("REQUIRE_USER_CONFIRM", reply.id, message=message_copy(reply), data=asked, committed=True)

    async def _results(self, reply: Message) -> AsyncGenerator[AgentEvent]:
        """Store each result as its tool ends; those that ended meanwhile go together."""
        while self._calls.running:
            ended = await self._calls.next_results(self._control.on_exposed)
            for event in self._control.take_exposed():
                yield event
            if not ended:
                continue
            results = [(call, self._result(call, outcome)) for call, outcome in ended]
            for call, message in await self._record.store(results, open="running"):
                for event in result_events(reply.id, call, message):
                    yield event

    def _result(self, call: Call, outcome: Outcome | None) -> Message:
        # A call whose probe failed may have run in a process that was lost.
        return (
            closing_result(self._record.log.leaf_id, call, "unknown") if outcome is None else result_of(call, outcome)
        )

    def _not_out(self, calls: Sequence[Call]) -> list[Call]:
        """Return calls without those of external tools that are out: they get the results of what was done."""
        is_out = self._record.note.open == "asking" and not self._taken.has_answers
        return [call for call in calls if not (is_out and call in self._external(calls))]

    async def _begin_again(self, calls: Sequence[Call], denied: Sequence[CallResult]) -> Sequence[CallResult]:
        """Go on with the calls that an earlier process left without results; return those of which none is known.

        Nothing is done with those that are `denied`, whose results are stored.
        """
        record, external = self._record, self._external(calls)
        plans = plan_calls(
            [call for call in calls if call not in external],
            self._setup.tools,
            begun=record.in_doubt,
            attempts=record.note.attempts,
        )
        record.take_changes()
        refused = dict(refused_again(self._not_out(calls), self._calls.offered(), self._ctx, self._setup.plan))
        unknown = {plan.call for plan in plans if plan.action == "unknown"}
        # It may have taken effect before it was denied.
        unknown |= {plan.call for plan in plans if plan.action != "run" and plan.call in refused}
        leaf_id = record.log.leaf_id
        closed = [
            *denied,
            *(
                (
                    call,
                    self._result(call, None)
                    if call in unknown
                    else closing_result(leaf_id, call, "denied", refused[call]),
                )
                for call in calls
                if call in refused or call in unknown
            ),
        ]
        plans = [plan for plan in plans if plan.call not in unknown and plan.call not in refused]
        attempts = {**record.note.attempts, **{plan.key: plan.attempts for plan in plans if plan.attempts}}
        # Before anything runs again: a process that dies here has counted it.
        stored = await record.store(closed, open="running", attempts=attempts)
        self._look()
        record.in_doubt = False
        self._calls.start([plan.call for plan in plans if plan.action != "probe"])
        self._calls.start([plan.call for plan in plans if plan.action == "probe"], probed=True)
        return stored

    async def _suspended(self, reply: Message, calls: Sequence[Call]) -> AsyncGenerator[AgentEvent]:
        """Leave the turn open until the results of external tools are sent, and ask for them."""
        await self._layers.replies(with_reason(reply, "TOOL_SUSPENDED"))
        self._look()
        await self._end.wait_for_user(reply, "TOOL_SUSPENDED")
        # What a reader does with them changes nothing of the conversation.
        asked = [deepcopy(call.part) for call in calls]
        message = message_copy(reply)
        yield AgentEvent("REQUIRE_EXTERNAL_EXECUTION", reply.id, message=message, data=asked, committed=True)

    async def _sum_up(self, reply: Reply) -> tuple[Message, list[CallResult]]:
        """Have as the last reply what the model says of how far it came; return it, with results for its calls."""
        if reply.is_empty:
            said = Message("assistant", [], name=self._setup.name, metadata={REASON: "MAX_ITERATIONS"})
            self._record.take(reply, None)
            calls: list[Call] = []
        else:
            said = await self._take(reply, is_summary=True, **{REASON: "MAX_ITERATIONS"})
            calls = open_calls(self._record.context)
        await self._layers.replies(said)
        # A message that joins now could not be answered: the store keeps it for the next turn.
        await self._look_once_more()
        leaf_id = self._record.log.leaf_id
        results = [(call, closing_result(leaf_id, call, "no steps")) for call in calls]
        await self._end.finish(said, results)
        return said, results

    async def _steer(self) -> list[Message]:
        """Store the messages that joined, below what came before, and return those that are new."""
        steering, self._control.steering = self._control.steering, []
        joined = await self._record.unjoined(steering)
        await self._record.store((), joined, open="running")
        await self._record.acknowledge()
        return joined

    async def _joined(self, messages: Sequence[Message]) -> AsyncGenerator[AgentEvent]:
        for message in messages:
            yield input_event(message)

    # Where it is asked to stop.

    def _look(self) -> None:
        """Stop here if the turn was asked to."""
        self._control.heed_tools()
        if self._control.stop is not None:
            raise TurnStopped

    async def _look_once_more(self) -> None:
        """Stop before the final commit if the turn was interrupted; for a shutdown, it has come to its end."""
        lease, mail = self._held.lease, self._held.mail
        if lease is not None and lease.has_texts and mail is not None:
            await mail.read()
        self._control.heed_tools()
        if self._control.stop == "interrupt":
            raise TurnStopped


async def _single(event: AgentEvent) -> AsyncGenerator[AgentEvent]:
    yield event
