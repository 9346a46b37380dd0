"""A row of the bench fails when it is worse than the bound in each of three runs, and only then."""

from __future__ import annotations

import importlib
import math
from pathlib import Path

import pytest

from bench.against.judging import RUNS, Figure, Ledger, Row, Verdict, judge, ratio_of

BENCH = Path(__file__).parent.parent.parent / "bench"
ROW = Row("W1", "append, N = 1,000")


def measured(*ratios: float | None) -> list[Figure]:
    return [Figure(new=100 * (ratio or 1), old=None if ratio is None else 100, ratio=ratio) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ((1.06, 1.07, 1.2), Verdict.SLOWER),
        ((1.06, 1.05, 1.2), Verdict.OK),
        ((9.0, 9.0, 1.0), Verdict.OK),
        ((0.5, 0.6, 0.7), Verdict.OK),
        ((1.0, 1.0, math.inf), Verdict.OK),
        ((math.inf, math.inf, math.inf), Verdict.SLOWER),
        ((None, None, None), Verdict.NEW),
        ((1.2, None, 1.2), Verdict.SLOWER),
        ((1.2, None, 1.0), Verdict.OK),
    ],
)
def test_a_row_is_slower_when_each_run_says_so(ratios: tuple[float | None, ...], verdict: Verdict) -> None:
    assert len(ratios) == RUNS
    assert judge(ROW, measured(*ratios)) is verdict


def test_fewer_runs_than_three_fail_no_row() -> None:
    assert judge(ROW, measured(2.0, 2.0)) is Verdict.OK


def test_maxima_and_percentiles_fail_nothing() -> None:
    longest = Row("W10", "longest append beside an erasure", judged=False)

    assert judge(longest, measured(9.0, 9.0, 9.0)) is Verdict.RECORDED


def test_a_count_that_was_zero_and_is_not_any_more_is_worse() -> None:
    assert ratio_of(3, 0) == math.inf
    assert ratio_of(0, 0) == 1
    assert ratio_of(0, 3) == 0


def test_only_the_rows_that_fail_are_named() -> None:
    ledger = Ledger()
    slow, fast = Row("W2", "history of 1,000 messages"), Row("W3", "resume")
    for figure in measured(1.3, 1.3, 1.3):
        ledger.add(slow, figure)
    for figure in measured(1.3, 1.3, 1.0):
        ledger.add(fast, figure)

    assert ledger.slower() == [slow]
    assert ledger.verdicts() == {slow: Verdict.SLOWER, fast: Verdict.OK}


def test_the_report_names_each_run_and_what_is_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    report = importlib.import_module("against.report")
    ledger = Ledger()
    for figure in measured(1.3, 1.2, 1.1):
        ledger.add(ROW, figure)
    for figure in measured(None, None, None):
        ledger.add(Row("W3", "resume"), figure)
    for figure in measured(3.0, 3.0, 3.0):
        ledger.add(Row("W10", "longest append", judged=False), figure)

    text = report.write(ledger, commit="c" * 40, machine="2 cores.", loads=["0.1", "0.2", "0.3"])

    lines = text.splitlines()
    assert lines[0] == "# This tree against cccccccccccc"
    assert "**Slower: 1 of 2 target rows.**" in lines
    assert "| W1 | append, N = 1,000 | 1.30x | 1.20x | 1.10x | 0 µs | 0 µs | **slower** |" in lines
    assert "| W3 | resume | – | – | – | 0 µs | – | new |" in lines
    assert "| W10 | longest append | 3.00x | 3.00x | 3.00x | 0 µs | 0 µs | recorded |" in lines
