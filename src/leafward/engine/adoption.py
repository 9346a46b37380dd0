"""What becomes of a context that another writer left in the slot: a plan that takes all of it into the tree.

The other writer is AgentScope for Java, an older version of this library, `save_agent_state` or another agent. New
messages go below the last message that tree and slot have in common, an edit is an update, and any other rewriting is a
view. What the tree has besides stays in it, as a branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leafward.core.calls import open_ends
from leafward.core.ids import derived_id
from leafward.core.message import Message, body_to_read, ids_of, message_sharing
from leafward.core.overlays import is_summary_id, summary_message
from leafward.engine.context_view import NO_VIEW, View, compare, in_shown_order, is_same, render
from leafward.engine.java_equality import Pieces, says_the_same, with_edit
from leafward.engine.summary_messages import shown_id, shown_summary, summary_text

_ADOPTED = "adopted"
"""Stands for the id of an overlay that is still to be made."""


class NewSummary(NamedTuple):
    """An overlay to be made: the summary, and the ids of the first and the last message of the path it stands for."""

    text: str
    from_id: str
    to_id: str


@dataclass(frozen=True, slots=True)
class Adoption:
    """What to store so that the tree shows the slot's context."""

    parent: str | None
    """The message below which the new ones go; `None` for the root. The id of a summary means the last message that it
    covers."""
    appended: list[Message]
    """They are stored as a chain. One that another branch has already is found there, and the next goes below it."""
    updated: list[Message]
    view: View
    """The view to be in force at the end of the chain. What is in force at `parent` may be another one, so it is
    written even if it is the one that was given."""
    overlay: NewSummary | None = None
    checkout: bool = False
    """Whether the leaf has to be moved to `parent`, because nothing is appended there."""
    is_needed: bool = True
    """Whether anything has to be done at all."""


def adopt(
    path: Sequence[Message],
    view: View,
    leaf_id: str | None,
    slot_context: Sequence[Message],
    slot_leaf: str | None = None,
) -> Adoption:
    """Return how the context of a slot is taken into a tree.

    `path` leads to `leaf_id` and is seen through `view`. `slot_leaf` is the leaf that the slot names. If the slot
    begins with all that the path shows, what remains goes below that leaf; otherwise below the last message of the path
    that the slot has too. After that, the same slot needs nothing any more. A slot's own order, roles and ids are never
    refused: a second message with the same id gets another one.
    """
    rendered = render(path, view)
    slot = _with_own_ids(_Recognised(path, view, rendered).messages(_with_own_ids(slot_context)))
    shown, ids = ids_of(rendered), ids_of(slot)
    if ids == shown and all(map(is_same, slot, rendered)):
        return Adoption(leaf_id, [], [], view, is_needed=False)
    overlay, upto, base = None, list(path), list(path)
    if ids[: len(shown)] != shown:
        upto = _common_path(path, slot)
        base = upto
        overlay = _overlay_of(upto, slot)
        if overlay is not None:
            base = [summary_message(_ADOPTED, overlay.text, 0), *upto[_row(upto, overlay.to_id) + 1 :]]
            slot = [shown_summary(base[0]), *slot[1:]]
    elif len(ids) > len(shown):
        upto = base = _path_to(path, view, shown, slot_leaf)
    found = compare(base, view, slot, strict=False)
    parent = upto[-1].id if upto else None
    if len(upto) == len(path):
        # The path may end with a summary, which is not the id of a leaf.
        parent = leaf_id
    checkout = parent != leaf_id and not found.appended
    is_needed = bool(found.appended or found.updated or overlay or checkout or found.view != view)
    return Adoption(parent, found.appended, found.updated, found.view, overlay, checkout, is_needed)


def recognised(context: Sequence[Message], slot_context: Sequence[Message]) -> list[Message]:
    """Return what came back of a context: our messages where they say the same, and those that others wrote."""
    return _with_own_ids(_Recognised(context, NO_VIEW, context).messages(_with_own_ids(slot_context)))


