"""What a store reads from its tables, as operations; each runs in one snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from leafward.core import lanes
from leafward.core.errors import MessageNotFound
from leafward.core.ids import Scope
from leafward.core.json import decode, decode_body
from leafward.core.message import Message
from leafward.core.tree import Branch, Outline
from leafward.stores.contracts import ChangeRecord, Cursor, PathPage
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import Operation, SessionRow, find_place, find_session, scope_ids, walk

_CHANGES_AT_ONCE = 64


def version(scope: Scope) -> Operation[int]:
    rows = yield sql.GET_VERSION, scope_ids(scope)
    return rows[0][0] if rows else 0


def get(scope: Scope, message_id: str) -> Operation[Message | None]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_MESSAGE, (session.tree_no, message_id))
    return _message(*rows[0][1:]) if rows else None


def leaf(scope: Scope) -> Operation[Message | None]:
    session = yield from find_session(scope)
    return None if session is None else (yield from _message_at(session.leaf))


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


def path(scope: Scope, leaf_id: str | None) -> Operation[list[Message]]:
    session, end = yield from _path_end(scope, leaf_id)
    messages: list[Message] = []
    if session is not None:
        stored = Message.stored
        for low, high in (yield from walk(session, lanes.ranges(end))):
            rows = yield sql.READ_RANGE, (low, high)
            messages += [stored(id, role, at, decode_body(body)) for id, role, at, body in rows]
    return messages


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
        session, end = yield from _path_end(scope, leaf_id)
    else:
        session, end = (yield from find_session(scope)), cursor.leaf
    if session is None or end is None:
        return PathPage([], [], [], None)
    if cursor and (yield sql.GET_LANE_TREE, (lanes.lane_of(end),)) != [(session.tree_no,)]:
        # Cleared since the last page, or a cursor of another session.
        return PathPage([], [], [], None)
    read = _page_up if newest_first else _page_down
    rows = yield from read(session, end, cursor.place if cursor else None, limit)
    return PathPage(
        [_message(*row[1:5]) for row in rows],
        [row[5] for row in rows],
        [len(row[4]) for row in rows],
        Cursor(end, rows[-1][0]) if len(rows) == limit else None,
    )


def _page_up(session: SessionRow, end: int, beyond: int | None, limit: int) -> Operation[list[Any]]:
    # Newest first: only the lanes that the page reaches are looked at.
    place: int | None = end if beyond is None else beyond - 1
    rows: list[Any] = []
    while place is not None and len(rows) < limit:
        lane = lanes.lane_of(place)
        rows += yield sql.PAGE_UP, (lanes.before_first(lane), place, limit - len(rows))
        place = yield from walk(session, lanes.origin(lane))
    return rows


def _page_down(session: SessionRow, end: int, beyond: int | None, limit: int) -> Operation[list[Any]]:
    rows: list[Any] = []
    for low, high in (yield from walk(session, lanes.ranges(end))):
        # Places rise along a path, for a lane's number is larger than that of the lane it branched from.
        if beyond is None or high > beyond:
            rows += yield (
                sql.PAGE_DOWN,
                (low if beyond is None else max(low, beyond + 1), high, limit - len(rows)),
            )
        if len(rows) == limit:
            break
    return rows


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


def changes(scope: Scope, since: int) -> Operation[list[ChangeRecord]]:
    session = yield from find_session(scope)
    if session is None or session.version <= since:
        return []
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
