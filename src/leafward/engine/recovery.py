"""What a call of an agent does with what an earlier one left behind: calls without results, input that is known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, Protocol

from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, is_question, own_items, pair
from leafward.core.ids import derived_id, new_id
from leafward.core.message import Message, body_to_read, has_made_id, message_sharing
from leafward.core.parts import CALLS, Part
from leafward.engine.turn_note import Openness, TurnNote

OUTCOME = "leafward_outcome"
"""The metadata key of a result that says what is known of the call's effect."""
UNKNOWN = "Outcome unknown: the process ended while this ran. Find out before you call it again."
INTERRUPTED = "Interrupted before it ran."
NOT_ANSWERED = "Not answered on this branch."

MOST_RUNS = 3
"""How often a call may run in all, the first time included."""


# ── calls without results ────────────────────────────────────────────────────


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
give `unknown_result`."""


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
    return [item for item in pairs.items[0] if isinstance(item, Call) and pairs.is_waiting(item)]


def _twin(message: Message) -> Message:
    """Return the same message, so that what is read of it lends nothing of the first."""
    return message_sharing(message.id, message.role, message.at, body_to_read(message))


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


def unknown_result(parent_id: str | None, reply_id: str, call: Call, *, created_at: datetime | None = None) -> Message:
    """Return the result of a call whose process was lost while it ran.

    All such results have ids made of parent, reply and call, so that two processes that repair at once store one. The
    time is that of the reply, unless another is given.
    """
    return _result(parent_id, reply_id, call, UNKNOWN, created_at, {OUTCOME: "unknown"})


def interrupted_result(
    parent_id: str | None, reply_id: str, call: Call, *, text: str = INTERRUPTED, created_at: datetime | None = None
) -> Message:
    """Return the result of a call that was interrupted or declined before it began."""
    return _result(parent_id, reply_id, call, text, created_at)


def not_answered_result(
    parent_id: str | None, reply_id: str, call: Call, *, created_at: datetime | None = None
) -> Message:
    """Return the result of a call that has its own on another branch."""
    return _result(parent_id, reply_id, call, NOT_ANSWERED, created_at)


def _result(
    parent_id: str | None,
    reply_id: str,
    call: Call,
    text: str,
    created_at: datetime | None,
    metadata: Mapping[str, str] | None = None,
) -> Message:
    return Message.tool_result(
        call.id,
        text,
        call.name or None,
        state="interrupted",
        id=derived_id("result", parent_id, reply_id, call.id),
        created_at=call.message.created_at if created_at is None else created_at,
        metadata=metadata,
    )


def rename_repeated(reply: Message) -> Message:
    """Return a reply each of whose calls has an id of its own: a second `c` becomes `c#2`."""
    parts: list[Part] = body_to_read(reply)["parts"]
    ids = [part.get("id") if part["type"] in CALLS else None for part in parts]
    taken = {id for id in ids if isinstance(id, str)}
    seen: set[str] = set()
    found = list(parts)
    for row, id in enumerate(ids):
        if not isinstance(id, str) or not id:
            continue
        if id in seen:
            number = 2
            while f"{id}#{number}" in taken:
                number += 1
            taken.add(f"{id}#{number}")
            found[row] = {**parts[row], "id": f"{id}#{number}"}
        seen.add(id)
    if all(new is old for new, old in zip(found, parts, strict=True)):
        return reply
    return message_sharing(reply.id, reply.role, reply.at, {**body_to_read(reply), "parts": found})


def note_of_others(state: AgentState, *, state_name: str) -> TurnNote:
    """Return the note of a conversation that another writer left, which has no turn of ours at its end.

    Calls without results wait for them, or for an answer; none of them has begun. Where nothing has answered the last
    message, the turn goes on with it.
    """
    context = state.context
    open: Openness | None = None
    if open_calls(context):
        open = "paused" if state.shutdown_interrupted else "asking"
    elif context and not _is_final(context[-1]):
        open = "paused"
    asked = next((message.id for message in reversed(context) if is_question(message)), None)
    return TurnNote(new_id(), open, () if asked is None else (asked,), state_name=state_name)


# ── input that is known ──────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class InputMatch:
    """What a call does with its input."""

    action: Literal["resume", "answer", "begin"]
    """Go on from what is stored; give back the stored reply; begin a turn."""
    input: tuple[Message, ...] = ()
    """The messages to store, without those that are stored."""
    reply: Message | None = None
    """The stored reply; `None` if the turn has ended without one."""
    not_answered: bool = False
    """Whether open calls get `not_answered_result`: they have their results on another branch."""


_SEND_WITHOUT_ID = "send it without an id to say it again"


def match_input(
    input: Sequence[Message],
    path: Sequence[Message],
    note: TurnNote | None,
    *,
    elsewhere: Collection[str] = (),
    checked_out: bool = False,
) -> InputMatch:
    """Return what a call does with its input, which is empty for `call(None)`.

    `note` is the one in force where the path ends, and `elsewhere` holds the ids of the input that other branches have.
    With `checked_out` the path ends inside a turn that goes on, on another branch.

    Raises:
        ValueError: there is nothing to go on with, or a known message cannot be meant here; the text says what to do.
    """
    known = {message.id: row for row, message in enumerate(path)}
    if not input:
        return _go_on(path, note, checked_out)
    for message in input:
        if message.id in elsewhere and message.id not in known:
            raise ValueError(f"message {message.id!r} is on another branch: {_SEND_WITHOUT_ID}, or check it out")
    last = input[-1]
    if last.id in known and not _says(last, path[known[last.id]]):
        raise ValueError(f"message {last.id!r} is stored with other parts: {_SEND_WITHOUT_ID}, or update it")
    remaining = tuple(message for message in input if message.id not in known)
    if not remaining:
        return _answered(known[last.id], path, note, known, checked_out)
    if note is not None and note.may_go_on and not checked_out:
        began = [path[known[id]] for id in note.input if id in known]
        if any(_is_same_input(sent, began) for sent in (input, remaining)):
            return InputMatch("resume")
    return InputMatch("begin", remaining, not_answered=checked_out)


def _go_on(path: Sequence[Message], note: TurnNote | None, checked_out: bool) -> InputMatch:
    """Go on without input: with an open turn, or below a message that no turn has answered."""
    may = note.may_go_on if note is not None else bool(path) and not _is_final(path[-1])
    if may:
        return InputMatch("resume", not_answered=checked_out)
    raise ValueError("no turn is open that could go on: send a message, or check out the message to answer again")


def _is_final(message: Message) -> bool:
    """Tell a reply without calls."""
    return message.role == "assistant" and not _calls(message)


def _calls(message: Message) -> bool:
    items = own_items(_twin(message))
    return items is None or any(isinstance(item, Call) for item in items)


def _is_same_input(sent: Sequence[Message], began: Sequence[Message]) -> bool:
    """Tell whether this is the input that began a turn: the same ids where they were given, else the same words."""
    if len(sent) != len(began):
        return False
    return all(
        (one.id == other.id or has_made_id(one)) and _says(one, other) for one, other in zip(sent, began, strict=True)
    )


def _says(sent: Message, stored: Message) -> bool:
    return (sent.role, body_to_read(sent)["parts"]) == (stored.role, body_to_read(stored)["parts"])


def _answered(
    row: int, path: Sequence[Message], note: TurnNote | None, known: Mapping[str, int], checked_out: bool
) -> InputMatch:
    """Resume the turn of a message of the path, or give its reply."""
    own = {known[id] for id in (*note.input, *note.joined) if id in known} if note is not None else set[int]()
    first = min(own, default=len(path))
    if note is not None and note.may_go_on and row >= first:
        return InputMatch("resume", not_answered=checked_out)
    if row not in own and not any(message.role == "assistant" for message in path[row:]):
        # It came here in another way than by a turn: nothing has answered it.
        return InputMatch("resume", not_answered=checked_out)
    start, turn = (
        (first, path[: _next_question(max(own), path)]) if row in own else (row, path[: _next_turn(row, path)])
    )
    replies = [message for message in turn[start:] if message.role == "assistant"]
    return InputMatch("answer", reply=replies[-1] if replies else None)


def _next_question(row: int, path: Sequence[Message]) -> int:
    """Return where the next question below a message stands."""
    return next((number for number in range(row + 1, len(path)) if is_question(path[number])), len(path))


def _next_turn(row: int, path: Sequence[Message]) -> int:
    """Return where the next turn begins, of which there is no note: at a question below a reply without calls."""
    below = range(row + 1, len(path))
    return next((n for n in below if is_question(path[n]) and _is_final(path[n - 1])), len(path))
