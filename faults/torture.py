"""`python -m faults.torture`: run the fault scenarios on every backend and write what they found.

Ends with 1 when a promise was broken or a control was not caught.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from faults import cancel, contention, disk_full, fencing, kill, replies, states, steps, turns
from faults.backends import BACKENDS, ON_DISK, PERSISTENT, SERVERS, Backend, open_backend
from faults.outcome import Outcome
from faults.report import render
from faults.worker import Say


@dataclass(frozen=True)
class Scenario:
    """What is done how often, and to which backends."""

    backends: Sequence[str]
    times: int
    what: str
    run: Callable[[Backend, int, int, Say], Outcome]
    """Takes the backend, how often, the seed and who is told of progress."""


SCENARIOS: Mapping[str, Scenario] = {
    "kills": Scenario(
        PERSISTENT,
        100,
        "how often a writer is killed",
        lambda backend, times, seed, say: kill.run(backend, kills=times, seed=seed, progress=say),
    ),
    "server-kills": Scenario(
        SERVERS,
        30,
        "how often the server is killed",
        lambda backend, times, seed, say: kill.run_server(backend, kills=times, seed=seed, progress=say),
    ),
    "losses": Scenario(
        SERVERS,
        600,
        "calls of which more than half lose a request or reply",
        lambda backend, times, seed, say: replies.run(backend, calls=times, seed=seed, progress=say),
    ),
    "appends": Scenario(
        BACKENDS,
        600,
        "appends by each of four writers to one session",
        lambda backend, times, _seed, say: contention.run(backend, count=times, progress=say),
    ),
    "stops": Scenario(
        BACKENDS,
        15,
        "holders of a lease that are stopped or killed",
        lambda backend, times, seed, say: fencing.run(backend, stops=times, seed=seed, progress=say),
    ),
    "cancels": Scenario(
        PERSISTENT,
        1000,
        "appends that are cancelled",
        lambda backend, times, seed, say: cancel.run(backend, cancels=times, seed=seed, progress=say),
    ),
    "states": Scenario(
        PERSISTENT,
        200,
        "how often who saves lists of states is killed",
        lambda backend, times, seed, say: states.run(backend, kills=times, seed=seed, progress=say),
    ),
    "steps": Scenario(
        PERSISTENT,
        80,
        "how often the writer of an agent's steps is killed",
        lambda backend, times, seed, say: steps.run(backend, kills=times, seed=seed, progress=say),
    ),
    "turns": Scenario(
        PERSISTENT,
        60,
        "how often a process that runs an agent's turns is killed",
        lambda backend, times, seed, say: turns.run(backend, kills=times, seed=seed, progress=say),
    ),
    "disks": Scenario(
        ON_DISK,
        30,
        "sizes at which the disk is full",
        lambda backend, times, seed, say: disk_full.run(backend, points=times, seed=seed, progress=say),
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen scenarios on the chosen backends and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    seed: int = random.SystemRandom().randrange(1 << 31) if options.seed is None else options.seed
    backends = _chosen(parser, options.backends, BACKENDS)
    scenarios = _chosen(parser, options.only, tuple(SCENARIOS))
    times = {name: int(getattr(options, name.replace("-", "_"))) for name in scenarios}
    # What drivers log while their server is killed is no news.
    logging.disable()
    _say(f"seed {seed}")
    outcomes: list[Outcome] = []
    versions: dict[str, str] = {}
    for name in backends:
        with open_backend(name) as backend:
            versions[name] = backend.version()
            for scenario in (scenario for scenario in scenarios if name in SCENARIOS[scenario].backends):
                outcomes.append(SCENARIOS[scenario].run(backend, times[scenario], seed, _say))
                _tell(outcomes[-1])
    if options.record is not None:
        command = f"python -m faults.torture {_shown(options, times, seed)}"
        page = render(outcomes, command=command, seed=seed, versions=versions)
        options.record.write_text(page, encoding="utf-8")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m faults.torture", description="Kill, cut, fill and starve stores.")
    for name, scenario in SCENARIOS.items():
        parser.add_argument(f"--{name}", type=int, default=scenario.times, help=f"{scenario.what} ({scenario.times})")
    parser.add_argument("--backends", default=",".join(BACKENDS), help=f"some of {','.join(BACKENDS)}")
    parser.add_argument("--only", default=",".join(SCENARIOS), help=f"some of {','.join(SCENARIOS)}")
    parser.add_argument("--seed", type=int, help="repeat the plan of an earlier run")
    parser.add_argument("--record", type=Path, help="write the page of this run to a file")
    return parser


def _chosen(parser: argparse.ArgumentParser, given: str, known: Sequence[str]) -> list[str]:
    unknown = sorted(set(given.split(",")) - set(known))
    if unknown:
        parser.error(f"{', '.join(unknown)} is not known: choose from {', '.join(known)}")
    return [name for name in known if name in given.split(",")]


def _shown(options: argparse.Namespace, times: Mapping[str, int], seed: int) -> str:
    shown = [f"--{name} {count}" for name, count in times.items()]
    shown += [f"--backends {options.backends}"] if options.backends != ",".join(BACKENDS) else []
    shown += [f"--only {options.only}"] if options.only != ",".join(SCENARIOS) else []
    return " ".join([*shown, f"--seed {seed}"])


def _tell(outcome: Outcome) -> None:
    _say(f"\n{outcome.backend}, {outcome.name}: {'passed' if outcome.passed else 'FAILED'} in {outcome.seconds:.0f} s")
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
