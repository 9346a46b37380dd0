"""`python -m faults.model_run`: drive sessions and a plain model with the same calls, for long, and record it.

The machine is that of `tests/sessions/test_model.py`. Ends with 1 when the two disagreed or a control was not caught.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from faults.outcome import Control, Outcome
from faults.report import summary, tables, verdict
from leafward.core import lanes, overlays
from leafward.core.overlays import Segment, is_summary_id
from leafward.sessions import compactor
from leafward.stores.sql import overlays as stored_overlays
from leafward.stores.sql import points, writes
from tests.sessions.copying_machine import CopyingMachine
from tests.sessions.durable_machine import DurableMachine
from tests.sessions.searching import profile

BACKENDS: dict[str, type[CopyingMachine]] = {"memory": CopyingMachine, "SQLite": DurableMachine}
SHARES = {"memory": 0.65, "SQLite": 0.35}
"""Of the steps; a file takes longer."""
STEPS_AT_ONCE = 2_500
CONTROL_STEPS = 25_000

_INTRODUCTION = """\
# A session and its model

This page is written by `python -m faults.model_run`; every figure comes from the run described here. Hypothesis makes
up sequences of calls: appends, batches, branches, updates, deletes, checkouts, labels, states attached to messages,
clears, summaries by hand and by compaction functions (on demand, automatic, failing, and while others write), forks,
splits, exports and imports, and on SQLite closing and opening again. Each call is made on a session, through two
handles, and on a model of a few hundred lines of plain Python. After each call everything that can be read is compared.
The controls are runs with something broken on purpose: a comparison that does not catch them would prove nothing.
"""

PROMISE = (
    "Sessions agree with the model after every call. Every text on a path is in what the model of the conversation "
    "sees, was given to whatever made the summary in its place, or is covered by hand; it always is in the raw history."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the machine on both backends, then the controls, and return the exit code."""
    options = _parser().parse_args(arguments)
    chosen: int = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    began = time.monotonic()
    outcome = Outcome("model", "memory and SQLite")
    with ProcessPoolExecutor(len(BACKENDS), mp_context=get_context("spawn")) as pool:
        runs = {name: pool.submit(drive, name, round(options.steps * SHARES[name]), chosen) for name in BACKENDS}
        for name, run in runs.items():
            tally, failure = run.result()
            outcome.figures |= _figures(name, tally)
            outcome.violations += [] if failure is None else [f"{name}: {failure}"]
        outcome.controls += pool.map(control, DEFECTS, [chosen] * len(DEFECTS))
    outcome.seconds = time.monotonic() - began
    command = f"python -m faults.model_run --steps {options.steps} --seed {chosen}"
    versions = [f"SQLite {sqlite3.sqlite_version}"]
    told = summary(command=command, seed=chosen, versions=versions, result=verdict(outcome))
    page = "\n".join([_INTRODUCTION, *told, PROMISE, "", *tables([outcome])])
    sys.stdout.write(page)
    if options.record is not None:
        options.record.parent.mkdir(parents=True, exist_ok=True)
        options.record.write_text(page, encoding="utf-8")
    return 0 if outcome.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults.model_run", description="Compare sessions with a model.")
    parser.add_argument("--steps", type=int, default=100_000, help="calls in all, on both backends (100000)")
    parser.add_argument("--seed", type=int, help="repeat an earlier run")
    parser.add_argument("--record", type=Path, help="write the page of this run to a file")
    return parser


def drive(name: str, steps: int, chosen: int) -> tuple[Counter[str], str | None]:
    """Drive a backend for at least so many steps; return what happened, and how they disagreed if they did."""
    tally = CopyingMachine.tally
    tally.clear()
    for batch in range(steps):
        if _steps(tally) >= steps:
            break
        try:
            run(BACKENDS[name], min(steps, STEPS_AT_ONCE), chosen + batch)
        except Exception as error:
            return tally, f"after {_steps(tally):,} steps, with seed {chosen + batch}: {_told(error)}"
    return tally, None


def run(machine: type[CopyingMachine], steps: int, chosen: int) -> None:
    """Drive a machine with calls that a seed decides; a failure is not shrunk, which may take longer than the run."""

    disagreements: list[Exception] = []

    @seed(chosen)
    class Seeded(machine):  # type: ignore[misc,valid-type]
        async def _compare(self) -> None:
            try:
                await super()._compare()
            except Exception as error:
                disagreements.append(error)
                raise

    try:
        run_state_machine_as_test(Seeded, settings=settings(profile(steps), phases=[Phase.generate]))
    except Exception as error:
        # Hypothesis repeats a failure to be sure, and tells only of that when it does not happen twice.
        raise error from (disagreements[0] if disagreements else None)


