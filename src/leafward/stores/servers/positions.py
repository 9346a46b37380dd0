"""Where the next append to a session stands, as the process knows it that made the last one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from leafward.core.attached_state import AttachedState, digest
from leafward.core.parent import LATEST_LEAF
from leafward.stores.contracts import Weight
from leafward.stores.leases import Fence
from leafward.stores.sql.commands import Append

MOST_NAMES = 32
"""How many states are remembered of a session."""


class Digested(NamedTuple):
    """A state to be attached, with what it is compared by."""

    name: str
    text: str | None
    digest: str | None

    @property
    def state(self) -> AttachedState:
        return AttachedState(self.name, self.text)


def digested(states: Iterable[AttachedState]) -> list[Digested]:
    """Return states with their digests, each name once: of two with one name the last counts."""
    return [Digested(*one, digest(one.text)) for one in {one.name: one for one in states}.values()]


class Position(NamedTuple):
    """Where an append stands when nothing was written to its session since: below the last one, in the same lane."""

    session_no: int
    tree_no: int
    version: int
    leaf: int
    leaf_id: str
    states: Mapping[str, str | None] = {}
    """The digests of those states that are known to be in force at the leaf, or, with `None`, not to be."""

    @property
    def row(self) -> tuple[int, int, int, int]:
        """What the session's row is compared with."""
        return self.session_no, self.tree_no, self.version, self.leaf

    def plan(self, command: Append, fence: Fence | None) -> Planned | None:
        """Return how to append here; `None` if it goes elsewhere, or has states of which nothing is known here."""
        if command.parent is not LATEST_LEAF and command.parent != self.leaf_id:
            return None
        if not command.drafts or command.expected_version not in (None, self.version):
            return None
        if not command.state:
            return Planned(self, command, fence)
        if any(one.name not in self.states for one in command.state):
            return None
        states = digested(command.state)
        return Planned(self, command, fence, states, [one for one in states if self.states[one.name] != one.digest])

    def moved(self, version: int, leaf: int, leaf_id: str, states: Sequence[Digested]) -> Position:
        """Return the position after a write that brought these states into force, or found them so."""
        known = self.states
        if states:
            known = {**known, **{one.name: one.digest for one in states}}
            if len(known) > MOST_NAMES:
                # States under ever new names are not worth remembering.
                known = {}
        return Position(self.session_no, self.tree_no, version, leaf, leaf_id, known)


class Placed(NamedTuple):
    """What an append has come to: where the next one stands, the weight if it was asked for, and the states written."""

    next: Position
    weight: Weight | None
    states: Sequence[AttachedState] = ()


class Planned(NamedTuple):
    """An append to be made where this process appended last."""

    position: Position
    command: Append
    fence: Fence | None
    states: Sequence[Digested] = ()
    """All of its states."""
    changed: Sequence[Digested] = ()
    """Those that are to be written."""

    @property
    def leaf(self) -> int:
        """The place of its last message."""
        return self.position.leaf + len(self.command.drafts)

    def placed(self, weight: Weight | None) -> Placed:
        """Return what is so once it is made."""
        leaf_id = self.command.drafts[-1].message.id
        after = self.position.moved(self.position.version + 1, self.leaf, leaf_id, self.states)
        return Placed(after, weight, [one.state for one in self.changed])


class Attached(NamedTuple):
    """What attaching states to the leaf has come to."""

    session_no: int
    version: int
    leaf_id: str | None
    states: Sequence[Digested]
    """All of them."""
    changed: Sequence[AttachedState]
    """Those that were written."""


def first_states(command: Append) -> list[Digested]:
    """Return the states that the first append to a session writes: there are none yet that it could remove."""
    return [one for one in digested(command.state) if one.text is not None]


def first_placed(command: Append, written: Sequence[Digested], session_no: int, tree_no: int, leaf: int) -> Placed:
    """Return what the first append to a session has come to, by the numbers of its rows."""
    before = Position(session_no, tree_no, 0, leaf - len(command.drafts), "")
    after = before.moved(1, leaf, command.drafts[-1].message.id, digested(command.state))
    weight = Weight(command.tokens, None) if command.weigh else None
    return Placed(after, weight, [one.state for one in written])
