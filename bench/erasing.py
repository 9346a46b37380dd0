"""W10: how long an erasure keeps the appends of another process waiting."""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from dataclasses import dataclass, field

from contenders import LEAFWARD, RAW, Contender, running
from setting import LIMIT, OURS, Setting
from tables import Section, duration

OTHERS = 10
EACH = 1_000
WRITTEN = 50_000
"""The session that the other process appends to."""
ALONE = 500


@dataclass
class Outcome:
    """What one contender's erasures did, in nanoseconds."""

    erasing: list[int] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    alone: list[int] = field(default_factory=list)
    left: list[str] = field(default_factory=list)


def run(setting: Setting) -> None:
    """Erase sessions of a store that another process writes to, and add the section."""
    profile = setting.profile
    total = profile.erasures * profile.erased_size + OTHERS * EACH
    section = Section(
        f"W10: appends of another process while sessions of {profile.erased_size:,} messages are erased",
        f"From a store of {total:,} messages, one after the other. The other process appends all the while. Raw is "
        "`DELETE`, `VACUUM` and a truncating checkpoint.",
        ["", "one erasure", "appends meanwhile", "median", "99 of 100 within", "longest", "longest without erasure"],
    )
    for title, contender in ((RAW, LIMIT), (LEAFWARD, OURS)):
        setting.log(f"W10: {title}, filling {total:,}")
        outcome = erase(setting, contender)
        waits = sorted(outcome.waits)
        shown = [statistics.median(waits), waits[int(len(waits) * 0.99)], waits[-1], max(outcome.alone)]
        erasing = duration(statistics.median(outcome.erasing))
        section.rows.append([title, erasing, f"{len(waits):,}", *(duration(ns) for ns in shown)])
        section.remarks += [f"{title} left: {text}" for text in sorted(set(outcome.left))]
        if title == LEAFWARD:
            setting.facts["erase longest s"] = waits[-1] / 1e9
            setting.facts["erase left"] = len(outcome.left)
    setting.sections.append(section)


def erase(setting: Setting, contender: Contender) -> Outcome:
    """Fill a store, and erase sessions while another process appends."""
    outcome = Outcome()
    directory = setting.work / "erasing" / contender.title
    directory.mkdir(parents=True)
    log = setting.work / "stderr.log"
    with ExitStack() as stack:
        eraser, writer = (stack.enter_context(running(contender, log)) for _ in range(2))
        for process in (eraser, writer):
            process.ask("open", path=str(directory))
        for session in range(setting.profile.erasures + OTHERS):
            size = setting.profile.erased_size if session < setting.profile.erasures else EACH
            eraser.ask("fill", session=session, upto=size, budget=3_600)
        eraser.ask("settle")
        for session in range(setting.profile.erasures):
            setting.log(f"W10: {contender.title}, erasure {session + 1} of {setting.profile.erasures}")
            outcome.alone += writer.ask("append", session=WRITTEN, times=ALONE, budget=5.0)["ns"]
            stop = directory / f"erased-{session}"
            writing = writer.send("append_while", session=WRITTEN, stop=str(stop))
            try:
                reply = eraser.ask("call", what="erase", arguments={"session": session})
            finally:
                stop.touch()
                outcome.waits += writing()["ns"]
            outcome.erasing += reply["ns"]
            outcome.left += reply["found"]
        for process in (eraser, writer):
            process.ask("close")
    return outcome
