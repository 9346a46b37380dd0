"""The tables of the backends, and the facts that targets are judged by."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from setting import Setting
from tables import NOTHING, Section, duration, times

from backends.arena import SERVERS, versions
from backends.duel import BATCH, BEHIND, LIMIT, OURS, PLAIN
from backends.figures import Figures, History, Row, Search

HEAD = ("", "leafward", "95 of 100 within", "the driver", "95 of 100 within", "ratio", "round trips")
LIMITS = {
    "postgresql": "one prepared `INSERT` by asyncpg that commits by itself; one `SELECT` and `msgspec` decode",
    "mysql": "one `INSERT` by asyncmy that commits by itself; one `SELECT` and `msgspec` decode",
    "redis": "one `EVALSHA` by redis-py that does `RPUSH` and `HSET`; one `LRANGE` and `msgspec` decode",
    "file": "one `write` and `fsync` of an open file; reading the file and `msgspec` decode",
    "sqlite": "one insert and commit by `sqlite3`; one `SELECT` and `msgspec` decode",
    "memory": "the same by `sqlite3` without a file",
}


def tell(setting: Setting, figures: Figures) -> None:
    """Add the table of one backend."""
    profile = setting.profile.backends
    note = f"The driver: {LIMITS[figures.kind]}. Both are in one process and take turns call by call."
    if figures.kind in SERVERS:
        note += f" {versions(figures.kind)}. Round trips are leafward's, counted by a proxy before the server."
    section = Section(f"Backend {figures.kind}", note, HEAD)
    rows = section.rows
    rows += [_row(f"append one message, N = {size:,}", row) for size, row in figures.appends.items()]
    rows.append(_row(f"append {BATCH} messages as a batch", figures.batch))
    rows += [
        _row(f"history of {size:,} messages{state.value}", row) for (size, state), row in figures.histories.items()
    ]
    if figures.resume.times:
        rows.append(_row(f"new process: open, last 50 of {max(profile.sizes):,}", figures.resume))
    rows.append(_row("state: save a value of 100 KB", figures.save_state))
    rows.append(_row("state: get it", figures.get_state))
    rows += [_row(f"state: save a list of {size:,} with one more item", row) for size, row in figures.lists.items()]
    rows.append(_rates(f"{profile.tasks} sessions at once, messages per second", figures))
    rows.append(_row("lease: acquire and release", figures.lease))
    rows.append(_row("lease: append behind it, over a plain append", figures.fenced, ours=BEHIND, limit=PLAIN))
    rows += [_agent_row(what, size, row) for (what, size), row in figures.agent.items()]
    if figures.handover.times:
        rows.append(_row("lease: from release to the next process's having it", figures.handover))
    setting.sections.append(section)
    _note_facts(setting, figures)


def _row(name: str, row: Row, *, ours: str = OURS, limit: str = LIMIT) -> Sequence[str]:
    trips = NOTHING if row.trips is None else str(row.trips)
    mine = row.times[ours]
    cells = [name, duration(mine.median), duration(mine.late)]
    if limit not in row.times:
        return [*cells, NOTHING, NOTHING, NOTHING, trips]
    base = row.times[limit]
    return [*cells, duration(base.median), duration(base.late), times(mine.ratio(base)), trips]


def _agent_row(what: str, size: int, row: Row) -> Sequence[str]:
    ours, base = row.times
    return _row(f"agent: {ours}, N = {size:,}, over {base}", row, ours=ours, limit=base)


def _rates(name: str, figures: Figures) -> Sequence[str]:
    ours, limit = (f"{statistics.median(figures.rates[who]):,.0f}/s" for who in (OURS, LIMIT))
    return [name, ours, NOTHING, limit, NOTHING, times(_rate_ratio(figures)), NOTHING]


def _rate_ratio(figures: Figures) -> float:
    pairs = zip(figures.rates[OURS], figures.rates[LIMIT], strict=True)
    return statistics.median(ours / limit for ours, limit in pairs)


def _note_facts(setting: Setting, figures: Figures) -> None:
    facts, kind = setting.facts, figures.kind
    facts[f"{kind} state save ratio"] = figures.save_state.times[OURS].ratio(figures.save_state.times[LIMIT])
    facts[f"{kind} state get ratio"] = figures.get_state.times[OURS].ratio(figures.get_state.times[LIMIT])
    facts[f"{kind} list ratio"] = max(row.times[OURS].ratio(row.times[LIMIT]) for row in figures.lists.values())
    for (what, _), row in figures.agent.items():
        ours, base = row.times.values()
        fact = f"{kind} agent {what}"
        facts[fact] = max(facts.get(fact, 0.0), ours.ratio(base))
    if figures.list_bytes:
        facts[f"{kind} list bytes"] = max(figures.list_bytes.values()) - min(figures.list_bytes.values())
    if figures.kind not in SERVERS:
        return
    facts[f"{kind} append ratio"] = max(row.times[OURS].ratio(row.times[LIMIT]) for row in figures.appends.values())
    shortest, longest = (figures.appends[pick(figures.appends)].times[OURS] for pick in (min, max))
    facts[f"{kind} append long over short"] = longest.ratio(shortest)
    facts[f"{kind} append trips"] = max(row.trips or 0 for row in figures.appends.values())
    facts[f"{kind} batch ratio"] = figures.batch.times[OURS].ratio(figures.batch.times[LIMIT])
    warm = {size: row for (size, state), row in figures.histories.items() if state is History.WARM}
    facts[f"{kind} history ratio"] = max(row.times[OURS].ratio(row.times[LIMIT]) for row in warm.values())
    facts[f"{kind} history trips"] = max((row.trips or 0) * 1_000 / size for size, row in warm.items())
    facts[f"{kind} at once ratio"] = _rate_ratio(figures)


def tell_searches(setting: Setting, found: Sequence[Figures]) -> None:
    """Add the table of searches, with every backend over SQLite."""
    profile = setting.profile.backends
    section = Section(
        "Search on each backend",
        f"The first page, in a session of {max(profile.sizes):,} messages and in the {profile.owned} sessions of "
        f"{profile.owned_each:,} that a user has; in brackets as times SQLite's. Right after the import is one search "
        "for the rare word, made on one backend after the other. The others take turns, after indexing has ended; "
        "Redis and memory have no index.",
        ["", *(search.value for search in Search)],
    )
    base = next((figures for figures in found if figures.kind == "sqlite"), None)
    for figures in found:
        section.rows.append([figures.kind, *(_search(figures, search, base) for search in Search)])
    setting.sections.append(section)


def _search(figures: Figures, search: Search, base: Figures | None) -> str:
    series = figures.searches[search]
    over = "" if base is None else f" ({times(series.ratio(base.searches[search]))})"
    return f"{duration(series.median)}{over}"
