"""Runs both versions several times and says which rows became slower."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

from backends.arena import KINDS, SERVERS, need_servers
from machine import describe
from profiles import Profile
from setting import Setting

from against import on_backends, on_sqlite, report
from against.judging import RUNS, Ledger
from against.match import Match
from against.versions import prepare


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a comparison found."""

    text: str
    slower: list[str]


def compare(commit: str, only: frozenset[str], *, profile: Profile, work: Path, log: Callable[[str], None]) -> Outcome:
    """Compare the working tree with a commit; `only` names workloads and backends; when it is empty, all are run.

    Raises:
        ContenderFailed: a version could not be installed, or failed at something it has.
    """
    kinds = [kind for kind in KINDS if not only or kind.upper() in only]
    if not SERVERS.isdisjoint(kinds):
        need_servers()
    log(f"installing this tree and {commit[:12]}")
    versions = prepare(commit, work)
    ledger = Ledger()
    loads: list[str] = []
    for number in range(1, RUNS + 1):

        def say(text: str, number: int = number) -> None:
            log(f"run {number} of {RUNS}: {text}")

        place = work / f"run-{number}"
        place.mkdir()
        match = Match(Setting(profile, [], place, say), versions, ledger)
        _run(match, only, kinds)
        loads.append(f"{os.getloadavg()[0]:.1f}")
    text = report.write(ledger, commit=commit, machine=describe(work), loads=loads)
    return Outcome(text, [f"{row.workload}: {row.name}" for row in ledger.slower()])


def _run(match: Match, only: frozenset[str], kinds: list[str]) -> None:
    steps = on_sqlite.LADDER & only if only else on_sqlite.LADDER
    if steps:
        on_sqlite.ladder(match, steps)
    for name, workload in on_sqlite.OTHERS.items():
        if not only or name in only:
            workload(match)
    on_backends.run(match, kinds)
