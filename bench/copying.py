"""W6f: fork a session of N messages into a new one."""

from __future__ import annotations

from contenders import COPY, LEAFWARD
from measure import Measured
from setting import COPY_LIMIT, OURS, Setting
from tables import ratio_section


def run(setting: Setting) -> None:
    """Fork sessions of every size and add the section."""
    by_size: dict[int, Measured] = {}
    for size in setting.profile.branch_sizes:
        setting.log(f"W6f: N = {size:,}")
        with setting.team_of(f"fork-{size}", [COPY_LIMIT, OURS]) as team:
            team.fill(0, size, setting.profile.fill_cap)
            fork = {"what": "fork", "arguments": {"session": 0, "at": size - 1}}
            # The first one lets the write-ahead log grow.
            team.interleave(1, "call", **fork)
            by_size[size] = team.interleave(setting.profile.branch_rounds, "call", **fork)
    setting.sections.append(
        ratio_section(
            "W6f: fork a session of N messages",
            "Times one `INSERT … SELECT` and its commit over a table of the same columns, index, bytes and settings. "
            "Neither side's time holds the checkpoint, nor leafward's the indexing of the copy; both follow it.",
            by_size,
            base=COPY,
            order=[COPY, LEAFWARD],
        )
    )
    largest = by_size[max(by_size)]
    setting.facts["fork ratio"] = largest[LEAFWARD].ratio(largest[COPY])
