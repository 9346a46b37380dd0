"""W1, W2 and W3 on one session that grows: append to it, read all of it, resume it in a new process."""

from __future__ import annotations

import statistics

from contenders import HOP, LEAFWARD, RAW, ContenderFailed, Missing, running
from measure import Measured, Series, Team
from setting import Setting
from tables import Section, growth, last_to_first, ratio_section, ratios_of, times

WINDOW = 50
TASKS = 8
TOGETHER_AT = 1_000
LONG = 100
READ_SIZES = frozenset({1_000, 10_000, 100_000})


def run(setting: Setting, wanted: frozenset[str]) -> None:
    """Climb the sizes and add the sections of the wanted workloads."""
    appends: dict[int, Measured] = {}
    reads: dict[int, Measured] = {}
    resumes: dict[int, Measured] = {}
    rates: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    with setting.team("ladder", file=True) as team:
        for size in setting.profile.sizes:
            setting.log(f"ladder: N = {size:,}")
            team.fill(0, size, setting.profile.fill_cap)
            if "W1" in wanted:
                appends[size] = _append(setting, team, size)
            if "W1" in wanted and size == TOGETHER_AT:
                rates, refused = _together(setting, team)
            if "W2" in wanted and size in READ_SIZES:
                reads[size] = _read(setting, team, size)
            if "W3" in wanted and size in READ_SIZES:
                resumes[size] = _resume(setting, team, size)
        stops = dict(team.stops)
    if appends:
        _report_appends(setting, appends)
        setting.curves.update(appends)
    if rates:
        _report_together(setting, rates, refused)
    if reads:
        _report_reads(setting, reads)
    if resumes:
        _report_resumes(setting, resumes)
    setting.sections[-1].remarks.extend(f"{title} stopped: {reason}." for title, reason in stops.items())


def _append(setting: Setting, team: Team, size: int) -> Measured:
    profile = setting.profile
    team.warm(profile.warm_budget)
    # What an append costs while the index catches up is measured in W5.
    team.settle()
    measured = team.interleave(
        profile.append_rounds, "append", session=0, times=profile.appends, budget=profile.batch_budget
    )
    team.drop_slow(measured, f"one append at N = {size:,}")
    return measured


