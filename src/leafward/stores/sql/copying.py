"""Whole sessions, as operations: forked, split, dumped and restored."""

from __future__ import annotations

from leafward.core import lanes
from leafward.core.archive import (
    Archive,
    ArchivedEntry,
    ArchivedMessage,
    ArchivedOverlay,
    ArchivedPrompt,
    ArchivedState,
    ArchivedUsage,
    Notice,
)
from leafward.core.attached_state import TURN, AttachedState, digest
from leafward.core.ids import Scope
from leafward.core.info import SessionInfo
from leafward.core.json import decode_body, encode_text
from leafward.core.lanes import on_path
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.parent import ParentId
from leafward.core.text import analyzer_version
from leafward.core.times import to_micros
from leafward.stores.drafts import Draft
from leafward.stores.entries import Entry
from leafward.stores.registry import Origin
from leafward.stores.sql import points
from leafward.stores.sql import statements as sql
from leafward.stores.sql.entries import MOST_WORDS, UNCUT, copy_context, put
from leafward.stores.sql.operations import Indexing, Operation, SessionRow, find_place, find_session, now, walk
from leafward.stores.sql.overlays import add_notices, spans
from leafward.stores.sql.registry import end, need_session, new_session, read_info
from leafward.stores.sql.writes import append

SPLIT = "compaction"
"""Why a session ended that goes on in another."""


def fork(indexing: Indexing, scope: Scope, at_message_id: str, target: Scope, name: str) -> Operation[SessionInfo]:
    source = yield from need_session(scope)
    end = yield from find_place(source, at_message_id)
    copy = yield from new_session(target, Origin(name, scope.session_id))
    path = yield from walk(source, lanes.ranges(end))
    lane = (yield sql.ADD_LANE, (copy.tree_no, None))[0][0]
    base = lanes.before_first(lane)
    moves: list[tuple[int, int, int]] = []
    removed = 0
    for low, high in path:
        moves.append((low, high, base - low))
        base += high - low
        removed += (yield sql.GET_REMOVED, (lanes.lane_of(low),))[0][0]
    for low, high, distance in moves:
        yield sql.COPY_MESSAGES, (distance, copy.tree_no, 1, low, high)
        yield sql.COPY_LABELS, (distance, copy.tree_no, low, high)
        if source.reclaimed:
            yield sql.COPY_RECLAIMED, (distance, copy.tree_no, low, high)
    yield from points.copy(source, copy, moves)
    yield sql.MARK_REMOVED, (removed, lane)
    yield from indexing.added(lanes.before_first(lane) + 1)
    inside = [one for one in (yield from spans(source)) if on_path(path, one.low) and on_path(path, one.high)]
    for span in inside:
        yield sql.COPY_OVERLAY, (copy.tree_no, 1, _moved(span.low, moves), _moved(span.high, moves), span.number)
    yield sql.COUNT_OVERLAYS, (len(inside), copy.session_no)
    yield sql.COUNT_RECLAIMED, (source.reclaimed, copy.session_no)
    yield from copy_context(source.owner_no, source.session_no, copy.session_no)
    yield sql.MOVE_SESSION, (_moved(end, moves), 1, None, (yield from now()), copy.session_no)
    return (yield from read_info(copy.session_no))


def _moved(place: int, moves: list[tuple[int, int, int]]) -> int:
    return next(place + distance for low, high, distance in moves if low <= place <= high)


def split(indexing: Indexing, scope: Scope, target: Scope, name: str | None, first: Draft) -> Operation[SessionInfo]:
    source = yield from need_session(scope)
    info = yield from read_info(source.session_no)
    origin = Origin(info.name if name is None else name, scope.session_id, info.model, info.source)
    copy = yield from new_session(target, origin)
    yield from copy_context(source.owner_no, source.session_no, copy.session_no)
    # The continuation has none of the texts that loading put into the old history.
    yield sql.DROP_SKILLS, (copy.session_no,)
    yield from append(indexing, target, [first], None)
    names = [name for name in (yield from points.names(source)) if name != TURN]
    in_force = yield from points.in_force(source, source.leaf, names)
    yield from points.attach(copy, None, [AttachedState(*one) for one in in_force.items()], 1)
    yield from end(scope, SPLIT)
    return (yield from read_info(copy.session_no))


