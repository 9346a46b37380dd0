"""Where messages stand in a tree: lanes, places and the ways between them.

A lane is a run of messages, one after the other; branching opens a new lane that remembers the place it branched from.
A *place* is one integer, the lane's number above 32 bits of position, so a lane's messages are neighbours in any
ordered index and a path is a handful of ranges. Positions start at 1 and are never used twice: a place whose message
was deleted stays empty, and lanes that branched there hang on the nearest message before it.

The walks below are generators: they yield a question about what is stored and are sent the answer, so the same walk
runs over a dict, over SQLite in its thread and over a server's connection.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

POSITION_BITS = 32
T = TypeVar("T")

Ranges = Sequence[tuple[int, int]]
"""A path as ranges of places, one for each lane, root first, both ends included."""


def lane_of(place: int) -> int:
    return place >> POSITION_BITS


def before_first(lane: int) -> int:
    """Return the place before a lane's first message, where no message ever is."""
    return lane << POSITION_BITS


def last_of(lane: int) -> int:
    """Return the last place a lane could ever have."""
    return (lane + 1 << POSITION_BITS) - 1


def up_to(place: int) -> tuple[int, int]:
    """Return the range of a lane's places that ends at `place`."""
    return before_first(lane_of(place)), place


def on_path(path: Ranges, place: int) -> bool:
    """Tell whether a path runs through a place, even one whose message was deleted."""
    index = bisect_right(path, place, key=lambda one: one[0]) - 1
    return index >= 0 and place <= path[index][1]


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
    """Asks for all lanes of the tree: the place each branched from, by its number, which is what `Origin` asks for."""


class Newest(NamedTuple):
    """Asks for the version and the place of the last message from `low` to `high`, both included."""

    low: int
    high: int


Question = Last | First | Origin | Forks | Roots | Lanes | Newest
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
        found: int | None = yield Last(*up_to(place))
        if found is not None:
            return found
        place = yield Origin(lane_of(place))
    return None


def gap(place: int) -> Walk[list[tuple[int, int]]]:
    """Find the places without a message from `place` up to the nearest surviving message, as ranges."""
    found: list[tuple[int, int]] = []
    at: int | None = place
    while at is not None:
        lane = lane_of(at)
        last: int | None = yield Last(before_first(lane), at)
        found.append(((before_first(lane) if last is None else last) + 1, at))
        at = (yield Origin(lane)) if last is None else None
    return found


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


def has_below(place: int, end: int | None = None) -> Walk[bool]:
    """Tell whether a message hangs below `place`, but for those from `end` on in its lane and what branched there."""
    spots = [(place, last_of(lane_of(place)) if end is None else end - 1)]
    while spots:
        spot, last = spots.pop()
        if (yield First(spot + 1, last)) is not None:
            return True
        forks: list[int] = yield Forks(spot, last)
        spots.extend((before_first(lane), last_of(lane)) for lane in forks)
    return False


def leaves() -> Walk[list[int]]:
    """Find the messages that have no children."""
    found: list[int] = []
    for lane in (yield from all_lanes()):
        last: int | None = yield Last(before_first(lane), last_of(lane))
        if last is not None and not (yield from children(last)):
            found.append(last)
    return found


def ranges(leaf: int | None) -> Walk[list[tuple[int, int]]]:
    """Find the path that ends at `leaf` as ranges of places, root first."""
    found: list[tuple[int, int]] = []
    while leaf is not None:
        found.append(up_to(leaf))
        leaf = yield Origin(lane_of(leaf))
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


def all_lanes() -> Walk[dict[int, int | None]]:
    """Find the place each lane branched from, by the lane's number, in the order of the numbers."""
    return (yield Lanes())


def tip(place: int | None) -> Walk[int | None]:
    """Find the newest leaf at `place` or below it; `None` finds that of the whole tree.

    A message is older than those below it, so the newest of them all is a leaf, and the last of its lane.
    """
    below = {} if place is None else {lane_of(place): place}
    # A lane comes after the one it branched from.
    for lane, origin in (yield from all_lanes()).items():
        if place is None or (origin is not None and origin >= below.get(lane_of(origin), origin + 1)):
            below[lane] = before_first(lane)
    newest: tuple[int, int] | None = None
    for lane, first in below.items():
        found: tuple[int, int] | None = yield Newest(first, last_of(lane))
        if found is not None and (newest is None or found > newest):
            newest = found
    return None if newest is None else newest[1]


def is_on_path(place: int, end: int | None) -> Walk[bool]:
    """Tell whether the message at `place` is on the path that ends at `end`."""
    # Places rise along a path: above the lane of `place` there is nothing to look for.
    while end is not None and lane_of(end) > lane_of(place):
        end = yield Origin(lane_of(end))
    return end is not None and lane_of(end) == lane_of(place) and place <= end
