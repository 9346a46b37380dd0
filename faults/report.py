"""RELIABILITY.md, written from the outcomes of a run and never by hand."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from faults.backends import TITLES
from faults.outcome import PROMISES, Control, Outcome

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
  that the promise rests on the settings that `store.durability()` reports.
- `RLIMIT_FSIZE` limits the size of each file. A disk that fills up as a whole, or fails with an I/O error,
  may act otherwise.
- The proxy ends every connection on which it loses something. A connection that stays open and silent is not tried.
- Servers run alone on this machine, without replicas: a failover is not tried here.
- The moments of kills, stops, losses and cancels depend on timing: a seed repeats the plan of a run, not its exact
  moments.
"""


def render(outcomes: Sequence[Outcome], *, command: str, seed: int, versions: Mapping[str, str]) -> str:
    """Return the page for a run; `versions` are those of the backends, by name."""
    backends = [name for name in TITLES if any(outcome.backend == name for outcome in outcomes)]
    lines = [
        _INTRODUCTION,
        *summary(command=command, seed=seed, versions=versions.values()),
        *_overview(outcomes, backends),
        *_promises(outcomes),
    ]
    for name in backends:
        lines += [f"## {TITLES[name]}", "", *tables([outcome for outcome in outcomes if outcome.backend == name])]
    return "\n".join([*lines, _LIMITS])


def summary(*, command: str, seed: int, versions: Iterable[str], result: str | None = None) -> list[str]:
    """Return the table that says how a run was made, and how it ended."""
    every = (f"leafward {version('leafward')}", f"Python {platform.python_version()}", *versions)
    return [
        "| | |",
        "|---|---|",
        f"| command | `{command}` |",
        f"| seed | {seed} |",
        f"| date | {datetime.now(UTC):%Y-%m-%d} |",
        f"| versions | {', '.join(dict.fromkeys(filter(None, every)))} |",
        f"| machine | {platform.system()} {platform.machine()}, {os.cpu_count()} CPUs |",
        *([] if result is None else [f"| result | {result} |"]),
        "",
    ]


def _overview(outcomes: Sequence[Outcome], backends: Sequence[str]) -> list[str]:
    verdicts = {(outcome.name, outcome.backend): verdict(outcome) for outcome in outcomes}
    names = [name for name in PROMISES if any(outcome.name == name for outcome in outcomes)]
    return [
        f"| | {' | '.join(TITLES[backend] for backend in backends)} |",
        f"|---|{'---|' * len(backends)}",
        *(f"| {name} | {' | '.join(verdicts.get((name, backend), '') for backend in backends)} |" for name in names),
        "",
    ]


def _promises(outcomes: Sequence[Outcome]) -> Iterator[str]:
    yield "What is promised:"
    yield ""
    names = {outcome.name for outcome in outcomes}
    yield from (f"- **{name}**: {promise}" for name, promise in PROMISES.items() if name in names)
    yield ""


def verdict(outcome: Outcome) -> str:
    """Return in a few words how a scenario ended."""
    if outcome.violations:
        return f"**{len(outcome.violations)} broken promises**"
    return "kept" if outcome.passed else "**a control was not caught**"


def tables(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield what scenarios did and found, what was wrong, and what became of their controls."""
    yield "| scenario | what | found |"
    yield "|---|---|---|"
    for outcome in outcomes:
        yield from _figures(outcome)
    yield ""
    broken = [f"- broken, {outcome.name}: {_cell(text)}" for outcome in outcomes for text in outcome.violations[:20]]
    yield from [*broken, ""] if broken else []
    yield "| scenario | control | must be caught | what happened |"
    yield "|---|---|---|---|"
    yield from (_control(outcome.name, control) for outcome in outcomes for control in outcome.controls)
    yield ""


def _figures(outcome: Outcome) -> Iterator[str]:
    rows = outcome.figures | {
        "broken promises": str(len(outcome.violations)),
        "time, controls included": f"{outcome.seconds:.0f} s",
    }
    for number, (name, value) in enumerate(rows.items()):
        yield f"| {'' if number else outcome.name} | {_cell(name)} | {_cell(value)} |"


def _control(scenario: str, control: Control) -> str:
    must = "yes" if control.must_fail else "no, for comparison"
    return f"| {scenario} | {_cell(control.name)} | {must} | {_cell(control.detail)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
