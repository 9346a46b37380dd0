"""W1c and W2c: what automatic compaction costs an append, and what a compacted history costs to read."""

from __future__ import annotations

import statistics
from collections.abc import Callable

from contenders import LEAFWARD, RAW, local
from measure import Measured, Series, Team
from setting import LIMIT, OURS, Setting
from tables import Section, duration, ratio_section, ratios_of, times

NEVER = "with compact_after, never reached"
REACHED = "with compact_after, reached again and again"
COMPACTS = "the append that compacts"
ROUND = 4
"""How many times the appends of a round of W1, so that every round meets a compaction."""
SMALLEST = 100
BUDGET = 5.0

WINDOW = 200
LONG, SHORT, BRIEF = 0, 1, 2


def appends(setting: Setting) -> None:
    """W1c: append to sessions of N messages without compaction, with one that never fires, and with one that does."""
    members = [
        LIMIT,
        local(LEAFWARD, "ours_compacting", "kept"),
        local(NEVER, "ours_compacting", "never"),
        local(REACHED, "ours_compacting", "reached"),
    ]
    medians: dict[int, Measured] = {}
    means: dict[int, Measured] = {}
    with setting.team_of("compacting", members) as team:
        for size in [one for one in setting.profile.sizes if one >= SMALLEST]:
            setting.log(f"W1c: N = {size:,}")
            team.fill(0, size, setting.profile.fill_cap)
            team.warm(setting.profile.warm_budget)
            before = _summaries(team)
            measured = team.interleave(
                setting.profile.append_rounds,
                "append",
                session=0,
                times=setting.profile.appends * ROUND,
                budget=BUDGET,
            )
            fired = _summaries(team) - before
            written = setting.profile.append_rounds * setting.profile.appends * ROUND
            medians[size] = measured
            means[size] = {title: per_round(series, statistics.fmean) for title, series in measured.items()}
            means[size][COMPACTS] = per_round(measured[REACHED], max)
        total = _summaries(team)
        setting.log("W1c: short and long in the same rounds")
        sides = _side_by_side(setting, team)
    _report_appends(setting, medians)
    _report_means(setting, means, f"one append in {written / max(fired, 1):.0f} compacted, {total:,} times in the end")
    _report_sides(setting, sides, size)


def _side_by_side(setting: Setting, team: Team) -> dict[int, Measured]:
    """Append to a short session and to the long one in turns, so that their ratio needs no third party."""
    team.fill(BRIEF, SMALLEST, setting.profile.fill_cap)
    found: dict[int, Measured] = {BRIEF: {}, LONG: {}}
    for number in range(setting.profile.append_rounds):
        for title in team.order(number):
            for session, measured in found.items():
                reply = team.members[title].ask(
                    "append", session=session, times=setting.profile.appends * ROUND, budget=BUDGET
                )
                measured.setdefault(title, Series()).add(number, reply["ns"])
                team.members[title].ask("settle")
    return found


def _summaries(team: Team) -> int:
    return team.members[REACHED].ask("call", what="summaries", arguments={"session": 0})["found"]


def per_round(series: Series, of: Callable[[list[int]], float]) -> Series:
    """Return a series with one value for each round, such as its mean."""
    found = Series()
    for number, spent in series.rounds.items():
        found.add(number, [int(of(spent))])
    return found


def _report_appends(setting: Setting, medians: dict[int, Measured]) -> None:
    setting.sections.append(
        ratio_section(
            "W1c: append with automatic compaction configured",
            "Times the same append without compaction in the same rounds; the median time in brackets. All three "
            "keep their handle.",
            medians,
            base=LEAFWARD,
            order=[RAW, LEAFWARD, NEVER, REACHED],
        )
    )
    setting.facts["compacting append ratio"] = statistics.median(ratios_of(medians, NEVER, LEAFWARD).values())


