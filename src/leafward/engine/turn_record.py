"""What is stored of one turn: its messages, the note of it, what its replies used, and what was sent to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from leafward.core.calls import Call
from leafward.core.errors import ConfigurationError, MessageTooLarge
from leafward.core.message import Message, ids_of
from leafward.engine.budget import Budget, Spent, add
from leafward.engine.call_results import too_large_result
from leafward.engine.model_call import ModelCall
from leafward.engine.models.reply import Reply
from leafward.engine.state_changes import StateChange, make_once
from leafward.engine.step_log import StepLog
from leafward.engine.summary_messages import summary_text
from leafward.engine.turn_note import TurnNote
from leafward.engine.turn_queue import Held
from leafward.stores.contracts import Usage

CallResult = tuple[Call, Message]


class TurnRecord:
    """A turn of one session, as far as it is stored.

    Steps and ends write through `store`, which is the one way by which results are stored.
    """

    def __init__(self, log: StepLog, note: TurnNote, held: Held, budget: Budget | None = None) -> None:
        self.log = log
        self._budget = budget
        self.note = note
        self.in_doubt = note.open not in ("asking", "paused")
        """Whether calls without results may have begun in a process that was lost."""
        self.asked: ModelCall | None = None
        """What the model is asked, until its reply is in the context."""
        self._held = held
        self._made: list[StateChange] = []
        """The changes of the state that this turn has made and not stored."""
        self._changed: set[str] = set()
        """Those that it has stored, by their ids."""
        self._used: Usage | None = None
        """What replies used, until a commit counts it."""
        context = self._context = log.state.context
        self._refused: ValueError | None = None
        """What a tool has put in the place of the context, until that is raised."""
        self._first = next((row for row, one in enumerate(context) if one.id in note.input), len(context))
        """Where the messages of this turn begin in the context."""

    @property
    def context(self) -> list[Message]:
        """The conversation; what a tool has put in its place and is not a list is taken back."""
        state = self.log.state
        if isinstance(state.context, list):  # pyright: ignore[reportUnnecessaryIsInstance]
            self._context = state.context
        else:
            kind = type(state.context).__name__
            self._refused = ValueError(f"the context was set to a {kind}, which is not a list: change it in place")
            state.context = self._context
        return self._context

    @property
    def reply(self) -> Reply | None:
        """What the model has answered so far, until it is in the context."""
        return None if self.asked is None else self.asked.reply

    def take(self, reply: Reply, message: Message | None) -> None:
        """Put the model's reply into the conversation, if anything is kept of it, and count what it used."""
        if message is not None:
            self.context.append(message)
        self.asked, used = None, _usage(reply)
        if used is None:
            return
        if self._budget is not None and self._budget.per == "turn":
            # Counted with the reply, so that a process that goes on with the turn knows.
            tokens, cost = add(Spent(self.note.tokens, self.note.cost), used)
            self.note = replace(self.note, tokens=tokens, cost=cost)
        self._used = used if self._used is None else _together(self._used, used)

    async def check_budget(self) -> None:
        """Look whether the model may be asked.

        Raises:
            BudgetExceeded: nothing of the budget is left.
        """
        if (budget := self._budget) is not None:
            is_of_turn = budget.per == "turn"
            spent = Spent(self.note.tokens, self.note.cost) if is_of_turn else await self.log.spent()
            budget.check(spent, self.log.state.session_id)

    def check_usage(self, reply: Reply) -> None:
        """Refuse a reply that cannot be counted in the budget; what it says of its usage counts nevertheless.

        Raises:
            ConfigurationError: the model has not said what it used.
        """
        if self._budget is not None and not reply.is_given:
            try:
                self._budget.check_reply(reply.usage)
            except ConfigurationError:
                self.take(reply, None)
                raise

    def take_changes(self) -> None:
        """Make the changes of the state that were sent to this turn.

        Raises:
            ValueError: one cannot be made of this state; they are made with the next step.
        """
        control, mail = self._held.control, self._held.mail
        make_once(control.changes, self.log.state, [] if mail is None else mail.kept)
        self._made += control.changes
        control.changes.clear()

    def take_back(self) -> None:
        """Have everything of the state but its messages as it is stored; what was sent is made with the next step."""
        self.log.take_back()
        self._held.control.changes[:0] = self._made
        self._made.clear()

    async def store(
        self,
        results: Sequence[CallResult] = (),
        messages: Sequence[Message] = (),
        *,
        at_boundary: bool = False,
        replaced: Collection[str] = (),
        **note: Any,
    ) -> Sequence[CallResult]:
        """Store what is new, with results of calls, messages below them, and changes of the note.

        Return the results as they are stored: one that is too large says so instead. Those that do are `replaced`.

        Raises:
            MessageTooLarge: a message is larger than the store accepts, or what is said instead of a result.
            ValueError: the context was set to what is not a list; it is as before, with what is to be stored. Or a
                change that was sent cannot be made.
            Exception: as `StepLog.commit`.
        """
        self.take_changes()
        context = self.context
        before = list(context)
        context.extend(message for _, message in results)
        context.extend(messages)
        self.note = replace(self.note, **note)
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused
        used, self._used = self._used, None
        made = list(self._made)
        try:
            await self.log.commit(self.note, usage=used, at_boundary=at_boundary)
        except MessageTooLarge as error:
            fitting = [(call, _fitting(call, message, error)) for call, message in results]
            if all(new is old for (_, new), (_, old) in zip(fitting, results, strict=True)):
                raise
            # What a tool has appended meanwhile stays.
            added = {*ids_of([message for _, message in results]), *ids_of(messages)} - set(ids_of(before))
            context[:] = [message for message in context if message.id not in added]
            if error.message_id in replaced:
                raise
            replaced = {*replaced, *ids_of([message for _, message in fitting])} - added
            return await self.store(fitting, messages, at_boundary=at_boundary, replaced=replaced)
        if self.log.is_saved:
            self._changed.update(change.id for change in made)
            del self._made[: len(made)]
        return results

    async def unjoined(self, sent: Sequence[Message]) -> list[Message]:
        """Return what was sent to the turn and is neither in the conversation nor stored; the note names it."""
        here = set(ids_of(self.context)) if sent else set[str]()
        found = {message.id: message for message in sent if message.id not in here}
        new = await self.log.unknown(list(found.values())) if found else []
        self.note = replace(self.note, joined=tuple(dict.fromkeys((*self.note.joined, *ids_of(new)))))
        return new

    async def acknowledge(self) -> None:
        """Have the store forget what was sent to this turn and is stored."""
        mail = self._held.mail
        if mail is not None and mail.waits and self.log.is_saved:
            await mail.acknowledge({*ids_of(self.context), *self._changed})

    def last_reply(self, name: str) -> Message:
        """Return the last message of the assistant in this turn, or an empty one."""
        context = self.context
        # A summary may have taken the place of earlier messages, and of the input.
        shown = [row for row, one in enumerate(context) if one.id in self.note.input]
        summaries = [row for row, one in enumerate(context) if summary_text(one) is not None]
        first = shown[0] if shown else min(self._first, summaries[-1] + 1 if summaries else self._first)
        said = [message for message in context[first:] if message.role == "assistant"]
        return said[-1] if said else Message("assistant", [], name=name)


def _fitting(call: Call, message: Message, error: MessageTooLarge) -> Message:
    return too_large_result(call, error) if message.id == error.message_id else message


def _together(one: Usage, other: Usage) -> Usage:
    """Return what two replies used, which one commit counts."""
    return other._replace(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        cost=one.cost + other.cost,
    )


def _usage(reply: Reply) -> Usage | None:
    used = reply.usage
    return None if used is None else Usage(used.input_tokens, used.output_tokens, used.cost or 0.0, usage_id=reply.id)
