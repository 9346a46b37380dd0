"""What a writer will do, decided before it starts, so that the judge knows it without asking the writer."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, cast

from faults.tree import Tree, Wire
from faults.words import sentence, unique_word

Kind = Literal["append", "batch", "crowd", "branch", "update", "delete", "checkout"]

MIXED: Mapping[Kind, int] = {
    "append": 60, "batch": 12, "crowd": 8, "branch": 6, "update": 6, "delete": 5, "checkout": 3,
}  # fmt: skip
BATCHES: Mapping[Kind, int] = {"append": 20, "batch": 80}
APPENDS: Mapping[Kind, int] = {"append": 100}

_NEEDS_MESSAGES = 8
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Op:
    """One call of a writer.

    A `crowd` is several appends at the same moment, whose order the store chooses; a `branch` is an
    append below `target`; `delete` names `targets`.
    """

    kind: Kind
    messages: tuple[Wire, ...] = ()
    target: str | None = None
    targets: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the operation as JSON for a writer in another process."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Op:
        """Read what `to_json` wrote."""
        return cls(
            kind=data["kind"],
            messages=tuple(data["messages"]),
            target=data["target"],
            targets=tuple(data["targets"]),
        )

    def ids(self) -> tuple[str, ...]:
        """Return the ids of the messages it writes."""
        return tuple(message["id"] for message in self.messages)


def word_of(wire: Wire) -> str:
    """Return the unique word of a planned message."""
    return cast("str", wire["metadata"]["word"])


class Planner:
    """Plans operations that a tree allows; no two messages of one planner share a word or an id."""

    def __init__(self, rng: random.Random, weights: Mapping[Kind, int] = MIXED) -> None:
        self._rng = rng
        self._kinds = list(weights)
        self._weights = list(weights.values())
        self._count = 0
        self._crowded: set[str] = set()

    def plan(self, tree: Tree, count: int) -> list[Op]:
        """Return `count` operations that a writer can do one after the other, starting from `tree`."""
        return list(self._steps(tree.copy(), count))

    def _steps(self, tree: Tree, count: int) -> Iterator[Op]:
        for _ in range(count):
            op = self._next(tree)
            apply(tree, op)
            yield op

    def _next(self, tree: Tree) -> Op:
        kind = self._rng.choices(self._kinds, self._weights)[0]
        if kind in ("branch", "update", "delete", "checkout") and len(tree.wires) < _NEEDS_MESSAGES:
            kind = "append"
        if kind in ("batch", "crowd"):
            op = Op(kind=kind, messages=tuple(self._message() for _ in range(self._rng.randint(2, 6))))
            self._crowded.update(op.ids() if kind == "crowd" else ())
            return op
        if kind == "branch":
            return Op(kind=kind, messages=(self._message(),), target=self._any(tree))
        if kind == "update":
            return Op(kind=kind, messages=(self._rewritten(tree.wires[self._any(tree)]),))
        if kind == "checkout":
            return Op(kind=kind, target=self._any(tree))
        if kind == "delete":
            # The leaf stays: what a session continues from is then the same in every reading of the promise.
            # So does a crowd: its order is the store's choice, and who reads later must be able to see it.
            others = [one for one in tree.wires if one != tree.leaf and one not in self._crowded]
            return Op(kind=kind, targets=tuple(self._rng.sample(others, min(len(others), self._rng.randint(1, 3)))))
        return Op(kind="append", messages=(self._message(),))

    def _any(self, tree: Tree) -> str:
        return self._rng.choice(list(tree.wires))

    def _message(self) -> Wire:
        self._count += 1
        number = self._count
        word = unique_word(number)
        created_at = _EPOCH + timedelta(microseconds=number)
        return {
            "id": f"m-{number}",
            "role": "user" if number % 2 else "assistant",
            "parts": [
                {"type": "text", "text": sentence(word)},
                {
                    "type": "x-trace",
                    "numbers": [number, -number, number / 4],
                    "nested": {"空": None, "ok": True},
                },
            ],
            "createdAt": created_at.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "metadata": {"word": word, "padding": "p" * self._rng.choice((0, 0, 0, 200, 5000))},
        }

    def _rewritten(self, wire: Wire) -> Wire:
        return self._message() | {"id": wire["id"], "role": wire["role"], "createdAt": wire["createdAt"]}


def apply(tree: Tree, op: Op, *, ranks: Mapping[str, int] | None = None) -> None:
    """Do to the model what `op` does to a session.

    `ranks` says in which order the store took the members of a crowd.
    """
    if op.kind == "update":
        for wire in op.messages:
            tree.replace(wire)
    elif op.kind == "delete":
        tree.delete(op.targets)
    elif op.kind == "checkout":
        tree.leaf = op.target
    elif op.kind == "branch":
        tree.add(op.messages[0], parent=op.target)
    else:
        messages = op.messages
        if op.kind == "crowd" and ranks is not None:
            messages = tuple(sorted(messages, key=lambda wire: ranks.get(wire["id"], len(ranks))))
        for wire in messages:
            tree.add(wire, parent=tree.leaf)
