"""W5: search many sessions, settled and right after an import, and what the index costs an append."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

import traffic
from contenders import FTS, LEAFWARD, RAW
from measure import Measured, Series, Team
from setting import FTS_LIMIT, LIMIT, OURS, Setting
from tables import Section, duration, times

SCOPES: tuple[tuple[str, int | None], ...] = (("one session", 0), ("one user", None))
IMPORTED = 50_000
IMPORTS = 3


@dataclass(frozen=True)
class Question:
    """One query; `against` is the raw index that can answer it."""

    name: str
    text: str
    against: str = "words"


def questions() -> list[Question]:
    """Return the five kinds of query."""
    return [
        Question("common word", traffic.common_word()),
        Question("rare word", traffic.RARE_WORD),
        Question("two words", " ".join(traffic.two_words())),
        Question("phrase", f'"{" ".join(traffic.PHRASE)}"'),
        Question("Chinese word", traffic.CHINESE_WORD, against="pairs"),
    ]


def run(setting: Setting) -> None:
    """Fill both stores, ask, import, and add the sections."""
    profile = setting.profile
    total = profile.search_sessions * profile.search_each
    with setting.team_of("search", [FTS_LIMIT, OURS]) as team:
        setting.log(f"W5: filling {profile.search_sessions} sessions x {profile.search_each:,}")
        for session in range(profile.search_sessions):
            for title in team.members:
                team.ask(title, "fill", session=session, upto=profile.search_each, budget=3_600)
        team.settle()
        setting.log("W5: searching")
        section = Section(
            f"W5: first page of a search in {total:,} messages of {profile.search_sessions} sessions",
            "Times SQLite's FTS5 over the same rows, joined to the scope, ordered by rank, first 20 contents "
            "decoded; no snippets and highlights on its side. A user owns half of the sessions.",
            ["", *(f"{scope}: {what}" for scope, _ in SCOPES for what in (LEAFWARD, FTS, "hits"))],
        )
        ratios = [_ask(setting, team, question, section) for question in questions()]
        setting.facts["search worst ratio"] = max(ratio for row in ratios for ratio in row)
        setting.facts["search median ratio"] = statistics.median(ratio for row in ratios for ratio in row)
        section.remarks.append(_unfindable(team))
        setting.sections.append(section)
        _imports(setting, team)


def _ask(setting: Setting, team: Team, question: Question, section: Section) -> list[float]:
    row = [f"{question.name}: {question.text}"]
    ratios: list[float] = []
    for _, session in SCOPES:
        measured: Measured = {LEAFWARD: Series(), FTS: Series()}
        hits: dict[str, int] = {}
        for number in range(setting.profile.search_rounds):
            for title in team.order(number):
                kind = question.against
                reply = team.members[title].ask(
                    "search", session=session, query=question.text, kind=kind, times=3, budget=1.0
                )
                measured[title].add(number, reply["ns"])
                hits[title] = reply["hits"]
        ratio = measured[LEAFWARD].ratio(measured[FTS])
        ratios.append(ratio)
        row += [
            f"{times(ratio)} ({duration(measured[LEAFWARD].median)})",
            duration(measured[FTS].median),
            f"{hits[LEAFWARD]} / {hits[FTS]}",
        ]
    section.rows.append(row)
    return ratios


def _unfindable(team: Team) -> str:
    """Return the sentence about what `porter unicode61` finds of the Chinese word."""
    found = {
        index: team.members[FTS].ask(
            "search", session=None, query=traffic.CHINESE_WORD, kind=f"count {index}", times=1, budget=1.0
        )["hits"]
        for index in ("words", "pairs")
    }
    return (
        "The Chinese word is compared with an FTS5 index over character pairs. `porter unicode61`, the usual "
        f"tokenizer, finds {found['words']:,} of the user's {found['pairs']:,} messages that hold it: those where "
        "it stands alone."
    )


@dataclass
class Waits:
    """How long appends waited, in nanoseconds."""

    catching_up: list[int] = field(default_factory=list)
    settled: list[int] = field(default_factory=list)
    raw: list[int] = field(default_factory=list)
    indexed: int = 0
    """Messages that were indexed while the first of these went on."""


def _imports(setting: Setting, team: Team) -> None:
    """Search right after imports, while the index is behind, then append while it catches up."""
    size = setting.profile.import_size
    expected = min(20, len(range(0, size, traffic.RARE_EVERY)))
    budget = setting.profile.wait_budget
    first, scan, waits = Series(), Series(), Waits()
    missed = 0
    with setting.team_of("scan", [LIMIT]) as limit:
        ours, raw = team.members[LEAFWARD], limit.members[RAW]
        limit.warm(setting.profile.warm_budget)
        for number in range(IMPORTS):
            session = IMPORTED + number
            setting.log(f"W5: import {number + 1} of {IMPORTS}")
            raw.ask("fill", session=session, upto=size, budget=3_600)
            ours.ask("fill", session=session, upto=size, budget=3_600)
            reply = ours.ask("search", session=session, query=traffic.RARE_WORD, kind="words", times=1, budget=1.0)
            caught_up = ours.ask("append_while_indexing", session=session, budget=budget)
            waits.catching_up += caught_up["ns"]
            waits.indexed += caught_up["indexed"]
            ours.ask("settle")
            scan.add(number, raw.ask("history", session=session, times=3, budget=5.0)["ns"])
            first.add(number, reply["ns"])
            missed += max(0, expected - reply["hits"])
            waits.settled += ours.ask("append", session=session, times=500, budget=5.0)["ns"]
            ours.ask("settle")
            waits.raw += raw.ask("append", session=session, times=500, budget=5.0)["ns"]
    _report_imports(setting, first, scan, missed)
    _report_waits(setting, waits)


def _report_imports(setting: Setting, first: Series, scan: Series, missed: int) -> None:
    ratio = first.ratio(scan)
    setting.facts["pending ratio"] = ratio
    setting.facts["pending missed"] = missed
    section = Section(
        f"W5: the first search right after an import of {setting.profile.import_size:,} messages",
        "In the imported session, for the rare word, while most of the import is not indexed yet.",
        ["", "first search", "raw select + decode of the import", "ratio", "missed"],
    )
    section.rows.append([LEAFWARD, duration(first.median), duration(scan.median), times(ratio), str(missed)])
    setting.sections.append(section)


def _report_waits(setting: Setting, waits: Waits) -> None:
    section = Section(
        "W5: how long an append waits while the index catches up",
        "One append after the other from the end of an import for as long as indexing takes turns with them, at most "
        f"{setting.profile.wait_budget:.0f} s; then to the settled store and to raw SQLite.",
        ["", "appends", "median", "99 of 100 within", "longest"],
    )
    rows = {"index catching up": waits.catching_up, "settled": waits.settled, "raw": waits.raw}
    for name, spent in rows.items():
        shown = [statistics.median(spent), late(spent), max(spent)]
        section.rows.append([name, f"{len(spent):,}", *(duration(ns) for ns in shown)])
    section.remarks.append(
        f"Beside these appends {waits.indexed:,} of {IMPORTS * setting.profile.import_size:,} imported messages were "
        "indexed. When no more than some 20,000 wait, indexing goes on once nobody writes; searches scan what waits."
    )
    held = late(waits.catching_up) - late(waits.settled)
    setting.facts["index hold ms"] = max(0, held) / 1e6
    setting.facts["index longest ms"] = max(0, max(waits.catching_up) - max(waits.settled)) / 1e6
    setting.sections.append(section)


def late(spent: Sequence[int]) -> int:
    """Return what all but the slowest hundredth stayed within."""
    ordered = sorted(spent)
    return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
