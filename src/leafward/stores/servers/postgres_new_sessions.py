"""The first append to a session as a single statement for PostgreSQL."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Any, NamedTuple

from leafward.stores.leases import Fence
from leafward.stores.servers.positions import Placed, first_placed, first_states
from leafward.stores.servers.postgres_points import held, rows_of, values_of
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Postgres
from leafward.stores.sql.operations import scope_ids

# Of two processes that begin one session, or the first one of a user, the second violates a key, and tries again.
_BEGIN = """
    WITH {held}new_owner AS (
        INSERT INTO {p}owner (agent_id, user_id) SELECT $1, $2
        WHERE NOT EXISTS (SELECT 1 FROM {p}owner WHERE agent_id = $1 AND user_id = $2) {and_held}
        RETURNING owner_no
    ), free AS (
        SELECT o.owner_no FROM (
            SELECT owner_no FROM new_owner UNION ALL SELECT owner_no FROM {p}owner WHERE agent_id = $1 AND user_id = $2
        ) o
        WHERE NOT EXISTS (SELECT 1 FROM {p}session s WHERE s.owner_no = o.owner_no AND s.session_id = $3) {and_held}
    ), tree AS (
        INSERT INTO {p}tree (owner_no, discarded) SELECT owner_no, 0 FROM free RETURNING tree_no, owner_no
    ), lane AS (
        INSERT INTO {p}lane (tree_no, origin, floor, removed) SELECT tree_no, NULL, 0, 0 FROM tree
        RETURNING tree_no, lane_no << 32 AS before_first
    ), begun AS (
        INSERT INTO {p}session (owner_no, session_id, tree_no, leaf, version, window_tokens, created_at, updated_at,
            input_tokens, output_tokens, estimated_cost)
        SELECT tree.owner_no, $3, tree.tree_no, lane.before_first + $4::bigint, 1, $5::bigint, $6::bigint, $6::bigint,
            $7::bigint, $8::bigint, $9::float8
        FROM tree JOIN lane ON lane.tree_no = tree.tree_no
        RETURNING session_no, tree_no, leaf
    ), added AS (
        INSERT INTO {p}message (place, tree_no, seq, id, role, tokens, created_at, body)
        SELECT begun.leaf - $4::bigint + d.n, begun.tree_no, 1, d.id, d.role, d.tokens, d.created_at, d.body
        FROM begun CROSS JOIN unnest($10::text[], $11::text[], $12::bigint[], $13::bigint[], $14::text[])
            WITH ORDINALITY AS d (id, role, tokens, created_at, body, n)
    ){extras}
    SELECT session_no, tree_no, leaf FROM begun"""
_KEPT = """, kept AS (
        INSERT INTO {p}point (tree_no, name, place, seq, text, digest)
        SELECT begun.tree_no, g.name, begun.leaf, 1, g.text, g.digest
        FROM begun CROSS JOIN ({states}) AS g (name, text, digest)
    )"""
_COUNTED = """, counted AS (
        INSERT INTO {{p}}used (session_no, usage_id, model, input_tokens, output_tokens, cost, at)
        SELECT begun.session_no, ${}::text, ${}::text, $7::bigint, $8::bigint, $9::float8, $6::bigint FROM begun
    )"""


class _Shape(NamedTuple):
    """What an append has besides its messages."""

    fenced: bool
    named: bool
    """Whether it has usage that is counted under a name."""
    states: int


class PostgresNewSessions:
    """Begins sessions on a connection of asyncpg's."""

    def __init__(self, dialect: Postgres) -> None:
        self._encode = dialect.encode_text
        self._named = dialect.named
        self._text = lru_cache(maxsize=64)(self._make)

    async def begin(self, connection: Any, command: Append, fence: Fence | None, at: int) -> Placed | None:
        """Append to a session that is not there; `None`, with nothing written, if it is or the fence does not hold."""
        drafts, encode, usage = command.drafts, self._encode, command.usage
        states = first_states(command)
        named = usage is not None and usage.usage_id is not None
        rows = await connection.fetch(
            self._text(_Shape(fence is not None, named, len(states))),
            *map(encode, scope_ids(command.scope)),
            len(drafts),
            command.tokens,
            at,
            *((0, 0, 0.0) if usage is None else usage[:3]),
            [encode(draft.message.id) for draft in drafts],
            [encode(draft.message.role) for draft in drafts],
            [draft.tokens for draft in drafts],
            [draft.message.at for draft in drafts],
            [encode(draft.body.decode()) for draft in drafts],
            *(() if fence is None else (fence.token,)),
            *values_of(states, encode),
            *(
                (None if one is None else encode(one) for one in (usage.usage_id, usage.model))
                if usage and named
                else ()
            ),
        )
        return first_placed(command, states, *rows[0]) if rows else None

    def _make(self, shape: _Shape) -> str:
        numbers = count(15)
        lease, and_held = held("$2", "$3", f"${next(numbers)}") if shape.fenced else ("", "")
        extras = _KEPT.replace("{states}", rows_of(shape.states, numbers)) if shape.states else ""
        if shape.named:
            extras += _COUNTED.format(next(numbers), next(numbers))
        text = _BEGIN.replace("{held}", lease).replace("{and_held}", and_held).replace("{extras}", extras)
        return self._named(text)
