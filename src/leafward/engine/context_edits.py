"""What tools, hooks and middleware did to `state.context` since the last step of a turn."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import NamedTuple

from leafward.core.message import Message, as_before, changed_in_place, ids_of, watch_for_changes
from leafward.engine.context_view import NO_VIEW, View, in_shown_order, refusal


class Step(NamedTuple):
    """A context as it is to be stored."""

    shown: list[Message]
    added: list[Message]
    """The new messages, in the order in which they came."""
    only_adds: bool
    """Whether nothing else was changed, and the new messages stand at the end of the path."""


def take_step(context: list[Message], stored: Sequence[Message], view: View = NO_VIEW) -> Step:
    """Return what a context has become, and put new results of its last reply into the order of the calls.

    `stored` is the context as of the last step.

    Raises:
        ValueError: the context holds what it may not. That is taken out of it, so that the remainder can be stored.
    """
    if changed := changed_in_place(stored):
        _replace(context, changed)
    extended = len(context) >= len(stored) and all(map(is_, stored, context))
    known = set(ids_of(stored))
    _refuse(context, known, start=len(stored) if extended else None)
    added = context[len(stored) :] if extended else [message for message in context if message.id not in known]
    # A tool may append what it has read from a store, and change it later.
    watch_for_changes(added)
    last = next((row for row in range(len(context) - 1, -1, -1) if context[row].role == "assistant"), len(context))
    # What a view says of a reply's results was put there on purpose.
    is_seen = bool(added) and not view.named.isdisjoint(ids_of(context[last:]))
    if added and not is_seen and len(context) - last > 2:
        context[last:] = in_shown_order(context[last:])
    return Step(list(context), added, extended and not is_seen)


def take_back_edits(context: list[Message], stored: Sequence[Message]) -> None:
    """Have a context as of the last step, with what was appended to it since."""
    known = set(ids_of(stored))
    end = next((row + 1 for row in range(len(context) - 1, -1, -1) if context[row].id in known), 0)
    context[:] = [*map(as_before, stored), *context[end:]]


def _replace(context: list[Message], changed: Sequence[Message]) -> None:
    """Put new messages in the place of those that were changed in place; one that is not sound is as it was."""
    rows = {id(message): row for row, message in enumerate(context)}
    refused: ValueError | None = None
    for message in changed:
        row = rows.get(id(message))
        if row is None:
            continue
        try:
            context[row] = message.sealed()[0]
        except ValueError as error:
            context[row] = as_before(message)
            refused = ValueError(f"message {message.id!r} was changed to what cannot be stored: {error}")
            refused.__cause__ = error
    if refused is not None:
        raise refused


def _refuse(context: list[Message], known: set[str], *, start: int | None) -> None:
    """Refuse what stands below `start`; all of it is new, if one is given."""
    taken = set[str]() if start is None else known
    kept: list[Message] = []
    reasons: list[str] = []
    for message in context[start or 0 :]:
        reason = _refusal(message, known, taken)
        if reason is None:
            kept.append(message)
            taken.add(message.id)
        else:
            reasons.append(reason)
    if reasons:
        context[start or 0 :] = kept
        raise ValueError(reasons[0])


def _refusal(message: Message, known: set[str], taken: set[str]) -> str | None:
    if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        return f"the context holds a {type(message).__name__}, which is not a message: make it one with Message(…)"
    if message.id in taken:
        return f"the context holds two messages with the id {message.id!r}: give one of them another id"
    return None if message.id in known else refusal(message)
