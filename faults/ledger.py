"""The outside ledger of a writer, and the judgement of what was found after it died.

A writer says `i 3` before it begins operation 3 and `a 3` when the call has returned; members of a crowd
are acknowledged one by one (`m 3 1`). The lines go to a pipe, so they outlive the writer. One operation at
most is open at a time, hence what is stored must be the acknowledged operations and either all of the open
one or nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from faults.plan import Op, apply, word_of
from faults.tree import Tree, Wire


@dataclass(frozen=True)
class Violation:
    """A promise that was broken: which one, and what was seen."""

    promise: str
    detail: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.detail}"


@dataclass
class Ledger:
    """What a writer began and what was acknowledged to it."""

    ops: Sequence[Op]
    begun: int = 0
    acked: int = 0
    members: set[int] = field(default_factory=set[int])
    """Which members of the open crowd were acknowledged."""
    error: str | None = None

    @classmethod
    def read(cls, ops: Sequence[Op], lines: Iterable[str]) -> Ledger:
        """Read the lines of a writer."""
        ledger = cls(ops)
        for line in lines:
            word, _, rest = line.partition(" ")
            if word == "i":
                ledger.begun = int(rest) + 1
                ledger.members = set()
            elif word == "a":
                ledger.acked = int(rest) + 1
            elif word == "m":
                ledger.members.add(int(rest.split()[1]))
            elif word == "x":
                ledger.error = rest
        return ledger

    @property
    def open_op(self) -> Op | None:
        """The operation that was begun and never acknowledged as a whole."""
        return self.ops[self.acked] if self.begun > self.acked else None

    def acked_ops(self) -> Sequence[Op]:
        """Return the acknowledged operations."""
        return self.ops[: self.acked]

    def acked_messages(self) -> int:
        """Return how many messages were acknowledged as written."""
        return sum(len(op.messages) for op in self.acked_ops()) + len(self.members)


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a session answered when it was read again."""

    parents: Mapping[str, str | None]
    wires: Mapping[str, Wire]
    path: Sequence[str]
    path_length: int
    leaf: str | None
    found: Mapping[str, Sequence[str]]
    repeated: Sequence[str] = ()

    def ranks(self) -> dict[str, int]:
        """Return the place of each message in the order the session lists its tree."""
        return {message_id: rank for rank, message_id in enumerate(self.parents)}


@dataclass(frozen=True)
class Judgement:
    """The state that must be there, whether the open operation had been committed, and what was wrong."""

    tree: Tree
    committed: bool
    violations: list[Violation]


def judge(before: Tree, ledger: Ledger, observed: Observed) -> Judgement:
    """Compare what was found with what the ledger allows."""
    tree = before.copy()
    ranks = observed.ranks()
    for op in ledger.acked_ops():
        apply(tree, op, ranks=ranks)
    violations: list[Violation] = []
    committed = False
    op = ledger.open_op
    if op is not None:
        violations += _torn(op, observed)
        open_part = _visible_part(op, ledger.members, tree, observed)
        committed = open_part is not None
        if open_part is not None:
            apply(tree, open_part, ranks=ranks)
    if ledger.error is not None:
        violations.append(Violation("writer works", ledger.error))
    return Judgement(tree, committed, violations + compare(tree, observed))


def compare(tree: Tree, observed: Observed) -> list[Violation]:
    """Return every difference between the model and what was read."""
    return [
        *_compare_messages(tree, observed),
        *_compare_shape(tree, observed),
        *_compare_search(tree, observed),
    ]


def _visible_part(op: Op, members: set[int], tree: Tree, observed: Observed) -> Op | None:
    """Return what of the open operation must be there: all of it, for a crowd its known members, or None."""
    if op.kind == "crowd":
        kept = tuple(wire for n, wire in enumerate(op.messages) if n in members or wire["id"] in observed.wires)
        return Op(kind="crowd", messages=kept) if kept else None
    if op.kind == "update":
        seen = any(observed.wires.get(wire["id"]) == wire for wire in op.messages)
    elif op.kind == "delete":
        seen = any(message_id not in observed.wires for message_id in op.targets)
    elif op.kind == "checkout":
        seen = observed.leaf == op.target and tree.leaf != op.target
    else:
        seen = any(message_id in observed.wires for message_id in op.ids())
    return op if seen else None


def _torn(op: Op, observed: Observed) -> list[Violation]:
    if op.kind == "batch":
        there = [message_id in observed.wires for message_id in op.ids()]
    elif op.kind == "delete":
        there = [message_id in observed.wires for message_id in op.targets]
    else:
        return []
    if any(there) and not all(there):
        return [Violation("whole or absent", f"{sum(there)} of {len(there)} messages of one {op.kind}")]
    return []


def _compare_messages(tree: Tree, observed: Observed) -> list[Violation]:
    violations = [Violation("stored once", f"{message_id} is listed twice") for message_id in observed.repeated]
    for message_id, wire in tree.wires.items():
        if message_id not in observed.wires:
            violations.append(Violation("nothing acknowledged is lost", message_id))
        elif observed.wires[message_id] != wire:
            violations.append(Violation("content is exact", f"{message_id}: {observed.wires[message_id]!r}"))
    return violations + [
        Violation("nothing unasked is stored", message_id)
        for message_id in observed.wires
        if message_id not in tree.wires
    ]


def _compare_shape(tree: Tree, observed: Observed) -> list[Violation]:
    violations: list[Violation] = []
    for message_id, parent in tree.parents.items():
        found = observed.parents.get(message_id, parent)
        if found != parent:
            violations.append(Violation("parents are right", f"{message_id} follows {found}, not {parent}"))
    path = tree.path()
    if list(observed.path) != path:
        violations.append(Violation("history is the chain", _first_difference(path, observed.path)))
    if observed.path_length != len(observed.path):
        lengths = f"get_path_length {observed.path_length}, history {len(observed.path)}"
        violations.append(Violation("path length agrees", lengths))
    if observed.leaf != tree.leaf:
        violations.append(Violation("the leaf is kept", f"{observed.leaf}, not {tree.leaf}"))
    return violations


def _compare_search(tree: Tree, observed: Observed) -> list[Violation]:
    owners = {word_of(wire): message_id for message_id, wire in tree.wires.items()}
    violations: list[Violation] = []
    for word, hits in observed.found.items():
        expected = [owners[word]] if word in owners else []
        if list(hits) != expected:
            violations.append(Violation("search agrees", f"{word!r} found {list(hits)}, not {expected}"))
    return violations


def _first_difference(expected: Sequence[str], found: Sequence[str]) -> str:
    for place, (left, right) in enumerate(zip(expected, found, strict=False)):
        if left != right:
            return f"place {place} holds {right}, not {left}"
    return f"{len(found)} messages, not {len(expected)}"
