"""Input that may be stored already: what a call does with it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from leafward.core.calls import is_question
from leafward.core.message import Message, body_to_read, has_made_id
from leafward.engine.recovery import is_final
from leafward.engine.turn_note import TurnNote


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
    """Whether open calls have their results on another branch."""


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
    may = note.may_go_on if note is not None else bool(path) and not is_final(path[-1])
    if may:
        return InputMatch("resume", not_answered=checked_out)
    raise ValueError("no turn is open that could go on: send a message, or check out the message to answer again")


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
    if note is not None and note.may_go_on and not any(message.role == "assistant" for message in path[row:first]):
        return InputMatch("resume", not_answered=checked_out)
    if row not in own and not any(message.role == "assistant" for message in path[row:]):
        # It came here in another way than by a turn: nothing has answered it.
        return InputMatch("resume", not_answered=checked_out)
    if note is not None and row in own:
        return InputMatch("answer", reply=reply_of(note, path))
    return InputMatch("answer", reply=_last_reply(path[row : _next_turn(row, path)]))


def reply_of(note: TurnNote, path: Sequence[Message]) -> Message | None:
    """Return the last reply of a turn; `None` if it has ended without one."""
    own = {*note.input, *note.joined}
    rows = [row for row, message in enumerate(path) if message.id in own]
    return _last_reply(path[rows[0] : _next_question(rows[-1], path)]) if rows else None


def _last_reply(turn: Sequence[Message]) -> Message | None:
    return next((message for message in reversed(turn) if message.role == "assistant"), None)


def _next_question(row: int, path: Sequence[Message]) -> int:
    """Return where the next question below a message stands."""
    return next((number for number in range(row + 1, len(path)) if is_question(path[number])), len(path))


def _next_turn(row: int, path: Sequence[Message]) -> int:
    """Return where the next turn begins, of which there is no note: at a question below a reply without calls."""
    below = range(row + 1, len(path))
    return next((n for n in below if is_question(path[n]) and is_final(path[n - 1])), len(path))
