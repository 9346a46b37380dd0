"""Summaries and notices laid over a tree of messages, as operations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from leafward.core import lanes
from leafward.core.errors import MessageNotFound
from leafward.core.ids import RESERVED_PREFIX, Scope
from leafward.core.json import decode, decode_body
from leafward.core.lanes import Ranges, on_path
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.overlays import (
    Compaction,
    Segment,
    Span,
    is_summary_id,
    last_shared,
    nests,
    segments,
    summary_id,
)
from leafward.core.times import from_micros
from leafward.stores.contracts import NewOverlay, Unchanged, Weight
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import Operation, SessionRow, find_place, find_session, record, single, walk

_SPANS_AT_ONCE = 16
_ANY_VERSION = 1 << 62


def spans(session: SessionRow) -> Operation[list[Span]]:
    """Return all overlays of a tree, without their texts, oldest first."""
    return [Span(*row) for row in (yield sql.LIST_SPANS, (session.tree_no,))] if session.overlays else []


def outermost(session: SessionRow, path: Ranges, as_of: int | None = None) -> Operation[list[Span]]:
    """Return the overlays that a path shows; only of those made up to version `as_of`, if that is given.

    Compactions that take in the one before leave hundreds of overlays, of which a history shows one: what lies inside
    an overlay that was found is passed over in the index.
    """
    found: list[Span] = []
    last, reach = Span(0, 0, 0, 0, 0), -1
    version = _ANY_VERSION if as_of is None else as_of
    while session.overlays:
        after = (last.low, last.low, last.high, last.high, last.number)
        rows = yield sql.NEXT_SPANS, (session.tree_no, reach, version, *after, _SPANS_AT_ONCE)
        for last in map(Span._make, rows):
            if last.high > reach and on_path(path, last.low) and on_path(path, last.high):
                found.append(last)
                reach = last.high
        if len(rows) < _SPANS_AT_ONCE:
            break
    return found


def path_segments(session: SessionRow, end: int | None, as_of: int | None = None) -> Operation[list[Segment]]:
    """Cut the path to `end` into messages to read and summaries, root first."""
    path = yield from walk(session, lanes.ranges(end))
    return segments(path, (yield from outermost(session, path, as_of)))


def weigh_window(session: SessionRow) -> Operation[int]:
    """Sum up the tokens of the history that ends at the leaf, reading only what no summary covers."""
    total = 0
    for segment in (yield from path_segments(session, session.leaf)):
        if segment.spans:
            total += sum(span.tokens for span in segment.spans)
        else:
            total += int((yield sql.SUM_TOKENS, (segment.low, segment.high))[0][0])
    return total


def weigh(scope: Scope) -> Operation[Weight]:
    session = yield from find_session(scope)
    if session is None:
        return Weight(0, None)
    prompt = single((yield sql.GET_PROMPT_TOKENS, (session.session_no,)))
    window = session.window if session.window is not None else (yield from weigh_window(session))
    return Weight(window, prompt)


def add_overlay(scope: Scope, overlay: NewOverlay, unchanged: Unchanged | None) -> Operation[Compaction | None]:
    session = yield from find_session(scope)
    if session is None:
        raise MessageNotFound(overlay.from_id)
    if unchanged is not None and (yield from _has_changed(session, unchanged)):
        return None
    low, _ = yield from _ends(session, overlay.from_id)
    _, high = yield from _ends(session, overlay.to_id)
    path = yield from walk(session, lanes.ranges(high))
    if low > high or not on_path(path, low):
        raise ValueError(f"{overlay.from_id!r} does not come before {overlay.to_id!r} on one path")
    existing = yield from spans(session)
    for other in existing:
        # Two overlays can meet on a path only if the end of one is above the end of the other.
        meet = on_path(path, other.high)
        if not meet and other.high > high:
            meet = on_path((yield from walk(session, lanes.ranges(other.high))), high)
        if not meet or other.high < low or high < other.low:
            continue
        if unchanged is not None and other.seq > unchanged.version:
            return None
        if not nests(low, high, other):
            raise ValueError(
                f"a summary from {overlay.from_id!r} to {overlay.to_id!r} would cross an earlier one: "
                "include all that it covers, or nothing of it"
            )
    version = session.version + 1
    yield (
        sql.ADD_OVERLAY,
        (session.tree_no, overlay.id, version, low, high, overlay.tokens, overlay.at, overlay.summary),
    )
    yield sql.COUNT_OVERLAYS, (session.overlays + 1, session.session_no)
    yield sql.DROP_PROMPT, (session.session_no,)
    first, last = (yield from _id_at(low)), (yield from _id_at(high))
    yield from record(session._replace(window=None), "compaction", list(dict.fromkeys((first, last))))
    return Compaction(overlay.id, overlay.summary, first, last, from_micros(overlay.at))


def unfinished(session: SessionRow, end: int | None) -> Operation[list[tuple[int, int]]]:
    """Return the ranges of the path to `end` that overlays cover which end on another branch.

    On the path a range begins where its overlay does and ends where the branch of its end left the path. An overlay
    that ended inside such a range would cross it, on the other branch.
    """
    found: list[tuple[int, int]] = []
    path = (yield from walk(session, lanes.ranges(end))) if session.overlays else []
    if path:
        for span in map(Span._make, (yield sql.OTHER_SPANS, (session.tree_no, *path[-1]))):
            if on_path(path, span.low) and not on_path(path, span.high):
                other = yield from walk(session, lanes.ranges(span.high))
                found.append((span.low, last_shared(path, other)))
    return found


def _ends(session: SessionRow, end_id: str) -> Operation[tuple[int, int]]:
    if is_summary_id(end_id):
        rows = yield sql.FIND_OVERLAY, (session.tree_no, end_id.removeprefix(RESERVED_PREFIX))
        if not rows:
            raise MessageNotFound(end_id)
        return cast(tuple[int, int], rows[0])
    place = yield from find_place(session, end_id)
    return place, place


def _id_at(place: int) -> Operation[str]:
    return (yield sql.GET_ID, (place,))[0][0]


def _has_changed(session: SessionRow, unchanged: Unchanged) -> Operation[bool]:
    if session.tree_no != unchanged.tree:
        return True
    if session.version == unchanged.version:
        return False
    for _, kind, ids in (yield sql.LIST_CHANGES, (session.session_no, unchanged.version)):
        if kind in ("update", "delete") and not unchanged.message_ids.isdisjoint(decode(ids)):
            return True
    for end_id in filter(is_summary_id, unchanged.message_ids):
        # A summary goes with the last message it covers, and what it said is then not to be said again.
        if not (yield sql.FIND_OVERLAY, (session.tree_no, end_id.removeprefix(RESERVED_PREFIX))):
            return True
    return False


def move_ends(session: SessionRow, gone: frozenset[int]) -> Operation[None]:
    """Move the ends of overlays off deleted places, inward; drop an overlay when nothing it covers is left."""
    left = session.overlays
    for span in (yield from spans(session)):
        if span.low not in gone and span.high not in gone:
            continue
        high = yield from walk(session, lanes.nearest(span.high))
        low = None if high is None or high < span.low else (yield from walk(session, lanes.following(span.low, high)))
        if low is None:
            yield sql.DROP_OVERLAY, (span.number,)
            left -= 1
        else:
            yield sql.MOVE_OVERLAY, (low, high, span.number)
    if left != session.overlays:
        yield sql.COUNT_OVERLAYS, (left, session.session_no)


def overlays(scope: Scope) -> Operation[list[Compaction]]:
    session = yield from find_session(scope)
    if session is None or not session.overlays:
        return []
    rows = yield sql.LIST_OVERLAYS, (session.tree_no,)
    return [
        Compaction(overlay_id, summary, from_id, to_id, from_micros(at))
        for overlay_id, summary, from_id, to_id, at in rows
    ]


def summaries(scope: Scope) -> Operation[list[str]]:
    session = yield from find_session(scope)
    found: list[str] = []
    if session is not None and session.overlays:
        for segment in (yield from path_segments(session, session.leaf)):
            for span in segment.spans:
                rows = yield sql.GET_SUMMARY, (span.number,)
                found += [summary_id(overlay_id) for overlay_id, _, _ in rows]
    return found


def covered(scope: Scope, compaction_id: str, offset: int, limit: int) -> Operation[list[Message]]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_OVERLAY, (session.tree_no, compaction_id))
    if session is None or not rows:
        raise MessageNotFound(RESERVED_PREFIX + compaction_id)
    first, last = rows[0]
    found: list[Message] = []
    for low, high in (yield from walk(session, lanes.ranges(last))):
        if high < first or len(found) == limit:
            continue
        low = max(low, first)
        there = (yield sql.COUNT_PLACES, (low, high))[0][0]
        if there > offset:
            page = yield sql.PAGE_FROM, (low, high, limit - len(found), offset)
            found += [Message.stored(id, role, at, decode_body(body)) for id, role, at, body in page]
        offset = max(0, offset - there)
    return found


def reclaim(scope: Scope, results: Sequence[Reclaimed]) -> Operation[None]:
    session = yield from find_session(scope)
    if session is not None and (yield from add_notices(session, results)):
        yield from record(session._replace(window=None), "context", [])


def add_notices(session: SessionRow, results: Sequence[Reclaimed]) -> Operation[int]:
    """Show notices in place of results and return how many of them changed what is shown."""
    added = changed = 0
    for message_id, call_id, notice, tokens in results:
        rows = yield sql.FIND_PLACE, (session.tree_no, message_id)
        shown = single((yield sql.GET_NOTICE, (rows[0][0], call_id))) if rows else notice
        if shown == notice:
            continue
        if shown is None:
            yield sql.ADD_RECLAIMED, (rows[0][0], call_id, session.tree_no, notice)
            added += 1
        else:
            yield sql.CHANGE_NOTICE, (notice, rows[0][0], call_id)
        yield sql.SAVE_TOKENS, (tokens, tokens, rows[0][0])
        changed += 1
    if added:
        yield sql.COUNT_RECLAIMED, (session.reclaimed + added, session.session_no)
    return changed
