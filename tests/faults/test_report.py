"""The page of a run says what happened, good or bad."""

from __future__ import annotations

from faults.outcome import Control, Outcome
from faults.report import render


def _outcome(*, violations: list[str], caught: bool, backend: str = "sqlite") -> Outcome:
    control = Control(name="a broken writer", caught=caught, detail="what was seen | in a cell")
    return Outcome("kill", backend, {"kills": "3"}, violations=violations, controls=[control], seconds=1.0)


def _page(*outcomes: Outcome) -> str:
    versions = {"sqlite": "SQLite 1.2", "redis": "Redis 3.4"}
    return render(outcomes, command="python -m faults.torture", seed=7, versions=versions)


def test_a_clean_run_is_called_kept() -> None:
    page = _page(_outcome(violations=[], caught=True))

    assert "| seed | 7 |" in page
    assert "| kill | kills | 3 |" in page
    assert "| kill | kept |" in page
    assert "what was seen \\| in a cell" in page


def test_each_backend_has_its_tables_and_version() -> None:
    page = _page(_outcome(violations=[], caught=True), _outcome(violations=["lost"], caught=True, backend="redis"))

    assert "SQLite 1.2, Redis 3.4 |" in page
    assert "| kill | kept | **1 broken promises** |" in page
    assert [line for line in page.splitlines() if line.startswith("## ")][:2] == ["## SQLite", "## Redis"]


def test_a_broken_promise_stands_on_the_page() -> None:
    page = _page(_outcome(violations=["kill 2: nothing acknowledged is lost: m-1"], caught=True))

    assert "**1 broken promises**" in page
    assert "- broken, kill: kill 2: nothing acknowledged is lost: m-1" in page


def test_a_control_that_was_not_caught_fails_the_run() -> None:
    outcome = _outcome(violations=[], caught=False)

    assert not outcome.passed
    assert "**a control was not caught**" in _page(outcome)