def _with_own_ids(context: Sequence[Message]) -> list[Message]:
    """Return messages each with an id of its own, made of the one it shares with a message above it."""
    taken: set[str] = set()
    found: list[Message] = []
    for message in context:
        number, id = 2, message.id
        while id in taken:
            id = derived_id("msg", message.id, number)
            number += 1
        taken.add(id)
        found.append(message if id == message.id else _renamed(message, id))
    return found


def _renamed(message: Message, id: str) -> Message:
    return message_sharing(id, message.role, message.at, body_to_read(message))


class _Recognised:
    """Finds our messages among those that came back."""

    def __init__(self, path: Sequence[Message], view: View, rendered: Sequence[Message]) -> None:
        self._path = {message.id: message for message in path}
        self._shown: dict[str, list[Message]] = {}
        whole = render(path)
        for message in (*(one.message for one in view.put), *rendered, *whole):
            self._shown.setdefault(message.id, []).append(message)
        for stored, message in zip(in_shown_order(path), whole, strict=True):
            if stored is not message:
                # A summary, which stands in a history under another id.
                self._shown.setdefault(stored.id, []).append(message)
        self._pieces = Pieces(rendered)

    def messages(self, slot: Sequence[Message]) -> list[Message]:
        """Return the messages of a slot: ours where they say the same, and edited ones with what Java left out."""
        return list(self._found(slot))

    def _found(self, slot: Sequence[Message]) -> Iterator[Message]:
        row = 0
        while row < len(slot):
            message, used = self._one(slot, row)
            yield message
            row += used

    def _one(self, slot: Sequence[Message], row: int) -> tuple[Message, int]:
        message = slot[row]
        text = message.text if is_summary_id(message.id) else summary_text(message)
        candidates = self._shown.get(message.id, [])
        if text is not None:
            candidates = [*candidates, *self._shown.get(shown_id(text), [])]
        for ours in candidates:
            if says_the_same(ours, message) or (text is not None and summary_text(ours) == text):
                return ours, 1
        for ours in candidates:
            pieces = self._pieces.of(ours)
            there = slot[row : row + len(pieces)]
            if pieces and ids_of(pieces) == ids_of(there) and all(map(says_the_same, pieces, there)):
                return ours, len(pieces)
        if is_summary_id(message.id):
            # Of another tree, or edited: no message can have this id.
            return _renamed(message, derived_id("msg", message.id)), 1
        stored = self._path.get(message.id)
        return (message if stored is None else with_edit(stored, message)), 1


def _common_path(path: Sequence[Message], slot: Sequence[Message]) -> list[Message]:
    """Return the path up to the last of its messages that the slot has.

    A slot that begins with a summary and has none of them goes on where the path ends.
    """
    stored = dict(zip(ids_of(render(path)), ids_of(in_shown_order(path)), strict=True))
    known = {stored.get(id, id) for id in ids_of(slot)}
    last = max((row for row, message in enumerate(path) if message.id in known), default=-1)
    if last < 0 and slot and summary_text(slot[0]) is not None:
        return list(path)
    return list(path[: last + 1])


def _path_to(path: Sequence[Message], view: View, shown: list[str], slot_leaf: str | None) -> list[Message]:
    """Return the path to the leaf that a slot names, if that shows the same."""
    row = _row(path, slot_leaf)
    upto = list(path[: row + 1])
    return upto if row >= 0 and ids_of(render(upto, view)) == shown else list(path)


def _row(path: Sequence[Message], id: str | None) -> int:
    return next((row for row, message in enumerate(path) if message.id == id), -1)


def _overlay_of(path: Sequence[Message], slot: Sequence[Message]) -> NewSummary | None:
    """Return the summary that Java made, if the message below it tells what it covers."""
    text = summary_text(slot[0]) if len(slot) > 1 else None
    known = {*ids_of(path), *ids_of(render(path)), *ids_of(slot[1:])}
    if text is None or not text.strip() or slot[0].id in known or shown_id(text) in known:
        return None
    row = _row(path, slot[1].id)
    if row < 1 or ids_of(in_shown_order(path))[row] != slot[1].id or open_ends(path[row:])[0]:
        # It covers nothing, or a call whose result it does not cover.
        return None
    return NewSummary(text, path[0].id, path[row - 1].id)
