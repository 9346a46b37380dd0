"""One session's tree in memory."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from leafward.core import lanes
from leafward.core.errors import MessageNotFound
from leafward.core.json import decode_body
from leafward.core.lanes import First, Forks, Lanes, Last, Origin, Question, Roots, Walk
from leafward.core.message import Message
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.core.tree import Branch, Outline
from leafward.stores.contracts import ChangeKind, ChangeRecord, Cursor, Draft, PathPage

T = TypeVar("T")


@dataclass(slots=True)
class Row:
    """One stored message."""

    seq: int
    id: str
    role: str
    at: int
    tokens: int
    body: bytes

    def message(self) -> Message:
        # Decoded anew each time: a caller who changes what he got does not change what is stored.
        return Message.stored(self.id, self.role, self.at, decode_body(self.body))


@dataclass(slots=True)
class MemoryTree:
    """The messages of one session by place, with its lanes, labels, leaf and log."""

    rows: dict[int, Row] = field(default_factory=dict[int, Row])
    places: list[int] = field(default_factory=list[int])
    """The keys of `rows`, sorted."""
    place_of: dict[str, int] = field(default_factory=dict[str, int])
    origins: dict[int, int | None] = field(default_factory=dict[int, int | None])
    forks: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Where lanes branched from and their numbers, sorted."""
    roots: list[int] = field(default_factory=list[int])
    floors: dict[int, int] = field(default_factory=dict[int, int])
    """The lowest place each lane may still use."""
    labels: dict[str, str] = field(default_factory=dict[str, str])
    log: list[ChangeRecord] = field(default_factory=list[ChangeRecord])
    leaf: int | None = None
    version: int = 0
    lanes_made: int = 0

    def append(self, drafts: Sequence[Draft], parent: ParentId) -> list[Message]:
        first_new = next((draft for draft in drafts if draft.message.id not in self.place_of), None)
        if first_new is None:
            return [self.rows[self.find(draft.message.id)].message() for draft in drafts]
        above: int | None = None
        if first_new is drafts[0]:
            above = self.leaf if parent is LATEST_LEAF else None if parent is None else self.find(parent)
        self.version += 1
        opened: set[int] = set()
        stored: list[Message] = []
        for draft in drafts:
            message = draft.message
            known = self.place_of.get(message.id)
            if known is None:
                # Only the batch's first message continues a lane of others, so that
                # the places of one version rise in the order of the batch.
                above = self._next_place(above, may_continue=not opened or _lane(above) in opened)
                opened.add(lanes.lane_of(above))
                self.rows[above] = Row(self.version, message.id, message.role, message.at, draft.tokens, draft.body)
                self.place_of[message.id] = self.leaf = above
                insort(self.places, above)
                stored.append(message)
            else:
                above = known
                stored.append(self.rows[known].message())
        return stored

    def update(self, draft: Draft) -> Message:
        message = draft.message
        row = self.rows[self.find(message.id)]
        row.role, row.tokens, row.body = message.role, draft.tokens, draft.body
        self._record("update", [message.id])
        return row.message()

    def upsert(self, draft: Draft, parent: ParentId) -> Message:
        return self.update(draft) if draft.message.id in self.place_of else self.append([draft], parent)[0]

    def delete(self, message_ids: Iterable[str]) -> int:
        gone = [message_id for message_id in dict.fromkeys(message_ids) if message_id in self.place_of]
        for message_id in gone:
            place = self.place_of.pop(message_id)
            del self.rows[place], self.places[bisect_left(self.places, place)]
            self.labels.pop(message_id, None)
            lane = lanes.lane_of(place)
            self.floors[lane] = max(self.floors[lane], place + 1)
        if gone:
            self.leaf = self.walk(lanes.nearest(self.leaf))
            self._record("delete", gone)
        return len(gone)

    def clear(self) -> None:
        if self.rows:
            for held in (
                self.rows,
                self.places,
                self.place_of,
                self.origins,
                self.forks,
                self.roots,
                self.floors,
                self.labels,
            ):
                held.clear()
            self.leaf = None
            self._record("clear", [])

    def checkout(self, message_id: str | None) -> None:
        place = None if message_id is None else self.find(message_id)
        if place != self.leaf:
            self.leaf = place
            self._record("checkout", [] if message_id is None else [message_id])

    def label(self, message_id: str, name: str | None) -> None:
        self.find(message_id)
        if self.labels.get(message_id) == name:
            return
        if name is None:
            del self.labels[message_id]
        else:
            self.labels[message_id] = name
        self._record("label", [message_id])

    def get(self, message_id: str) -> Message | None:
        place = self.place_of.get(message_id)
        return None if place is None else self.rows[place].message()

    def message_at(self, place: int | None) -> Message | None:
        return None if place is None else self.rows[place].message()

    def parent(self, message_id: str) -> Message | None:
        return self.message_at(self.walk(lanes.parent(self.find(message_id))))

    def children(self, message_id: str | None) -> list[Message]:
        return self._in_order(self.walk(lanes.children(None if message_id is None else self.find(message_id))))

    def leaves(self) -> list[Message]:
        return self._in_order(self.walk(lanes.leaves()))

    def path(self, leaf_id: str | None) -> list[Message]:
        return [self.rows[place].message() for place in self._path_places(self._end(leaf_id))]

    def path_length(self, leaf_id: str | None) -> int:
        return sum(1 for _ in self._path_places(self._end(leaf_id)))

    def path_page(self, leaf_id: str | None, cursor: Cursor | None, newest_first: bool, limit: int) -> PathPage:
        leaf = cursor.leaf if cursor else self._end(leaf_id)
        if leaf is None or lanes.lane_of(leaf) not in self.origins:
            return PathPage([], [], [], None)
        found = self._path_places(leaf, beyond=cursor.place if cursor else None, newest_first=newest_first)
        chosen = [place for place, _ in zip(found, range(limit), strict=False)]
        rows = [self.rows[place] for place in chosen]
        return PathPage(
            [row.message() for row in rows],
            [row.tokens for row in rows],
            [len(row.body) for row in rows],
            Cursor(leaf, chosen[-1]) if len(chosen) == limit else None,
        )

    def outline(self) -> Outline:
        branches = [Branch(place, row.seq, row.message()) for place, row in self.rows.items()]
        return Outline(branches, dict(self.origins), dict(self.labels), self.leaf)

    def labels_in_order(self) -> dict[str, str]:
        return {message_id: self.labels[message_id] for message_id in sorted(self.labels, key=self.find)}

    def changes(self, since: int) -> list[ChangeRecord]:
        found = {record.version: record for record in self.log if record.version > since}
        for place in self.places:
            row = self.rows[place]
            if row.seq > since:
                found.setdefault(row.seq, ChangeRecord(row.seq, "append", [])).message_ids.append(row.id)
        return [found[version] for version in sorted(found)]

    def find(self, message_id: str) -> int:
        """Return a message's place, or raise `MessageNotFound`."""
        try:
            return self.place_of[message_id]
        except KeyError:
            raise MessageNotFound(message_id) from None

    def walk(self, walk: Walk[T]) -> T:
        return lanes.run(walk, self._answer)

    def _answer(self, question: Question) -> object:
        match question:
            case Last(low, high):
                index = bisect_right(self.places, high) - 1
                return self.places[index] if index >= 0 and self.places[index] >= low else None
            case First(low, high):
                index = bisect_left(self.places, low)
                return self.places[index] if index < len(self.places) and self.places[index] <= high else None
            case Origin(lane):
                return self.origins[lane]
            case Forks(low, high):
                first = bisect_left(self.forks, (low, 0))
                return [lane for _, lane in self.forks[first : bisect_right(self.forks, (high + 1, 0))]]
            case Roots():
                return list(self.roots)
            case Lanes():
                return list(self.origins)

    def _end(self, leaf_id: str | None) -> int | None:
        return self.leaf if leaf_id is None else self.find(leaf_id)

    def _next_place(self, parent: int | None, *, may_continue: bool) -> int:
        """Return the place for a child: in its parent's lane when the parent is the lane's last, else in a new lane."""
        if parent is not None and may_continue:
            lane = lanes.lane_of(parent)
            if self._answer(Last(parent, lanes.last_of(lane))) == parent:
                return max(parent + 1, self.floors[lane])
        self.lanes_made += 1
        self.origins[self.lanes_made] = parent
        if parent is None:
            self.roots.append(self.lanes_made)
        else:
            insort(self.forks, (parent, self.lanes_made))
        self.floors[self.lanes_made] = first = lanes.before_first(self.lanes_made) + 1
        return first

    def _record(self, kind: ChangeKind, message_ids: list[str]) -> None:
        self.version += 1
        self.log.append(ChangeRecord(self.version, kind, message_ids))

    def _in_order(self, places: Iterable[int]) -> list[Message]:
        return [self.rows[place].message() for place in sorted(places, key=lambda place: (self.rows[place].seq, place))]

    def _path_places(self, leaf: int | None, *, beyond: int | None = None, newest_first: bool = False) -> Iterator[int]:
        # Places rise along a path, for a lane's number is larger than that of the lane it branched from.
        ranges = self.walk(lanes.ranges(leaf))
        for low, high in reversed(ranges) if newest_first else ranges:
            if beyond is not None:
                low, high = (low, min(high, beyond - 1)) if newest_first else (max(low, beyond + 1), high)
            indexes = range(bisect_left(self.places, low), bisect_right(self.places, high))
            for index in reversed(indexes) if newest_first else indexes:
                yield self.places[index]


def _lane(place: int | None) -> int | None:
    return None if place is None else lanes.lane_of(place)
