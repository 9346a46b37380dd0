"""Leases as single statements for PostgreSQL."""

from __future__ import annotations

from typing import Any

from leafward.stores.leases import LOST, Renewed, Slot
from leafward.stores.servers.quick_leases import QuickLeases, micros
from leafward.stores.sql.dialect import Postgres
from leafward.stores.sql.leases import slot_ids

_NOW = f"({Postgres.clock})"

# Whether others wait is seen as of when the statement began: one who queued up later asked later. The row itself is
# held before it is looked at.
_TAKE = f"""
    INSERT INTO {{p}}lease AS l (user_id, session_id, token, holder, expires_at, label, since)
    SELECT $1::text, $2::text, clock.now, $3::text, clock.now + $4::bigint, $5::text, clock.now
    FROM (SELECT {_NOW} AS now) clock
    WHERE NOT EXISTS (SELECT 1 FROM {{p}}ticket t WHERE t.user_id = $1 AND t.session_id = $2)
    ON CONFLICT (user_id, session_id) DO UPDATE SET
        token = GREATEST(l.token + 1, excluded.token), holder = excluded.holder, expires_at = excluded.expires_at,
        label = excluded.label, since = excluded.since
    WHERE l.holder IS NULL OR l.expires_at <= excluded.since
    RETURNING token"""

_RENEW = f"""
    UPDATE {{p}}lease l SET expires_at = {_NOW} + $4::bigint
    WHERE l.user_id = $1 AND l.session_id = $2 AND l.holder = $3
    RETURNING EXISTS (
        SELECT 1 FROM {{p}}sent s WHERE s.user_id = l.user_id AND s.session_id = l.session_id
            AND (s.label IS NULL OR s.label = l.label))"""

_LEAVE = """
    WITH ended AS (
        UPDATE {p}lease SET holder = NULL, expires_at = 0, label = NULL
        WHERE user_id = $1 AND session_id = $2 AND holder = $3
    )
    DELETE FROM {p}ticket WHERE user_id = $1 AND session_id = $2 AND holder = $3"""


class PostgresLeases(QuickLeases):
    """Leases on a connection of asyncpg's."""

    def __init__(self, dialect: Postgres) -> None:
        self._encode = dialect.encode
        self._take, self._renew, self._leave = map(dialect.named, (_TAKE, _RENEW, _LEAVE))

    async def take(self, connection: Any, slot: Slot, holder: str, ttl: float, label: str | None) -> int | None:
        values = self._encode((*slot_ids(slot), holder, micros(ttl), label))
        rows = await connection.fetch(self._take, *values)
        return rows[0][0] if rows else None

    async def renew(self, connection: Any, slot: Slot, holder: str, ttl: float) -> Renewed:
        rows = await connection.fetch(self._renew, *self._encode((*slot_ids(slot), holder, micros(ttl))))
        return Renewed(held=True, waiting=rows[0][0]) if rows else LOST

    async def leave(self, connection: Any, slot: Slot, holder: str) -> None:
        await connection.fetch(self._leave, *self._encode((*slot_ids(slot), holder)))
