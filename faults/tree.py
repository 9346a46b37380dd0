"""The plain model that a session is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Wire = dict[str, Any]


@dataclass
class Tree:
    """The messages a session must hold, who follows whom, and where it continues."""

    wires: dict[str, Wire] = field(default_factory=dict[str, Wire])
    parents: dict[str, str | None] = field(default_factory=dict[str, str | None])
    leaf: str | None = None
    gone: list[str] = field(default_factory=list[str])
    """Words that were deleted or written over, and must never be found again."""

    def copy(self) -> Tree:
        """Return a tree that can change without this one."""
        return Tree(dict(self.wires), dict(self.parents), self.leaf, list(self.gone))

    def add(self, wire: Wire, *, parent: str | None) -> None:
        """Store a message and continue from it; an id that is there already changes nothing."""
        if wire["id"] not in self.wires:
            self.wires[wire["id"]] = wire
            self.parents[wire["id"]] = parent
            self.leaf = wire["id"]

    def replace(self, wire: Wire) -> None:
        """Give a stored message other content in the same place."""
        old = self.wires[wire["id"]]
        if old != wire:
            self.gone.append(old["metadata"]["word"])
            self.wires[wire["id"]] = wire

    def delete(self, message_ids: Iterable[str]) -> None:
        """Take messages away; their children move up to the nearest one that stays."""
        for message_id in message_ids:
            if message_id not in self.wires:
                continue
            self.gone.append(self.wires.pop(message_id)["metadata"]["word"])
            above = self.parents.pop(message_id)
            for child, parent in self.parents.items():
                if parent == message_id:
                    self.parents[child] = above

    def path(self) -> list[str]:
        """Return the ids from the root to the leaf, root first."""
        path: list[str] = []
        current = self.leaf
        while current is not None:
            path.append(current)
            current = self.parents[current]
        return path[::-1]
