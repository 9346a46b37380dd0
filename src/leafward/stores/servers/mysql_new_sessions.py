"""The first append to a session as a packet for MySQL: the statements of one transaction, sent together."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.stores.leases import Fence
from leafward.stores.servers.mysql_packets import HELD, HOLD_LEASE, Answer, Packet, join, lease_of
from leafward.stores.servers.positions import Digested, Placed, first_placed
from leafward.stores.sql.commands import Append
from leafward.stores.sql.operations import owner_ids

# Of two processes that begin one session, or the first one of a user, the second violates a key, and tries again.
_OWNER = "SELECT owner_no FROM {p}owner WHERE agent_id = %s AND user_id = %s"
_ADD_OWNER = f"INSERT INTO {{p}}owner (agent_id, user_id) SELECT %s, %s FROM DUAL WHERE NOT EXISTS ({_OWNER})"
_SET_OWNER = f"SET @owner = ({_OWNER});"
_SET_FREE = """
    SET @free = (
        SELECT @owner IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM {p}session s WHERE s.owner_no = @owner AND s.session_id = %s)"""
_ADD_TREE = "INSERT INTO {p}tree (owner_no, discarded) SELECT @owner, 0 FROM DUAL WHERE @free;"
_ADD_LANE = "INSERT INTO {p}lane (tree_no, origin, floor, removed) SELECT @tree, NULL, 0, 0 FROM DUAL WHERE @free;"
_ADD_SESSION = """
    INSERT INTO {p}session (owner_no, session_id, tree_no, leaf, version, window_tokens, created_at, updated_at,
        input_tokens, output_tokens, estimated_cost)
    SELECT @owner, %s, @tree, (@lane << 32) + %s, 1, %s, %s, %s, %s, %s, %s FROM DUAL WHERE @free;"""
_ADD = "INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body) "
_ADDED = "SELECT (@lane << 32) + %s, @tree, 1, %s, %s, %s, %s, %s FROM DUAL WHERE @free"
_KEEP = "INSERT INTO {p}point (tree_no, name, place, seq, text, digest) "
_KEPT = "SELECT @tree, %s, (@lane << 32) + %s, 1, %s, %s FROM DUAL WHERE @free"
_COUNT = """
    INSERT INTO {p}used (session_no, usage_id, model, input_tokens, output_tokens, cost, at)
    SELECT @session, %s, %s, %s, %s, %s, %s FROM DUAL WHERE @free;"""
_TOLD = "SELECT @session, @tree, (@lane << 32) + %s FROM DUAL WHERE @free;"


def begin(command: Append, states: Sequence[Digested], fence: Fence | None, at: int) -> Packet:
    """Append to a session if it is not there, and the fence holds."""
    owner, session_id = owner_ids(command.scope.owner), command.scope.session_id
    lease, count, usage = lease_of(command, fence), len(command.drafts), command.usage
    if_held = Packet(f" AND {HELD}", lease) if fence else Packet("")
    used = (0, 0, 0.0) if usage is None else usage[:3]
    drafts = [
        Packet(_ADDED, (number, message.id, message.role, tokens, message.at, body.decode()))
        for number, (message, body, tokens) in enumerate(command.drafts, 1)
    ]
    kept = [Packet(_KEPT, (name, count, text, digest)) for name, text, digest in states]
    return join(
        [
            *([Packet(HOLD_LEASE, lease)] if fence else []),
            *(Packet(_ADD_OWNER, (*owner, *owner)), if_held, Packet(";")),
            Packet(_SET_OWNER, owner),
            *(Packet(_SET_FREE, [session_id]), if_held, Packet(");")),
            *(Packet(_ADD_TREE), _number("tree")),
            *(Packet(_ADD_LANE), _number("lane")),
            Packet(_ADD_SESSION, (session_id, count, command.tokens, at, at, *used)),
            _number("session"),
            *(Packet(_ADD), join(drafts, " UNION ALL "), Packet(";")),
            *((Packet(_KEEP), join(kept, " UNION ALL "), Packet(";")) if kept else ()),
            *(
                [Packet(_COUNT, (usage.usage_id, usage.model, *used, at))]
                if usage is not None and usage.usage_id is not None
                else []
            ),
            Packet(_TOLD, [count]),
        ]
    )


def _number(of: str) -> Packet:
    """Keep the number of the row that was added."""
    return Packet(f"SET @{of} = LAST_INSERT_ID();")


def was_begun(command: Append, states: Sequence[Digested], answers: Sequence[Answer]) -> Placed | None:
    """Return where the first append ended, by what was answered; `None` when nothing was written."""
    rows = answers[-1].rows
    return first_placed(command, states, *rows[0]) if rows else None
