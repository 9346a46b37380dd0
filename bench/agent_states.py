"""W11: an agent's state of N messages, most of which were written before."""

from __future__ import annotations

from collections.abc import Mapping

from contenders import local, running
from measure import Measured, Series
from setting import Setting
from state_duel import GIVEN_OUT, JOIN, KNOWN, LIMIT, NEW, OURS, READ, UNKNOWN
from tables import Section, cell, duration

KINDS = {"sqlite": "SQLite", "file": "JSON files"}
_TITLES = {
    JOIN: "joining their texts, and encoding the remainder",
    KNOWN: f"`to_json`, all but {NEW} messages known",
    GIVEN_OUT: f"`to_json`, all but {NEW} messages known, their `parts` given out",
}


def run(setting: Setting) -> None:
    """Write, read and save the state, and add the section."""
    profile = setting.profile
    directory = setting.work / "agent-states"
    directory.mkdir()
    written: Measured = {}
    first: Measured = {}
    saved: dict[str, Measured] = {kind: {} for kind in KINDS}
    setting.log(f"W11: N = {profile.state_size:,}")
    with running(local("leafward", "state_duel"), setting.work / "stderr.log") as process:
        size = process.ask("open", path=str(directory), size=profile.state_size)["bytes"]
        # The first round warms up.
        for number in range(-1, profile.state_rounds):
            _add(written, number, process.ask("write", times=profile.state_calls)["ns"])
            _add(first, number, process.ask("first", times=1)["ns"])
            for kind in KINDS:
                _add(saved[kind], number, process.ask("save", kind=kind, times=max(1, profile.state_calls // 4))["ns"])
        process.ask("close")
    _tell(setting, size, written, first, saved)


def _add(measured: Measured, number: int, spent: Mapping[str, list[int]]) -> None:
    if number >= 0:
        for name, ns in spent.items():
            measured.setdefault(name, Series()).add(number, ns)


def _tell(setting: Setting, size: int, written: Measured, first: Measured, saved: Mapping[str, Measured]) -> None:
    section = Section(
        f"W11: an agent's state of {setting.profile.state_size:,} messages",
        f"{size / 1e6:.2f} MB, {NEW} messages new at each call. Both sides are in one process and take turns.",
        ["", "times the join or the driver"],
    )
    section.rows += [[title, cell(written, name, JOIN)] for name, title in _TITLES.items()]
    for kind, title in KINDS.items():
        section.rows.append([f"save on {title}, beside saving a ready text", cell(saved[kind], OURS, LIMIT)])
        setting.facts[f"{kind} state known save ratio"] = saved[kind][OURS].ratio(saved[kind][LIMIT])
    section.remarks.append(f"The first `to_json` of all of them took {duration(first[UNKNOWN].median)}.")
    section.remarks.append(f"`AgentState.from_json` took {duration(first[READ].median)}.")
    setting.sections.append(section)
    setting.facts["state join ratio"] = written[KNOWN].ratio(written[JOIN])