def _report_means(setting: Setting, means: dict[int, Measured], remark: str) -> None:
    section = ratio_section(
        "W1c: append with the compactions counted in",
        "The mean of a round, in which some appends compact, with a summariser that answers at once; times the mean "
        "without compaction. The last row is the longest append of a round.",
        means,
        base=LEAFWARD,
        order=[RAW, LEAFWARD, NEVER, REACHED, COMPACTS],
    )
    section.remarks.append(f"At the largest N {remark}: each summary takes in the one before.")
    setting.sections.append(section)


def _report_sides(setting: Setting, sides: dict[int, Measured], size: int) -> None:
    section = Section(
        f"W1c: the same append at N = {SMALLEST} and at N = {size:,}, in the same rounds",
        "Both sessions are in one store; in brackets the medians. The mean has the compactions in it.",
        ["", "median, long over short", "mean, long over short"],
    )
    for title in (RAW, LEAFWARD, NEVER, REACHED):
        short, long = sides[BRIEF][title], sides[LONG][title]
        mean = per_round(long, statistics.fmean).ratio(per_round(short, statistics.fmean))
        medians = f"{times(long.ratio(short))} ({duration(long.median)} / {duration(short.median)})"
        section.rows.append([title, medians, times(mean)])
        if title == NEVER:
            setting.facts["compacting long over short"] = long.ratio(short)
        if title == REACHED:
            setting.facts["compacted mean long over short"] = mean
    setting.sections.append(section)


def histories(setting: Setting) -> None:
    """W2c: read a long compacted session, beside an uncompacted one of its window's size."""
    size = setting.profile.compacted_size
    section = Section(
        f"W2c: history of a compacted session of {size:,} messages, {WINDOW} of which are visible",
        f"Beside a session that has {WINDOW} messages, with no summary, in the same store and rounds, and raw select "
        "+ decode of as many. Every summary but the first takes in the one before.",
        ["summaries", "compacted", f"{WINDOW} messages", "compacted over that", "raw", "adding the next summary"],
    )
    ratios: dict[int, float] = {}
    with setting.team_of("compacted", [LIMIT, OURS]) as team:
        setting.log(f"W2c: filling {size:,}")
        ours, raw = team.members[LEAFWARD], team.members[RAW]
        for process in (ours, raw):
            process.ask("fill", session=SHORT, upto=WINDOW, budget=3_600)
        ours.ask("fill", session=LONG, upto=size, budget=3_600)
        team.settle()
        made = 0
        for count in setting.profile.overlays:
            setting.log(f"W2c: {count:,} summaries")
            adding: list[int] = []
            while made < count:
                ours.ask("fill", session=LONG, upto=size + made, budget=60)
                asked = {"session": LONG, "last": size + made - WINDOW}
                adding = ours.ask("call", what="summarise", arguments=asked)["ns"]
                made += 1
            team.settle()
            found = _read(setting, team)
            ratios[count] = found["compacted"].ratio(found["short"])
            section.rows.append(
                [
                    f"{count:,}",
                    duration(found["compacted"].median),
                    duration(found["short"].median),
                    times(ratios[count]),
                    duration(found[RAW].median),
                    duration(adding[-1]),
                ]
            )
    setting.sections.append(section)
    setting.facts["compacted history ratio"] = ratios[min(ratios)]
    setting.facts["compacted history worst ratio"] = max(ratios.values())


def _read(setting: Setting, team: Team) -> Measured:
    found: Measured = {"compacted": Series(), "short": Series(), RAW: Series()}
    asked = {"compacted": (LEAFWARD, LONG), "short": (LEAFWARD, SHORT), RAW: (RAW, SHORT)}
    for number in range(setting.profile.append_rounds):
        for name, (title, session) in asked.items():
            reply = team.members[title].ask(
                "call", what="history", arguments={"session": session}, times=10, budget=1.0
            )
            if reply["found"] != WINDOW:
                raise AssertionError(f"{name}: {reply['found']} of {WINDOW} messages came back")
            found[name].add(number, reply["ns"])
    return found
