"""What a store does to its tables, as operations that any SQL driver can run.

An operation is a generator: it yields a statement with its parameters and is sent the rows. SQLite runs it to its end
in one hop to its thread; a server's driver awaits between the steps. Either way it is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from leafward.core import lanes
from leafward.core.errors import MessageNotFound
from leafward.core.ids import Owner, Scope
from leafward.core.json import decode_body, encode_text
from leafward.core.lanes import First, Forks, Lanes, Last, Origin, Question, Roots, Walk
from leafward.core.message import Message
from leafward.core.parent import LATEST_LEAF, ParentId
from leafward.core.times import now_micros
from leafward.stores.contracts import ChangeKind, Draft
from leafward.stores.sql import statements as sql

T = TypeVar("T")
Statement = tuple[str, tuple[Any, ...]]
Operation = Generator[Statement, list[Any], T]


class SessionRow(NamedTuple):
    """A session as stored; `leaf` is a place."""

    session_no: int
    owner_no: int
    tree_no: int
    leaf: int | None
    version: int


class Indexing(Protocol):
    """What a backend does for search, in the transaction that changes a message."""

    def added(self, place: int) -> Operation[None]:
        """Take note that messages are added from `place` on to the end of its lane."""
        ...

    def changed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        """See to it that the message is found by its new words and no longer by its old ones."""
        ...

    def removed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        """See to it that the message is no longer found."""
        ...


def owner_ids(owner: Owner) -> tuple[str, str]:
    # No id is empty, so the empty string is the anonymous user and nobody else.
    return owner.agent_id, owner.user_id or ""


def scope_ids(scope: Scope) -> tuple[str, str, str]:
    return *owner_ids(scope.owner), scope.session_id


def find_session(scope: Scope) -> Operation[SessionRow | None]:
    rows = yield sql.GET_SESSION, scope_ids(scope)
    return SessionRow(*rows[0]) if rows else None


def find_place(session: SessionRow, message_id: str) -> Operation[int]:
    rows = yield sql.FIND_PLACE, (session.tree_no, message_id)
    if not rows:
        raise MessageNotFound(message_id)
    return rows[0][0]


def walk(session: SessionRow, steps: Walk[T]) -> Operation[T]:
    """Run a walk over the tree with one statement for each question."""
    try:
        question = next(steps)
        while True:
            statement, convert = _ask(session.tree_no, question)
            question = steps.send(convert((yield statement)))
    except StopIteration as stop:
        return stop.value


def _ask(tree_no: int, question: Question) -> tuple[Statement, Callable[[list[Any]], Any]]:
    match question:
        case Last(low, high):
            return (sql.LAST_PLACE, (low, high)), _single
        case First(low, high):
            return (sql.FIRST_PLACE, (low, high)), _single
        case Origin(lane):
            return (sql.GET_ORIGIN, (lane,)), _single
        case Forks(low, high):
            return (sql.LIST_FORKS, (tree_no, low, high)), _column
        case Roots():
            return (sql.LIST_ROOT_LANES, (tree_no,)), _column
        case Lanes():
            return (sql.LIST_LANES, (tree_no,)), _column


def _single(rows: list[Any]) -> Any:
    return rows[0][0] if rows else None


def _column(rows: list[Any]) -> list[Any]:
    return [row[0] for row in rows]


def append(indexing: Indexing, scope: Scope, drafts: Sequence[Draft], parent: ParentId) -> Operation[list[Message]]:
    found = yield from find_session(scope)
    session = found or (yield from _create_session(scope))
    version = session.version + 1
    leaf: int | None = None
    above: int | None = None
    opened: set[int] = set()
    stored: list[Message] = []
    for draft in drafts:
        message = draft.message
        known = [] if found is None else (yield sql.FIND_MESSAGE, (session.tree_no, message.id))
        if known:
            above, message_id, role, at, body = known[0]
            stored.append(Message.stored(message_id, role, at, decode_body(body)))
            continue
        if not stored:
            above = yield from _find_parent(session, parent)
        if leaf is not None and above == leaf:
            above = leaf + 1
        else:
            # Only the batch's first message continues a lane of others, so that
            # the places of one version rise in the order of the batch.
            above = yield from _next_place(session, above, may_continue=not opened)
            yield from indexing.added(above)
        opened.add(lanes.lane_of(above))
        leaf = above
        yield (
            sql.ADD_MESSAGE,
            (
                leaf,
                session.tree_no,
                version,
                message.id,
                message.role,
                draft.tokens,
                message.at,
                draft.body.decode(),
            ),
        )
        stored.append(message)
    if leaf is not None:
        yield sql.MOVE_SESSION, (leaf, version, now_micros(), session.session_no)
    return stored


def update(indexing: Indexing, scope: Scope, draft: Draft) -> Operation[Message]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_MESSAGE, (session.tree_no, draft.message.id))
    if session is None or not rows:
        raise MessageNotFound(draft.message.id)
    return (yield from _replace(indexing, session, rows[0], draft))


def upsert(indexing: Indexing, scope: Scope, draft: Draft, parent: ParentId) -> Operation[Message]:
    session = yield from find_session(scope)
    rows = [] if session is None else (yield sql.FIND_MESSAGE, (session.tree_no, draft.message.id))
    if session is None or not rows:
        return (yield from append(indexing, scope, [draft], parent))[0]
    return (yield from _replace(indexing, session, rows[0], draft))


def _replace(indexing: Indexing, session: SessionRow, row: Any, draft: Draft) -> Operation[Message]:
    message = draft.message
    place, _, _, created_at, old_body = row
    yield from indexing.changed(session, place, old_body)
    yield sql.CHANGE_MESSAGE, (message.role, draft.tokens, draft.body.decode(), place)
    yield from _record(session, "update", [message.id])
    return Message.stored(message.id, message.role, created_at, decode_body(draft.body))


def delete(indexing: Indexing, scope: Scope, message_ids: Sequence[str]) -> Operation[int]:
    session = yield from find_session(scope)
    if session is None:
        return 0
    gone: list[str] = []
    for message_id in dict.fromkeys(message_ids):
        rows = yield sql.FIND_MESSAGE, (session.tree_no, message_id)
        if rows:
            place = rows[0][0]
            yield from indexing.removed(session, place, rows[0][4])
            yield sql.DROP_LABEL, (place,)
            yield sql.DROP_MESSAGE, (place,)
            lane = lanes.lane_of(place)
            yield sql.RAISE_FLOOR, (place + 1, place + 1, lane)
            gone.append(message_id)
    if gone:
        leaf = yield from walk(session, lanes.nearest(session.leaf))
        yield from _record(session._replace(leaf=leaf), "delete", gone)
    return len(gone)


def clear(scope: Scope) -> Operation[None]:
    session = yield from find_session(scope)
    if session is None or not (yield sql.HAS_MESSAGES, (session.tree_no,)):
        return
    # The old tree is only let go of here; its rows and words are removed in slices, in the background.
    fresh = (yield sql.ADD_TREE, (session.owner_no,))[0][0]
    yield sql.REPLACE_TREE, (fresh, session.session_no)
    yield sql.DISCARD_TREE, (session.tree_no,)
    yield from _record(session._replace(leaf=None), "clear", [])


def checkout(scope: Scope, message_id: str | None) -> Operation[None]:
    session = yield from find_session(scope)
    if session is None:
        if message_id is not None:
            raise MessageNotFound(message_id)
        return
    place = None if message_id is None else (yield from find_place(session, message_id))
    if place != session.leaf:
        yield from _record(session._replace(leaf=place), "checkout", [] if message_id is None else [message_id])


def label(scope: Scope, message_id: str, name: str | None) -> Operation[None]:
    session = yield from find_session(scope)
    if session is None:
        raise MessageNotFound(message_id)
    place = yield from find_place(session, message_id)
    if _single((yield sql.GET_LABEL, (place,))) == name:
        return
    if name is None:
        yield sql.DROP_LABEL, (place,)
    else:
        yield sql.SET_LABEL, (place, session.tree_no, name)
    yield from _record(session, "label", [message_id])


def _create_session(scope: Scope) -> Operation[SessionRow]:
    rows = yield sql.GET_OWNER, owner_ids(scope.owner)
    owner_no = (rows or (yield sql.ADD_OWNER, owner_ids(scope.owner)))[0][0]
    tree_no = (yield sql.ADD_TREE, (owner_no,))[0][0]
    now = now_micros()
    session_no = (yield sql.ADD_SESSION, (owner_no, scope.session_id, tree_no, now, now))[0][0]
    return SessionRow(session_no, owner_no, tree_no, None, 0)


def _find_parent(session: SessionRow, parent: ParentId) -> Operation[int | None]:
    if parent is LATEST_LEAF:
        return session.leaf
    return None if parent is None else (yield from find_place(session, parent))


def _next_place(session: SessionRow, above: int | None, *, may_continue: bool) -> Operation[int]:
    """Return the place for a child: in its parent's lane when the parent is the lane's last, else in a new lane."""
    if above is not None and may_continue:
        lane = lanes.lane_of(above)
        floor, last = (yield sql.GET_LANE_END, (above, lanes.last_of(lane), lane))[0]
        if last == above:
            return max(above + 1, floor)
    lane = cast(int, (yield sql.ADD_LANE, (session.tree_no, above))[0][0])
    return lanes.before_first(lane) + 1


def _record(session: SessionRow, kind: ChangeKind, message_ids: list[str]) -> Operation[None]:
    version = session.version + 1
    yield sql.ADD_CHANGE, (session.session_no, version, kind, encode_text(message_ids))
    yield sql.MOVE_SESSION, (session.leaf, version, now_micros(), session.session_no)
