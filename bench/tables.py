"""Tables of a report, and how numbers are written in them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from measure import Measured

NOTHING = "–"


@dataclass
class Section:
    """One workload of the report: a heading, a sentence, a table, and remarks below it."""

    title: str
    note: str
    head: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def duration(ns: float) -> str:
    """Return nanoseconds as a reader wants them."""
    if ns < 1_000_000:
        return f"{ns / 1_000:.0f} µs"
    if ns < 1_000_000_000:
        return f"{ns / 1_000_000:.3g} ms"
    return f"{ns / 1_000_000_000:.3g} s"


def times(ratio: float) -> str:
    """Return a ratio: two digits after the point below ten, none above a hundred."""
    digits = 2 if ratio < 10 else 1 if ratio < 100 else 0
    return f"{ratio:,.{digits}f}x"


def cell(measured: Measured | None, title: str, base: str) -> str:
    """Return the ratio to `base` and, in brackets, the time; a dash when the contender was not measured."""
    if measured is None or title not in measured:
        return NOTHING
    series = measured[title]
    return f"{times(series.ratio(measured[base]))} ({duration(series.median)})"


def growth(values: Mapping[int, float]) -> float:
    """Return the exponent `g` of the fit value ~ N^g: 0 is flat, 1 is linear."""
    points = [(math.log(n), math.log(value)) for n, value in sorted(values.items())]
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


def growth_cell(by_size: Mapping[int, Measured], title: str, base: str) -> str:
    """Return how a contender's ratio grows over N, a dash when it was measured at one size only."""
    ratios = ratios_of(by_size, title, base)
    return f"{growth(ratios):.2f}" if len(ratios) > 1 and title != base else NOTHING


def ratios_of(by_size: Mapping[int, Measured], title: str, base: str) -> dict[int, float]:
    """Return a contender's ratio to `base` by N."""
    return {n: m[title].ratio(m[base]) for n, m in by_size.items() if title in m}


def last_to_first(values: Mapping[int, float]) -> float:
    """Return the value at the largest N over that at the smallest."""
    return values[max(values)] / values[min(values)]


def medians_of(by_size: Mapping[int, Measured], title: str) -> dict[int, float]:
    """Return a contender's median nanoseconds by N."""
    return {n: measured[title].median for n, measured in by_size.items() if title in measured}


def titles_of(by_size: Mapping[int, Measured]) -> list[str]:
    """Return everybody who was measured, in the order of their first appearance."""
    return list(dict.fromkeys(title for measured in by_size.values() for title in measured))


def ratio_section(
    title: str, note: str, by_size: Mapping[int, Measured], *, base: str, order: Sequence[str]
) -> Section:
    """Return the table of one operation over N, with a column for its growth."""
    present = titles_of(by_size)
    section = Section(title, note, ["", *(f"N = {n:,}" for n in by_size), "growth"])
    for name in [name for name in order if name in present]:
        cells = [cell(measured, name, base) for measured in by_size.values()]
        section.rows.append([name, *cells, growth_cell(by_size, name, base)])
    return section
