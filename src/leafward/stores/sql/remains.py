"""What may hold words of a session that is erased: its kin and what all sessions of its owner share, as operations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from leafward.stores.entries import NAMES
from leafward.stores.sql import statements as sql
from leafward.stores.sql.entries import SHARED
from leafward.stores.sql.operations import Operation, SessionRow

LIST_PARENTS = """
    SELECT c.session_id, p.session_id FROM {p}session c JOIN {p}session p
        ON p.owner_no = c.owner_no AND p.session_id = c.parent_session_id
    WHERE c.owner_no = ?"""


def in_the_store(session: SessionRow, session_id: str) -> Operation[list[str]]:
    """Tell what else of the owner's may hold what the session held."""
    return [*(yield from _kin(session, session_id)), *(yield from _shared(session))]


def _kin(session: SessionRow, session_id: str) -> Operation[list[str]]:
    parents: dict[str, str] = dict((yield LIST_PARENTS, (session.owner_no,)))
    children: dict[str, list[str]] = {}
    for child, parent in parents.items():
        children.setdefault(parent, []).append(child)
    above = _reach(session_id, lambda one: [parents[one]] if one in parents else [])
    below = [one for one in _reach(session_id, lambda one: children.get(one, [])) if one not in above]
    return [
        *(f"the session {one!r}, which it was made from" for one in above),
        *(f"the session {one!r}, which was made from it" for one in below),
    ]


def _reach(start: str, following: Callable[[str], Iterable[str]]) -> list[str]:
    """Return all that can be reached from `start`, each once, also where the ways run in circles."""
    found = [start]
    for one in found:
        found += [other for other in following(one) if other not in found]
    return found[1:]


def _shared(session: SessionRow) -> Operation[list[str]]:
    shelves = yield sql.LIST_SHELVES, (session.owner_no, SHARED)
    labels = [repr(label) for _, label in shelves if label != NAMES]
    left = [f"the blocks that all sessions of this user share: {', '.join(labels)}"] if labels else []
    if len(labels) < len(shelves):
        left.append("what the sessions of this user wrote to providers of your own")
    return left
