"""A session as plain Python: parent pointers in a dict and summaries in a list, slow and obviously right."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

LEAF = object()
"""Stands for "below the current leaf" where a parent is asked for."""

State = dict[str, Any] | None
"""A state that is attached to a message; `None` removes it from there on."""
Told = tuple[str, tuple[str, ...]]
"""A change as it is told to subscribers: its kind and the messages it is about."""


@dataclass(frozen=True)
class Row:
    """One message as the model keeps it."""

    id: str
    role: str
    parts: tuple[dict[str, Any], ...]
    created_at: datetime
    parent: str | None = None
    number: int = 0

    @property
    def text(self) -> str:
        return "\n".join(part["text"] for part in self.parts if part["type"] == "text")

    def calls(self) -> set[str]:
        return {part["id"] for part in self.parts if part["type"] == "tool_use"}

    def results(self) -> set[str]:
        return {part["id"] for part in self.parts if part["type"] == "tool_result"}


@dataclass(frozen=True)
class Cover:
    """One summary as the model keeps it; its ends are always messages that are there."""

    id: str
    summary: str
    first: str
    last: str
    made_at: datetime

    @property
    def row(self) -> Row:
        """The summary as a history shows it."""
        return Row(f"compaction_{self.id}", "assistant", ({"type": "text", "text": self.summary},), self.made_at)


Span = tuple[int, int, int]
"""The first and the last index on a path that a summary covers, and when it was made, counted from 0."""


@dataclass
class Model:
    """What a session should hold after the calls made so far."""

    rows: dict[str, Row] = field(default_factory=dict)
    covers: list[Cover] = field(default_factory=list)
    leaf: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    stored: int = 0
    states: dict[str | None, dict[str, State]] = field(default_factory=dict)
    """What is attached to each message, and to the root."""

    # Writes. Each returns whether it changed anything.

    def append(self, rows: Sequence[Row], parent: object = LEAF) -> bool:
        above: Any = self.leaf if parent is LEAF else parent
        inserted = False
        for row in rows:
            if row.id not in self.rows:
                self.stored += 1
                self.rows[row.id] = replace(row, parent=above, number=self.stored)
                self.leaf = row.id
                self.told.append(("append", (row.id,)))
                inserted = True
            above = row.id
        return inserted

    def attach(self, name: str | None, states: Mapping[str, State], *, told: bool = True) -> bool:
        """Attach states to a message, those that are not in force there already."""
        new = {one: value for one, value in states.items() if repr(value) != repr(self.in_force(name).get(one))}
        self.states.setdefault(name, {}).update(new)
        if new and told:
            self.told.append(("state", () if name is None else (name,)))
        return bool(new)

    def update(self, row: Row) -> bool:
        old = self.rows[row.id]
        self.rows[row.id] = replace(old, role=row.role, parts=row.parts)
        self.told.append(("update", (row.id,)))
        return True

    def upsert(self, row: Row) -> bool:
        return self.update(row) if row.id in self.rows else self.append([row])

    def delete(self, ids: Iterable[str]) -> int:
        present = [name for name in dict.fromkeys(ids) if name in self.rows]
        self._uncover(set(present))
        for name in present:
            gone = self.rows.pop(name)
            states = self.states.pop(name, {})
            for child in self.children(name):
                self.rows[child.id] = replace(child, parent=gone.parent)
                self.states[child.id] = states | self.states.get(child.id, {})
            if self.leaf == name:
                self.leaf = gone.parent
            self.labels.pop(name, None)
        if present:
            self._forget(present)
            self.told.append(("delete", tuple(sorted(present))))
        return len(present)

    def clear(self) -> bool:
        self._forget(list(self.rows))
        self.rows, self.labels, self.leaf, self.covers, self.states = {}, {}, None, [], {}
        self.told.append(("clear", ()))
        return True

    def checkout(self, name: str | None) -> bool:
        self.leaf = name
        self.told.append(("checkout", () if name is None else (name,)))
        return True

    def label(self, name: str, text: str | None) -> bool:
        self.labels.pop(name, None)
        if text is not None:
            self.labels[name] = text
        self.told.append(("label", (name,)))
        return True

    def cover(self, cover: Cover) -> bool:
        self.covers.append(cover)
        self.told.append(("compaction", tuple(sorted({cover.first, cover.last}))))
        return True

    def fork(self, at: str) -> Model:
        """The path to a message with its labels and the summaries inside it, as a session of its own."""
        path = [row.id for row in self.path(at)]
        labels = {name: text for name, text in self.labels.items() if name in path}
        inside = [cover for cover in self.covers if cover.first in path and cover.last in path]
        return self._copy(path, at, labels, inside)

    def split(self, first: Row) -> Model:
        """A session that goes on with nothing but a first message and what is in force."""
        row = replace(first, number=1)
        return Model({row.id: row}, [], row.id, {}, [("append", (row.id,))], 1, {None: dict(self.in_force(self.leaf))})

    def copy(self) -> Model:
        """All of it, as a session of its own."""
        names = sorted(self.rows, key=lambda name: self.rows[name].number)
        return self._copy(names, self.leaf, dict(self.labels), list(self.covers))

    def _copy(self, names: list[str], leaf: str | None, labels: dict[str, str], covers: list[Cover]) -> Model:
        rows = {name: replace(self.rows[name], number=number) for number, name in enumerate(names, 1)}
        told: list[Told] = [("append", (name,)) for name in names]
        states = {name: dict(self.states[name]) for name in (None, *names) if name in self.states}
        return Model(rows, covers, leaf, labels, told, len(names), states)

    def _uncover(self, gone: set[str]) -> None:
        """Move the ends of summaries inward, off messages about to go; a summary of nothing goes."""
        kept: list[Cover] = []
        for cover in self.covers:
            left = [row.id for row in self.stretch(cover.first, cover.last) if row.id not in gone]
            if left:
                kept.append(replace(cover, first=left[0], last=left[-1]))
        self.covers = kept

    def _forget(self, names: Iterable[str]) -> None:
        """Drop what was told about messages that are gone, all but their deletions."""
        gone = set(names)
        self.told = [
            (kind, ids) for kind, ids in self.told if kind in ("delete", "clear") or not gone.intersection(ids)
        ]

    # Reads.

    def children(self, name: str | None) -> list[Row]:
        return sorted((row for row in self.rows.values() if row.parent == name), key=lambda row: row.number)

    def path(self, leaf: str | None) -> list[Row]:
        found: list[Row] = []
        while leaf is not None:
            found.append(self.rows[leaf])
            leaf = self.rows[leaf].parent
        return found[::-1]

    def in_force(self, leaf: str | None) -> dict[str, dict[str, Any]]:
        """The nearest state of each name at a message or above it."""
        found: dict[str, State] = dict(self.states.get(None, {}))
        for row in self.path(leaf):
            found |= self.states.get(row.id, {})
        return {name: value for name, value in found.items() if value is not None}

    def stretch(self, first: str, last: str) -> list[Row]:
        """The messages from one to another below it; none if the first is not above the last."""
        path = self.path(last)
        names = [row.id for row in path]
        return path[names.index(first) :] if first in names else []

    def visible(self, leaf: str | None) -> list[Row]:
        """The path as the model of a conversation sees it: the outermost summaries in place of what they cover."""
        path = self.path(leaf)
        spans = self._outermost([row.id for row in path])
        found: list[Row] = []
        index = 0
        while index < len(path):
            # All that begin here, and whatever shares a message with those: together they stand for the union.
            together = [span for span in spans if span[0] == index]
            while grown := [s for s in spans if s not in together and any(a <= s[0] <= b for a, b, _ in together)]:
                together += grown
            if together:
                found += [self.covers[which].row for _, _, which in sorted(together)]
                index = max(high for _, high, _ in together) + 1
            else:
                found.append(path[index])
                index += 1
        return found

    def _outermost(self, names: list[str]) -> list[Span]:
        spans = [
            (names.index(cover.first), names.index(cover.last), which)
            for which, cover in enumerate(self.covers)
            if cover.first in names and cover.last in names
        ]
        return [span for span in spans if not any(_hides(other, span) for other in spans)]

    def ends(self, name: str) -> tuple[str, str] | None:
        """The first and the last message that an end of a new summary means; `None` when there is no such end."""
        for cover in self.covers:
            if cover.row.id == name:
                return cover.first, cover.last
        return (name, name) if name in self.rows else None

    def objection(self, from_name: str, to_name: str) -> str | None:
        """Why a summary cannot cover this: an end is `missing`, the ends are `apart`, or it `crosses` another."""
        start, end = self.ends(from_name), self.ends(to_name)
        if start is None or end is None:
            return "missing"
        first, last = start[0], end[1]
        if not self.stretch(first, last):
            return "apart"
        return "crosses" if any(self._crosses(first, last, cover) for cover in self.covers) else None

    def _crosses(self, first: str, last: str, cover: Cover) -> bool:
        deeper = last if self.stretch(cover.last, last) else cover.last
        names = [row.id for row in self.path(deeper)]
        if last not in names or cover.last not in names:
            return False
        new = set(range(names.index(first), names.index(last) + 1))
        old = set(range(names.index(cover.first), names.index(cover.last) + 1))
        return bool(new & old) and not old <= new

    def leaves(self) -> list[Row]:
        parents = {row.parent for row in self.rows.values()}
        return sorted((row for row in self.rows.values() if row.id not in parents), key=lambda row: row.number)

    def tip(self, name: str | None) -> str | None:
        """The leaf below a message, or of all, that was stored last."""
        below = [leaf.id for leaf in self.leaves() if name is None or self.rows[name] in self.path(leaf.id)]
        return below[-1] if below else None

    def recent(self, count: int) -> list[Row]:
        """The last `count` messages, and as many more as keep calls and their results together."""
        path = self.visible(self.leaf)
        start = max(0, len(path) - count)
        while True:
            open_results = set[str]().union(*(row.results() for row in path[start:]))
            callers = [index for index in range(start) if path[index].calls() & open_results]
            if not callers:
                return path[start:]
            start = min(callers)

    def holding(self, word: str) -> set[str]:
        """The messages whose text holds `word`: anywhere when CJK, else as a word or a part of a name."""
        return {row.id for row in self.rows.values() if _holds(row.text, word)}


def _hides(other: Span, span: Span) -> bool:
    """Whether one summary lies within another, or has the same ends and is older."""
    if other[:2] == span[:2]:
        return other[2] > span[2]
    return other[0] <= span[0] and span[1] <= other[1]


def _holds(text: str, word: str) -> bool:
    if not word.isascii():
        return word in text
    return word in _ascii_words(text)


def _ascii_words(text: str) -> set[str]:
    """Lower-case words; a camelCase name gives its parts and itself."""
    words: set[str] = set()
    run = ""
    for character in [*text, " "]:
        if character.isascii() and character.isalpha():
            run += character
        elif run:
            words |= {run.lower(), *_camel_parts(run)}
            run = ""
    return words


def _camel_parts(name: str) -> list[str]:
    return "".join(f" {c.lower()}" if c.isupper() else c for c in name).split()
