"""What an operation on the tables is, and the steps that most of them begin and end with.

An operation is a generator: it yields a statement with its parameters and is sent the rows. SQLite runs it to its end
in one hop to its thread; a server's driver awaits between the steps. Either way it is one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from leafward.core.errors import MessageNotFound
from leafward.core.ids import Owner, Scope
from leafward.core.json import encode_text
from leafward.core.lanes import First, Forks, Lanes, Last, Newest, Origin, Question, Roots, Walk
from leafward.core.times import now_micros
from leafward.stores.contracts import ChangeKind
from leafward.stores.sql import statements as sql

T = TypeVar("T")


class Many(list[tuple[Any, ...]]):
    """In place of parameters: the statement is run once with each of these, and gives no rows."""


Statement = tuple[str, tuple[Any, ...] | Many]

CLOCK = ""
"""In place of a statement: asks for the time, in microseconds, which is one for a whole operation."""
STORE_CLOCK = "clock"
"""The same by the clock that all who share the store go by."""
Operation = Generator[Statement, list[Any], T]


class SessionRow(NamedTuple):
    """A session as stored; `leaf` is a place."""

    session_no: int
    owner_no: int
    tree_no: int
    leaf: int | None
    version: int
    window: int | None
    """Tokens of the history that ends at the leaf; `None` when that has to be summed up."""
    overlays: int
    reclaimed: int


class Indexing(Protocol):
    """What a backend does for search, in the transaction that changes a message."""

    def added(self, place: int) -> Operation[None]:
        """Take note that messages are added from `place` on to the end of its lane."""
        ...

    def changed(self, session: SessionRow, place: int, old_body: bytes) -> Operation[None]:
        """See to it that the message is found by its new words and no longer by its old ones."""
        ...

    def removed(self, session: SessionRow, gone: dict[int, bytes]) -> Operation[None]:
        """See to it that messages, by their places and old bodies, are no longer found."""
        ...


def run_steps(
    operation: Operation[T], execute: Callable[[str, tuple[Any, ...]], list[Any]], at: int | None = None
) -> T:
    """Run an operation to its end where statements are answered at once; it sees the errors they raise.

    It happens now, or at the time `at`.
    """
    try:
        statement, parameters = next(operation)
        while True:
            try:
                if statement is CLOCK or statement is STORE_CLOCK:
                    at = now_micros() if at is None else at
                    rows = [(at,)]
                elif isinstance(parameters, Many):
                    rows = [row for each in parameters for row in execute(statement, each)]
                else:
                    rows = execute(statement, parameters)
            except Exception as error:  # noqa: BLE001  (the operation decides, and lets go what it does not handle)
                statement, parameters = operation.throw(error)
            else:
                statement, parameters = operation.send(rows)
    except StopIteration as stop:
        return stop.value


def now() -> Operation[int]:
    """Return the time at which the operation happens."""
    return (yield CLOCK, ())[0][0]


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


def find_messages(session: SessionRow, message_ids: Iterable[str]) -> Operation[dict[str, Any]]:
    """Return `(place, id, role, created_at, body)` of messages by their ids; unknown ones are left out."""
    found: dict[str, Any] = {}
    for group in _groups(message_ids):
        found |= {row[1]: row for row in (yield sql.FIND_MESSAGES, (session.tree_no, *group))}
    return found


def find_places(session: SessionRow, message_ids: Iterable[str]) -> Operation[dict[str, int]]:
    """Return the places of messages by their ids; unknown ones are left out."""
    found: dict[str, int] = {}
    for group in _groups(message_ids):
        found |= dict((yield sql.FIND_PLACES, (session.tree_no, *group)))
    return found


def _groups(message_ids: Iterable[str]) -> Iterator[list[str]]:
    ids = list(dict.fromkeys(message_ids))
    for start in range(0, len(ids), sql.AT_ONCE):
        group = ids[start : start + sql.AT_ONCE]
        # The last one fills up a group that is short: the statement is the same for all.
        yield group + group[-1:] * (sql.AT_ONCE - len(group))


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
            return (sql.LAST_PLACE, (low, high)), single
        case First(low, high):
            return (sql.FIRST_PLACE, (low, high)), single
        case Origin(lane):
            return (sql.GET_ORIGIN, (lane,)), single
        case Forks(low, high):
            return (sql.LIST_FORKS, (tree_no, low, high)), _column
        case Roots():
            return (sql.LIST_ROOT_LANES, (tree_no,)), _column
        case Lanes():
            return (sql.LIST_LANES, (tree_no,)), dict
        case Newest(low, high):
            return (sql.NEWEST_APPENDS, (low, high, 1)), _version_and_place


def single(rows: list[Any]) -> Any:
    """Return the one value that was asked for, or `None`."""
    return rows[0][0] if rows else None


def _column(rows: list[Any]) -> list[Any]:
    return [row[0] for row in rows]


def _version_and_place(rows: list[Any]) -> tuple[int, int] | None:
    return (rows[0][1], rows[0][0]) if rows else None


def find_or_create(scope: Scope) -> Operation[SessionRow]:
    """Return the session, which a first write brings into being."""
    return (yield from find_session(scope)) or (yield from create_session(scope))


def find_or_add_owner(owner: Owner) -> Operation[int]:
    rows = yield sql.GET_OWNER, owner_ids(owner)
    return (rows or (yield sql.ADD_OWNER, owner_ids(owner)))[0][0]


def create_session(scope: Scope) -> Operation[SessionRow]:
    """Bring an empty session into being."""
    owner_no = yield from find_or_add_owner(scope.owner)
    tree_no = (yield sql.ADD_TREE, (owner_no,))[0][0]
    at = yield from now()
    session_no = (yield sql.ADD_SESSION, (owner_no, scope.session_id, tree_no, at, at))[0][0]
    return SessionRow(session_no, owner_no, tree_no, None, 0, 0, 0, 0)


def record(session: SessionRow, kind: ChangeKind, message_ids: list[str]) -> Operation[None]:
    """Give the session its next version, and tell what it is about; leaf and window become those of `session`."""
    version = session.version + 1
    yield sql.ADD_CHANGE, (session.session_no, version, kind, encode_text(message_ids))
    yield sql.MOVE_SESSION, (session.leaf, version, session.window, (yield from now()), session.session_no)
