"""The events of what a call has put into the conversation before its first step."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.calls import Call, Result, pair
from leafward.core.message import Message, ids_of, message_copy
from leafward.engine.call_results import result_events, results_among
from leafward.engine.events import AgentEvent, input_event


def taken_events(
    answers: Sequence[AgentEvent],
    waiting: Sequence[Call],
    new: Sequence[Message],
    *,
    sent: Sequence[Message],
    earlier: Sequence[Message],
) -> list[AgentEvent]:
    """Return what shows answers, then results for the calls that waited, then messages that were sent earlier.

    `new` is what was put into the conversation, and `sent` what the user sent with this call.
    """
    results = results_among(waiting, new)
    own = set(ids_of(sent))
    parts = [_part(call_id, message) for call_id, message in results if message.id in own]
    confirmed = [event for event in answers if event.type == "USER_CONFIRM_RESULT"]
    events = list(confirmed)
    if parts:
        events.append(AgentEvent("EXTERNAL_EXECUTION_RESULT", waiting[0].message.id, data=parts, committed=True))
    calls = {call.id: call for call in waiting}
    for call_id, message in results:
        events += result_events(calls[call_id].message.id, calls[call_id], message)
    events += [event for event in answers if event not in confirmed]
    before = set(ids_of(earlier))
    events += [input_event(message) for message in new if message.id in before]
    return events


def _part(call_id: str, message: Message) -> dict[str, object]:
    """Return the part that holds the final result of a call."""
    items = pair([message_copy(message)]).items[0]
    return next(item.part for item in items if isinstance(item, Result) and item.call_id == call_id and item.final)
