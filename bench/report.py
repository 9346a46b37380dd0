"""Writes the report of a run as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from machine import describe
from setting import Setting
from tables import Section
from targets import judged

METHOD = """\
Written by `bench/run.py`; do not edit. Every contender runs in a process of its own on the same filesystem
and measures around its own call. Within a table the contenders take turns, round by round, so that all
share the machine's moods. A ratio is the median over the rounds of the ratio of the medians; times are
medians over all calls. Absolute times change two- or threefold between runs and machines: compare ratios.
"raw" is Python's `sqlite3` doing one prepared insert and commit (WAL, `synchronous=FULL`) of the same
bytes, or select + `msgspec` decode. leafward runs with its defaults. Before appends are timed, every store
is written to until its write-ahead log no longer grows, as in a process that has run for a while. The
backends have limits of their own and share a process with them, as their tables say.
"""


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    cells = ["| " + " | ".join(row) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *cells]


def _section(section: Section) -> list[str]:
    lines = [f"## {section.title}", "", section.note, "", *_table(section.head, section.rows), ""]
    if section.remarks:
        lines += [*(f"- {remark}" for remark in section.remarks), ""]
    return lines


def _versions(setting: Setting) -> list[str]:
    present = [f"{peer.title} ({peer.version})" for peer in setting.peers]
    lines = [f"Peers: {', '.join(present)}."] if present else ["Peers were left out of this run."]
    return [*lines, *(f"Not measured: {title} could not be installed." for title in setting.absent)]


def write(setting: Setting, *, title: str, plot: str | None) -> str:
    """Return the whole report."""
    lines = [f"# {title}", "", METHOD, describe(setting.work), f"Profile: {setting.profile.name}.", ""]
    lines += [*_versions(setting), ""]
    verdicts = judged(setting.facts)
    if verdicts:
        lines += ["## Targets", "", *_table(["", "target", "measured", ""], verdicts), ""]
    if plot is not None:
        lines += [f"![Time of one append over the messages in the session]({plot})", ""]
    for section in setting.sections:
        lines += _section(section)
    return "\n".join(lines).rstrip() + "\n"