def dump(scope: Scope) -> Operation[Archive]:
    session = yield from need_session(scope)
    info = yield from read_info(session.session_no)
    rows = yield sql.LIST_ALL, (session.tree_no,)
    ids = {row[0]: row[2] for row in rows}
    messages: list[ArchivedMessage] = []
    for place, _, id, role, at, body, tokens in sorted(rows, key=lambda row: (row[1], row[0])):
        above = yield from walk(session, lanes.parent(place))
        message = Message.stored(id, role, at, decode_body(body))
        messages.append(ArchivedMessage(message, None if above is None else ids[above], tokens))
    summaries = {row[0]: row for row in (yield sql.LIST_OVERLAYS, (session.tree_no,))}
    overlays: list[ArchivedOverlay] = []
    for span in (yield from spans(session)):
        overlay_id, at, summary = (yield sql.GET_SUMMARY, (span.number,))[0]
        _, _, from_id, to_id, _ = summaries[overlay_id]
        overlays.append(ArchivedOverlay(overlay_id, summary, from_id, to_id, span.tokens, at))
    entries: list[ArchivedEntry] = []
    for shelf_no, label in (yield sql.LIST_SHELVES, (session.owner_no, session.session_no)):
        for key, content, description, analyzer in (yield sql.LIST_ENTRIES, (shelf_no,)):
            entries.append(ArchivedEntry(label, key, content, description, analyzer is not None))
    prompts = yield sql.GET_PROMPT, (session.session_no,)
    return Archive(
        info,
        messages,
        None if session.leaf is None else ids[session.leaf],
        dict((yield sql.LIST_LABELS, (session.tree_no,))),
        overlays,
        entries,
        [(label, key) for label, key in (yield sql.LIST_SKILLS, (session.session_no,))],
        [
            Notice(ids[place], call_id, notice)
            for place, call_id, notice in (yield sql.LIST_RECLAIMED, (session.tree_no,))
        ],
        ArchivedPrompt(*prompts[0]) if prompts else None,
        [
            ArchivedState(message_id, name, None if text is None else decode_body(text))
            for message_id, (name, text) in (yield from points.listed(session, ids))
        ],
        [ArchivedUsage(*row) for row in (yield sql.LIST_USED, (session.session_no,))],
    )


def restore(indexing: Indexing, scope: Scope, archive: Archive) -> Operation[SessionInfo]:
    info = archive.info
    session = yield from new_session(scope, Origin(info.name, info.parent_session_id, info.model, info.source))
    for run, parent in _runs(archive.messages):
        yield from append(indexing, scope, run, parent)
    session = (yield from find_session(scope)) or session
    for message_id, label in archive.labels.items():
        yield sql.SET_LABEL, ((yield from find_place(session, message_id)), session.tree_no, label)
    for one in archive.overlays:
        ends = (yield from find_place(session, one.from_id)), (yield from find_place(session, one.to_id))
        path = yield from walk(session, lanes.ranges(ends[1]))
        if not on_path(path, ends[0]):
            raise ValueError(f"the summary {one.id!r} covers no path from {one.from_id!r} down to {one.to_id!r}")
        yield sql.ADD_OVERLAY, (session.tree_no, one.id, session.version, *ends, one.tokens, one.at, one.summary)
    yield sql.COUNT_OVERLAYS, (len(archive.overlays), session.session_no)
    yield from add_notices(session, [Reclaimed(*one, 0) for one in archive.notices])
    for one in archive.states:
        place = points.ROOT if one.message_id is None else (yield from find_place(session, one.message_id))
        text = None if one.value is None else encode_text(one.value)
        yield sql.SET_STATE, (session.tree_no, one.name, place, session.version, text, digest(text))
    for used in archive.usages:
        yield sql.ADD_USED, (session.session_no, *used)
    yield from _restore_context(session, archive)
    yield (
        sql.RESTORE_INFO,
        (
            info.input_tokens,
            info.output_tokens,
            info.estimated_cost,
            info.end_reason,
            to_micros(info.created_at),
            session.session_no,
        ),
    )
    leaf = None if archive.leaf_id is None else (yield from find_place(session, archive.leaf_id))
    yield sql.MOVE_SESSION, (leaf, session.version, None, (yield from now()), session.session_no)
    return (yield from read_info(session.session_no))


def _restore_context(session: SessionRow, archive: Archive) -> Operation[None]:
    shelves: dict[str, int] = {}
    words = 0
    for label, key, content, description, searchable in archive.entries:
        if label not in shelves:
            shelves[label] = (yield sql.ADD_SHELF, (session.owner_no, session.session_no, label))[0][0]
        analyzer = UNCUT if words >= MOST_WORDS else analyzer_version()
        entry = Entry(key, content, description)
        words += yield from put(shelves[label], None, entry, analyzer if searchable else None)
    for label, key in dict.fromkeys(archive.skills):
        yield sql.ADD_SKILL, (session.session_no, label, key)
    if archive.prompt is not None:
        yield sql.SET_PROMPT, (session.session_no, *archive.prompt)


def _runs(messages: list[ArchivedMessage]) -> list[tuple[list[Draft], ParentId]]:
    """Gather messages that follow each other into batches, each below the message that its first one was below."""
    found: list[tuple[list[Draft], ParentId]] = []
    last: str | None = None
    for message, parent_id, tokens in messages:
        sealed, body = message.sealed()
        if not found or parent_id is None or parent_id != last:
            found.append(([], parent_id))
        found[-1][0].append(Draft(sealed, body, tokens))
        last = sealed.id
    return found
