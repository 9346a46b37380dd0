"""W9: a search block of many entries, searched and written to."""

from __future__ import annotations

from dataclasses import dataclass, field

import traffic
from contenders import FTS_BLOCK, LEAFWARD
from measure import Measured, Series, Team
from setting import BLOCK_LIMIT, OUR_BLOCK, Setting
from tables import Section, duration, times

SMALL, LARGE = 0, 1
PAGE = 10
WRITES = 10


@dataclass
class Found:
    """The times of one question, by block and contender."""

    small: Measured = field(default_factory=dict)
    large: Measured = field(default_factory=dict)


def run(setting: Setting) -> None:
    """Fill a small and a large block, search both, write to both, and add the sections."""
    sizes = dict(zip((SMALL, LARGE), setting.profile.block_sizes, strict=True))
    with setting.team_of("block", [BLOCK_LIMIT, OUR_BLOCK]) as team:
        for block, size in sizes.items():
            setting.log(f"W9: filling {size:,} entries")
            for process in team.members.values():
                process.ask("call", what="put_all", arguments={"block": block, "size": size})
        team.settle()
        setting.log("W9: searching")
        questions = {0: traffic.UNUSED_WORD, **traffic.MARKS}
        searches = {count: _search(setting, team, word, min(count, PAGE)) for count, word in questions.items()}
        setting.log("W9: writing")
        writes = _write(setting, team, sizes)
    _report(setting, searches, writes)


def _search(setting: Setting, team: Team, word: str, expected: int) -> Found:
    found = Found()
    for number in range(setting.profile.search_rounds):
        for block, measured in ((SMALL, found.small), (LARGE, found.large)):
            for title in team.order(number):
                asked = {"block": block, "word": word}
                reply = team.members[title].ask("call", what="find", arguments=asked, times=10, budget=1.0)
                if reply["found"] != expected:
                    raise AssertionError(f"{title}: {reply['found']} of {expected} entries came back")
                measured.setdefault(title, Series()).add(number, reply["ns"])
    return found


def _write(setting: Setting, team: Team, sizes: dict[int, int]) -> Found:
    found = Found()
    for number in range(setting.profile.search_rounds):
        for block, measured in ((SMALL, found.small), (LARGE, found.large)):
            for title in team.order(number):
                process = team.members[title]
                start = sizes[block] + number * WRITES
                made = {"block": block, "start": start, "stop": start + WRITES, "size": sizes[block]}
                process.ask("call", what="ready", arguments=made)
                reply = process.ask("call", what="put_next", arguments={"block": block}, times=WRITES)
                measured.setdefault(title, Series()).add(number, reply["ns"])
                process.ask("settle")
    return found


def _report(setting: Setting, searches: dict[int, Found], writes: Found) -> None:
    small, large = (f"{size:,}" for size in setting.profile.block_sizes)
    section = Section(
        f"W9: a search block of {large} entries",
        f"`search_context` as a model calls it: the best {PAGE} with their texts. Beside an FTS5 table of the same "
        f"texts, and beside a block of {small} entries in which as many match. Writing is `set_context`, beside one "
        "insert and commit.",
        ["", LEAFWARD, FTS_BLOCK, "over FTS5", f"in {small} entries", f"{large} over {small}"],
    )
    rows = {f"{count:,} match": found for count, found in searches.items()}
    for name, found in (*rows.items(), ("write one entry", writes)):
        ours, raw = found.large[LEAFWARD], found.large[FTS_BLOCK]
        section.rows.append(
            [
                name,
                duration(ours.median),
                duration(raw.median),
                times(ours.ratio(raw)),
                duration(found.small[LEAFWARD].median),
                times(ours.ratio(found.small[LEAFWARD])),
            ]
        )
    setting.sections.append(section)
    facts = setting.facts
    facts["block over small"] = max(f.large[LEAFWARD].ratio(f.small[LEAFWARD]) for f in searches.values())
    many, most = sorted(searches)[-2:]
    facts["block tenfold matches"] = searches[most].large[LEAFWARD].ratio(searches[many].large[LEAFWARD])
