"""The workloads on SQLite, by both versions in turn: one row for each operation that a target is about."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

import traffic
from compacting import LONG, WINDOW, per_round
from contenders import Contender
from erasing import erase
from footprint import fill_one_by_one, import_once
from ladder import TASKS, TOGETHER_AT, resume_once
from measure import Measured, Series, Team
from searching import IMPORTED, IMPORTS, SCOPES, late, questions
from writers import write

from against.match import Match

SMALLEST = 100
COMPACTED_APPENDS = 80
"""So many that every round meets a compaction."""
PAGE = 10
BLOCK = 1
PER_SECOND = 1_000_000_000


def ladder(match: Match, wanted: frozenset[str]) -> None:
    """W1, W2 and W3: append to a session that grows, read it, resume it."""
    profile = match.setting.profile
    with match.team("ladder", "ours") as team:
        team.warm(profile.warm_budget)
        for size in profile.sizes:
            match.log(f"{', '.join(sorted(wanted))}: N = {size:,}")
            team.fill(0, size, profile.fill_cap)
            if "W1" in wanted:
                _append(match, team, size)
            if "W2" in wanted and size >= TOGETHER_AT:
                repeats = max(1, 3_000 // size)
                reads = team.interleave(profile.read_rounds, "history", session=0, times=repeats, budget=1.0)
                match.timed("W2", f"history of {size:,}", reads)
            if "W3" in wanted and size >= TOGETHER_AT:
                match.timed("W3", f"resume, N = {size:,}", _resume(match, team))


def _append(match: Match, team: Team, size: int) -> None:
    profile = match.setting.profile
    asked = {"session": 0, "times": profile.appends, "budget": profile.batch_budget}
    match.timed("W1", f"append, N = {size:,}", team.interleave(profile.append_rounds, "append", **asked))
    if size == TOGETHER_AT:
        match.timed("W1", f"{TASKS} tasks append, a message", _together(match, team))


def _together(match: Match, team: Team) -> Measured:
    measured: Measured = {}
    each = match.setting.profile.appends
    team.fill(1, 1, match.setting.profile.fill_cap)
    for number in range(match.setting.profile.append_rounds):
        for title in team.order(number):
            reply = team.ask(title, "together", session=1, tasks=TASKS, each=each)
            team.ask(title, "settle")
            if reply is not None:
                measured.setdefault(title, Series()).add(number, [round(PER_SECOND / reply["rate"])])
    return measured


def _resume(match: Match, team: Team) -> Measured:
    measured: Measured = {}
    team.close()
    for number in range(match.setting.profile.resume_rounds):
        for title in team.order(number):
            spent = resume_once(match.setting, team, title)
            if spent is not None:
                measured.setdefault(title, Series()).add(number, spent)
    team.open()
    return measured


def compacting_appends(match: Match) -> None:
    """W1c: append with a compaction that never fires, and with one that does."""
    profile = match.setting.profile
    largest = max(profile.sizes)
    for threshold in ("never", "reached"):
        with match.team(f"compacting-{threshold}", "ours_compacting", threshold) as team:
            team.warm(profile.warm_budget)
            for session, size in enumerate((SMALLEST, largest)):
                match.log(f"W1c: {threshold}, N = {size:,}")
                team.fill(session, size, profile.fill_cap)
                times = profile.appends if threshold == "never" else COMPACTED_APPENDS
                rounds = profile.append_rounds if threshold == "never" else profile.read_rounds
                measured = team.interleave(rounds, "append", session=session, times=times, budget=5.0)
                name = f"append, `compact_after` never reached, N = {size:,}"
                if threshold == "reached":
                    measured = {title: per_round(series, statistics.fmean) for title, series in measured.items()}
                    name = f"mean append, compactions counted in, N = {size:,}"
                match.timed("W1c", name, measured)


def compacted_histories(match: Match) -> None:
    """W2c: read a long session of which a summary covers all but a window."""
    profile = match.setting.profile
    with match.team("compacted", "ours") as team:
        team.fill(LONG, profile.compacted_size, profile.fill_cap)
        made = 0
        for count in profile.overlays:
            match.log(f"W2c: {count:,} summaries")
            while made < count:
                size = profile.compacted_size + made
                for title in list(team.members):
                    team.ask(title, "fill", session=LONG, upto=size, budget=60)
                    asked = {"session": LONG, "last": size - WINDOW}
                    team.ask(title, "call", what="summarise", arguments=asked)
                made += 1
            team.settle()
            asked = {"what": "history", "arguments": {"session": LONG}, "times": 5, "budget": 1.0}
            match.timed(
                "W2c", f"history under {count:,} summaries", team.interleave(profile.read_rounds, "call", **asked)
            )


def writers(match: Match) -> None:
    """W4: many sessions written at once."""
    profile = match.setting.profile
    for shape, tasks in {"8 tasks": [8], "2 processes x 4 tasks": [4, 4]}.items():
        measured: Measured = {}
        errors: dict[str, float] = {}
        shares: dict[str, float] = {}
        both = match.versions.contenders("ours")
        for number in range(profile.spread_rounds):
            for contender in both if number % 2 else both[::-1]:
                match.log(f"W4: {contender.title}, {shape}")
                place = match.setting.work / "writers" / f"{contender.title}-{shape}-{number}".replace(" ", "-")
                outcome = write(match.setting, contender, place, tasks)
                title = contender.title
                measured.setdefault(title, Series()).add(number, [round(PER_SECOND / outcome.rate)])
                errors[title] = errors.get(title, 0) + len(outcome.errors)
                shares[title] = min(shares.get(title, 1.0), outcome.least_share)
        match.timed("W4", f"{shape}, a message", measured)
        match.counted("W4", f"{shape}, errors", errors)
        match.counted("W4", f"{shape}, least share (more is better)", shares, judged=False)


def searches(match: Match) -> None:
    """W5: search settled sessions and right after an import, and append while the index catches up."""
    profile = match.setting.profile
    with match.team("search", "ours") as team:
        match.log(f"W5: filling {profile.search_sessions} sessions x {profile.search_each:,}")
        for session in range(profile.search_sessions):
            team.fill(session, profile.search_each, profile.fill_cap)
        match.log("W5: searching")
        for question in questions():
            for scope, session in SCOPES:
                asked = {"session": session, "query": question.text, "kind": question.against}
                found = team.interleave(profile.search_rounds, "search", **asked, times=3, budget=1.0)
                match.timed("W5", f"search in {scope}: {question.name}", found)
        _imports(match, team)


def _imports(match: Match, team: Team) -> None:
    size = match.setting.profile.import_size
    expected = min(20, len(range(0, size, traffic.RARE_EVERY)))
    first: Measured = {}
    waits: Measured = {}
    missed: dict[str, float] = {}
    for number in range(IMPORTS):
        match.log(f"W5: import {number + 1} of {IMPORTS}")
        session = IMPORTED + number
        for title in team.order(number):
            team.ask(title, "fill", session=session, upto=size, budget=3_600)
            asked = {"session": session, "query": traffic.RARE_WORD, "kind": "words"}
            found = team.ask(title, "search", **asked, times=1, budget=1.0)
            budget = match.setting.profile.wait_budget
            appended = team.ask(title, "append_while_indexing", session=session, budget=budget)
            team.ask(title, "settle")
            if found is not None and appended is not None:
                first.setdefault(title, Series()).add(number, found["ns"])
                waits.setdefault(title, Series()).add(number, appended["ns"])
                missed[title] = missed.get(title, 0) + max(0, expected - found["hits"])
    match.timed("W5", f"first search after an import of {size:,}", first)
    match.counted("W5", "missed right after an import", missed)
    match.timed("W5", "append while the index catches up", waits, judged=False)
    match.counted("W5", "of these 99 of 100 within", _each(waits, late), unit="ns", judged=False)


def _each(measured: Measured, of: Callable[[list[int]], float]) -> dict[str, float]:
    return {title: of([ns for spent in series.rounds.values() for ns in spent]) for title, series in measured.items()}


def branches(match: Match) -> None:
    """W6: continue a session from its middle."""
    profile = match.setting.profile
    for size in profile.branch_sizes:
        match.log(f"W6: N = {size:,}")
        with match.team(f"branch-{size}", "ours") as team:
            team.fill(0, size, profile.fill_cap)
            team.warm(profile.warm_budget)
            asked = {"session": 0, "times": profile.appends, "budget": profile.batch_budget}
            match.timed("W6", f"branch, N = {size:,}", team.interleave(profile.branch_rounds, "branch", **asked))


def forks(match: Match) -> None:
    """W6f: fork a session."""
    profile = match.setting.profile
    for size in profile.branch_sizes:
        match.log(f"W6f: N = {size:,}")
        with match.team(f"fork-{size}", "ours") as team:
            team.fill(0, size, profile.fill_cap)
            asked = {"what": "fork", "arguments": {"session": 0, "at": size - 1}}
            # The first one lets the write-ahead log grow.
            team.interleave(1, "call", **asked)
            match.timed("W6f", f"fork, N = {size:,}", team.interleave(profile.branch_rounds, "call", **asked))


def imports(match: Match) -> None:
    """W7: import in a new interpreter."""
    match.log("W7: imports")
    measured: Measured = {}
    heavy: dict[str, float] = {}
    both = [
        Contender(one.title, one.command, imports="from leafward import Session, open_store")
        for one in match.versions.contenders("ours")
    ]
    for number in range(-1, match.setting.profile.import_rounds):
        for contender in both if number % 2 else both[::-1]:
            spent, _, loaded = import_once(contender)
            heavy[contender.title] = len(loaded)
            # The first round reads everything from the disk.
            if number >= 0:
                measured.setdefault(contender.title, Series()).add(number, [round(spent * 1_000_000)])
    match.timed("W7", "import", measured)
    match.counted("W7", "drivers, HTTP and pydantic loaded", heavy)


def disk(match: Match) -> None:
    """W8: bytes on disk per message."""
    for size in match.setting.profile.disk_sizes:
        match.log(f"W8: N = {size:,}")
        with match.team(f"disk-{size}", "ours") as team:
            used = {title: fill_one_by_one(match.setting, team, title, size) for title in list(team.members)}
        found = {title: bytes_ / size for title, bytes_ in used.items() if bytes_ is not None}
        match.counted("W8", f"bytes per message, N = {size:,}", found, unit="bytes")


def blocks(match: Match) -> None:
    """W9: search a block of many entries, and write to it."""
    profile = match.setting.profile
    size = max(profile.block_sizes)
    with match.team("block", "ours_block") as team:
        match.log(f"W9: filling {size:,} entries")
        for title in list(team.members):
            team.ask(title, "call", what="put_all", arguments={"block": BLOCK, "size": size})
        team.settle()
        match.log("W9: searching")
        for count, word in {0: traffic.UNUSED_WORD, **traffic.MARKS}.items():
            asked = {"what": "find", "arguments": {"block": BLOCK, "word": word}, "times": 3, "budget": 1.0}
            match.timed(
                "W9", f"search a block, {count:,} match", team.interleave(profile.search_rounds, "call", **asked)
            )


def erasing(match: Match) -> None:
    """W10: appends of another process while sessions are erased."""
    spent: dict[str, float] = {}
    longest: dict[str, float] = {}
    left: dict[str, float] = {}
    for contender in match.versions.contenders("ours"):
        match.log(f"W10: {contender.title}")
        outcome = erase(match.setting, contender)
        spent[contender.title] = statistics.median(outcome.erasing)
        longest[contender.title] = max(outcome.waits)
        left[contender.title] = len(outcome.left)
    match.counted("W10", "left in the store's files by an erasure", left)
    match.counted("W10", "one erasure", spent, unit="ns", judged=False)
    match.counted("W10", "longest append beside it", longest, unit="ns", judged=False)


LADDER: frozenset[str] = frozenset({"W1", "W2", "W3"})
OTHERS: Mapping[str, Callable[[Match], None]] = {
    "W1C": compacting_appends,
    "W2C": compacted_histories,
    "W4": writers,
    "W5": searches,
    "W6": branches,
    "W6F": forks,
    "W7": imports,
    "W8": disk,
    "W9": blocks,
    "W10": erasing,
}
