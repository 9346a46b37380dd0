"""Writes what the runs of both versions found as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from tables import NOTHING, duration, times

from against.judging import BOUND, RUNS, Figure, Ledger, Row, Verdict

METHOD = f"""\
Written by `bench/run.py --against`. This tree's bench drives both versions. Each is installed in its own environment,
with the same dependencies, and runs in its own processes. The two take turns, round by round. Everything is done {RUNS}
times, with new processes and new stores.

A ratio is new over old: the median over the rounds of the ratio of their medians. Less is better in every row. A row is
**slower** when its ratio is above {BOUND} in each run. Times are medians over the runs. Maxima, percentiles and figures
that no target names are recorded only."""


def write(ledger: Ledger, *, commit: str, machine: str, loads: Sequence[str]) -> str:
    """Return the whole report."""
    verdicts = ledger.verdicts()
    slower = ledger.slower()
    judged = sum(row.judged for row in verdicts)
    result = f"**Slower: {len(slower)} of {judged} target rows.**" if slower else f"Slower: 0 of {judged} target rows."
    lines = [f"# This tree against {commit[:12]}", "", METHOD, "", machine, _load(loads), "", result, ""]
    workloads = list(dict.fromkeys(row.workload for row in ledger.figures))
    rows = sorted(ledger.figures, key=lambda row: workloads.index(row.workload))
    main = [row for row in rows if row.judged]
    others = [row for row in rows if not row.judged]
    lines += ["## Target rows", "", *_table(_head(), [_cells(ledger, row, verdicts[row]) for row in main]), ""]
    if others:
        lines += ["## Recorded only", "", *_table(_head(), [_cells(ledger, row, verdicts[row]) for row in others]), ""]
    spread = [_spread(row, ledger.figures[row]) for row in rows if ledger.figures[row][0].late is not None]
    if spread:
        head = ["", "", "95 of 100 within: new", "old", "longest: new", "old"]
        lines += ["## Percentiles and maxima, over all runs: recorded only", "", *_table(head, spread), ""]
    return "\n".join(lines).rstrip() + "\n"


def _load(loads: Sequence[str]) -> str:
    return f"Load average of the machine at the end of each run: {', '.join(loads)}."


def _head() -> list[str]:
    return ["", "", *(f"run {number}" for number in range(1, RUNS + 1)), "new", "old", ""]


def _cells(ledger: Ledger, row: Row, verdict: Verdict) -> list[str]:
    figures = ledger.figures[row]
    ratios = [NOTHING if figure.ratio is None else times(figure.ratio) for figure in figures]
    new = _shown(row, sorted(figure.new for figure in figures)[len(figures) // 2])
    olds = sorted(figure.old for figure in figures if figure.old is not None)
    old = _shown(row, olds[len(olds) // 2]) if olds else NOTHING
    return [row.workload, row.name, *ratios, new, old, verdict.value]


def _spread(row: Row, figures: Sequence[Figure]) -> list[str]:
    lates = [figure.late for figure in figures if figure.late is not None]
    longests = [figure.longest for figure in figures if figure.longest is not None]
    cells = [max(pair[side] for pair in pairs) for pairs in (lates, longests) for side in (0, 1)]
    return [row.workload, row.name, *(duration(ns) for ns in cells)]


def _shown(row: Row, value: float) -> str:
    return (
        duration(value)
        if row.unit == "ns"
        else f"{value:,.2f}".removesuffix(".00") + (f" {row.unit}" if row.unit else "")
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = ["| " + " | ".join(row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *cells]
