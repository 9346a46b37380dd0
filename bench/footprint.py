"""W6, W7 and W8: what a branch, an import and a stored message cost."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
from pathlib import Path

from contenders import LEAFWARD, RAW, Contender
from measure import Measured, Team
from setting import LIMIT, OURS, Setting
from tables import NOTHING, Section, last_to_first, ratio_section, ratios_of

CHUNK = 250
HEAVY = (
    "sqlite3",
    "aiosqlite",
    "asyncpg",
    "psycopg",
    "redis",
    "pymysql",
    "httpx",
    "aiohttp",
    "pydantic",
    "http.client",
)
BACKEND = "import leafward.stores.sqlite.store"
IMPORT_PROBE = """
import asyncio, json, sys, time
def resident():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
before = resident()
begin = time.perf_counter()
{statement}
spent = time.perf_counter() - begin
loaded = [name for name in {heavy!r} if name in sys.modules]
print(json.dumps([spent * 1000, resident() - before, loaded]))
"""


def branch(setting: Setting) -> None:
    """W6: continue a session from its middle."""
    by_size: dict[int, Measured] = {}
    stops: dict[str, str] = {}
    for size in setting.profile.branch_sizes:
        setting.log(f"W6: N = {size:,}")
        peers = [peer for peer in setting.peers if peer.title not in stops]
        with setting.team_of(f"branch-{size}", [LIMIT, OURS, *peers]) as team:
            team.fill(0, size, setting.profile.fill_cap)
            team.warm(setting.profile.warm_budget)
            by_size[size] = team.interleave(
                setting.profile.branch_rounds,
                "branch",
                session=0,
                times=10,
                budget=setting.profile.batch_budget,
            )
            team.drop_slow(by_size[size], f"one branch at N = {size:,}")
            stops |= team.stops
    section = ratio_section(
        "W6: branch at message N/2",
        "Times one raw append, which is all that a branch needs to write. openai-agents and strands have no "
        "branch: theirs is a copy of the first half. google-adk has none that a user could call.",
        by_size,
        base=RAW,
        order=setting.order,
    )
    section.remarks.extend(f"{title} stopped: {reason}." for title, reason in stops.items())
    setting.sections.append(section)
    setting.facts["branch ratio"] = max(m[LEAFWARD].ratio(m[RAW]) for m in by_size.values())
    if len(by_size) > 1:
        setting.facts["branch last to first"] = last_to_first(ratios_of(by_size, LEAFWARD, RAW))


def imports(setting: Setting) -> None:
    """W7: time and memory of importing, over an interpreter that has imported asyncio."""
    setting.log("W7: imports")
    ours = Contender(LEAFWARD, OURS.command, imports="from leafward import Session, open_store")
    backend = Contender("leafward with SQLite", OURS.command, imports=f"{ours.imports}; {BACKEND}")
    contenders = [ours, backend, *setting.peers]
    found: dict[str, list[tuple[float, int, list[str]]]] = {c.title: [] for c in contenders}
    for contender in contenders:
        import_once(contender)
    for number in range(setting.profile.import_rounds):
        for contender in contenders:
            if contender.is_peer and number >= setting.profile.peer_resume_rounds:
                continue
            found[contender.title].append(import_once(contender))
    section = Section(
        "W7: import",
        "Over an interpreter that has imported `asyncio`; bytecode already cached; medians.",
        ["", "time", "resident memory", "statement"],
    )
    for contender in contenders:
        spent = statistics.median(one[0] for one in found[contender.title])
        memory = statistics.median(one[1] for one in found[contender.title])
        statement = f"`{contender.imports}`"
        section.rows.append([contender.title, f"{spent:.0f} ms", f"{memory / 1024:.1f} MiB", statement])
    setting.facts["import ms"] = statistics.median(one[0] for one in found[LEAFWARD])
    loaded = found[LEAFWARD][0][2]
    setting.facts["import heavy"] = len(loaded)
    section.remarks.append(f"Of drivers, HTTP and pydantic, importing leafward loads: {', '.join(loaded) or 'none'}.")
    setting.sections.append(section)


def import_once(contender: Contender) -> tuple[float, int, list[str]]:
    """Return the milliseconds, the kilobytes and the heavy modules of an import in a new interpreter."""
    code = IMPORT_PROBE.format(statement=contender.imports, heavy=HEAVY)
    done = subprocess.run([contender.python, "-c", code], capture_output=True, text=True, check=True)
    spent, memory, loaded = json.loads(done.stdout.splitlines()[-1])
    return spent, memory, loaded


def disk(setting: Setting) -> None:
    """W8: bytes on disk per message, search index included, after closing."""
    found: dict[str, dict[int, float]] = {}
    for size in setting.profile.disk_sizes:
        setting.log(f"W8: N = {size:,}")
        with setting.team(f"disk-{size}") as team:
            for title in list(team.members):
                used = fill_one_by_one(setting, team, title, size)
                if used is not None:
                    found.setdefault(title, {})[size] = used / size
    section = Section(
        "W8: bytes on disk per message",
        "Appended one by one, closed, allocated blocks counted; leafward's with its complete search index.",
        ["", *(f"N = {size:,}" for size in setting.profile.disk_sizes), "of raw"],
    )
    for title in [name for name in setting.order if name in found]:
        cells = [
            f"{found[title][size]:,.0f}" if size in found[title] else NOTHING for size in setting.profile.disk_sizes
        ]
        largest = max(found[title])
        section.rows.append([title, *cells, f"{found[title][largest] / found[RAW][largest]:.2f}x"])
    section.remarks.append(f"A dash: not filled within {setting.profile.disk_cap:.0f} s.")
    setting.sections.append(section)
    setting.facts["bytes per message"] = max(found[LEAFWARD].values())


def fill_one_by_one(setting: Setting, team: Team, title: str, size: int) -> int | None:
    """Append messages one by one, close the store, and return its bytes; `None` when time was over before that."""
    is_peer = team.members[title].contender.is_peer
    left, budget = size, setting.profile.disk_cap
    while left > 0 and budget > 0:
        reply = team.ask(title, "append", session=0, times=min(CHUNK, left), budget=budget if is_peer else 3_600)
        if reply is None:
            return None
        left -= len(reply["ns"])
        budget -= sum(reply["ns"]) / 1e9 if is_peer else 0
    if not is_peer:
        team.ask(title, "settle")
    team.ask(title, "close")
    return allocated(team.directory(title)) if left == 0 else None


def allocated(directory: Path) -> int:
    """Return the bytes of all disk blocks that files below `directory` hold."""
    os.sync()
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