def _read(setting: Setting, team: Team, size: int) -> Measured:
    repeats = max(1, 20_000 // size)
    measured = team.interleave(
        setting.profile.read_rounds, "history", session=0, times=repeats, budget=setting.profile.batch_budget
    )
    team.drop_slow(measured, f"one read of {size:,} messages")
    return measured


def _resume(setting: Setting, team: Team, size: int) -> Measured:
    """Time opening and reading the window in new processes, while nobody else has the stores open."""
    measured: Measured = {}
    team.close()
    for number in range(setting.profile.resume_rounds):
        for title in team.order(number):
            if team.members[title].contender.is_peer and number >= setting.profile.peer_resume_rounds:
                continue
            spent = resume_once(setting, team, title)
            if spent is not None:
                measured.setdefault(title, Series()).add(number, spent)
    team.open()
    team.drop_slow(measured, f"resuming a session of {size:,} messages")
    return measured


def resume_once(setting: Setting, team: Team, title: str) -> list[int] | None:
    """Return the nanoseconds of one resumption in a new process; `None` when a peer has none, or failed."""
    contender = team.members[title].contender
    try:
        with running(contender, setting.work / "stderr.log") as process:
            reply = process.ask("resume", path=str(team.directory(title)), session=0, count=WINDOW)
            process.ask("close")
            return reply["ns"]
    except Missing:
        return None
    except ContenderFailed as failure:
        if not contender.is_peer:
            raise
        setting.log(f"  {failure}")
        return None


def _together(setting: Setting, team: Team) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the rates at which eight tasks append to one session, and what peers raised over it."""
    rates: dict[str, list[float]] = {}
    refused: dict[str, str] = {}
    team.fill(1, 1, setting.profile.fill_cap)
    for number in range(max(3, setting.profile.append_rounds // 3)):
        for title in [name for name in team.order(number) if name not in refused]:
            process = team.members[title]
            try:
                reply = process.ask("together", session=1, tasks=TASKS, each=setting.profile.appends)
            except ContenderFailed as failure:
                if not process.contender.is_peer:
                    raise
                refused[title] = failure.text[:160]
            else:
                rates.setdefault(title, []).append(reply["rate"])
            if title == LEAFWARD:
                team.settle()
    return rates, refused


def _report_appends(setting: Setting, appends: dict[int, Measured]) -> None:
    section = ratio_section(
        "W1: append one message to a session of N",
        "Times the raw limit in the same rounds; the median time of one append in brackets. "
        "`growth` is the exponent g in ratio ~ N^g: 0 is flat, 1 doubles with N.",
        appends,
        base=RAW,
        order=setting.order,
    )
    setting.sections.append(section)
    facts = setting.facts
    ours = ratios_of(appends, LEAFWARD, RAW)
    facts["append ratio"] = statistics.median(ours.values())
    facts["append worst ratio"] = max(ours.values())
    long = {n: ratio for n, ratio in ours.items() if n >= LONG}
    if len(long) > 1:
        facts["append growth"] = growth(long)
        facts["append last to first"] = last_to_first(long)
    peers = [peer.title for peer in setting.peers if peer.durable]
    against = [_against_best(measured, peers) for measured in appends.values()]
    if any(against):
        facts["append to best peer"] = max(against)
    if all(HOP in measured for measured in appends.values()):
        hops = ratios_of(appends, HOP, RAW)
        over = ratios_of(appends, LEAFWARD, HOP)
        facts["append over a hop"] = statistics.median(over.values())
        section.remarks.append(
            f"`{HOP}` is the same raw commit on a writer thread, awaited from an event loop: what asyncio and two "
            f"wake-ups cost here, {times(statistics.median(hops.values()))} of raw with nothing else done. leafward is "
            f"{times(statistics.median(over.values()))} of that: it also looks up the session, the id and the lane's "
            "end, writes two more pages (id index, session), and encodes and counts the message."
        )
    section.remarks.extend(
        f"{peer.title} does not force its writes to disk, so no target compares with it."
        for peer in setting.peers
        if not peer.durable
    )


def _against_best(measured: Measured, peers: list[str]) -> float:
    """Return our time over that of the quickest peer at this size, 0 when none was measured."""
    present = [title for title in peers if title in measured]
    return max((measured[LEAFWARD].ratio(measured[title]) for title in present), default=0.0)


def _report_together(setting: Setting, rates: dict[str, list[float]], refused: dict[str, str]) -> None:
    section = Section(
        "W1: eight tasks append to one session at once",
        "Messages per second, as times the rate of raw commits one after the other in the same rounds.",
        ["", "rate", "of raw"],
    )
    section.remarks.extend(f"{title} raised: {text}" for title, text in refused.items())
    for title in [name for name in setting.order if name in rates and name not in refused]:
        ratio = statistics.median(a / b for a, b in zip(rates[title], rates[RAW], strict=False))
        section.rows.append([title, f"{statistics.median(rates[title]):,.0f}/s", times(ratio)])
        if title == LEAFWARD:
            setting.facts["together ratio"] = ratio
    setting.sections.append(section)


def _report_reads(setting: Setting, reads: dict[int, Measured]) -> None:
    setting.sections.append(
        ratio_section(
            "W2: load the full history of N messages",
            "Times raw select + decode, which takes time in proportion to N; the median time in brackets.",
            reads,
            base=RAW,
            order=setting.order,
        )
    )
    setting.facts["history ratio"] = max(m[LEAFWARD].ratio(m[RAW]) for m in reads.values())


def _report_resumes(setting: Setting, resumes: dict[int, Measured]) -> None:
    setting.sections.append(
        ratio_section(
            f"W3: open the store in a new process and load the last {WINDOW} of N messages",
            "From before opening to after reading, in the new process. Starting Python and importing, the "
            "backend that leafward loads when a store is opened included, are W7.",
            resumes,
            base=RAW,
            order=setting.order,
        )
    )
    setting.facts["resume ratio"] = max(m[LEAFWARD].ratio(m[RAW]) for m in resumes.values())
    if len(resumes) > 1:
        setting.facts["resume last to first"] = last_to_first(ratios_of(resumes, LEAFWARD, RAW))
