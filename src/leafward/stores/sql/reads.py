"""What a store reads from its tables, as operations; each runs in one snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import starmap
from typing import Any, NamedTuple

from leafward.core import lanes
from leafward.core.errors import MessageNotFound
from leafward.core.ids import Scope
from leafward.core.json import decode, decode_body
from leafward.core.message import Message
from leafward.core.notices import with_notices
from leafward.core.overlays import Segment, segments, summary_message
from leafward.core.tree import Branch, Outline
from leafward.stores.contracts import NOT_THERE, ChangeRecord, Changes, Cursor, PathPage, Revision, View, not_above
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import (
    Operation,
    SessionRow,
    find_messages,
    find_place,
    find_session,
    scope_ids,
    walk,
)
from leafward.stores.sql.overlays import outermost, path_segments, unfinished

_CHANGES_AT_ONCE = 64
_MESSAGES_AT_ONCE = 256
_ALL = 1 << 62
"""More messages than any store has."""


def revision(scope: Scope) -> Operation[Revision]:
    rows = yield sql.GET_REVISION, scope_ids(scope)
    return Revision(str(rows[0][0]), rows[0][1]) if rows else NOT_THERE


def get(scope: Scope, message_id: str) -> Operation[Message | None]:
    rows = yield sql.FIND_IN_SESSION, (*scope_ids(scope), message_id)
    return _message(*rows[0]) if rows else None


def leaf(scope: Scope) -> Operation[Message | None]:
    rows = yield sql.GET_LEAF, scope_ids(scope)
    return _message(*rows[0]) if rows else None


def parent(scope: Scope, message_id: str) -> Operation[Message | None]:
    session = yield from _known_session(scope, message_id)
    place = yield from find_place(session, message_id)
    return (yield from _message_at((yield from walk(session, lanes.parent(place)))))


def children(scope: Scope, message_id: str | None) -> Operation[list[Message]]:
    if message_id is None:
        session = yield from find_session(scope)
        if session is None:
            return []
        place = None
    else:
        session = yield from _known_session(scope, message_id)
        place = yield from find_place(session, message_id)
    return (yield from _in_order((yield from walk(session, lanes.children(place)))))


def leaves(scope: Scope) -> Operation[list[Message]]:
    session = yield from find_session(scope)
    return [] if session is None else (yield from _in_order((yield from walk(session, lanes.leaves()))))


def tip(scope: Scope, message_id: str) -> Operation[Message]:
    session = yield from _known_session(scope, message_id)
    place = yield from find_place(session, message_id)
    found = yield from _message_at((yield from walk(session, lanes.tip(place))))
    assert found is not None
    return found


def path(scope: Scope, leaf_id: str | None, raw: bool) -> Operation[list[Message]]:
    stored = Message.stored
    if leaf_id is None and (rows := (yield sql.READ_TRUNK, scope_ids(scope) * 2)):
        return [stored(id, role, at, decode_body(body)) for id, role, at, body in rows]
    session, end = yield from _path_end(scope, leaf_id)
    messages: list[Message] = []
    if session is None:
        return messages
    if not raw and session.reclaimed:
        return [row.message for row in (yield from _read_visible(session, end))]
    ranges = yield from walk(session, lanes.ranges(end))
    for segment in segments(ranges, [] if raw else (yield from outermost(session, ranges))):
        if segment.spans:
            messages += [row.message for row in (yield from _summaries(segment, newest_first=False))]
        else:
            rows = yield sql.READ_RANGE, (segment.low, segment.high)
            messages += [stored(id, role, at, decode_body(body)) for id, role, at, body in rows]
    return messages


def view(scope: Scope, leaf_id: str | None) -> Operation[View]:
    session, end = yield from _path_end(scope, leaf_id)
    if session is None:
        return View([], [], 0)
    rows = yield from _read_visible(session, end)
    others = yield from unfinished(session, end)
    return View(
        [row.message for row in rows],
        [row.tokens for row in rows],
        session.version,
        session.tree_no,
        frozenset(row.message.id for row in rows if any(low <= row.place <= high for low, high in others)),
    )


class _Visible(NamedTuple):
    """A message as a history shows it, or a summary; `place` is where a page that stops here goes on."""

    place: int
    message: Message
    tokens: int
    size: int


def _read_visible(session: SessionRow, end: int | None) -> Operation[list[_Visible]]:
    found = yield from path_segments(session, end)
    return (yield from _read_segments(session, found, newest_first=False, limit=_ALL))


def _read_segments(
    session: SessionRow, segments: Iterable[Segment], *, newest_first: bool, limit: int
) -> Operation[list[_Visible]]:
    """Read segments in the order they are given until `limit` is reached; summaries that cross stay together."""
    found: list[_Visible] = []
    for segment in segments:
        if len(found) >= limit:
            break
        if segment.spans:
            found += yield from _summaries(segment, newest_first)
        else:
            page = sql.PAGE_UP if newest_first else sql.PAGE_DOWN
            rows = list(starmap(_visible, (yield page, (segment.low, segment.high, limit - len(found)))))
            notices = yield from _notices(session, rows)
            for row in rows:
                noticed = notices.get(row.place)
                found.append(row if noticed is None else row._replace(message=with_notices(row.message, noticed)))
    return found


def _visible(place: int, id: str, role: str, at: int, body: bytes, tokens: int) -> _Visible:
    return _Visible(place, Message.stored(id, role, at, decode_body(body)), tokens, len(body))


def _summaries(segment: Segment, newest_first: bool) -> Operation[list[_Visible]]:
    place = segment.low if newest_first else segment.high
    found: list[_Visible] = []
    for span in segment.spans:
        compaction_id, at, summary = (yield sql.GET_SUMMARY, (span.number,))[0]
        message = summary_message(compaction_id, summary, at)
        found.append(_Visible(place, message, span.tokens, len(message.sealed()[1])))
    return found[::-1] if newest_first else found


def _notices(session: SessionRow, rows: list[_Visible]) -> Operation[dict[int, dict[str, str]]]:
    """Return what is shown in place of tool results, by the place of the message and the id of the call."""
    found: dict[int, dict[str, str]] = {}
    if session.reclaimed and rows:
        ends = rows[0].place, rows[-1].place
        for place, call_id, notice in (yield sql.NOTICES_BETWEEN, (min(ends), max(ends))):
            found.setdefault(place, {})[call_id] = notice
    return found


def path_length(scope: Scope, leaf_id: str | None) -> Operation[int]:
    session, end = yield from _path_end(scope, leaf_id)
    length = 0
    if session is not None:
        for low, high in (yield from walk(session, lanes.ranges(end))):
            removed = (yield sql.GET_REMOVED, (lanes.lane_of(low),))[0][0]
            # Positions have no gaps unless something was deleted, so most lanes need no counting.
            length += (yield sql.COUNT_PLACES, (low, high))[0][0] if removed else high - low
    return length


def path_page(
    scope: Scope, leaf_id: str | None, cursor: Cursor | None, newest_first: bool, limit: int
) -> Operation[PathPage]:
    if cursor is None:
        if leaf_id is None and newest_first:
            rows = yield sql.PAGE_TRUNK_UP, (*scope_ids(scope) * 3, limit)
            if rows:
                return _page([_visible(*row[:-1]) for row in rows], limit, leaf=rows[0][0], version=rows[0][-1])
        session, end = yield from _path_end(scope, leaf_id)
    else:
        session, end = (yield from find_session(scope)), cursor.leaf
    if session is None or end is None:
        return PathPage([], [], [], None)
    if cursor and (yield sql.GET_LANE_TREE, (lanes.lane_of(end),)) != [(session.tree_no,)]:
        # Cleared since the last page, or a cursor of another session.
        return PathPage([], [], [], None)
    beyond = cursor.place if cursor else None
    as_of = cursor.version if cursor else session.version
    if newest_first and not session.overlays:
        rows = yield from _page_up(session, end if beyond is None else beyond - 1, limit)
    else:
        ordered = (yield from path_segments(session, end, as_of))[:: -1 if newest_first else 1]
        rest = (part for part in (_beyond(one, beyond, newest_first) for one in ordered) if part is not None)
        rows = yield from _read_segments(session, rest, newest_first=newest_first, limit=limit)
    return _page(rows, limit, leaf=end, version=as_of)


def _page(rows: list[_Visible], limit: int, *, leaf: int, version: int) -> PathPage:
    return PathPage(
        [row.message for row in rows],
        [row.tokens for row in rows],
        [row.size for row in rows],
        Cursor(leaf, rows[-1].place, version) if rows and len(rows) >= limit else None,
    )


def _beyond(segment: Segment, place: int | None, newest_first: bool) -> Segment | None:
    """Return what of a segment comes after a place, in the order of reading."""
    if place is None:
        return segment
    # Places rise along a path, for a lane's number is larger than that of the lane it branched from.
    if newest_first:
        return segment._replace(high=min(segment.high, place - 1)) if segment.low < place else None
    return segment._replace(low=max(segment.low, place + 1)) if segment.high > place else None


def _page_up(session: SessionRow, place: int | None, limit: int) -> Operation[list[_Visible]]:
    # Newest first and without summaries: only the lanes that the page reaches are looked at.
    found: list[_Visible] = []
    while place is not None and len(found) < limit:
        lane = lanes.lane_of(place)
        part = [Segment(lanes.before_first(lane), place)]
        found += yield from _read_segments(session, part, newest_first=True, limit=limit - len(found))
        place = yield from walk(session, lanes.origin(lane))
    return found


def raw_page(scope: Scope, leaf_id: str | None, before: str | None, limit: int | None) -> Operation[list[Message]]:
    session, end = yield from _path_end(scope, leaf_id)
    if before is not None:
        session = session or (yield from _known_session(scope, before))
        place = yield from find_place(session, before)
        if not (yield from walk(session, lanes.is_on_path(place, end))):
            raise not_above(before, leaf_id)
        end = place - 1
    if session is None:
        return []
    unnoticed = session._replace(reclaimed=0)
    rows = yield from _page_up(unnoticed, end, _ALL if limit is None else limit)
    return [row.message for row in reversed(rows)]


def outline(scope: Scope) -> Operation[Outline]:
    session = yield from find_session(scope)
    if session is None:
        return Outline([], {}, {}, None)
    branches = [Branch(row[0], row[1], _message(*row[2:])) for row in (yield sql.LIST_BRANCHES, (session.tree_no,))]
    origins = dict((yield sql.LIST_LANES, (session.tree_no,)))
    return Outline(branches, origins, dict((yield sql.LIST_LABELS, (session.tree_no,))), session.leaf)


def labels(scope: Scope) -> Operation[dict[str, str]]:
    session = yield from find_session(scope)
    return {} if session is None else dict((yield sql.LIST_LABELS, (session.tree_no,)))


def changes(scope: Scope, since: int, messages: bool = False) -> Operation[Changes]:
    session = yield from find_session(scope)
    if session is None:
        return Changes(NOT_THERE, [])
    now = yield from revision(scope)
    records = [] if now.version <= since else (yield from _records(session, since))
    return Changes(now, (yield from _with_messages(session, records)) if messages else records)


def _records(session: SessionRow, since: int) -> Operation[list[ChangeRecord]]:
    found = {
        seq: ChangeRecord(seq, kind, decode(ids))
        for seq, kind, ids in (yield sql.LIST_CHANGES, (session.session_no, since))
    }
    appended: list[tuple[int, int, str]] = []
    for lane in (yield from walk(session, lanes.all_lanes())):
        appended += yield from _appended(lane, since)
    for seq, _, message_id in sorted(appended):
        found.setdefault(seq, ChangeRecord(seq, "append", [])).message_ids.append(message_id)
    return [found[seq] for seq in sorted(found)]


def _with_messages(session: SessionRow, records: list[ChangeRecord]) -> Operation[list[ChangeRecord]]:
    """Return the first records with their messages, and about a page of these."""
    # Each page costs a look at all that happened since: of a long past, pages are large.
    page = min(max(_MESSAGES_AT_ONCE, len(records) // 16), 16 * _MESSAGES_AT_ONCE)
    taken: list[ChangeRecord] = []
    ids: list[str] = []
    for one in records:
        if ids and len(ids) + len(one.message_ids) > page:
            break
        taken.append(one)
        # What has the id of a deleted message now is another one.
        ids += [] if one.kind == "delete" else one.message_ids
    rows = yield from find_messages(session, ids)
    found = {message_id: _message(*row[1:]) for message_id, row in rows.items()}
    return [
        one if one.kind == "delete" else one._replace(messages=[found[id] for id in one.message_ids if id in found])
        for one in taken
    ]


def _appended(lane: int, since: int) -> Operation[list[tuple[int, int, str]]]:
    """Return `(seq, place, id)` of what was added to a lane, read from its end: versions rise along a lane."""
    found: list[tuple[int, int, str]] = []
    high = lanes.last_of(lane)
    while True:
        rows = yield sql.NEWEST_APPENDS, (lanes.before_first(lane), high, _CHANGES_AT_ONCE)
        found += [(seq, place, message_id) for place, seq, message_id in rows if seq > since]
        if len(rows) < _CHANGES_AT_ONCE or rows[-1][1] <= since:
            return found
        high = rows[-1][0] - 1


def _known_session(scope: Scope, message_id: str) -> Operation[SessionRow]:
    session = yield from find_session(scope)
    if session is None:
        raise MessageNotFound(message_id)
    return session


def _path_end(scope: Scope, leaf_id: str | None) -> Operation[tuple[SessionRow | None, int | None]]:
    if leaf_id is None:
        session = yield from find_session(scope)
        return session, None if session is None else session.leaf
    session = yield from _known_session(scope, leaf_id)
    return session, (yield from find_place(session, leaf_id))


def _message_at(place: int | None) -> Operation[Message | None]:
    rows = [] if place is None else (yield sql.GET_MESSAGE, (place,))
    return _message(*rows[0]) if rows else None


def _in_order(places: Iterable[int]) -> Operation[list[Message]]:
    rows: list[Any] = []
    for place in places:
        rows += yield sql.GET_BRANCH, (place,)
    return [_message(*row[2:]) for row in sorted(rows, key=lambda row: (row[1], row[0]))]


def _message(id: str, role: str, at: int, body: bytes) -> Message:
    return Message.stored(id, role, at, decode_body(body))
