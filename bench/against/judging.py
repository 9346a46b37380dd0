"""What both versions measured, row by row, and which rows became slower.

In every row less is better: a rate is kept as the time of one message.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

RUNS = 3
BOUND = 1.05
"""A row that is worse by more than this in every run fails."""


class Verdict(Enum):
    """What the runs say about one row; the text is how the report writes it."""

    OK = "ok"
    SLOWER = "**slower**"
    NEW = "new"
    """The other version cannot do it."""
    RECORDED = "recorded"
    """A maximum, a percentile, or a figure that no target names: it fails nothing."""


@dataclass(frozen=True)
class Row:
    """One line of the report."""

    workload: str
    name: str
    unit: str = "ns"
    judged: bool = True


@dataclass(frozen=True)
class Figure:
    """What one run measured for a row; `old` and `ratio` are `None` when the other version cannot do it."""

    new: float
    old: float | None
    ratio: float | None
    """How many times the other version's figure the new one is."""
    late: tuple[float, float] | None = None
    """What 95 of 100 calls stayed within, new and old."""
    longest: tuple[float, float] | None = None


@dataclass
class Ledger:
    """The figures of all runs."""

    figures: dict[Row, list[Figure]] = field(default_factory=dict)

    def add(self, row: Row, figure: Figure) -> None:
        """Add what the present run measured for a row."""
        self.figures.setdefault(row, []).append(figure)

    def verdicts(self) -> Mapping[Row, Verdict]:
        """Return the verdict of every row."""
        return {row: judge(row, found) for row, found in self.figures.items()}

    def slower(self) -> list[Row]:
        """Return the rows that fail."""
        return [row for row, verdict in self.verdicts().items() if verdict is Verdict.SLOWER]


def judge(row: Row, figures: Sequence[Figure]) -> Verdict:
    """Return the verdict of one row: it is slower if it is worse than the bound in each of the runs.

    A run in which the other version failed at something it can do says nothing; the others decide.
    """
    ratios = [figure.ratio for figure in figures if figure.ratio is not None]
    if not ratios:
        return Verdict.NEW
    if not row.judged:
        return Verdict.RECORDED
    if len(figures) == RUNS and min(ratios) > BOUND:
        return Verdict.SLOWER
    return Verdict.OK


def ratio_of(new: float, old: float) -> float:
    """Return new over old, where nothing over nothing is 1."""
    if new == old:
        return 1.0
    return new / old if old else math.inf
