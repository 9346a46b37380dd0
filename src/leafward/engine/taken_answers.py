"""Answers to questions, taken into the conversation that asked them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from leafward.core.calls import Call
from leafward.engine.call_results import closing_result
from leafward.engine.events import AgentEvent
from leafward.engine.permissions import accepted, add_rule
from leafward.engine.questions import Answer, check_answer, is_asked, is_expired, is_repeat, was_answered, with_answers
from leafward.engine.recovery import open_calls
from leafward.engine.step_log import StepLog
from leafward.tools.definition import Tool
from leafward.tools.runner import mistake_in


def take_answers(
    answers: Sequence[Answer], log: StepLog, tools: Mapping[str, Tool], ask_timeout: float | None
) -> list[AgentEvent] | None:
    """Let the confirmed calls run, decline the others, and keep the rules; return the events that say so.

    `None` means that all of it was answered before.

    Raises:
        ValueError: an answer is for a call that is not asked about, or does not fit it; nothing is changed.
    """
    context = log.state.context
    asked = {call.id: call for call in open_calls(context) if is_asked(call)}
    new: dict[str, Answer] = {}
    for answer in answers:
        call = asked.get(answer.call_id)
        if call is not None and answer.is_about(call):
            if answer.reply_id is None and is_repeat(answer, context, besides=call):
                # A request that is sent again, or an answer to the new question: nothing tells which.
                raise ValueError(
                    f"the call {answer.call_id!r} of an earlier reply was answered so, and another of this id is asked "
                    "about now: name the reply, as the question's to_dict() does with `replyId`"
                )
            _check(answer, call, tools.get(call.name), ask_timeout)
            new[answer.call_id] = answer
        elif not is_repeat(answer, context):
            if was_answered(answer.call_id, context):
                raise ValueError(
                    f"the question about the call {answer.call_id!r} has been answered already, and differently; that"
                    " answer stays"
                )
            known = ", ".join(asked) or "none"
            raise ValueError(f"no question is open about a call {answer.call_id!r}; about these: {known}")
    if not new:
        return None
    reply = next(iter(asked.values())).message
    context[:] = [with_answers(one, new) if one.id == reply.id else one for one in context]
    for answer in new.values():
        if not answer.confirmed:
            context.append(closing_result(log.leaf_id, asked[answer.call_id], "declined"))
        for rule in answer.rules:
            add_rule(log.state.permission_context, accepted(rule))
    said = [{"confirmed": answer.confirmed, "toolCall": asked[call_id].part} for call_id, answer in new.items()]
    events = [AgentEvent("USER_CONFIRM_RESULT", reply.id, data=said, committed=True)]
    is_all = len(new) == len(asked) and not open_calls(context)
    if is_all and not any(answer.confirmed for answer in answers):
        events.append(AgentEvent("ALL_TOOLS_DENIED", reply.id))
    return events


def _check(answer: Answer, call: Call, tool: Tool | None, ask_timeout: float | None) -> None:
    if is_expired(call, ask_timeout):
        raise ValueError(f"the time to answer about the call {call.id!r} is over: the next call declines it")
    check_answer(answer, call)
    edited = answer.part.get("input")
    if tool is not None and answer.confirmed and edited is not None and edited != call.input:
        mistake = mistake_in(tool, edited)
        if mistake is not None:
            raise ValueError(f"the answer does not fit the tool {tool.name!r}: {mistake}")
