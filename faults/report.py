"""RELIABILITY.md, written from the outcomes of a run and never by hand."""

from __future__ import annotations

import os
import platform
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from faults.outcome import Control, Outcome

_INTRODUCTION = """\
# Reliability

This page is written by `python -m faults.torture`; every figure comes from the run described here.
Each scenario keeps a ledger outside the store it tests: writers in other processes say what they begin and
what was acknowledged to them, and the judge compares that with what is stored. The controls are runs with
something broken on purpose: a judge that does not catch them would prove nothing.
"""

_LIMITS = """\
## What this does not show

- SIGKILL ends a process, not the machine: the page cache survives it. A power cut is not simulated here; for
  that the promise rests on `synchronous=FULL`, which `store.durability()` reports.
- `RLIMIT_FSIZE` limits the size of each file. A disk that fills up as a whole, or fails with an I/O error,
  may act otherwise.
- The moments of kills and cancels depend on timing: a seed repeats the plan of a run, not its exact moments.
"""


def render(outcomes: Sequence[Outcome], *, command: str, seed: int) -> str:
    """Return the page for a run."""
    return "\n".join(
        [
            _INTRODUCTION,
            *summary(outcomes, command=command, seed=seed),
            *(line for outcome in outcomes for line in scenario(outcome)),
            _LIMITS,
        ]
    )


def summary(outcomes: Sequence[Outcome], *, command: str, seed: int) -> list[str]:
    """Return the table that says how a run was made and how it ended."""
    versions = (version("leafward"), platform.python_version(), sqlite3.sqlite_version)
    return [
        "| | |",
        "|---|---|",
        f"| command | `{command}` |",
        f"| seed | {seed} |",
        f"| date | {datetime.now(UTC):%Y-%m-%d} |",
        "| versions | leafward {}, Python {}, SQLite {} |".format(*versions),
        f"| machine | {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs |",
        f"| result | {'; '.join(f'{outcome.name}: {_verdict(outcome)}' for outcome in outcomes)} |",
        "",
    ]


def _verdict(outcome: Outcome) -> str:
    if outcome.violations:
        return f"**{len(outcome.violations)} broken promises**"
    return "kept" if outcome.passed else "**a control was not caught**"


def scenario(outcome: Outcome) -> list[str]:
    """Return what a page says of one scenario."""
    return [
        f"## {outcome.name.capitalize()}",
        "",
        outcome.promise,
        "",
        "| | |",
        "|---|---|",
        *(f"| {_cell(name)} | {_cell(value)} |" for name, value in outcome.figures.items()),
        f"| broken promises | {len(outcome.violations)} |",
        f"| time, controls included | {outcome.seconds:.0f} s |",
        "",
        *(f"- broken: {violation}" for violation in outcome.violations[:20]),
        *([""] if outcome.violations else []),
        "| control | must be caught | what happened |",
        "|---|---|---|",
        *(_control(control) for control in outcome.controls),
        "",
    ]


def _control(control: Control) -> str:
    must = "yes" if control.must_fail else "no, for comparison"
    return f"| {_cell(control.name)} | {must} | {_cell(control.detail)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
