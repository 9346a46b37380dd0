"""W4: many sessions written at once, by eight tasks of one process and by two processes of four tasks."""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from contenders import LEAFWARD, RAW, Contender, ContenderFailed, running
from setting import FILE_LIMIT, LIMIT, OURS, Setting
from tables import Section, times

EACH = 20
LEAD = 0.2


@dataclass(frozen=True)
class Outcome:
    """What one contender did with its writers."""

    done: int
    rate: float
    errors: list[str]
    least_share: float
    """The slowest writer's writes over the fair share, when the first writer had finished or time was up."""


def run(setting: Setting) -> None:
    """Measure everybody in both shapes and add the section."""
    shapes = {"8 tasks": [8], "2 processes x 4 tasks": [4, 4]}
    found: dict[str, dict[str, list[Outcome]]] = {shape: {} for shape in shapes}
    for number in range(setting.profile.spread_rounds):
        for contender in [LIMIT, FILE_LIMIT, OURS, *setting.peers]:
            if contender.is_peer and number > 0:
                continue
            for shape, writers in shapes.items():
                setting.log(f"W4: {contender.title}, {shape}")
                directory = setting.work / "writers" / f"{contender.title}-{shape}-{number}".replace(" ", "-")
                outcome = write(setting, contender, directory, writers)
                found[shape].setdefault(contender.title, []).append(outcome)
    _report(setting, found)


def write(setting: Setting, contender: Contender, directory: Path, writers: list[int]) -> Outcome:
    """Let processes with so many tasks each write the sessions, all at the same time."""
    directory.mkdir(parents=True)
    log = setting.work / "stderr.log"
    per_task = setting.profile.sessions // sum(writers)
    try:
        with ExitStack() as stack:
            processes = [stack.enter_context(running(contender, log)) for _ in writers]
            number = 0
            for process, tasks in zip(processes, writers, strict=True):
                plan = [list(range((number + t) * per_task, (number + t + 1) * per_task)) for t in range(tasks)]
                number += tasks
                process.ask("open", path=str(directory))
                process.ask("plan", tasks=plan, each=EACH)
            start = time.monotonic() + LEAD
            budget = setting.profile.spread_budget
            answers = [process.send("spread", start=start, budget=budget) for process in processes]
            replies = [answer() for answer in answers]
            for process in processes:
                process.ask("close")
    except ContenderFailed as failure:
        if not contender.is_peer:
            raise
        return Outcome(0, 0.0, [str(failure)[:160]], 0.0)
    ended = [writer for reply in replies for writer in reply["ended"]]
    return _outcome(ended, start, [error for reply in replies for error in reply["errors"]])


def _outcome(ended: list[list[float]], start: float, errors: list[str]) -> Outcome:
    done = sum(len(writer) for writer in ended)
    if not done:
        return Outcome(0, 0.0, errors, 0.0)
    rate = done / (max(writer[-1] for writer in ended if writer) - start)
    if not all(ended):
        return Outcome(done, rate, errors, 0.0)
    first_finish = min(writer[-1] for writer in ended)
    shares = [sum(moment <= first_finish for moment in writer) for writer in ended]
    return Outcome(done, rate, errors, min(shares) / statistics.mean(shares))


def _report(setting: Setting, found: dict[str, dict[str, list[Outcome]]]) -> None:
    section = Section(
        f"W4: {setting.profile.sessions:,} sessions x {EACH} messages by several writers",
        f"Messages per second until all was written or {setting.profile.spread_budget:.0f} s were over, "
        "as times raw. Least share: what the slowest writer had done when the first "
        "finished, over the mean.",
        ["", *(f"{shape}: {what}" for shape in found for what in ("rate", "errors", "least share"))],
    )
    for title in [name for name in setting.order if name in next(iter(found.values()))]:
        row = [title]
        for outcomes in found.values():
            row += _cells(outcomes[title], outcomes[RAW])
        section.rows.append(row)
    setting.sections.append(section)
    ours = [outcome for outcomes in found.values() for outcome in outcomes[LEAFWARD]]
    setting.facts["writers errors"] = sum(len(outcome.errors) for outcome in ours)
    setting.facts["writers least share"] = min(outcome.least_share for outcome in ours)
    peers = {peer.title for peer in setting.peers if peer.durable}
    if peers:
        setting.facts["writers over best peer"] = min(
            statistics.median(o.rate for o in outcomes[LEAFWARD])
            / max(statistics.median(o.rate for o in outcomes[title]) for title in peers)
            for outcomes in found.values()
        )
    for shape, outcomes in found.items():
        for title, all_of in outcomes.items():
            errors = [error for outcome in all_of for error in outcome.errors]
            section.remarks.extend(f"{title}, {shape}: {error}" for error in sorted(set(errors))[:3])


def _cells(outcomes: list[Outcome], raw: list[Outcome]) -> list[str]:
    pairs = [(a, b) for a, b in zip_longest(outcomes, raw) if a is not None]
    ratio = statistics.median(a.rate / b.rate for a, b in pairs)
    rate = statistics.median(outcome.rate for outcome in outcomes)
    errors = sum(len(outcome.errors) for outcome in outcomes)
    share = min(outcome.least_share for outcome in outcomes)
    return [f"{times(ratio)} ({rate:,.0f}/s)", str(errors), f"{share:.2f}"]
