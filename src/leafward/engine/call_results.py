"""The results of calls: of those that have ended, and of those that get none of their own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Literal

from leafward.core.calls import Call, Result, answered_id, pair
from leafward.core.errors import MessageTooLarge
from leafward.core.ids import derived_id
from leafward.core.message import Message, body_to_read, message_copy, message_sharing
from leafward.core.parts import Part, is_suspended
from leafward.engine.events import AgentEvent
from leafward.tools.runner import Outcome, failed

OUTCOME = "leafward_outcome"
"""The metadata key of a result that says what is known of the call's effect."""

Fate = Literal["unknown", "cut off", "not begun", "no steps", "elsewhere", "denied", "declined", "expired"]
"""What became of a call without a result: a process was lost while it may have run; it was cut off while it ran, here;
it has not begun; the turn may take no further step; it has its result on another branch; rules denied it; the user
declined it; the user has not answered in time."""

TEXTS: dict[Fate, str] = {
    "unknown": "Outcome unknown: the process ended while this ran. Find out before you call it again.",
    "cut off": "Cut off while it ran. It may have taken effect: find out before you call it again.",
    "not begun": "Interrupted before it ran.",
    "no steps": "Not run: no steps are left in this turn.",
    "elsewhere": "Not answered on this branch.",
    "denied": "Permission denied by rules",
    "declined": "Permission denied by user",
    "expired": "Permission denied: the user has not answered in time",
}
_DENIED: frozenset[Fate] = frozenset({"denied", "declined", "expired"})


def fate_of(
    *, has_begun: bool = False, in_doubt: bool = False, is_external: bool = False, is_paused: bool = False
) -> Fate:
    """Return what became of a call that gets no result of its own.

    `has_begun` says that it ran here, and `in_doubt` that it may have run in a process that was lost. An external call
    runs in neither. `is_paused` says that it was cut off because this process is about to end.
    """
    if has_begun:
        return "unknown" if is_paused else "cut off"
    return "unknown" if in_doubt and not is_external else "not begun"


def closing_result(parent_id: str | None, call: Call, fate: Fate, why: str = "") -> Message:
    """Return the result of a call that gets none of its own; `why` is added to what it says.

    Its id is made of parent, reply and call, so that two processes that repair at once store one. Its time is that of
    the reply.
    """
    return Message.tool_result(
        call.id,
        f"{TEXTS[fate]}: {why}" if why else TEXTS[fate],
        call.name or None,
        state="denied" if fate in _DENIED else "interrupted",
        id=derived_id("result", parent_id, call.message.id, call.id),
        created_at=call.message.created_at,
        metadata={OUTCOME: "unknown"} if fate in ("unknown", "cut off") else None,
    )


def is_declined(result: Result) -> bool:
    """Tell whether a result says that the user declined the call."""
    return result.state == "denied" and any(block.get("text") == TEXTS["declined"] for block in result.blocks)


def results_among(calls: Sequence[Call], messages: Iterable[Message]) -> list[tuple[str, Message]]:
    """Return the messages that hold final results of calls of one reply, each with the id of the call."""
    return [(call.id, message) for message in messages for call in calls if _final_results(call, message)]


def result_again(parent_id: str | None, call: Call, message: Message) -> Message:
    """Return the result of a call as another message has it, which the conversation does not show."""
    id = derived_id("result", parent_id, call.message.id, call.id)
    parts = _final_results(call, message)[:1]
    return message_sharing(id, message.role, message.at, {**body_to_read(message), "parts": parts}).sealed()[0]


def _final_results(call: Call, message: Message) -> list[Part]:
    parts: list[Part] = body_to_read(message)["parts"]
    return [part for part in parts if answered_id(part) == call.id and not is_suspended(part)]


def result_of(call: Call, outcome: Outcome) -> Message:
    """Return the result of a call that has ended."""
    return Message.tool_result(call.id, outcome.parts, call.name, state=outcome.state)


def too_large_result(call: Call, error: MessageTooLarge) -> Message:
    """Return the result of a call whose own is larger than the store accepts."""
    text = f"the result has {error.size:,} bytes, and {error.limit:,} can be stored: ask for less of it."
    return result_of(call, failed(text))


def result_events(reply_id: str, call: Call, message: Message) -> list[AgentEvent]:
    """Return the events of a result that is stored: its text in one piece, then each of its other blocks."""
    shown = message_copy(message)
    found = next(
        item for item in pair([shown]).items[0] if isinstance(item, Result) and item.call_id == call.id and item.final
    )
    text = "\n".join(block["text"] for block in found.blocks if _is_text(block))
    events = [AgentEvent("TOOL_RESULT_START", reply_id, call_id=call.id, name=call.name)]
    if text:
        events.append(AgentEvent("TOOL_RESULT_TEXT_DELTA", reply_id, call_id=call.id, name=call.name, text=text))
    for block in found.blocks:
        if not _is_text(block):
            data = deepcopy(block)
            events.append(AgentEvent("TOOL_RESULT_DATA_DELTA", reply_id, call_id=call.id, name=call.name, data=data))
    events.append(
        AgentEvent(
            "TOOL_RESULT_END",
            reply_id,
            call_id=call.id,
            name=call.name,
            message=shown,
            state=found.state,
            committed=True,
        )
    )
    return events


def _is_text(block: Part) -> bool:
    return block["type"] == "text" and isinstance(block.get("text"), str)
