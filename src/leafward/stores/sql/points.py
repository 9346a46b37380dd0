"""States attached to places of a tree, as operations.

In force at a place is the nearest state at or above it. Places rise along a path, so in each of its lanes that is the
last one of a range.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from leafward.core import lanes
from leafward.core.attached_state import TURN, AttachedState, digest, is_same, read_states
from leafward.core.errors import MessageNotFound
from leafward.core.ids import Scope
from leafward.stores.contracts import NO_HEAD, Head
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import (
    Operation,
    SessionRow,
    find_place,
    find_places,
    find_session,
    scope_ids,
    single,
    walk,
)

MOST_ASKED = 8
"""How many states, and how many messages, are looked for by one statement."""
ROOT = 0
"""The place of what is attached before the first message; no lane has it."""


class HeadOf(NamedTuple):
    """Asks where a session stands; called, it returns the operation that finds out."""

    scope: Scope
    names: Sequence[str]
    ids: Sequence[str]

    @property
    def leaf_id(self) -> None:
        return None

    def __call__(self) -> Operation[Head]:
        return head(self.scope, self.names, self.ids)

    def result(self, found: Head) -> Head:
        """Return what is asked for, when the head was found in another way."""
        return found


class StatesOf(NamedTuple):
    """Asks for the states in force at a message, or at the leaf; called, it returns the operation that finds them."""

    scope: Scope
    leaf_id: str | None
    names: Sequence[str] | None

    @property
    def ids(self) -> Sequence[str]:
        return ()

    def __call__(self) -> Operation[dict[str, dict[str, Any]]]:
        return states(self.scope, self.leaf_id, self.names)

    def result(self, found: Head) -> dict[str, dict[str, Any]]:
        """Return what is asked for, when the head of the branch was found in another way."""
        return found.states


def in_force(
    session: SessionRow, place: int | None, names: Iterable[str], in_lane: Mapping[str, str] | None = None
) -> Operation[dict[str, str]]:
    """Return the states of these names in force at a place, going up from lane to lane until all are found.

    `in_lane` is what the lane of the place holds of them, if that has been looked up, empty where removed.
    """
    asked = wanted = list(dict.fromkeys(names))
    found: dict[str, str] = {}
    while wanted:
        found |= (yield from _in_lane(session, place, wanted)) if in_lane is None else in_lane
        if place is None:
            break
        in_lane = None
        wanted = [name for name in wanted if name not in found]
        place = (yield from walk(session, lanes.origin(lanes.lane_of(place)))) if wanted else None
    return {name: text for name in asked if (text := found.get(name))}


def _in_lane(session: SessionRow, place: int | None, names: Sequence[str]) -> Operation[dict[str, str]]:
    """Return the last states of these names at a place, or above it in its lane, empty where removed."""
    low, high = (ROOT, ROOT) if place is None else lanes.up_to(place)
    found: dict[str, str] = {}
    for start in range(0, len(names), MOST_ASKED):
        some = names[start : start + MOST_ASKED]
        values = [value for name in some for value in (session.tree_no, name, low, high)]
        texts = (yield sql.states_in_lane(len(some)), tuple(values))[0]
        found |= {name: text for name, text in zip(some, texts, strict=True) if text is not None}
    return found


def attach(
    session: SessionRow,
    place: int | None,
    states: Sequence[AttachedState],
    version: int,
    in_lane: Mapping[str, str] | None = None,
) -> Operation[list[AttachedState]]:
    """Attach states to a place; return those that were not in force there before.

    `in_lane` is what was found of them in the lane of the place, or of the leaf right above it.
    """
    before = yield from in_force(session, place, (one.name for one in states), in_lane)
    # Of two with one name the last counts.
    changed = [one for one in {one.name: one for one in states}.values() if not is_same(one.text, before.get(one.name))]
    for name, text in changed:
        yield sql.SET_STATE, (session.tree_no, name, ROOT if place is None else place, version, text, digest(text))
    return changed


def names(session: SessionRow) -> Operation[list[str]]:
    """Return the names that any place of the tree has a state of, in order."""
    found: list[str] = []
    name = single((yield sql.NEXT_STATE_NAME, (session.tree_no, "")))
    while name is not None:
        found.append(name)
        name = single((yield sql.NEXT_STATE_NAME, (session.tree_no, name)))
    return found


def has_any(session: SessionRow, low: int, high: int) -> Operation[bool]:
    """Tell whether a state is attached to one of these places."""
    for name in (yield from names(session)):
        if (yield sql.HAS_STATE, (session.tree_no, name, low, high)):
            return True
    return False


def states(scope: Scope, leaf_id: str | None, wanted: Sequence[str] | None) -> Operation[dict[str, dict[str, Any]]]:
    """Return the states in force at a message, or at the leaf."""
    if leaf_id is None and wanted is not None and (found := (yield from _on_trunk(scope, wanted, ()))) is not None:
        return found.states
    session = yield from find_session(scope)
    if session is None:
        if leaf_id is not None:
            raise MessageNotFound(leaf_id)
        return {}
    place = session.leaf if leaf_id is None else (yield from find_place(session, leaf_id))
    chosen = (yield from names(session)) if wanted is None else wanted
    return read_states((yield from in_force(session, place, chosen)))


def head(scope: Scope, wanted: Sequence[str], ids: Sequence[str]) -> Operation[Head]:
    if (found := (yield from _on_trunk(scope, wanted, ids))) is not None:
        return found
    session = yield from find_session(scope)
    if session is None:
        return NO_HEAD
    leaf_id = None if session.leaf is None else single((yield sql.GET_ID, (session.leaf,)))
    places = yield from find_places(session, ids)
    path = (yield from walk(session, lanes.ranges(session.leaf))) if places else []
    known = {one: lanes.on_path(path, place) for one, place in places.items()}
    return Head(session.version, leaf_id, read_states((yield from in_force(session, session.leaf, wanted))), known)


def _on_trunk(scope: Scope, wanted: Sequence[str], ids: Sequence[str]) -> Operation[Head | None]:
    """Return the head of a session by one statement; `None` when its leaf is on a branch, or there is none."""
    names, asked = list(dict.fromkeys(wanted)), list(dict.fromkeys(ids))
    if len(names) > MOST_ASKED or len(asked) > MOST_ASKED:
        return None
    rows = yield sql.head_on_trunk(len(names), len(asked)), (*names, *asked, *scope_ids(scope))
    if not rows or sql.OFF_PATH in rows[0]:
        return None
    version, leaf, leaf_id, *found = rows[0]
    states = read_states((name, text) for name, text in zip(names, found, strict=False) if text)
    places = zip(asked, found[len(names) :], strict=True) if asked else ()
    path = [] if leaf is None else [lanes.up_to(leaf)]
    known = {one: lanes.on_path(path, place) for one, place in places if place is not None}
    return Head(version, leaf_id, states, known)


def drop_unreachable(session: SessionRow, gone: Iterable[int]) -> Operation[None]:
    """Remove the states of deleted messages, these and earlier ones, that are in force for no message any more."""
    kept = yield from names(session)
    low: int | None = None
    for deleted in sorted(gone, reverse=True) if kept else ():
        if low is not None and low <= deleted:
            continue
        # Only a message right below a deleted one can have been the last that its state was in force for.
        ranges = yield from walk(session, lanes.gap(deleted))
        low = ranges[0][0]
        for name in kept:
            for first, last in ranges:
                for (place,) in (yield sql.LIST_STATE_PLACES, (session.tree_no, name, first, last)):
                    if not (yield from _is_needed(session, name, place)):
                        yield sql.DROP_STATE, (session.tree_no, name, place)


def _is_needed(session: SessionRow, name: str, place: int) -> Operation[bool]:
    """Tell whether the state of a deleted message is in force for any that is left.

    The next one in its lane hides it from there on. So of the states that deletes leave behind there are no more than
    branches, however many messages are deleted.
    """
    last = lanes.last_of(lanes.lane_of(place))
    following = single((yield sql.NEXT_STATE_PLACE, (session.tree_no, name, place, last)))
    return (yield from walk(session, lanes.has_below(place, following)))


def copy(source: SessionRow, copied: SessionRow, moves: Sequence[tuple[int, int, int]]) -> Operation[None]:
    """Copy the states along a path; each move is a range of its places and their distance to the new ones."""
    for name in (yield from names(source)):
        if name != TURN:
            for low, high, distance in ((ROOT, ROOT, 0), *moves):
                yield sql.COPY_STATES, (copied.tree_no, distance, 1, source.tree_no, name, low, high)


def listed(session: SessionRow, ids: dict[int, str]) -> Operation[list[tuple[str | None, AttachedState]]]:
    """Return every state of a tree with the id of its message; `ids` are those of the messages by their places.

    The state of a deleted message is returned for each message right below it that has no nearer one.
    """
    found: list[tuple[str | None, AttachedState]] = []
    for name in (yield from names(session)):
        if name == TURN:
            continue
        by_place: dict[int, str | None] = dict((yield sql.LIST_STATES, (session.tree_no, name)))
        for place in sorted(by_place, reverse=True):
            if place != ROOT and place not in ids:
                for below in (yield from walk(session, lanes.children(place))):
                    by_place.setdefault(below, by_place[place])
        found += [
            (ids.get(place), AttachedState(name, text))
            for place, text in sorted(by_place.items())
            if place == ROOT or place in ids
        ]
    return found
