"""A store with a million messages: does anything cost more than in a small one?"""

from __future__ import annotations

import time

import traffic
from contenders import LEAFWARD, RAW, Contender, running
from footprint import allocated
from measure import Measured, Series, Team
from setting import LIMIT, OURS, Setting
from tables import Section, duration, times

EACH = 1_000
SMALL_SESSIONS = 10
WINDOW = 50
LARGE, SMALL = "large store", "small store"


def run(setting: Setting, *, sessions: int) -> None:
    """Fill a large and a small store, measure both and raw beside them, and add the sections."""
    with (
        setting.team_of("million", [LIMIT, OURS]) as large,
        setting.team_of("small", [LIMIT, OURS]) as small,
    ):
        filling = _fill(setting, large, sessions)
        _fill(setting, small, SMALL_SESSIONS)
        for team in (large, small):
            team.warm(setting.profile.warm_budget)
        stores = {SMALL: small, LARGE: large}
        found = {
            "W1 append": _measure(setting, stores, "append", session=2, times=setting.profile.appends),
            f"W2 window, last {WINDOW}": _measure(setting, stores, "recent", session=2, count=WINDOW, times=10),
            "W2 history of a session": _measure(setting, stores, "history", session=2, times=2),
        }
        searches = _search(setting, stores)
        for team in stores.values():
            team.settle()
            team.close()
        found[f"W3 cold resume, last {WINDOW}"] = _resume(setting, stores)
        sizes = {title: allocated(large.directory(title)) for title in large.members}
    _report(setting, found)
    _report_searches(setting, searches, sessions)
    total = sessions * EACH
    setting.sections[-1].remarks += [
        f"The large store holds {total:,} messages in {sessions:,} sessions, the small one {SMALL_SESSIONS * EACH:,}.",
        f"Written by `append_messages` in batches of 500: {total / filling[0]:,.0f} messages per second.",
        f"The index was complete {filling[1]:.0f} s after the last message.",
        f"Bytes per message on disk: {sizes[LEAFWARD] / total:,.0f}, raw {sizes[RAW] / total:,.0f}.",
    ]


def _fill(setting: Setting, team: Team, sessions: int) -> tuple[float, float]:
    """Fill a store; return the seconds leafward wrote for and then needed to finish its index."""
    writing = 0.0
    for session in range(sessions):
        if session % 100 == 0:
            setting.log(f"million: session {session:,} of {sessions:,}")
        team.ask(RAW, "fill", session=session, upto=EACH, budget=3_600)
        begin = time.monotonic()
        team.ask(LEAFWARD, "fill", session=session, upto=EACH, budget=3_600)
        writing += time.monotonic() - begin
    setting.log("million: waiting for the index")
    settled = team.ask(LEAFWARD, "settle")
    assert settled is not None
    return writing, settled["seconds"]


def _measure(setting: Setting, stores: dict[str, Team], do: str, **arguments: int) -> dict[str, Measured]:
    found: dict[str, Measured] = {name: {} for name in stores}
    for number in range(setting.profile.append_rounds):
        for name, team in stores.items():
            for title in team.order(number):
                reply = team.members[title].ask(do, budget=5.0, **arguments)
                found[name].setdefault(title, Series()).add(number, reply["ns"])
            team.settle()
    return found


def _search(setting: Setting, stores: dict[str, Team]) -> dict[str, dict[str, Series]]:
    """Return the times of searches, by question and store."""
    asked = {
        "rare word, one session": (2, traffic.RARE_WORD),
        "common word, one session": (2, traffic.common_word()),
        "Chinese word, one session": (2, traffic.CHINESE_WORD),
        "rare word, one user": (None, traffic.RARE_WORD),
        "two words, one user": (None, " ".join(traffic.two_words())),
    }
    found: dict[str, dict[str, Series]] = {}
    for question, (session, text) in asked.items():
        for number in range(setting.profile.search_rounds):
            for name, team in stores.items():
                reply = team.members[LEAFWARD].ask(
                    "search", session=session, query=text, kind="words", times=3, budget=2.0
                )
                found.setdefault(question, {}).setdefault(name, Series()).add(number, reply["ns"])
    return found


def _resume(setting: Setting, stores: dict[str, Team]) -> dict[str, Measured]:
    found: dict[str, Measured] = {name: {} for name in stores}
    for number in range(setting.profile.resume_rounds):
        for name, team in stores.items():
            for title in team.order(number):
                spent = _resume_once(setting, team.members[title].contender, str(team.directory(title)))
                found[name].setdefault(title, Series()).add(number, spent)
    return found


def _resume_once(setting: Setting, contender: Contender, path: str) -> list[int]:
    with running(contender, setting.work / "stderr.log") as process:
        spent = process.ask("resume", path=path, session=2, count=WINDOW)["ns"]
        process.ask("close")
        return spent


def _report(setting: Setting, found: dict[str, dict[str, Measured]]) -> None:
    section = Section(
        "A session of 1,000 messages in a large and in a small store",
        "Times raw SQLite of the same size in the same rounds; the median time in brackets.",
        ["", SMALL, LARGE, "large over small"],
    )
    for name, by_store in found.items():
        cells = [f"{times(m[LEAFWARD].ratio(m[RAW]))} ({duration(m[LEAFWARD].median)})" for m in by_store.values()]
        over = by_store[LARGE][LEAFWARD].ratio(by_store[SMALL][LEAFWARD])
        section.rows.append([name, *cells, times(over)])
        setting.facts[f"million {name.split()[0]} over small"] = over
    append = found["W1 append"][LARGE]
    setting.facts["million append ratio"] = append[LEAFWARD].ratio(append[RAW])
    setting.sections.append(section)


def _report_searches(setting: Setting, searches: dict[str, dict[str, Series]], sessions: int) -> None:
    section = Section(
        "Search in a large and in a small store",
        "The first page; a user owns half of the sessions, so in the large store a user's search covers "
        f"{sessions // SMALL_SESSIONS} times the rows.",
        ["", SMALL, LARGE, "large over small"],
    )
    for question, by_store in searches.items():
        over = by_store[LARGE].ratio(by_store[SMALL])
        section.rows.append([question, *(duration(by_store[name].median) for name in (SMALL, LARGE)), times(over)])
    setting.sections.append(section)
