"""Appends as single statements for PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leafward.stores.contracts import Weight
from leafward.stores.leases import Fence
from leafward.stores.servers.server import Placed, Planned, Position
from leafward.stores.sql.commands import Append
from leafward.stores.sql.dialect import Postgres
from leafward.stores.sql.operations import scope_ids

_HELD = """
    SELECT 1 FROM {p}lease
    WHERE user_id = {user} AND session_id = {session} AND token = {number} AND holder IS NOT NULL FOR SHARE"""
_PROMPT = "(SELECT tokens FROM {p}prompt p WHERE p.session_no = moved.session_no)"
_DRAFTS = "unnest($7::text[], $8::text[], $9::bigint[], $10::bigint[], $11::text[])"

# Everything is decided on the session as this statement first saw it: when another writer came between, the row it
# moved is not the row that was seen, and nothing is written.
_FIND = f"""
    WITH {{held}}seen AS (
        SELECT s.session_no, s.tree_no, s.version, s.leaf FROM {{p}}session s
        WHERE s.owner_no = (SELECT owner_no FROM {{p}}owner WHERE agent_id = $1 AND user_id = $2) AND s.session_id = $3
    ), moved AS (
        UPDATE {{p}}session s SET leaf = s.leaf + $4::bigint, version = s.version + 1,
            window_tokens = s.window_tokens + $5::bigint, updated_at = $6
        FROM seen JOIN {{p}}lane l ON l.lane_no = seen.leaf >> 32
        WHERE s.session_no = seen.session_no AND s.version = seen.version AND s.tree_no = seen.tree_no
            AND l.floor <= seen.leaf + 1 AND (s.window_tokens IS NOT NULL OR NOT $12::boolean)
            AND NOT EXISTS (SELECT 1 FROM {{p}}message m WHERE m.place > seen.leaf AND m.place < (l.lane_no + 1) << 32)
            AND NOT EXISTS (SELECT 1 FROM {{p}}message m WHERE m.tree_no = seen.tree_no AND m.id = ANY($7::text[]))
            {{and_held}}
        RETURNING s.session_no, s.tree_no, s.version, s.leaf, s.window_tokens
    ), added AS (
        INSERT INTO {{p}}message (place, tree_no, seq, id, role, tokens, created_at, body)
        SELECT moved.leaf - $4::bigint + d.n, moved.tree_no, moved.version, d.id, d.role, d.tokens, d.created_at, d.body
        FROM moved CROSS JOIN {_DRAFTS} WITH ORDINALITY AS d (id, role, tokens, created_at, body, n)
    )
    SELECT moved.session_no, moved.tree_no, moved.version, moved.leaf, moved.window_tokens,
        CASE WHEN $12 THEN {_PROMPT} END
    FROM moved"""

# Nothing that matters here happens to a session without moving its version; an id that is known violates its key.
_ONE = f"""
    WITH {{held}}moved AS (
        UPDATE {{p}}session s SET leaf = $4, version = s.version + 1,
            window_tokens = s.window_tokens + $5, updated_at = $6
        WHERE s.session_no = $1 AND s.tree_no = $2 AND s.version = $3 AND s.leaf = $4::bigint - 1
            AND (s.window_tokens IS NOT NULL OR NOT $7::boolean) {{and_held}}
        RETURNING s.session_no, s.window_tokens
    ), added AS (
        INSERT INTO {{p}}message (place, tree_no, seq, id, role, tokens, created_at, body)
        SELECT $4, $2, $3 + 1, $8, $9, $5, $10, $11 FROM moved
    )
    SELECT moved.window_tokens, CASE WHEN $7 THEN {_PROMPT} END FROM moved"""

# A session that somebody else is writing to is left alone: two that wait for each other's would never end.
_MANY = f"""
    WITH given AS (
        SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::boolean[], $8::text[], $9::text[], $10::bigint[])
            AS g (session_no, tree_no, version, leaf, messages, tokens, weigh, user_id, session_id, token)
    ), held AS (
        SELECT l.user_id, l.session_id, l.token FROM given g
        JOIN {{p}}lease l ON l.user_id = g.user_id AND l.session_id = g.session_id AND l.token = g.token
        WHERE l.holder IS NOT NULL FOR SHARE OF l
    ), free AS (
        SELECT s.session_no FROM given g JOIN {{p}}session s ON s.session_no = g.session_no
        WHERE s.version = g.version FOR UPDATE OF s SKIP LOCKED
    ), moved AS (
        UPDATE {{p}}session s SET leaf = s.leaf + g.messages, version = s.version + 1,
            window_tokens = s.window_tokens + g.tokens, updated_at = $11
        FROM given g JOIN free ON free.session_no = g.session_no
        WHERE s.session_no = g.session_no AND s.tree_no = g.tree_no AND s.version = g.version AND s.leaf = g.leaf
            AND (s.window_tokens IS NOT NULL OR NOT g.weigh)
            AND (g.token IS NULL OR EXISTS (
                SELECT 1 FROM held
                WHERE held.user_id = g.user_id AND held.session_id = g.session_id AND held.token = g.token))
        RETURNING s.session_no, s.tree_no, s.version, s.window_tokens, g.weigh
    ), added AS (
        INSERT INTO {{p}}message (place, tree_no, seq, id, role, tokens, created_at, body)
        SELECT d.place, moved.tree_no, moved.version, d.id, d.role, d.tokens, d.created_at, d.body
        FROM unnest($12::bigint[], $13::bigint[], $14::bigint[], $15::text[], $16::text[], $17::bigint[], $18::bigint[],
            $19::text[]) AS d (session_no, version, place, id, role, tokens, created_at, body)
        JOIN moved ON moved.session_no = d.session_no AND moved.version = d.version
    )
    SELECT moved.session_no, moved.version, moved.window_tokens, CASE WHEN moved.weigh THEN {_PROMPT} END FROM moved"""


class PostgresAppending:
    """Appends on a connection of asyncpg's."""

    def __init__(self, dialect: Postgres) -> None:
        self._encode = dialect.encode_text
        self._find = _both(dialect.named, _FIND, user="$2", session="$3", number="$13")
        self._one = _both(dialect.named, _ONE, user="$12", session="$13", number="$14")
        self._many = dialect.named(_MANY)

    async def find(self, connection: Any, command: Append, fence: Fence | None, at: int) -> Placed | None:
        """Append below the leaf of a session, wherever that is."""
        drafts, encode = command.drafts, self._encode
        rows = await connection.fetch(
            self._find[fence is not None],
            *map(encode, scope_ids(command.scope)),
            len(drafts),
            command.tokens,
            at,
            [encode(draft.message.id) for draft in drafts],
            [encode(draft.message.role) for draft in drafts],
            [draft.tokens for draft in drafts],
            [draft.message.at for draft in drafts],
            [encode(draft.body.decode()) for draft in drafts],
            command.weigh,
            *(() if fence is None else (fence.token,)),
        )
        return Placed(Position(*rows[0][:4]), _weight(command, rows[0][4:])) if rows else None

    async def at(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        """Append below leaves that are known."""
        if len(planned) == 1 and len(planned[0].command.drafts) == 1:
            return [await self._at_one(connection, planned[0], at)]
        return await self._at_many(connection, planned, at)

    async def _at_one(self, connection: Any, planned: Planned, at: int) -> Placed | None:
        (session_no, tree_no, version, leaf), command, fence = planned
        message, body, tokens = command.drafts[0]
        encode = self._encode
        held = () if fence is None else (*map(encode, scope_ids(command.scope)[1:]), fence.token)
        rows = await connection.fetch(
            self._one[fence is not None],
            *(session_no, tree_no, version, leaf + 1, tokens, at, command.weigh),
            *(encode(message.id), encode(message.role), message.at, encode(body.decode())),
            *held,
        )
        return planned.placed(_weight(command, rows[0])) if rows else None

    async def _at_many(self, connection: Any, planned: Sequence[Planned], at: int) -> list[Placed | None]:
        sessions = [self._session(one) for one in planned]
        messages = [
            (
                *(one.position.session_no, one.position.version + 1, one.position.leaf + number),
                *(self._encode(draft.message.id), self._encode(draft.message.role)),
                *(draft.tokens, draft.message.at, self._encode(draft.body.decode())),
            )
            for one in planned
            for number, draft in enumerate(one.command.drafts, 1)
        ]
        rows = await connection.fetch(
            self._many, *map(list, zip(*sessions, strict=True)), at, *map(list, zip(*messages, strict=True))
        )
        moved = {(session_no, version): weight for session_no, version, *weight in rows}
        found: list[Placed | None] = []
        for one in planned:
            weight = moved.get((one.position.session_no, one.position.version + 1))
            found.append(None if weight is None else one.placed(_weight(one.command, weight)))
        return found

    def _session(self, planned: Planned) -> tuple[Any, ...]:
        position, command, fence = planned
        held = (None,) * 3 if fence is None else (*map(self._encode, scope_ids(command.scope)[1:]), fence.token)
        return *position, len(command.drafts), command.tokens, command.weigh, *held


def _both(named: Callable[[str], str], statement: str, **held: str) -> tuple[str, str]:
    """Return a statement for handles without a lease, and for those behind one."""
    lease = _HELD
    for name, parameter in held.items():
        lease = lease.replace(f"{{{name}}}", parameter)
    plain = statement.replace("{held}", "").replace("{and_held}", "")
    fenced = statement.replace("{held}", f"held AS ({lease}), ").replace(
        "{and_held}", "AND EXISTS (SELECT 1 FROM held)"
    )
    return named(plain), named(fenced)


def _weight(command: Append, row: Sequence[Any]) -> Weight | None:
    return Weight(*row) if command.weigh else None
