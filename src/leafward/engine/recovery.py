"""Calls without results, which an earlier call of an agent has left behind, and what becomes of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, is_question, own_items, pair
from leafward.core.ids import derived_id, new_id
from leafward.core.message import Message, body_to_read, message_sharing
from leafward.engine.small_state import MARK, mark_in_doubt
from leafward.engine.turn_note import Openness, TurnNote

MOST_RUNS = 3
"""How often a call may run in all, the first time included."""


class ToolFlags(Protocol):
    """What a tool says about running it again."""

    @property
    def read_only(self) -> bool: ...
    @property
    def retry_safe(self) -> bool: ...
    @property
    def probe(self) -> object | None:
        """Finds out whether an effect has happened; `None` if nothing does."""
        ...


Action = Literal["run", "probe", "run_again", "unknown"]
"""Run it, as it has not begun; ask the tool's probe, then run it if that finds nothing; run it again with the same key;
give the result of an unknown outcome."""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """What becomes of one call."""

    call: Call
    action: Action
    key: str
    """The call's idempotency key."""
    attempts: int
    """What the turn's note says of the call from now on: how often it was run again."""


def open_calls(context: Sequence[Message]) -> list[Call]:
    """Return the calls of the newest reply that have no final result, in their order."""
    last = next((row for row in range(len(context) - 1, -1, -1) if context[row].role == "assistant"), None)
    if last is None:
        return []
    pairs = pair([_twin(message) for message in context[last:]])
    return [item for item in pairs.items[0] if isinstance(item, Call) and pairs.is_unanswered(item)]


def _twin(message: Message) -> Message:
    """Return the same message, so that what is read of it lends nothing of the first."""
    return message_sharing(message.id, message.role, message.at, body_to_read(message))


def is_final(message: Message) -> bool:
    """Tell a reply without calls."""
    if message.role != "assistant":
        return False
    items = own_items(_twin(message))
    return items is not None and not any(isinstance(item, Call) for item in items)


def plan_calls(
    calls: Sequence[Call], tools: Mapping[str, ToolFlags], *, begun: bool, attempts: Mapping[str, int]
) -> list[CallPlan]:
    """Return what becomes of calls without results.

    Without `begun`, it is certain that none of them has begun. `attempts` are those of the turn's note. A tool that is
    not there any more is not run again.
    """
    return [_planned(call, tools.get(call.name), begun, attempts) for call in calls]


def _planned(call: Call, tool: ToolFlags | None, begun: bool, attempts: Mapping[str, int]) -> CallPlan:
    key = idempotency_key(call.message.id, call.id)
    again = attempts.get(key, 0)
    if not begun:
        return CallPlan(call, "run", key, again)
    if tool is not None and tool.probe is not None:
        return CallPlan(call, "probe", key, again)
    # The first run is in no note.
    if tool is not None and (tool.read_only or tool.retry_safe) and again + 1 < MOST_RUNS:
        return CallPlan(call, "run_again", key, again + 1)
    return CallPlan(call, "unknown", key, again)


def idempotency_key(message_id: str, call_id: str) -> str:
    """Return the text by which another system knows a call that is made again."""
    return derived_id("call", message_id, call_id)


def mark_calls(state: AgentState, note: TurnNote | None) -> None:
    """Have a state say whether its open calls may have begun, for one that goes on with it where the note is not."""
    calls = open_calls(state.context) if note is not None and note.open == "running" else []
    state.extra.pop(MARK, None)
    if calls:
        state.extra[MARK] = mark_in_doubt(calls[0].message.id)


def note_of_others(state: AgentState, *, state_name: str, in_doubt: bool) -> TurnNote:
    """Return the note of a conversation that another writer left, which has no turn of ours at its end.

    Calls without results wait for them, or for an answer; unless they are `in_doubt`, none of them has begun. Where
    nothing has answered the last message, the turn goes on with it.
    """
    context = state.context
    open: Openness | None = None
    if open_calls(context) and in_doubt:
        open = "running"
    elif open_calls(context):
        open = "paused" if state.shutdown_interrupted else "asking"
    elif context and not is_final(context[-1]):
        open = "paused"
    asked = next((message.id for message in reversed(context) if is_question(message)), None)
    return TurnNote(new_id(), open, () if asked is None else (asked,), state_name=state_name)
