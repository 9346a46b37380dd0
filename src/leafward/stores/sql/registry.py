"""The list of sessions, as operations."""

from __future__ import annotations

import re
from typing import Any

from leafward.core.errors import SessionExists, SessionNotFound
from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.core.times import from_micros
from leafward.stores.contracts import Usage
from leafward.stores.registry import Origin, Page
from leafward.stores.sql import statements as sql
from leafward.stores.sql.entries import drop_context
from leafward.stores.sql.lease_statements import DROP_LEASE
from leafward.stores.sql.operations import (
    STORE_CLOCK,
    Operation,
    SessionRow,
    create_session,
    find_session,
    now,
    owner_ids,
    scope_ids,
    single,
)

_LARGEST = 2**63 - 1
"""The largest number a column can hold."""
_CURSOR = re.compile(r"[0-9]{1,19}\.[0-9]{1,19}")


def need_session(scope: Scope) -> Operation[SessionRow]:
    """Return a session that must be there."""
    session = yield from find_session(scope)
    if session is None:
        raise SessionNotFound(scope.session_id)
    return session


def new_session(scope: Scope, origin: Origin) -> Operation[SessionRow]:
    """Bring a session into being that must not be there."""
    if (yield from find_session(scope)) is not None:
        raise SessionExists(scope.session_id)
    session = yield from create_session(scope)
    yield sql.DESCRIBE_SESSION, (*origin, session.session_no)
    return session


def read_info(session_no: int) -> Operation[SessionInfo]:
    return _info((yield sql.GET_INFO, (session_no,))[0])


def create(scope: Scope, origin: Origin) -> Operation[SessionInfo]:
    session = yield from new_session(scope, origin)
    return (yield from read_info(session.session_no))


def get(scope: Scope) -> Operation[SessionInfo | None]:
    session = yield from find_session(scope)
    return None if session is None else (yield from read_info(session.session_no))


def list_sessions(owner: Owner, limit: int | None, cursor: str | None) -> Operation[Page[SessionInfo]]:
    after = None if cursor is None else _read_cursor(cursor)
    owner_no = single((yield sql.GET_OWNER, owner_ids(owner)))
    page: Page[SessionInfo] = Page()
    if owner_no is None or limit == 0:
        page.next_cursor = cursor if limit == 0 else None
        return page
    wanted = _LARGEST if limit is None else min(limit + 1, _LARGEST)
    if after is None:
        rows = yield sql.LIST_INFO, (owner_no, wanted)
    else:
        at, session_no = after
        rows = yield sql.LIST_INFO_AFTER, (owner_no, at, at, session_no, wanted)
    page.extend(_info(row) for row in rows[:limit])
    if limit is not None and len(rows) > limit:
        page.next_cursor = f"{rows[limit - 1][10]}.{rows[limit - 1][11]}"
    return page


def _read_cursor(cursor: object) -> tuple[int, int]:
    if isinstance(cursor, str) and _CURSOR.fullmatch(cursor):
        at, session_no = (int(number) for number in cursor.split("."))
        if at <= _LARGEST and session_no <= _LARGEST:
            return at, session_no
    raise ValueError(f"{cursor!r} is not the next_cursor of an earlier page")


def count(owner: Owner) -> Operation[int]:
    owner_no = single((yield sql.GET_OWNER, owner_ids(owner)))
    return 0 if owner_no is None else (yield sql.COUNT_SESSIONS, (owner_no,))[0][0]


def is_shared(scope: Scope) -> Operation[bool]:
    agent_id, *ids = scope_ids(scope)
    return bool((yield sql.FIND_OTHER_AGENT, (*ids, agent_id)))


def rename(scope: Scope, name: str) -> Operation[None]:
    session = yield from need_session(scope)
    yield sql.RENAME_SESSION, (name, (yield from now()), session.session_no)


def add_usage(scope: Scope, usage: Usage) -> Operation[bool]:
    session = yield from need_session(scope)
    at = yield from now()
    is_counted = yield from note_usage(session, usage, at, is_new=True)
    if is_counted:
        yield sql.ADD_USAGE, (*usage[:3], at, session.session_no)
    return is_counted


def note_usage(
    session: SessionRow, usage: Usage, at: int, *, is_new: bool, is_known: bool | None = None
) -> Operation[bool]:
    """Tell whether usage is to be counted: it `is_new`, or has a name that was not, and gets a row by it.

    `is_known` says whether the name was counted before, if that has been looked up.
    """
    if usage.usage_id is None:
        return is_new
    if (yield sql.HAS_USED, (session.session_no, usage.usage_id)) if is_known is None else is_known:
        return False
    row = (usage.usage_id, usage.model, usage.input_tokens, usage.output_tokens, usage.cost)
    yield sql.ADD_USED, (session.session_no, *row, at)
    return True


def end(scope: Scope, reason: str) -> Operation[None]:
    session = yield from need_session(scope)
    yield sql.END_SESSION, (reason, (yield from now()), session.session_no)


def delete(scope: Scope) -> Operation[int | None]:
    """Remove a session; return the number of its tree, which like its shelves is then removed in slices, or `None`."""
    session = yield from find_unleased(scope)
    if session is None:
        return None
    yield from remove(session)
    return session.tree_no


def find_unleased(scope: Scope) -> Operation[SessionRow | None]:
    """Return a session that is to be removed, after its lease, unless somebody holds that."""
    # First, as in a write behind a lease: who takes locks in one order does not get stuck.
    at = (yield STORE_CLOCK, ())[0][0]
    yield DROP_LEASE, (*scope_ids(scope)[1:], at)
    return (yield from find_session(scope))


def remove(session: SessionRow) -> Operation[None]:
    """Remove a session, and let go of its tree and its shelves."""
    yield from drop_context(session.owner_no, session.session_no)
    yield sql.DROP_CHANGES, (session.session_no,)
    yield sql.DROP_USED, (session.session_no,)
    yield sql.DROP_SESSION, (session.session_no,)
    yield sql.DISCARD_TREE, (session.tree_no,)


def _info(row: Any) -> SessionInfo:
    session_id, name, parent_id, model, source, tokens_in, tokens_out, cost, end_reason, created_at, updated_at, _ = row
    return SessionInfo(
        session_id,
        session_id if name is None else name,
        parent_id,
        model,
        source,
        tokens_in,
        tokens_out,
        cost,
        end_reason,
        from_micros(created_at),
        from_micros(updated_at),
    )
