"""Questions about the head of a session that a server answers by one statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeGuard

from leafward.core import lanes
from leafward.core.attached_state import read_states
from leafward.stores.contracts import NO_HEAD, Head
from leafward.stores.sql.points import HeadOf, StatesOf

MOST_ASKED = 16
"""How many states, and how many messages, one statement looks for."""


class Shape(NamedTuple):
    """What tells the statements apart: whether a leaf is named, and for how many names and ids there is room."""

    has_leaf: bool
    names: int
    ids: int


class Found(NamedTuple):
    """A head that was found along the path to the leaf."""

    head: Head
    lane: int | None = None
    """The lane of the leaf, if the path is in no other."""


class Asked(NamedTuple):
    """A question, with the names and the ids that it asks for, each once."""

    question: HeadOf | StatesOf
    names: list[str]
    ids: list[str]

    @classmethod
    def of(cls, question: HeadOf | StatesOf) -> Asked:
        return cls(question, list(dict.fromkeys(question.names or ())), list(dict.fromkeys(question.ids)))

    @property
    def shape(self) -> Shape:
        return Shape(self.question.leaf_id is not None, _room(len(self.names)), _room(len(self.ids)))

    @property
    def parameters(self) -> tuple[list[str], list[str], list[str]]:
        """The leaf if one is named, the names and the ids; of both the last one fills up the room."""
        leaf = [] if self.question.leaf_id is None else [self.question.leaf_id]
        return leaf, _padded(self.names), _padded(self.ids)

    @property
    def nothing(self) -> Found | None:
        """What is so when there is no row: no session, or not the message that was named, which is an error."""
        return Found(NO_HEAD) if self.question.leaf_id is None else None

    def head(
        self,
        version: int,
        leaf_id: str | None,
        ends: Sequence[int | None],
        texts: Mapping[str, str | None],
        places: Sequence[int | None],
    ) -> Found | None:
        """Return the head from what was found along some lanes; `None` if it takes more of them to know it.

        `ends` are the last places of the path in these lanes, the leaf's first, and in the one beyond them.
        """
        found = {name: texts[name] for name in self.names}
        if ends[-1] is not None and (self.ids or None in found.values()):
            return None
        states = {name: text for name, text in found.items() if text is not None}
        known = zip(self.ids, places, strict=False)
        path = [lanes.up_to(end) for end in reversed(ends) if end is not None] if self.ids else []
        on_path = {one: lanes.on_path(path, place) for one, place in known if place is not None}
        leaf, above = ends[0], ends[1]
        lane = None if leaf is None or above is not None else lanes.lane_of(leaf)
        return Found(Head(version, leaf_id, read_states(states), on_path), lane)


def can_be_asked(question: object) -> TypeGuard[HeadOf | StatesOf]:
    """Tell whether what is to be read is a question that one statement has room for."""
    if not isinstance(question, (HeadOf, StatesOf)) or question.names is None:
        return False
    return len(question.names) <= MOST_ASKED and len(question.ids) <= MOST_ASKED


def _room(count: int) -> int:
    # Of few sizes, because each statement is prepared by itself.
    return count if count <= 4 else 8 if count <= 8 else MOST_ASKED


def _padded(values: list[str]) -> list[str]:
    return values + values[-1:] * (_room(len(values)) - len(values))
