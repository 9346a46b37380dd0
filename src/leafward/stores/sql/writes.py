"""What a store does to a tree of messages, as operations that any SQL driver can run."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, NamedTuple, cast

from leafward.core import lanes
from leafward.core.attached_state import AttachedState
from leafward.core.errors import MessageNotFound, StaleSession
from leafward.core.ids import Scope
from leafward.core.json import decode_body, encode
from leafward.core.message import Message, body_to_read
from leafward.core.notices import shown_tokens
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.stores.contracts import Appended, Usage, Weight
from leafward.stores.drafts import Draft
from leafward.stores.sql import points
from leafward.stores.sql import statements as sql
from leafward.stores.sql.entries import drop_shown
from leafward.stores.sql.operations import (
    Indexing,
    Many,
    Operation,
    SessionRow,
    create_session,
    find_messages,
    find_place,
    find_session,
    now,
    record,
    single,
    walk,
)
from leafward.stores.sql.overlays import move_ends, weigh_window
from leafward.stores.sql.registry import note_usage


def append(
    indexing: Indexing,
    scope: Scope,
    drafts: Sequence[Draft],
    parent: ParentId,
    *,
    weigh: bool = False,
    state: Sequence[AttachedState] = (),
    usage: Usage | None = None,
    expected_version: int | None = None,
) -> Operation[Appended]:
    found = yield from find_session(scope)
    if found is None and not drafts and state and usage is None and all(one.text is None for one in state):
        # There is nothing to remove, and nothing that would bring a session into being.
        if isinstance(parent, str):
            raise MessageNotFound(parent)
        return Appended([], 0, None)
    session = found or (yield from create_session(scope))
    seen = yield from _look(session, drafts, parent, state, usage)
    placed = yield from _place(indexing, session, drafts, parent, seen)
    place, rows = placed.last, placed.rows
    if not drafts and state:
        place = yield from _find_parent(session, parent)
    version = session.version + 1
    in_lane = seen.states if seen is not None and placed.is_below_leaf else None
    attached = (yield from points.attach(session, place, state, version, in_lane)) if state else ()
    at = yield from now()
    counted = False
    if usage is not None:
        named = _named(usage, rows, at)
        is_known = seen.is_counted if seen is not None and named is usage else None
        counted = yield from note_usage(session, named, at, is_new=bool(rows) or not drafts, is_known=is_known)
    # Of a retry, which finds all its messages stored, nothing is expected.
    is_new = bool(rows) if drafts else bool(attached) or counted
    if is_new and expected_version is not None and expected_version != session.version:
        raise StaleSession(scope.session_id, expected=expected_version, found=session.version)
    result = Appended(
        placed.messages,
        len(rows),
        None,
        version=version if rows or attached else session.version,
        states=attached,
        attached_to=placed.messages[-1].id if drafts else (yield from _id_at(place)),
        counted=counted,
    )
    used = usage[:3] if usage is not None and counted else ()
    if not rows:
        if attached:
            yield from record(session, "state", [] if result.attached_to is None else [result.attached_to])
        if used:
            yield sql.ADD_USAGE, (*used, at, session.session_no)
        return result
    yield sql.ADD_MESSAGE, rows if len(rows) > 1 else rows[0]
    session = session._replace(leaf=rows[-1][0], window=placed.window)
    if weigh and session.window is None:
        session = session._replace(window=(yield from weigh_window(session)))
    move = sql.MOVE_AND_USE if used else sql.MOVE_SESSION
    yield move, (session.leaf, version, session.window, *used, at, session.session_no)
    return result._replace(weight=(yield from _weight(session))) if weigh else result


class _Seen(NamedTuple):
    """What one statement tells an append about its session."""

    known: int | None
    """The place of the message that has the id of the first one."""
    parent: int | None
    """The place of the parent, if it is named."""
    end: tuple[int, int | None]
    """The floor of the leaf's lane, and its last place."""
    is_counted: bool
    """Whether usage of that name is counted."""
    states: dict[str, str] | None
    """The last states in the leaf's lane at the leaf or above it, empty where removed; `None` if too many are asked."""


def _look(
    session: SessionRow, drafts: Sequence[Draft], parent: ParentId, state: Sequence[AttachedState], usage: Usage | None
) -> Operation[_Seen | None]:
    leaf = session.leaf
    if leaf is None or not drafts:
        return None
    lane, tree_no = lanes.lane_of(leaf), session.tree_no
    values: list[Any] = [leaf, lanes.last_of(lane), tree_no, drafts[0].message.id]
    is_named = isinstance(parent, str)
    if is_named:
        values += (tree_no, parent)
    usage_id = None if usage is None else usage.usage_id
    if usage_id is not None:
        values += (session.session_no, usage_id)
    names = list(dict.fromkeys(one.name for one in state))
    is_asked = len(names) <= points.MOST_ASKED
    low = lanes.before_first(lane)
    for name in names if is_asked else ():
        values += (tree_no, name, low, leaf)
    rows = yield sql.below_leaf(is_named, usage_id is not None, len(names) if is_asked else 0), (*values, lane)
    floor, last, known, *found = rows[0]
    return _Seen(
        known,
        found.pop(0) if is_named else None,
        (floor, last),
        bool(found.pop(0)) if usage_id is not None else False,
        {name: text for name, text in zip(names, found, strict=True) if text is not None} if is_asked else None,
    )


