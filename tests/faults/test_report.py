"""The page of a run says what happened, good or bad."""

from __future__ import annotations

from faults.outcome import Control, Outcome
from faults.report import render


def _outcome(*, violations: list[str], caught: bool) -> Outcome:
    control = Control(name="a broken writer", caught=caught, detail="what was seen | in a cell")
    return Outcome("kill", "Nothing is lost.", {"kills": "3"}, violations=violations, controls=[control], seconds=1.0)


def test_a_clean_run_is_called_kept() -> None:
    page = render([_outcome(violations=[], caught=True)], command="python -m faults.torture", seed=7)

    assert "| seed | 7 |" in page
    assert "| kills | 3 |" in page
    assert "kill: kept" in page
    assert "what was seen \\| in a cell" in page


def test_a_broken_promise_stands_on_the_page() -> None:
    outcome = _outcome(violations=["kill 2: nothing acknowledged is lost: m-1"], caught=True)
    page = render([outcome], command="python -m faults.torture", seed=7)

    assert "**1 broken promises**" in page
    assert "- broken: kill 2: nothing acknowledged is lost: m-1" in page


def test_a_control_that_was_not_caught_fails_the_run() -> None:
    outcome = _outcome(violations=[], caught=False)

    assert not outcome.passed
    assert "**a control was not caught**" in render([outcome], command="python -m faults.torture", seed=7)
