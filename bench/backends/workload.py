"""The backends workload: what leafward costs on each backend, over one call of the backend's driver."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack

import traffic
from contenders import running
from profiles import Backends
from setting import Setting

from backends.arena import SERVERS, Arena, arena
from backends.duel import BATCH, LIMIT, OURS
from backends.figures import Figures, History, Row, Search
from backends.steps import FOUND, HEAD, HOLD, SEND, SET, STEP
from backends.telling import tell, tell_searches

WINDOW = 50
WARM = 903
WARM_APPENDS = 300
LEASED = 901
STATED, UNSTATED = 905, 907
FIRST_AT_ONCE = 1_001
"""Sessions with odd numbers are of one user; the even ones are of the user whose sessions are searched."""


def run(setting: Setting, kinds: Sequence[str]) -> None:
    """Measure backends, all of them at hand at once, and add their sections."""
    with ExitStack() as stack:
        arenas = [stack.enter_context(arena(setting, kind)) for kind in kinds]
        found = [_measure(setting, one) for one in arenas]
        setting.log("backends: searching")
        _search_indexed(setting.profile.backends, arenas, found)
        for one, figures in zip(arenas, found, strict=True):
            one.ask("close")
            _resume(setting, one, figures)
    for figures in found:
        tell(setting, figures)
    tell_searches(setting, found)


def _sessions(profile: Backends) -> dict[int, int]:
    """Return the session of each size."""
    return {size: 2 * n + 1 for n, size in enumerate(sorted({*profile.sizes, *profile.reads}))}


def _owned(profile: Backends) -> list[int]:
    return [2 * n for n in range(profile.owned)]


def _measure(setting: Setting, one: Arena) -> Figures:
    profile = setting.profile.backends
    figures = Figures(one.kind)
    setting.log(f"backends: {one.kind}, filling")
    _fill(profile, one, figures)
    setting.log(f"backends: {one.kind}, indexing")
    one.ask("settle")
    setting.log(f"backends: {one.kind}, measuring")
    _write(profile, one, figures)
    _read(profile, one, figures)
    _at_once(profile, one, figures)
    _lease(profile, one, figures)
    _states(profile, one, figures)
    _agent(profile, one, figures)
    one.ask("settle")
    return figures


def _fill(profile: Backends, one: Arena, figures: Figures) -> None:
    """Fill all sessions; search the longest and the user's right after they were written."""
    sessions = _sessions(profile)
    for size, session in sessions.items():
        one.ask("fill", session=session, upto=size)
    # The first search of a process loads what all of them need.
    one.ask("search", session=sessions[min(sessions)], query=traffic.RARE_WORD, times=1)
    longest = sessions[max(sessions)]
    reply = one.ask("search", session=longest, query=traffic.RARE_WORD, times=1)
    figures.searches[Search.SESSION_IMPORTED].add(0, reply["ns"])
    for session in _owned(profile):
        one.ask("fill", session=session, upto=profile.owned_each, only=OURS)
    reply = one.ask("search", session=None, query=traffic.RARE_WORD, times=1)
    figures.searches[Search.OWNER_IMPORTED].add(0, reply["ns"])


