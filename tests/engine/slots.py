"""A small model of a session's tree and an agent's slot, and what Java makes of a context."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leafward.core.agent_message_writer import write_messages
from leafward.core.agent_messages import read_messages
from leafward.core.message import Message, body_to_read
from leafward.core.overlays import is_summary_id, summary_message
from leafward.engine.adoption import Adoption, adopt
from leafward.engine.context_view import NO_VIEW, View, render
from tests.core.java_reader import resaved_message


def written_by_java(context: Sequence[Message]) -> list[dict[str, Any]]:
    """Return a context as Java writes it after it has read it."""
    return [resaved_message(item) for item in write_messages(context)]


def read_from_slot(items: Sequence[dict[str, Any]]) -> list[Message]:
    return read_messages([(item, f"context[{row}]") for row, item in enumerate(items)])


def through_java(context: Sequence[Message]) -> list[Message]:
    """Return a context as it is read after Java has saved it."""
    return read_from_slot(written_by_java(context))


def seen_by_java(context: Sequence[Message]) -> list[dict[str, Any]]:
    """Return what Java finds in a context, but for times."""
    return [{key: value for key, value in item.items() if key != "timestamp"} for item in written_by_java(context)]


@dataclass
class Overlay:
    id: str
    text: str
    covered: list[str]


@dataclass
class Tree:
    """Messages with their parents, a leaf, summaries, and the views attached to messages."""

    messages: dict[str, Message] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    leaf: str | None = None
    overlays: list[Overlay] = field(default_factory=list)
    views: dict[str | None, View] = field(default_factory=dict)

    def append(self, messages: Sequence[Message], parent: str | None) -> None:
        """Store a chain as a store does: a known message stays, and the next goes below it."""
        for message in messages:
            assert not is_summary_id(message.id)
            if message.id not in self.messages:
                self.messages[message.id] = message
                self.parents[message.id] = parent
                self.leaf = message.id
            parent = message.id

    def update(self, message: Message) -> None:
        stored = self.messages[message.id]
        self.messages[message.id] = Message.stored(message.id, message.role, stored.at, body_to_read(message))

    def summarise(self, text: str, from_id: str, to_id: str) -> None:
        items = self._items()
        rows = [row for row, (ids, _) in enumerate(items) if {self._first(from_id), self._last(to_id)} & set(ids)]
        covered = [id for ids, _ in items[rows[0] : rows[-1] + 1] for id in ids]
        self.overlays.append(Overlay(f"o{len(self.overlays)}", text, covered))

    def _of(self, id: str) -> Overlay:
        return next(one for one in self.overlays if f"compaction_{one.id}" == id)

    def _first(self, id: str) -> str:
        return self._of(id).covered[0] if is_summary_id(id) else id

    def _last(self, id: str) -> str:
        return self._of(id).covered[-1] if is_summary_id(id) else id

    def raw(self) -> list[str]:
        ids: list[str] = []
        at = self.leaf
        while at is not None:
            ids.append(at)
            at = self.parents[at]
        return ids[::-1]

    def _items(self) -> list[tuple[list[str], Message]]:
        """Return what the path shows, each with the ids of the messages that it stands for."""
        ids = self.raw()
        items = [([id], self.messages[id]) for id in ids]
        for overlay in self.overlays:
            if overlay.covered[0] not in ids or overlay.covered[-1] not in ids:
                continue
            inside = set(overlay.covered)
            rows = [row for row, (stands_for, _) in enumerate(items) if set(stands_for) <= inside]
            if rows:
                made = (overlay.covered, summary_message(overlay.id, overlay.text, 0))
                items[rows[0] : rows[-1] + 1] = [made]
        return items

    def path(self) -> list[Message]:
        return [message for _, message in self._items()]

    def view(self) -> View:
        above = itertools.chain(reversed(self.raw()), [None])
        return next((self.views[id] for id in above if id in self.views), NO_VIEW)

    def context(self) -> list[Message]:
        return render(self.path(), self.view())

    def plan(self, slot: Sequence[Message], slot_leaf: str | None = None) -> Adoption:
        return adopt(self.path(), self.view(), self.leaf, slot, slot_leaf)

    def apply(self, plan: Adoption) -> None:
        """Do what an agent does with a plan."""
        parent = None if plan.parent is None else self._last(plan.parent)
        for message in plan.updated:
            self.update(message)
        if plan.overlay is not None:
            self.summarise(*plan.overlay)
        if plan.checkout:
            self.leaf = parent
        self.append(plan.appended, parent)
        if self.view() != plan.view:
            self.views[self.leaf] = plan.view
