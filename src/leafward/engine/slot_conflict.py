"""A slot that another writer changed during a call: what it added, and how both are shown together."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from leafward.core.ids import derived_id
from leafward.core.message import Message, body_to_read, ids_of, message_sharing
from leafward.engine.adoption import recognised
from leafward.engine.call_results import closing_result, fate_of
from leafward.engine.context_view import is_results, is_same
from leafward.engine.recovery import open_calls
from leafward.engine.summary_messages import summary_text


class OtherSlot(NamedTuple):
    """The context that another writer left, compared with the one that both began with."""

    context: list[Message]
    added: list[Message]
    edited: list[Message]
    """Messages that both began with, as the other writer has them."""


def compare_slots(base: Sequence[Message], other: Sequence[Message]) -> OtherSlot:
    """Return what another writer made of the context that a call began with."""
    before = {message.id: message for message in base}
    context = recognised(base, other)
    added = [message for message in context if message.id not in before]
    edited = [message for message in context if message.id in before and not is_same(message, before[message.id])]
    return OtherSlot(context, added, edited)


def as_another(message: Message, version: int) -> Message:
    """Return an edited message under an id of its own, made of the version of the slot that it was found in."""
    id = derived_id("edit", message.id, version)
    return message_sharing(id, message.role, message.at, body_to_read(message))


def merge_contexts(base: Sequence[Message], own: Sequence[Message], other: OtherSlot) -> list[Message]:
    """Return the other writer's context, followed by what this call added.

    What the call edited or removed stays so, unless the other writer edited it too. Calls that the other writer left
    without results get some, as this call's messages stand below them. A summary that this call has made stays above.
    """
    before, ours = set(ids_of(base)), {message.id: message for message in own}
    changed = {*ids_of(other.added), *ids_of(other.edited)}
    merged = [ours.get(message.id, message) if message.id not in changed else message for message in other.context]
    merged = [message for message in merged if message.id in changed or message.id in ours]
    shown = set(ids_of(merged))
    if own and own[0].id not in before and own[0].id not in shown and summary_text(own[0]) is not None:
        # A summary of this call stands for what was above all that is left of both.
        merged.insert(0, own[0])
        shown.add(own[0].id)
    added = [message for message in own if message.id not in before and message.id not in shown]
    if not added:
        return merged
    answers = list(takewhile(is_results, added)) if open_calls(base) else []
    row = _below_results(merged, open_calls(base)[0].message.id) if answers else 0
    if row:
        # Between a call and its result there is no place for other messages.
        merged[row:row] = answers
        added = added[len(answers) :]
    closing = [closing_result(call.message.id, call, fate_of()) for call in open_calls(merged)]
    return [*merged, *closing, *added] if added else merged


def _below_results(context: Sequence[Message], reply_id: str) -> int:
    """Return the row below a reply and its results; 0 if the reply is not there."""
    row = next((row + 1 for row, message in enumerate(context) if message.id == reply_id), 0)
    while row and row < len(context) and is_results(context[row]):
        row += 1
    return row


def merge_small_states(base: dict[str, Any], own: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the other writer's small state with the fields that this call changed."""
    changed = {name for name in {*base, *own} if base.get(name) != own.get(name)}
    return {
        **{name: value for name, value in other.items() if name not in changed},
        **{name: value for name, value in own.items() if name in changed},
    }
