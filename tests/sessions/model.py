"""A session as plain Python: parent pointers in a dict, slow and obviously right."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

LEAF = object()
"""Stands for "below the current leaf" where a parent is asked for."""

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


@dataclass
class Model:
    """What a session should hold after the calls made so far."""

    rows: dict[str, Row] = field(default_factory=dict)
    leaf: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    stored: int = 0

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

    def update(self, row: Row) -> bool:
        old = self.rows[row.id]
        self.rows[row.id] = replace(old, role=row.role, parts=row.parts)
        self.told.append(("update", (row.id,)))
        return True

    def upsert(self, row: Row) -> bool:
        return self.update(row) if row.id in self.rows else self.append([row])

    def delete(self, ids: Iterable[str]) -> int:
        present = [name for name in dict.fromkeys(ids) if name in self.rows]
        for name in present:
            gone = self.rows.pop(name)
            for child in self.children(name):
                self.rows[child.id] = replace(child, parent=gone.parent)
            if self.leaf == name:
                self.leaf = gone.parent
            self.labels.pop(name, None)
        if present:
            self._forget(present)
            self.told.append(("delete", tuple(sorted(present))))
        return len(present)

    def clear(self) -> bool:
        self._forget(list(self.rows))
        self.rows, self.labels, self.leaf = {}, {}, None
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

    def leaves(self) -> list[Row]:
        parents = {row.parent for row in self.rows.values()}
        return sorted((row for row in self.rows.values() if row.id not in parents), key=lambda row: row.number)

    def recent(self, count: int) -> list[Row]:
        """The last `count` messages, and as many more as keep calls and their results together."""
        path = self.path(self.leaf)
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
