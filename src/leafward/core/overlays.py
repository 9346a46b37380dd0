"""Summaries laid over a path: which of them apply, and what they leave to be read.

An overlay covers the messages between two places. It applies on every path that holds both, and never changes what is
stored: a history shows the summary where the covered messages were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from leafward.core.ids import RESERVED_PREFIX
from leafward.core.lanes import Ranges, on_path
from leafward.core.message import Message


@dataclass(frozen=True, slots=True)
class Compaction:
    """A stored summary and the first and last message it stands for."""

    id: str
    summary: str
    from_message_id: str
    to_message_id: str
    created_at: datetime


class Span(NamedTuple):
    """An overlay without its text."""

    number: int
    """What the store knows it by; a later overlay has a larger one."""
    seq: int
    """The session's version when it was made."""
    low: int
    high: int
    tokens: int


class Segment(NamedTuple):
    """A stretch of a path: messages to be read, or the summaries that stand for them."""

    low: int
    high: int
    spans: tuple[Span, ...] = ()


def is_summary_id(message_id: str) -> bool:
    """Tell the id of a summary in a history from that of a message."""
    return message_id.startswith(RESERVED_PREFIX)


def summary_id(compaction_id: str) -> str:
    """Return the id a summary has in a history."""
    return RESERVED_PREFIX + compaction_id


def summary_message(compaction_id: str, summary: str, at: int) -> Message:
    """Return a summary as the history shows it, the same to the byte at every reading."""
    return Message.stored(summary_id(compaction_id), "assistant", at, {"parts": [{"type": "text", "text": summary}]})


def last_shared(path: Ranges, other: Ranges) -> int:
    """Return the last place of two paths that begin with the same messages before they part."""
    shared = -1
    for mine, theirs in zip(path, other, strict=False):
        if mine[0] != theirs[0]:
            break
        shared = min(mine[1], theirs[1])
    return shared


def nests(low: int, high: int, other: Span) -> bool:
    """Tell whether a new overlay contains an earlier one of the same path, or avoids it."""
    return (low <= other.low and other.high <= high) or other.high < low or high < other.low


def segments(path: Ranges, spans: Iterable[Span]) -> list[Segment]:
    """Cut a path into what is to be read and what summaries stand for, root first.

    Of the overlays that apply, one inside another is hidden by it; of two with the same ends the later one shows. Two
    that cross, because they were made on different paths, both show and together cover what either does.
    """
    covers = _covers(span for span in spans if on_path(path, span.low) and on_path(path, span.high))
    found: list[Segment] = []
    for start, high in path:
        low = start
        for cover in covers:
            if cover.high < low or cover.low > high:
                continue
            if cover.low > low:
                found.append(Segment(low, cover.low - 1))
            if cover.low >= start:
                found.append(cover)
            low = cover.high + 1
        if low <= high:
            found.append(Segment(low, high))
    return found


def _covers(spans: Iterable[Span]) -> list[Segment]:
    """Join the outermost spans that share messages; places rise along a path, so numbers decide."""
    found: list[Segment] = []
    for span in sorted(spans, key=lambda one: (one.low, -one.high, -one.number)):
        last = found[-1] if found else None
        if last is None or span.low > last.high:
            found.append(Segment(span.low, span.high, (span,)))
        elif span.high > last.high:
            found[-1] = Segment(last.low, span.high, (*last.spans, span))
    return found
