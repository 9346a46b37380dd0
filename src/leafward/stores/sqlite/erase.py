"""Erasing a session, as operations: it is deleted, and a mark tells that its bytes have yet to go."""

from __future__ import annotations

from leafward.core.ids import Scope
from leafward.stores.sql import registry, remains
from leafward.stores.sql.operations import Operation, find_session
from leafward.stores.sql.schema import GET_META, SET_META

ERASING = "erasing"
"""The name in the meta table of the mark: the number of the tree that was erased last, until no byte of it is left."""

CLEAR_MARK = "DELETE FROM {p}meta WHERE name = ? AND value = ?"

ELSEWHERE = (
    "backups and other copies of the database file",
    "what the file system and the disk keep of overwritten and deleted blocks, such as snapshots",
)


def begin(scope: Scope) -> Operation[list[str] | None]:
    """Delete a session, leave the mark and tell what may be found elsewhere; `None` when there is no such session."""
    session = yield from find_session(scope)
    if session is None:
        return None
    elsewhere = [*(yield from remains.in_the_store(session, scope.session_id)), *ELSEWHERE]
    yield from registry.delete(scope)
    yield SET_META, (ERASING, str(session.tree_no))
    return elsewhere


def found_mark() -> Operation[str | None]:
    """Return the mark of an erasure that is not finished."""
    rows = yield GET_META, (ERASING,)
    return rows[0][0] if rows else None


def clear_mark(mark: str) -> Operation[None]:
    """Take the mark away, unless it is another one by now: that erasure is for others to finish."""
    yield CLEAR_MARK, (ERASING, mark)