def _write(profile: Backends, one: Arena, figures: Figures) -> None:
    sessions = _sessions(profile)
    one.ask("write", session=WARM, size=1, times=WARM_APPENDS)
    for number in range(profile.rounds):
        for size in profile.sizes:
            reply = one.ask("write", session=sessions[size], size=1, times=profile.calls)
            figures.append(size).add(number, reply)
        reply = one.ask("write", session=sessions[max(profile.sizes)], size=BATCH, times=profile.calls // 3)
        figures.batch.add(number, reply)
        one.ask("settle")


def _read(profile: Backends, one: Arena, figures: Figures) -> None:
    sessions = _sessions(profile)
    for size in profile.reads:
        for number in range(profile.read_rounds):
            reply = one.ask("read", session=sessions[size], times=max(1, 5_000 // size))
            figures.history(size, History.WARM).add(number, reply)
            if one.kind == "redis":
                reply = one.ask("read_cold", session=sessions[size], times=1)
                figures.history(size, History.COLD).add(number, reply)
    if one.kind in SERVERS:
        histories = {str(size): sessions[size] for size in profile.reads}
        reply = one.ask("trips", session=WARM, histories=histories)
        figures.count_trips(reply["trips"], reply["cold"])


def _at_once(profile: Backends, one: Arena, figures: Figures) -> None:
    sessions = [FIRST_AT_ONCE + 2 * n for n in range(profile.tasks)]
    one.ask("widen", sessions=sessions)
    for _ in range(profile.rounds):
        for name, rate in one.ask("at_once", sessions=sessions, each=profile.each)["rates"].items():
            figures.rates[name].append(rate)
        one.ask("settle")


def _lease(profile: Backends, one: Arena, figures: Figures) -> None:
    for number in range(profile.rounds):
        figures.lease.add(number, one.ask("lease", session=LEASED, times=profile.calls))
        figures.fenced.add(number, one.ask("write_behind", session=LEASED, times=profile.calls))
    if one.kind == "memory":
        return
    chance = random.Random(traffic.SEED)
    with one.second() as other:
        for number in range(profile.handovers):
            one.ask("acquire", session=LEASED)
            waiting = other.send("acquire", session=LEASED)
            # Long enough for the other to ask as seldom as it ever does, and not always the same in its pause.
            time.sleep(0.4 + 0.1 * chance.random())
            released = one.ask("release")["at"]
            figures.handover.add(number, {"ns": {OURS: [waiting()["at"] - released]}})
            other.ask("release")
        other.ask("close")


def _states(profile: Backends, one: Arena, figures: Figures) -> None:
    one.ask("states", sizes=list(profile.lists))
    for number in range(-1, profile.rounds):
        rows = {
            figures.save_state: one.ask("save_state", times=profile.calls),
            figures.get_state: one.ask("get_state", times=profile.calls),
        }
        for size in profile.lists:
            row = figures.lists.setdefault(size, Row())
            rows[row] = one.ask("grow_list", size=size, times=max(3, profile.calls // 3))
        # The first round warms up.
        for row, reply in rows.items() if number >= 0 else ():
            row.add(number, reply)
    if one.kind in SERVERS:
        for size in profile.lists:
            figures.list_bytes[size] = one.ask("list_bytes", size=size)["bytes"]


def _agent(profile: Backends, one: Arena, figures: Figures) -> None:
    """Time what an agent does in sessions of all sizes, and in one with many states beside one with none."""
    sessions = _sessions(profile)
    one.ask("fill_states", session=STATED, upto=profile.states)
    one.ask("fill", session=UNSTATED, upto=1, only=OURS)
    longest = sessions[max(profile.sizes)]
    asked = [(STEP, size, sessions[size]) for size in profile.sizes]
    asked += [(HEAD, size, sessions[size]) for size in profile.sizes]
    asked += [(SET, profile.states, STATED), (FOUND, profile.states, STATED)]
    asked += [(SEND, max(profile.sizes), longest), (HOLD, max(profile.sizes), longest)]
    for number in range(-1, profile.rounds):
        for what, size, session in asked:
            reply = one.ask("agent", what=what, session=session, other=UNSTATED, times=profile.calls)
            # The first round warms up.
            if number >= 0:
                figures.agent.setdefault((what, size), Row()).add(number, reply)
        one.ask("settle")


def _search_indexed(profile: Backends, arenas: Sequence[Arena], found: Sequence[Figures]) -> None:
    sessions = _sessions(profile)
    longest = sessions[max(sessions)]
    asked: dict[Search, tuple[int | None, str]] = {
        Search.SESSION_RARE: (longest, traffic.RARE_WORD),
        Search.SESSION_COMMON: (longest, traffic.common_word()),
        Search.OWNER_RARE: (None, traffic.RARE_WORD),
        Search.OWNER_COMMON: (None, traffic.common_word()),
    }
    for number in range(profile.search_rounds):
        for one, figures in zip(arenas, found, strict=True):
            for search, (session, query) in asked.items():
                reply = one.ask("search", session=session, query=query, times=1)
                figures.searches[search].add(number, reply["ns"])


def _resume(setting: Setting, one: Arena, figures: Figures) -> None:
    """Time opening and reading in new processes, while nobody else has the backend open."""
    if one.kind == "memory":
        return
    profile = setting.profile.backends
    session = _sessions(profile)[max(profile.sizes)]
    setting.log(f"backends: {one.kind}, resuming")
    for number in range(profile.resume_rounds):
        order = [OURS, LIMIT] if number % 2 else [LIMIT, OURS]
        figures.resume.add(number, {"ns": {name: _resume_once(one, name, session) for name in order}})


def _resume_once(one: Arena, name: str, session: int) -> list[int]:
    with running(one.alone(name), one.log) as process:
        spent: list[int] = process.ask("resume", path=one.path, session=session, count=WINDOW)["ns"]
        process.ask("close")
        return spent
