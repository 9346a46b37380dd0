"""Where messages stand in a tree: lanes, places and the ways between them.

A lane is a run of messages, one after the other; branching opens a new lane that remembers the place it branched from.
A *place* is one integer, the lane's number above 32 bits of position, so a lane's messages are neighbours in any
ordered index and a path is a handful of ranges. Positions start at 1 and are never used twice: a place whose message
was deleted stays empty, and lanes that branched there hang on the nearest message before it.

The walks below are generators: they yield a question about what is stored and are sent the answer, so the same walk
runs over a dict, over SQLite in its thread and over a server's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

POSITION_BITS = 32
T = TypeVar("T")


def lane_of(place: int) -> int:
    return place >> POSITION_BITS


def before_first(lane: int) -> int:
    """Return the place before a lane's first message, where no message ever is."""
    return lane << POSITION_BITS


def last_of(lane: int) -> int:
    """Return the last place a lane could ever have."""
    return (lane + 1 << POSITION_BITS) - 1


class Last(NamedTuple):
    """Asks for the last message's place from `low` to `high`, both included."""

    low: int
    high: int


class First(NamedTuple):
    """Asks for the first message's place from `low` to `high`, both included."""

    low: int
    high: int


class Origin(NamedTuple):
    """Asks for the place a lane branched from; `None` for a lane that starts at the root."""

    lane: int


class Forks(NamedTuple):
    """Asks for the lanes that branched from `low` to `high`, both included."""

    low: int
    high: int


class Roots(NamedTuple):
    """Asks for the lanes that start at the root."""


class Lanes(NamedTuple):
    """Asks for all lanes of the tree."""


Question = Last | First | Origin | Forks | Roots | Lanes
Walk = Generator[Question, Any, T]


def run(walk: Walk[T], answer: Callable[[Question], Any]) -> T:
    """Run a walk where every question is answered at once."""
    try:
        question = next(walk)
        while True:
            question = walk.send(answer(question))
    except StopIteration as stop:
        return stop.value


def nearest(place: int | None) -> Walk[int | None]:
    """Find the message at `place`, or the nearest surviving one above it."""
    while place is not None:
        found: int | None = yield Last(before_first(lane_of(place)), place)
        if found is not None:
            return found
        place = yield Origin(lane_of(place))
    return None


def parent(place: int) -> Walk[int | None]:
    """Find the message above the one at `place`."""
    return nearest(place - 1)


def children(place: int | None) -> Walk[list[int]]:
    """Find the messages whose nearest ancestor is the one at `place`; `None` finds the roots."""
    if place is None:
        lanes: list[int] = yield Roots()
        spots = [before_first(lane) for lane in lanes]
    else:
        spots = [place]
    found: list[int] = []
    while spots:
        spot = spots.pop()
        end = last_of(lane_of(spot))
        head: int | None = yield First(spot + 1, end)
        if head is not None:
            found.append(head)
            end = head - 1
        forks: list[int] = yield Forks(spot, end)
        spots.extend(before_first(lane) for lane in forks)
    return found


def leaves() -> Walk[list[int]]:
    """Find the messages that have no children."""
    found: list[int] = []
    lanes: list[int] = yield Lanes()
    for lane in lanes:
        last: int | None = yield Last(before_first(lane), last_of(lane))
        if last is not None and not (yield from children(last)):
            found.append(last)
    return found


def ranges(leaf: int | None) -> Walk[list[tuple[int, int]]]:
    """Find the path that ends at `leaf` as ranges of places, root first."""
    found: list[tuple[int, int]] = []
    while leaf is not None:
        lane = lane_of(leaf)
        found.append((before_first(lane), leaf))
        leaf = yield Origin(lane)
    return found[::-1]


def following(place: int, end: int) -> Walk[int | None]:
    """Find the first message at `place` or after it on the path to `end`."""
    for low, high in (yield from ranges(end)):
        if high >= place:
            found: int | None = yield First(max(low, place), high)
            if found is not None:
                return found
    return None


def origin(lane: int) -> Walk[int | None]:
    """Find the place a lane branched from."""
    return (yield Origin(lane))


def all_lanes() -> Walk[list[int]]:
    """Find the numbers of all lanes."""
    return (yield Lanes())
