"""`python -m faults.torture`: run the fault scenarios and write what they found.

Ends with 1 when a promise was broken or a control was not caught.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from faults import cancel, contention, disk_full, kill
from faults.outcome import Outcome
from faults.report import render

SCENARIOS = ("kill", "contention", "disk", "cancel")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen scenarios and return the exit code."""
    options = _parser().parse_args(arguments)
    seed: int = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    chosen: list[str] = options.only.split(",")
    unknown = sorted(set(chosen) - set(SCENARIOS))
    if unknown:
        _parser().error(f"no scenario called {', '.join(unknown)}: choose from {', '.join(SCENARIOS)}")
    _say(f"seed {seed}")
    outcomes = [_runners(options, seed)[name]() for name in SCENARIOS if name in chosen]
    for outcome in outcomes:
        _tell(outcome)
    if options.record is not None:
        command = f"python -m faults.torture {' '.join(_shown(options, seed))}"
        options.record.write_text(render(outcomes, command=command, seed=seed), encoding="utf-8")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults.torture", description="Kill, fill and starve a store.")
    parser.add_argument("--kills", type=int, default=300, help="how often a writer is killed (300)")
    parser.add_argument("--appends", type=int, default=1000, help="appends by each of four processes (1000)")
    parser.add_argument("--disks", type=int, default=40, help="sizes at which the disk is full (40)")
    parser.add_argument("--cancels", type=int, default=3000, help="appends that are cancelled (3000)")
    parser.add_argument("--only", default=",".join(SCENARIOS), help=f"some of {','.join(SCENARIOS)}")
    parser.add_argument("--seed", type=int, help="repeat the plan of an earlier run")
    parser.add_argument("--record", type=Path, help="write the page of this run to a file")
    return parser


def _runners(options: argparse.Namespace, seed: int) -> dict[str, Callable[[], Outcome]]:
    return {
        "kill": lambda: kill.run(kills=options.kills, seed=seed, progress=_say),
        "contention": lambda: contention.run(count=options.appends, progress=_say),
        "disk": lambda: disk_full.run(points=options.disks, seed=seed, progress=_say),
        "cancel": lambda: cancel.run(cancels=options.cancels, seed=seed, progress=_say),
    }


def _shown(options: argparse.Namespace, seed: int) -> list[str]:
    counts = ("kills", "appends", "disks", "cancels")
    shown = [f"--{name} {getattr(options, name)}" for name in counts]
    if options.only != ",".join(SCENARIOS):
        shown.append(f"--only {options.only}")
    return [*shown, f"--seed {seed}"]


def _tell(outcome: Outcome) -> None:
    _say(f"\n{outcome.name}: {'passed' if outcome.passed else 'FAILED'} in {outcome.seconds:.0f} s")
    for name, value in outcome.figures.items():
        _say(f"  {name}: {value}")
    for violation in outcome.violations[:20]:
        _say(f"  broken: {violation}")
    for control in outcome.controls:
        _say(f"  control, {control.name}: {control.detail}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
