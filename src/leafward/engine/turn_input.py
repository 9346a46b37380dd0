"""The input of a call: what it means where the conversation stands, and what is stored of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leafward.core.calls import Call, Result, is_question, pair
from leafward.core.ids import new_id
from leafward.core.message import Dumpable, Message, as_message, body_to_read, has_made_id, ids_of, own_copy, user
from leafward.engine.call_checks import waits_for_user
from leafward.engine.call_results import Fate, closing_result, fate_of, result_again
from leafward.engine.events import AgentEvent
from leafward.engine.known_input import match_input, reply_of
from leafward.engine.questions import is_asked, is_expired, read_answers
from leafward.engine.recovery import open_calls
from leafward.engine.reply_reason import with_reason
from leafward.engine.step_log import StepLog
from leafward.engine.summary_messages import summary_text
from leafward.engine.taken_answers import take_answers
from leafward.engine.taken_events import taken_events
from leafward.engine.turn_control import TurnControl
from leafward.engine.turn_note import Openness, TurnNote
from leafward.tools.definition import Tool
from leafward.tools.toolkit import Toolkit

Input = str | Message | Mapping[str, Any] | Dumpable | Sequence[str | Message | Mapping[str, Any] | Dumpable] | None
"""What an agent is called with; `None` goes on with an open turn."""


def read_input(given: Input) -> list[Message]:
    """Return the messages of an input.

    Raises:
        ValueError: one has the role `system`, or two have one id.
    """
    if given is None:
        return []
    items = list(given) if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else [given]
    if not items:
        raise ValueError("the input is an empty list: send a message, or None to go on with an open turn")
    messages = [user(item) if isinstance(item, str) else as_message(item) for item in items]
    for message in messages:
        if message.role == "system":
            raise ValueError("the input has the role 'system': set the agent's system_prompt, or send it as the user's")
    ids = [message.id for message in messages]
    if len(set(ids)) != len(ids):
        raise ValueError("two messages of the input have one id: send each once")
    return messages


def read_sent(message: Any) -> Message:
    """Return the message that is sent to a running turn.

    Raises:
        ValueError: it is not one message of the user's.
    """
    messages = read_input(message)
    if len(messages) != 1 or messages[0].role != "user":
        raise ValueError("one message of the user's is sent to a running turn: send several one after the other")
    return messages[0]


@dataclass(frozen=True, slots=True)
class TakenInput:
    """What a call does about its input, which the context has if it is new."""

    note: TurnNote
    """The turn that goes on, or begins."""
    is_new: bool = False
    """Whether something of it is to be stored."""
    events: Sequence[AgentEvent] = ()
    """What is shown once it is stored."""
    has_answers: bool = False
    """Whether the user has answered questions with it."""


async def take_input(
    given: Sequence[Message],
    log: StepLog,
    control: TurnControl,
    *,
    tools: Toolkit,
    state_name: str,
    ask_timeout: float | None = None,
) -> TakenInput | Message | None:
    """Put into the context what is new of an input, after results for the calls that it leaves behind.

    Return the stored reply for input that has one; `None` if its turn has ended without a reply.

    Raises:
        ValueError: the input cannot be answered here; the text says what to do.
    """
    waiting, above = open_calls(log.state.context), len(log.state.context)
    taken = await _take(given, log, control, tools=tools, state_name=state_name, ask_timeout=ask_timeout)
    if not isinstance(taken, TakenInput):
        return taken
    shown = taken_events(taken.events, waiting, log.state.context[above:], sent=given, earlier=control.earlier)
    return replace(taken, events=shown)


async def _take(
    given: Sequence[Message],
    log: StepLog,
    control: TurnControl,
    *,
    tools: Toolkit,
    state_name: str,
    ask_timeout: float | None,
) -> TakenInput | Message | None:
    context, note, earlier = log.state.context, log.note, control.earlier

    def noted(open: Openness, input: Sequence[Message] = ()) -> TurnNote:
        return TurnNote(new_id(), open, tuple(ids_of(input)), state_name=state_name)

    if log.state.shutdown_interrupted and not (note and note.may_go_on):
        # Another writer, such as AgentScope, has paused a turn of its own.
        questions = [message for message in context if is_question(message)]
        note = noted("paused", questions[-max(1, len(given)) :])
    log.state.shutdown_interrupted = False
    offered = tools.offered(log.state.tool_context.activated_groups)
    if answers := read_answers(given):
        events = take_answers(answers, log, offered, ask_timeout)
        if events is not None:
            control.steering[:0] = earlier
            return TakenInput(note or noted("asking"), is_new=True, events=events, has_answers=True)
        if note is not None and not note.may_go_on:
            # It was answered before, and the turn has ended since.
            return reply_of(note, await log.path_with(note.input))
        given = ()
    waiting = open_calls(context)
    given = _results_as_stored(given, context, waiting)
    here = set(ids_of(context))
    new = [message for message in given if message.id not in here and not log.known.get(message.id)]
    if answered := _results_for(waiting, new):
        left = [call for call in waiting if call.id not in answered]
        # Answers may come in parts, also where another branch has been answered.
        await _give_again(left, log, asked={call.id for call in left if waits_for_user(call, offered)})
        context.extend(map(own_copy, new))
        control.steering[:0] = earlier
        return TakenInput(note or noted("asking"), is_new=True)
    inside = note is not None and note.may_go_on and await log.is_inside()
    elsewhere = [one for one, on_path in log.known.items() if not on_path]
    path = await log.path_with(ids_of(given))
    found = match_input(given, path, note, elsewhere=elsewhere, checked_out=inside)
    if found.action == "answer":
        return await _stored_reply(given[-1].id, found.reply, path, log)
    goes_on = found.action == "resume" and note is not None and note.may_go_on and not found.not_answered
    if not goes_on:
        _check_whole(found.input)
    answered = found.input or _answered_by(context, note)
    given_again = await _give_again(waiting, log)
    closed = [call for call in waiting if call.id not in given_again and not goes_on]
    expired = [call for call in waiting if is_asked(call) and is_expired(call, ask_timeout)]
    for call in closed if not goes_on else expired:
        fate = "elsewhere" if found.not_answered else _fate_when_left(call, log.note, offered)
        context.append(closing_result(log.leaf_id, call, "expired" if call in expired else fate))
    if goes_on and note is not None:
        control.steering[:0] = earlier
        return TakenInput(note, is_new=bool(given_again or expired))
    # The caller still has the input, and may change it while this turn or a later one runs.
    context.extend((*earlier, *map(own_copy, found.input)))
    return TakenInput(noted("running", answered), is_new=True)


async def _stored_reply(
    message_id: str, reply: Message | None, path: Sequence[Message], log: StepLog
) -> Message | None:
    """Return the reply of the turn of a message; `reply` is the one that it seems to have, where no note says more."""
    note = log.note
    if note is None or message_id not in (*note.input, *note.joined):
        note = await _ended_turn(message_id, path, log)
        reply = reply if note is None else reply_of(note, path)
    is_cut_off = note is not None and note.interrupted
    return with_reason(reply, "INTERRUPTED") if reply is not None and is_cut_off else reply


async def _ended_turn(message_id: str, path: Sequence[Message], log: StepLog) -> TurnNote | None:
    """Return the last note of the earlier turn of a message; `None` if it has none, or has not ended by itself."""
    note = await log.note_at(message_id)
    if note is None or message_id not in (*note.input, *note.joined):
        return None
    # The messages of a turn stand together.
    ids = ids_of(path)
    last, end = ids.index(message_id), len(ids)
    while end - last > 1:
        middle = (last + end) // 2
        found = await log.note_at(ids[middle])
        if found is not None and found.id == note.id:
            last, note = middle, found
        else:
            end = middle
    return None if note.may_go_on else note


async def _give_again(calls: Sequence[Call], log: StepLog, *, asked: Collection[str] = ()) -> set[str]:
    """Put results that are stored, but not shown, into the context, and return the ids of their calls.

    What only other branches have answered is not answered here, and calls that are `asked` wait for their results.
    """
    stored = await log.stored_results(calls) if calls else {}
    found = {call_id: result for call_id, result in stored.items() if result is not None or call_id not in asked}
    for call in calls:
        if call.id in found:
            result = found[call.id]
            log.state.context.append(
                closing_result(log.leaf_id, call, "elsewhere")
                if result is None
                else result_again(log.leaf_id, call, result)
            )
    return set(found)


def _answered_by(context: Sequence[Message], note: TurnNote | None) -> list[Message]:
    """Return what a turn answers that has no input of its own: that of the turn which it goes on from, if it does."""
    own = note.input if note is not None and note.may_go_on else ()
    questions = [row for row, one in enumerate(context) if is_question(one) and summary_text(one) is None]
    below = max((row for row, one in enumerate(context) if one.role == "assistant"), default=-1)
    rows = (
        [row for row in questions if context[row].id in own]
        or [row for row in questions if row > below]
        or questions[-1:]
    )
    return [context[row] for row in rows]


def _fate_when_left(call: Call, note: TurnNote | None, tools: Mapping[str, Tool]) -> Fate:
    """Return what became of a call that other input leaves behind."""
    if is_asked(call):
        return "declined"
    if note is None:
        # A copy of a session has no note: its calls may have results in the original.
        return "elsewhere"
    return fate_of(in_doubt=note.open == "running", is_external=waits_for_user(call, tools))


def _results_as_stored(given: Sequence[Message], context: Sequence[Message], open: Sequence[Call]) -> list[Message]:
    """Return an input in which results that were sent before, without an id of their own, are the stored ones."""
    waiting = {call.id for call in open}
    return [_stored(message, context, waiting) if has_made_id(message) else message for message in given]


def _stored(message: Message, context: Sequence[Message], waiting: set[str]) -> Message:
    answered = {item.call_id for item in pair([message]).items[0] if isinstance(item, Result)}
    # A model may use the id of an earlier call again: then the same words are another result.
    if not answered or answered & waiting:
        return message
    said = (message.role, body_to_read(message)["parts"])
    same = (one for one in reversed(context) if (one.role, body_to_read(one)["parts"]) == said)
    return next(same, message)


def _check_whole(input: Sequence[Message]) -> None:
    """Refuse input that holds calls without results, which nothing here has asked for.

    Raises:
        ValueError: it does.
    """
    pairs = pair(input)
    calls = [item for row in pairs.items for item in row if isinstance(item, Call) and pairs.is_unanswered(item)]
    if calls:
        raise ValueError(f"the input holds a call without a result, {calls[0].id!r}: send the result with it")


def _results_for(open: Sequence[Call], messages: Sequence[Message]) -> set[str]:
    """Return the ids of the calls that wait for results and get them from the input.

    Raises:
        ValueError: it holds a result for a call that does not wait, or two for one call, or words beside results while
            other calls still wait.
    """
    pairs = pair(messages)
    results = sorted(pairs.orphans, key=pairs.places.__getitem__)
    answered = [result.call_id for result in results]
    if not answered:
        return set()
    waiting = {call.id for call in open}
    strange = [call_id for call_id in answered if call_id not in waiting]
    if strange:
        known = ", ".join(sorted(waiting)) or "none"
        raise ValueError(f"no call {strange[0]!r} waits for a result; those that wait: {known}")
    if len(set(answered)) != len(answered):
        raise ValueError("the input holds two results for one call: send one")
    left = waiting - {result.call_id for result in results if result.final}
    if left and any(not isinstance(item, Result) for row in pairs.items for item in row):
        raise ValueError(
            f"the input holds words beside results, and calls still wait: {', '.join(sorted(left))}. "
            "Send their results with it, or the words later"
        )
    return set(answered)
