"""How a turn ends: with a reply, a question, an interrupt, a pause, a failure or a cancellation, and only once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from leafward.core.callables import words_of
from leafward.core.calls import Call
from leafward.core.errors import AgentShuttingDown, ConfigurationError, MessageTooLarge, SessionNotFound
from leafward.core.message import Message, ids_of
from leafward.engine.call_checks import waits_for_user
from leafward.engine.call_layers import CallLayers
from leafward.engine.call_results import closing_result, fate_of, result_events, result_of
from leafward.engine.events import AgentEvent, input_event
from leafward.engine.recovery import open_calls
from leafward.engine.reply_reason import with_reason
from leafward.engine.running_calls import Ended, RunningCalls
from leafward.engine.turn_control import TurnControl
from leafward.engine.turn_note import Openness
from leafward.engine.turn_record import CallResult, TurnRecord
from leafward.stores.finishing import to_its_end
from leafward.tools.runner import Outcome

_log = logging.getLogger("leafward.engine")


class TurnEnd:
    """The end of one turn.

    A turn runs until the first end begins, and is over when that is stored: a task of its own stores it, which a
    cancelled caller waits for. Every other end that is asked for waits for the first and does nothing.
    """

    def __init__(
        self, record: TurnRecord, calls: RunningCalls, control: TurnControl, name: str, layers: CallLayers
    ) -> None:
        self.result: Message | None = None
        """The reply of the turn; `None` while it runs, and if it ends without one."""
        self.has_input = True
        """Whether the input is stored; a failure before that leaves nothing to end."""
        self.events: list[AgentEvent] = []
        """What shows how an interrupted turn ended, once that is stored."""
        self._record = record
        self._calls = calls
        self._control = control
        self._name = name
        self._layers = layers
        self._ended: list[Ended] = []
        """Calls that have ended, or were cut off, while the turn ends."""
        self._end: Callable[[], Coroutine[Any, Any, None]] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the end of the turn is stored, or could not be."""
        return self._ending is not None and self._ending.done()

    @property
    def was_stopped(self) -> bool:
        """Whether it ended, or is ending, because it was asked to stop."""
        return self._end == self._stop

    async def _once(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if self._ending is None or self._ending.cancelled():
            # Where all tasks of a program are cancelled, the end begins again.
            self._end = self._end or end
            self._ending = asyncio.create_task(self._end(), name="leafward turn that ends")
        await to_its_end(self._ending)

    # The ends.

    async def finish(self, reply: Message, results: Sequence[CallResult] = ()) -> None:
        """Store the final reply, which is in the context, and results of its calls, which are not run."""
        await self._once(lambda: self._conclude(reply, None, results))

    async def wait_for_user(self, reply: Message, reason: str, results: Sequence[CallResult] = ()) -> None:
        """Leave the turn open until the user has answered what this reply asks; some of its calls have results."""
        await self._once(lambda: self._conclude(with_reason(reply, reason), "asking", results))

    async def stop(self) -> None:
        """End an interrupted turn, or pause it for a shutdown, where it stands."""
        await self._once(self._stop)

    async def cancel(self) -> None:
        """End the turn of a caller who is cancelled or gone."""
        with suppress(Exception):  # Of another end, which has raised it to its own caller.
            await self._once(self._cancel)

    async def fail(self, error: Exception) -> None:
        """End the turn after an error, which gets a note if that cannot be stored."""
        with suppress(Exception):
            await self._once(lambda: self._fail(error))

    # How each is stored.

    async def _conclude(self, result: Message, open: Openness | None, results: Sequence[CallResult] = ()) -> None:
        here = set(ids_of(self._record.context)) if results else set[str]()
        new = [(call, message) for call, message in results if message.id not in here]
        try:
            await self._record.store(new, at_boundary=True, open=open, failed=None)
        except ValueError as error:
            await self._fail(error)
            raise
        except Exception as error:
            if not self._is_lost(error):
                # It may be stored: done again, it stores nothing twice.
                await self._also(error, self._conclude_again())
            raise
        await self._project()
        self.result = result

    async def _conclude_again(self) -> None:
        await self._record.store(at_boundary=True)
        await self._project()

    async def _stop(self) -> None:
        self._ended += await self._calls.finish()
        if self._control.stop == "shutdown":
            await self._layers.fails(AgentShuttingDown(self._name))
            await self._store(pauses=True)
            return
        reply = self._record.reply
        said = self._said_by_now()
        await self._layers.stops(with_reason(said or self._record.last_reply(self._name), "INTERRUPTED"))
        cut_off = () if reply is None else reply.cut_off()
        results, joined = await self._store(joins=True)
        self.result = with_reason(self._record.last_reply(self._name), "INTERRUPTED")
        self.events += cut_off
        for call, message in results:
            self.events += result_events(call.message.id, call, message)
        self.events += map(input_event, joined)
        self.events.append(AgentEvent("REQUEST_STOP", self.result.id))

    async def _cancel(self) -> None:
        try:
            self._ended += await self._calls.stop()
            await self._layers.fails(asyncio.CancelledError())
            await self._store(failed="cancelled")
        except Exception as error:  # noqa: BLE001  (nobody reads the notes of a cancellation)
            session_id = self._record.log.state.session_id
            _log.warning("a cancelled turn of session %r could not be stored: %s", session_id, error)

    async def _fail(self, error: Exception) -> None:
        self._ended += await self._calls.stop()
        await self._layers.fails(error)
        if self.has_input and not self._is_lost(error):
            failed = f"{type(error).__name__}: {words_of(error)}"[:500]
            await self._also(error, self._store(failed=failed, keeps_partial=False))

    def _is_lost(self, error: Exception) -> bool:
        """Tell whether nothing more may be stored: another process has the session, or it was deleted."""
        return isinstance(error, SessionNotFound) or self._calls.is_lost(error)

    async def _also(self, error: Exception, end: Coroutine[Any, Any, object]) -> None:
        """Store an end after an error, which is raised; what goes wrong is reported beside it."""
        try:
            await end
        except Exception as second:  # noqa: BLE001
            error.add_note(f"and the turn could not be stored: {type(second).__name__}: {second}")

    async def _store(
        self, *, pauses: bool = False, joins: bool = False, failed: str | None = None, keeps_partial: bool = True
    ) -> tuple[Sequence[CallResult], Sequence[Message]]:
        """Store what there is of the turn, and return the results and messages; what the store refuses is left out."""
        record, control = self._record, self._control
        said = self._take_partial(text_only=pauses) if keeps_partial else None
        is_taken_back = False
        too_large: str | None = None
        while True:
            if said is not None:
                record.context.append(said)
            if joins:
                await self._say_why()
            results, left = self._results(pauses=pauses)
            # Between calls and their results there is no place for a message: the store keeps it for the next turn.
            sent = [*control.steering, *control.messages] if joins or (pauses and not left) else []
            open = self._paused_as(left) if pauses else None
            # AgentScope runs what is open where it finds this flag.
            record.log.state.shutdown_interrupted = pauses and open != "running"
            # What the store does not take would be refused for ever.
            joined = await record.unjoined([message for message in sent if message.id != too_large])
            try:
                stored = await record.store(
                    results, joined, at_boundary=True, open=open, failed=failed, interrupted=joins
                )
            except ValueError as error:
                too_large = error.message_id if isinstance(error, MessageTooLarge) else None
                is_all_left_out = is_taken_back and said is None and too_large not in ids_of(record.context)
                if isinstance(error, ConfigurationError) or is_all_left_out:
                    # The store takes no writes, or nothing is left that could be left out.
                    raise
                added = [*(message for _, message in results), *joined, *([] if said is None else [said])]
                self._leave_out(error, {*ids_of(added), too_large})
                if is_taken_back or (said is not None and said.id == too_large):
                    said = None
                is_taken_back = True
            else:
                await self._project()
                return stored, joined

    def _take_partial(self, *, text_only: bool) -> Message | None:
        """Return what the model has said when it was stopped."""
        reply = self._record.reply
        if reply is None:
            return None
        said = self._said_by_now(text_only=text_only) if self._control.keeps_partial or not text_only else None
        # What it has used counts, also if nothing of it is kept.
        self._record.take(reply, None)
        return said

    def _said_by_now(self, *, text_only: bool = False) -> Message | None:
        """Return what the model has said so far; nothing of it if no message can hold that."""
        reply = self._record.reply
        if reply is None:
            return None
        try:
            return reply.said(name=self._name) if text_only else reply.partial(name=self._name)
        except ValueError as error:
            session_id = self._record.log.state.session_id
            _log.warning("what the model has said in session %r is left out: %s", session_id, error)
            return None

    async def _say_why(self) -> None:
        """Have the last reply say that it was interrupted, unless it is stored; then the note says so."""
        last = self._record.context[-1:]
        if last and last[0].role == "assistant" and await self._record.log.unknown(last):
            context = self._record.context
            context[:] = [with_reason(one, "INTERRUPTED") if one is last[0] else one for one in context]

    def _results(self, *, pauses: bool) -> tuple[list[CallResult], list[Call]]:
        """Return results for open calls, and those that stay open: in a pause, what has not begun or is paused too."""
        calls = open_calls(self._record.context)
        left = [call for call in calls if pauses and (not self._calls.has_begun(call) or self._calls.is_paused(call))]
        outcomes = {call.id: outcome for call, outcome in self._ended}
        return [(call, self._result(call, outcomes.get(call.id), pauses)) for call in calls if call not in left], left

    def _result(self, call: Call, outcome: Outcome | None, is_paused: bool) -> Message:
        if outcome is not None:
            return result_of(call, outcome)
        fate = fate_of(
            has_begun=self._calls.has_begun(call),
            in_doubt=self._record.in_doubt,
            is_external=waits_for_user(call, self._calls.offered()),
            is_paused=is_paused,
        )
        return closing_result(self._record.log.leaf_id, call, fate)

    def _paused_as(self, left: Sequence[Call]) -> Openness:
        """Return what the note says of a paused turn, so that its open calls are treated as they must be."""
        offered = self._calls.offered()
        if left and all(waits_for_user(call, offered) for call in left):
            return "asking"
        in_doubt = self._record.in_doubt or any(map(self._calls.is_paused, left))
        return "running" if left and in_doubt else "paused"

    def _leave_out(self, error: ValueError, ids: set[str | None]) -> None:
        """Take back what the model or a tool has put into the state and cannot be stored, and some messages."""
        log, context = self._record.log, self._record.context
        _log.warning("the last change of a turn of session %r is left out: %s", log.state.session_id, error)
        self._record.take_back()
        context[:] = [message for message in context if message.id not in ids]

    async def _project(self) -> None:
        await self._record.acknowledge()
        await self._record.log.project()