class _Placed(NamedTuple):
    """Messages and where they stand, before any of them is written."""

    messages: list[Message]
    """All of them as they are, or will be, stored."""
    rows: Many
    """Those that are new."""
    last: int | None
    """The place of the last one."""
    window: int | None
    """Tokens of the history that ends at the last new one."""
    is_below_leaf: bool = False
    """Whether all of them are new and below the leaf."""


def _place(
    indexing: Indexing, session: SessionRow, drafts: Sequence[Draft], parent: ParentId, seen: _Seen | None
) -> Operation[_Placed]:
    """Find a place for each message that is not stored yet."""
    tip = session.leaf
    window = session.window
    leaf: int | None = None
    above: int | None = None
    opened: set[int] = set()
    stored: list[Message] = []
    rows = Many()
    is_below_leaf = False
    for draft in drafts:
        message = draft.message
        is_new = session.version == 0 or (seen is not None and not stored and seen.known is None)
        known = [] if is_new else (yield sql.FIND_MESSAGE, (session.tree_no, message.id))
        if known:
            above, message_id, role, at, body = known[0]
            stored.append(Message.stored(message_id, role, at, decode_body(body)))
            continue
        if not stored:
            above = yield from _find_parent(session, parent, seen)
            is_below_leaf = above is not None and above == session.leaf
        # What goes under the leaf adds to the window; elsewhere it is another path, summed up when it is asked for.
        window = None if window is None or above != tip else window + draft.tokens
        if leaf is not None and above == leaf:
            above = leaf + 1
        else:
            # Only the batch's first message continues a lane of others, so that
            # the places of one version rise in the order of the batch.
            end = seen.end if seen is not None and above == session.leaf else None
            above = yield from _next_place(session, above, end, may_continue=not opened)
            yield from indexing.added(above)
        opened.add(lanes.lane_of(above))
        tip = leaf = above
        rows.append(
            (
                *(leaf, session.tree_no, session.version + 1, message.id, message.role),
                *(draft.tokens, message.at, draft.body.decode()),
            )
        )
        stored.append(message)
    return _Placed(stored, rows, above, window, is_below_leaf and len(rows) == len(drafts))


def _named(usage: Usage, rows: Many, at: int) -> Usage:
    """Return usage under a name, where its model is to be kept.

    The name is the same whenever a journal is replayed, and no other: the id of the message alone would be used again
    by one that is stored under the id of a deleted one.
    """
    if usage.model is None or usage.usage_id is not None or not rows:
        return usage
    _, _, version, message_id, *_ = rows[-1]
    return usage._replace(usage_id=blake2b(encode([message_id, version, at]), digest_size=16).hexdigest())


def _id_at(place: int | None) -> Operation[str | None]:
    return None if place is None else single((yield sql.GET_ID, (place,)))


def _weight(session: SessionRow) -> Operation[Weight]:
    assert session.window is not None
    rows = yield sql.GET_PROMPT_TOKENS, (session.session_no,)
    return Weight(session.window, single(rows))


def update(indexing: Indexing, scope: Scope, draft: Draft) -> Operation[Message]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_MESSAGE, (session.tree_no, draft.message.id))
    if session is None or not rows:
        raise MessageNotFound(draft.message.id)
    return (yield from _replace(indexing, session, rows[0], draft)).messages[0]


def upsert(
    indexing: Indexing, scope: Scope, draft: Draft, parent: ParentId, *, weigh: bool = False
) -> Operation[Appended]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_MESSAGE, (session.tree_no, draft.message.id))
    if session is None or not rows:
        return (yield from append(indexing, scope, [draft], parent, weigh=weigh))
    return (yield from _replace(indexing, session, rows[0], draft, weigh=weigh))


def _replace(
    indexing: Indexing, session: SessionRow, row: Any, draft: Draft, *, weigh: bool = False
) -> Operation[Appended]:
    message = draft.message
    place, _, old_role, created_at, old_body = row
    yield from indexing.changed(session, place, old_body)
    tokens = draft.tokens
    if session.reclaimed:
        # What an unloading hid stays hidden, and goes on to cost what its notice does.
        tokens = shown_tokens(message, dict((yield sql.NOTICES_AT, (place,))), tokens)
    yield sql.CHANGE_MESSAGE, (message.role, tokens, draft.body.decode(), place)
    session = session._replace(window=(yield from weigh_window(session)) if weigh else None)
    yield from record(session, "update", [message.id])
    stored = Message.stored(message.id, message.role, created_at, decode_body(draft.body))
    changed = (old_role, decode_body(old_body)) != (stored.role, body_to_read(stored))
    return Appended([stored], 0, (yield from _weight(session)) if weigh else None, changed, session.version + 1)


