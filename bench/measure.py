"""Interleaved measuring: every round asks each contender in turn, so that all share the machine's moods."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from contenders import Contender, ContenderFailed, Missing, Process, running

ONE_SECOND = 1_000_000_000
WARM_SESSION = 900_000
WARM_APPENDS = 800


class Series:
    """The nanoseconds one contender took, round by round."""

    def __init__(self) -> None:
        self.rounds: dict[int, list[int]] = {}

    def add(self, number: int, spent: Iterable[int]) -> None:
        """Add what round `number` measured."""
        self.rounds.setdefault(number, []).extend(spent)

    @property
    def median(self) -> float:
        return statistics.median(ns for spent in self.rounds.values() for ns in spent)

    @property
    def late(self) -> float:
        """What 95 of 100 calls stayed within."""
        ordered = sorted(ns for spent in self.rounds.values() for ns in spent)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]

    @property
    def count(self) -> int:
        return sum(len(spent) for spent in self.rounds.values())

    @property
    def longest(self) -> int:
        return max(ns for spent in self.rounds.values() for ns in spent)

    def ratio(self, base: Series) -> float:
        """Return how many times `base` this took: the median over rounds of the ratio of their medians."""
        shared = self.rounds.keys() & base.rounds.keys()
        return statistics.median(statistics.median(self.rounds[n]) / statistics.median(base.rounds[n]) for n in shared)


Measured = dict[str, Series]


class Team:
    """The contenders of one workload, each running on a fresh store of its own.

    A peer that fails, or that is slower than a second at something, leaves with the reason noted in `stops`.
    Ours and the raw limits may not fail.
    """

    def __init__(
        self, contenders: Iterable[Contender], work: Path, *, log: Callable[[str], None], opened: bool = True
    ) -> None:
        self._contenders = list(contenders)
        self._work = work
        self._opened = opened
        self._stack = ExitStack()
        self.log = log
        self.members: dict[str, Process] = {}
        self.stops: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as starting:
            for contender in self._contenders:
                self.directory(contender.title).mkdir(parents=True, exist_ok=True)
                process = starting.enter_context(running(contender, self._work.parent / "stderr.log"))
                self.members[contender.title] = process
            if self._opened:
                self.open()
            self._stack = starting.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def directory(self, title: str) -> Path:
        """Return where a contender keeps its store."""
        return self._work / "".join(c if c.isalnum() else "-" for c in title)

    def open(self) -> None:
        """Open every member's store."""
        for title in list(self.members):
            self.ask(title, "open", path=str(self.directory(title)))

    def close(self) -> None:
        """Close every member's store; the processes stay."""
        for title in list(self.members):
            self.ask(title, "close")

    def drop(self, title: str, reason: str) -> None:
        """Let a peer leave."""
        self.log(f"  {title} stops: {reason}")
        self.stops[title] = reason.rstrip(".")
        del self.members[title]

    def ask(self, title: str, do: str, **arguments: Any) -> dict[str, Any] | None:
        """Return the answer of one member, `None` when it has no such operation or leaves over it."""
        try:
            return self.members[title].ask(do, **arguments)
        except Missing:
            return None
        except ContenderFailed as failure:
            if not self.members[title].contender.is_peer:
                raise
            self.drop(title, failure.text.replace(str(self._work), "<store>")[:160])
            return None

    def order(self, number: int) -> list[str]:
        """Return the members in this round's order, which turns by one each time."""
        titles = list(self.members)
        turn = number % len(titles)
        return titles[turn:] + titles[:turn]

    def fill(self, session: int, upto: int, cap: float) -> None:
        """Fill a session of every member up to a length; peers get `cap` seconds."""
        for title in list(self.members):
            is_peer = self.members[title].contender.is_peer
            reply = self.ask(title, "fill", session=session, upto=upto, budget=cap if is_peer else 3_600)
            if reply is not None and reply["length"] < upto:
                self.drop(title, f"could not be filled to {upto:,} messages in {cap:.0f} s ({reply['length']:,})")
        self.settle()

    def warm(self, budget: float) -> None:
        """Bring every store to its steady state, on a session of its own.

        The first appends after opening let the write-ahead log grow, which costs more than writing over it, as
        all appends after its first checkpoint do.
        """
        for title in list(self.members):
            self.ask(title, "append", session=WARM_SESSION, times=WARM_APPENDS, budget=budget)
        self.settle()

    def settle(self) -> None:
        """Wait until the background work of leafward and of the raw limits is done, so that nobody else pays for it."""
        for title in [name for name, member in self.members.items() if not member.contender.is_peer]:
            self.ask(title, "settle")

    def interleave(self, rounds: int, do: str, *, among: Iterable[str] | None = None, **arguments: Any) -> Measured:
        """Ask every member the same in turn, `rounds` times."""
        measured: Measured = {}
        wanted = set(self.members if among is None else among)
        for number in range(rounds):
            for title in self.order(number):
                if title not in wanted or title not in self.members:
                    continue
                reply = self.ask(title, do, **arguments)
                if reply is None:
                    wanted.discard(title)
                    continue
                measured.setdefault(title, Series()).add(number, reply["ns"])
                if not self.members[title].contender.is_peer:
                    self.ask(title, "settle")
        return measured

    def drop_slow(self, measured: Mapping[str, Series], what: str) -> None:
        """Let the peers leave that took more than a second."""
        for title, series in measured.items():
            if title in self.members and self.members[title].contender.is_peer and series.median > ONE_SECOND:
                self.drop(title, f"{what} took {series.median / ONE_SECOND:.1f} s")
