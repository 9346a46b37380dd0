"""An append as one packet for MySQL: the statements of one transaction, sent together.

There is no statement that changes a row and says what it was, so the session is moved only if the messages were added,
and they are added only if the session is what it is said to be.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from leafward.stores.leases import Fence
from leafward.stores.servers.server import Position
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import scope_ids


class Packet(NamedTuple):
    """Statements, and the parameters of all of them."""

    text: str
    parameters: list[Any]


_SCOPE = "s.owner_no = (SELECT owner_no FROM {p}owner WHERE agent_id = %s AND user_id = %s) AND s.session_id = %s"
_SEEN = "s.session_no = %s AND s.tree_no = %s AND s.version = %s"
_WEIGHED = " AND (s.window_tokens IS NOT NULL OR NOT %s)"
_LEASE = "FROM {p}lease WHERE user_id = %s AND session_id = %s AND token = %s AND holder IS NOT NULL"
_HOLD_LEASE = f"SELECT 1 {_LEASE} LOCK IN SHARE MODE;"
_HELD = f" AND EXISTS (SELECT 1 {_LEASE})"
_WEIGHT = "s.window_tokens, (SELECT tokens FROM {p}prompt p WHERE p.session_no = s.session_no)"

_HOLD = f"SELECT %s + {_WEIGHT}, s.session_no, s.tree_no, s.version + 1 FROM {{p}}session s WHERE {_SCOPE} FOR UPDATE;"
_DRAFT = "SELECT %s AS n, %s AS id, %s AS role, %s AS tokens, %s AS created_at, %s AS body"
_ADD = """
    INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)
    SELECT s.leaf + d.n, s.tree_no, s.version + 1, d.id, d.role, d.tokens, d.created_at, d.body
    FROM {p}session s """
_ENDS_ITS_LANE = """
    AND l.floor <= s.leaf + 1
    AND NOT EXISTS (SELECT 1 FROM {p}message m WHERE m.place > s.leaf AND m.place < (l.lane_no + 1) << 32)
    AND NOT EXISTS (SELECT 1 FROM {p}message m WHERE m.tree_no = s.tree_no AND m.id IN ({ids}));"""
_MOVE = """
    UPDATE {p}session s SET s.leaf = s.leaf + %s, s.version = s.version + 1,
        s.window_tokens = s.window_tokens + %s, s.updated_at = %s
    WHERE """
_ADDED = """
    AND EXISTS (
        SELECT 1 FROM {p}message m WHERE m.place = s.leaf + %s AND m.tree_no = s.tree_no AND m.seq = s.version + 1
    )"""
_TOLD = f"; SELECT {_WEIGHT} FROM {{p}}session s WHERE s.session_no = %s"


def below_the_leaf(command: Append, fence: Fence | None, at: int) -> Packet:
    """Append if the session is there, all ids are new and the leaf is the last of its lane; it is held first."""
    scope = scope_ids(command.scope)
    drafts, rows = _drafts(command)
    lease = () if fence is None else (*scope[1:], fence.token)
    ids = [draft.message.id for draft in command.drafts]
    text = "".join(
        (
            _HOLD_LEASE if fence else "",
            _HOLD,
            _ADD + "JOIN {p}lane l ON l.lane_no = s.leaf >> 32 JOIN (" + drafts + ") d WHERE " + _SCOPE,
            _WEIGHED + (_HELD if fence else ""),
            _ENDS_ITS_LANE.replace("{ids}", ", ".join(["%s"] * len(ids))),
            _MOVE + _SCOPE + _ADDED,
        )
    )
    growth = _growth(command)
    moved = (*growth, at, *scope, len(ids))
    return Packet(text, [*lease, growth[1], *scope, *rows, *scope, command.weigh, *lease, *ids, *moved])


def at_position(position: Position, command: Append, fence: Fence | None, at: int) -> Packet:
    """Append if nothing was written to the session since it was at a position; an id that is known violates its key."""
    scope = scope_ids(command.scope)
    drafts, rows = _drafts(command)
    lease = () if fence is None else (*scope[1:], fence.token)
    condition = _SEEN + _WEIGHED + (_HELD if fence else "")
    asked = (*position, command.weigh, *lease)
    text = "".join(
        (
            _HOLD_LEASE if fence else "",
            _ADD + "JOIN (" + drafts + ") d WHERE " + condition + " FOR UPDATE;",
            _MOVE + condition + _ADDED,
            _TOLD,
        )
    )
    moved = (*_growth(command), at, *asked, len(command.drafts))
    return Packet(text, [*lease, *rows, *asked, *moved, position.session_no])


def _drafts(command: Append) -> tuple[str, list[Any]]:
    rows = [
        (number, one.message.id, one.message.role, one.tokens, one.message.at, one.body.decode())
        for number, one in enumerate(command.drafts, 1)
    ]
    return " UNION ALL ".join([_DRAFT] * len(rows)), [value for row in rows for value in row]


def _growth(command: Append) -> tuple[int, int]:
    return len(command.drafts), sum(draft.tokens for draft in command.drafts)