def delete(indexing: Indexing, scope: Scope, message_ids: Sequence[str]) -> Operation[int]:
    session = yield from find_session(scope)
    if session is None:
        return 0
    rows = yield from find_messages(session, message_ids)
    # In the order in which they were asked for.
    gone = {message_id: rows[message_id][0] for message_id in dict.fromkeys(message_ids) if message_id in rows}
    if gone:
        places = Many((place,) for place in gone.values())
        yield from indexing.removed(session, {row[0]: row[4] for row in rows.values()})
        yield sql.DROP_LABEL, places
        if session.reclaimed:
            yield sql.DROP_RECLAIMED, places
        yield sql.DROP_MESSAGE, places
        yield sql.RAISE_FLOOR, Many((place + 1, place + 1, lanes.lane_of(place)) for place in gone.values())
        yield from points.drop_unreachable(session, gone.values())
        yield from move_ends(session, frozenset(gone.values()))
        leaf = yield from walk(session, lanes.nearest(session.leaf))
        yield from record(session._replace(leaf=leaf, window=None), "delete", list(gone))
    return len(gone)


def clear(scope: Scope) -> Operation[None]:
    session = yield from find_session(scope)
    if session is None:
        return
    emptied = bool((yield sql.HAS_MESSAGES, (session.tree_no,))) or bool((yield from points.names(session)))
    if emptied:
        # The old tree is only let go of here; its rows and words are removed in slices, in the background.
        fresh = (yield sql.ADD_TREE, (session.owner_no,))[0][0]
        yield sql.REPLACE_TREE, (fresh, session.session_no)
        yield sql.DISCARD_TREE, (session.tree_no,)
    unloaded = yield sql.LIST_SKILLS, (session.session_no,)
    yield sql.DROP_SKILLS, (session.session_no,)
    yield sql.DROP_PROMPT, (session.session_no,)
    yield from drop_shown(session)
    if emptied or unloaded:
        yield from record(session._replace(leaf=None, window=0), "clear", [])


def checkout(scope: Scope, message_id: str | None, *, tip: bool = False) -> Operation[str | None]:
    """Move the leaf and return the id of the message it is at."""
    session = yield from find_session(scope)
    if session is None:
        if message_id is not None:
            raise MessageNotFound(message_id)
        return None
    place = None if message_id is None else (yield from find_place(session, message_id))
    if tip:
        place = yield from walk(session, lanes.tip(place))
        message_id = None if place is None else single((yield sql.GET_ID, (place,)))
    if place != session.leaf:
        window = 0 if place is None else None
        moved = session._replace(leaf=place, window=window)
        yield from record(moved, "checkout", [] if message_id is None else [message_id])
    return message_id


def label(scope: Scope, message_id: str, name: str | None) -> Operation[None]:
    session = yield from find_session(scope)
    if session is None:
        raise MessageNotFound(message_id)
    place = yield from find_place(session, message_id)
    if single((yield sql.GET_LABEL, (place,))) == name:
        return
    if name is None:
        yield sql.DROP_LABEL, (place,)
    else:
        yield sql.SET_LABEL, (place, session.tree_no, name)
    yield from record(session, "label", [message_id])


def _find_parent(session: SessionRow, parent: ParentId, seen: _Seen | None = None) -> Operation[int | None]:
    if parent is LATEST_LEAF:
        return session.leaf
    if parent is None:
        return None
    return seen.parent if seen is not None and seen.parent is not None else (yield from find_place(session, parent))


def _next_place(
    session: SessionRow, above: int | None, end: tuple[int, int | None] | None, *, may_continue: bool
) -> Operation[int]:
    """Return the place for a child: in its parent's lane when the parent is the lane's last, else in a new lane."""
    if above is not None and may_continue and (place := (yield from continued(session, above, end))) is not None:
        return place
    lane = cast(int, (yield sql.ADD_LANE, (session.tree_no, above))[0][0])
    return lanes.before_first(lane) + 1


def continued(session: SessionRow, above: int, end: tuple[int, int | None] | None = None) -> Operation[int | None]:
    """Return the place for a child in its parent's lane; `None` when the child has to begin a lane.

    `end` is the floor and the last place of the lane, if they are known.
    """
    lane = lanes.lane_of(above)
    floor, last = end or (yield sql.GET_LANE_END, (above, lanes.last_of(lane), lane))[0]
    # States of deleted messages after it may be in force on a branch: a lane of its own stays clear of them.
    if last == above and (floor <= above + 1 or not (yield from points.has_any(session, above + 1, floor))):
        return max(above + 1, floor)
    return None
