"""What an append returns whose reply was lost: it is run again, and finds itself done or does what is missing."""

from __future__ import annotations

from leafward.core.attached_state import AttachedState, is_same
from leafward.core.json import decode
from leafward.stores.contracts import Appended
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import Indexing, Operation, SessionRow, find_places, find_session, single
from leafward.stores.sql.overlays import weigh
from leafward.stores.sql.points import ROOT

LIST_APPENDED = "SELECT id, seq, created_at FROM {p}message WHERE place BETWEEN ? AND ? ORDER BY place"
STATE_AT = "SELECT seq, text FROM {p}point WHERE tree_no = ? AND name = ? AND place = ?"
COUNTED_AT = "SELECT at FROM {p}used WHERE session_no = ? AND usage_id = ?"
LAST_STATES = """
    SELECT seq, ids FROM {p}change WHERE session_no = ? AND seq > ? AND kind = 'state' ORDER BY seq DESC LIMIT ?"""
MOST_CHANGES = 64
"""How many of the last changes are looked through for one whose reply was lost."""


def repeated(
    command: Append, indexing: Indexing, *, tried: Append | None, sent: Appended | None, since: int
) -> Operation[Appended]:
    """Append again; if there is nothing left to do, return what the attempt without a reply did.

    `sent` is what an attempt in a transaction would have returned. Of one in a single round trip, `tried`, the rows
    show that it was done: its messages are there in one piece, its usage was counted after `since`, the call's start.
    """
    result = yield from command.operation(indexing)
    if result.inserted or result.states or result.counted:
        return result
    if sent is not None:
        return sent
    session = yield from find_session(command.scope)
    found = None if session is None else (yield from _find_appended(session, command))
    if session is None or found is None or tried is None:
        return result
    place, version = found
    return result._replace(
        inserted=len(command.drafts),
        weight=(yield from weigh(command.scope)) if command.weigh else None,
        version=version,
        states=(yield from _written(session, command, place, version)),
        counted=(yield from _was_counted(session, tried, since)),
    )


def _find_appended(session: SessionRow, command: Append) -> Operation[tuple[int, int] | None]:
    """Return the last place and the version of messages that stand where one append put them."""
    ids = [draft.message.id for draft in command.drafts]
    places = yield from find_places(session, (ids[0], ids[-1]))
    rows = yield LIST_APPENDED, (places[ids[0]], places[ids[-1]])
    if [(one, at) for one, _, at in rows] != [(draft.message.id, draft.message.at) for draft in command.drafts]:
        return None
    versions = {version for _, version, _ in rows}
    return (places[ids[-1]], versions.pop()) if len(versions) == 1 else None


def _written(session: SessionRow, command: Append, place: int, version: int) -> Operation[list[AttachedState]]:
    """Return those of the command's states that were attached to a place by the change of this version."""
    found: list[AttachedState] = []
    for one in command.attached:
        rows = yield STATE_AT, (session.tree_no, one.name, place)
        if rows and rows[0][0] == version and is_same(rows[0][1], one.text):
            found.append(one)
    return found


def _was_counted(session: SessionRow, command: Append, since: int) -> Operation[bool]:
    usage = command.usage
    if usage is None or usage.usage_id is None:
        return usage is not None
    at = single((yield COUNTED_AT, (session.session_no, usage.usage_id)))
    return at is not None and at >= since


def attached_before(command: Append) -> Operation[Appended]:
    """Return what attaching states to the leaf did, which is known to be done."""
    session = yield from find_session(command.scope)
    if session is None:
        return Appended([], 0, None)
    # It is among the last changes, unless others wrote a lot since.
    for version, ids in (yield LAST_STATES, (session.session_no, session.version - MOST_CHANGES, MOST_CHANGES)):
        # At most one, and none for the root.
        places = (yield from find_places(session, decode(ids))) or {None: ROOT}
        message_id, place = next(iter(places.items()))
        states = yield from _written(session, command, place, version)
        if states:
            return Appended([], 0, None, version=version, states=states, attached_to=message_id)
    return Appended([], 0, None, version=session.version)
