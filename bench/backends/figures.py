"""What was found on one backend."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from measure import Measured, Series

from backends.duel import BATCH


class Search(Enum):
    """What was searched for, and where; the text is the head of its column."""

    SESSION_IMPORTED = "session, right after the import"
    SESSION_RARE = "session, rare word"
    SESSION_COMMON = "session, common word"
    OWNER_IMPORTED = "user, right after the import"
    OWNER_RARE = "user, rare word"
    OWNER_COMMON = "user, common word"


class History(Enum):
    """Whether the store had read the session before."""

    WARM = ""
    COLD = ", by a store that has not read it yet"


@dataclass(eq=False)
class Row:
    """One operation: the times of both by round, and how many round trips ours took."""

    times: Measured = field(default_factory=dict)
    trips: int | None = None

    def add(self, number: int, reply: Mapping[str, Any]) -> None:
        """Add what round `number` measured."""
        for name, spent in reply["ns"].items():
            self.times.setdefault(name, Series()).add(number, spent)


@dataclass
class Figures:
    """All that was measured on one backend."""

    kind: str
    appends: dict[int, Row] = field(default_factory=dict)
    batch: Row = field(default_factory=Row)
    histories: dict[tuple[int, History], Row] = field(default_factory=dict)
    resume: Row = field(default_factory=Row)
    lease: Row = field(default_factory=Row)
    fenced: Row = field(default_factory=Row)
    handover: Row = field(default_factory=Row)
    save_state: Row = field(default_factory=Row)
    get_state: Row = field(default_factory=Row)
    agent: dict[tuple[str, int], Row] = field(default_factory=dict)
    """What an agent does, by its name and the size of the session."""
    lists: dict[int, Row] = field(default_factory=dict)
    list_bytes: dict[int, int] = field(default_factory=dict)
    """Bytes sent for one more item, without those of the item, by the list's length."""
    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    searches: dict[Search, Series] = field(default_factory=lambda: {search: Series() for search in Search})

    def append(self, size: int) -> Row:
        """Return the row of appends to a session of this size."""
        return self.appends.setdefault(size, Row())

    def history(self, size: int, state: History) -> Row:
        """Return the row of histories of this size."""
        return self.histories.setdefault((size, state), Row())

    def count_trips(self, warm: Mapping[str, int], cold: Mapping[str, int]) -> None:
        """Note round trips in their rows."""
        for row in self.appends.values():
            row.trips = warm["1"]
        self.batch.trips = warm[str(BATCH)]
        for (size, state), row in self.histories.items():
            row.trips = (warm if state is History.WARM else cold)[str(size)]