def _steps(tally: Counter[str]) -> int:
    # Each run is compared once more, right after its small tree was grown.
    return max(0, tally["comparisons"] - tally["runs"])


def _figures(name: str, tally: Counter[str]) -> dict[str, str]:
    rest = {what: count for what, count in tally.items() if what not in ("comparisons", "runs")}
    told = {"steps": _steps(tally), "sequences of calls": tally["runs"], **rest}
    return {f"{name}: {what}": f"{count:,}" for what, count in told.items()}


def _told(error: BaseException | None) -> str:
    """Say what went wrong, and what was behind it."""
    said: list[str] = []
    while error is not None:
        said.append(f"{type(error).__name__} {(str(error).strip().splitlines() or [''])[0][:200]}".strip())
        error = error.__cause__
    return ", after ".join(said)


# Controls.


@contextmanager
def _summaries_reach_back() -> Generator[None]:
    honest = compactor.covered_range

    def covered(messages: Sequence[Any], *given: Any) -> tuple[int, int]:
        start, end = honest(messages, *given)
        first = next((place for place, message in enumerate(messages) if is_summary_id(message.id)), len(messages))
        return (first, end) if start < end and first < end - 1 else (start, end)

    with patch.object(compactor, "covered_range", covered):
        yield


@contextmanager
def _ends_stay() -> Generator[None]:
    def stay(*_: Any) -> Iterator[Any]:
        yield from ()

    with patch.object(writes, "move_ends", stay):
        yield


@contextmanager
def _first_of_crossing_shows() -> Generator[None]:
    def segments(path: Any, spans: Any) -> list[Segment]:
        return [segment._replace(spans=segment.spans[:1]) for segment in overlays.segments(path, spans)]

    with patch.object(stored_overlays, "segments", segments):
        yield


@contextmanager
def _changes_are_ignored() -> Generator[None]:
    def unchanged(*_: Any) -> Generator[Any, Any, bool]:
        yield from ()
        return False

    with patch.object(stored_overlays, "_has_changed", unchanged):
        yield


@contextmanager
def _crossing_is_allowed() -> Generator[None]:
    with patch.object(stored_overlays, "nests", lambda *_: True):
        yield


@contextmanager
def _states_go_with_their_message() -> Generator[None]:
    with patch.object(points, "_is_needed", _no):
        yield


@contextmanager
def _states_of_the_deleted_are_inherited() -> Generator[None]:
    with patch.object(points, "has_any", _no):
        yield


@contextmanager
def _states_are_found_further_down() -> Generator[None]:
    def in_force(session: Any, place: int | None, names: Any) -> Any:
        end = None if place is None else lanes.last_of(lanes.lane_of(place))
        return (yield from honest(session, end, names))

    honest = points.in_force
    with patch.object(points, "in_force", in_force):
        yield


def _no(*_: Any) -> Generator[Any, Any, bool]:
    yield from ()
    return False


DEFECTS: dict[str, Callable[[], Any]] = {
    "a new summary reaches back to the first one, over messages it was not given": _summaries_reach_back,
    "the ends of a summary stay on deleted messages": _ends_stay,
    "of two summaries that cross only the first shows": _first_of_crossing_shows,
    "a summary is applied though its messages changed": _changes_are_ignored,
    "summaries may cross on one path": _crossing_is_allowed,
    "a state goes with its message, whatever stands below": _states_go_with_their_message,
    "a message has the states of deleted ones before it": _states_of_the_deleted_are_inherited,
    "a state is in force above its message": _states_are_found_further_down,
}


def control(name: str, chosen: int) -> Control:
    """Break something and see that the comparison notices."""
    tally = CopyingMachine.tally
    tally.clear()
    with DEFECTS[name]():
        try:
            run(CopyingMachine, CONTROL_STEPS, chosen)
        except Exception as error:
            detail = f"caught after {_steps(tally):,} steps: {type(error).__name__}"
            return Control(name=name, caught=True, detail=detail)
    return Control(name=name, caught=False, detail=f"not caught in {_steps(tally):,} steps")


if __name__ == "__main__":
    sys.exit(main())
