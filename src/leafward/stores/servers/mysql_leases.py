"""Leases as packets for MySQL: the statements of one transaction, sent together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from leafward.stores.leases import LOST, Renewed, Slot
from leafward.stores.servers.mysql_packets import Answer, Packet
from leafward.stores.servers.quick_leases import QuickLeases, micros
from leafward.stores.sql.dialect import MySQL
from leafward.stores.sql.leases import slot_ids

_SLOT = "user_id = %s AND session_id = %s"
_NOW = f"SET @now = ({MySQL.clock});"

# The row is held first, whether it is new or not: who queues up holds it too, so that all who did are seen here.
_TAKE = f"""{_NOW}
    INSERT INTO {{p}}lease (user_id, session_id, token, holder, expires_at) VALUES (%s, %s, 0, NULL, 0)
    ON DUPLICATE KEY UPDATE token = token;
    UPDATE {{p}}lease
    SET token = GREATEST(token + 1, @now), holder = %s, expires_at = @now + %s, label = %s, since = @now
    WHERE {_SLOT} AND (holder IS NULL OR expires_at <= @now)
        AND NOT EXISTS (SELECT 1 FROM {{p}}ticket t WHERE t.user_id = %s AND t.session_id = %s);
    SELECT token FROM {{p}}lease WHERE {_SLOT} AND holder = %s;"""

_RENEW = f"""{_NOW}
    UPDATE {{p}}lease SET expires_at = @now + %s WHERE {_SLOT} AND holder = %s;
    SELECT EXISTS (
        SELECT 1 FROM {{p}}sent s WHERE s.user_id = l.user_id AND s.session_id = l.session_id
            AND (s.label IS NULL OR s.label = l.label))
    FROM {{p}}lease l WHERE l.user_id = %s AND l.session_id = %s AND l.holder = %s;"""

_LEAVE = f"""
    UPDATE {{p}}lease SET holder = NULL, expires_at = 0, label = NULL WHERE {_SLOT} AND holder = %s;
    DELETE FROM {{p}}ticket WHERE {_SLOT} AND holder = %s;"""


class MysqlLeases(QuickLeases):
    """Leases by what runs a packet as one transaction."""

    def __init__(self, transact: Callable[[Any, Packet], Awaitable[list[Answer]]]) -> None:
        self._transact = transact

    async def take(self, connection: Any, slot: Slot, holder: str, ttl: float, label: str | None) -> int | None:
        ids = slot_ids(slot)
        values = (*ids, holder, micros(ttl), label, *ids, *ids, *ids, holder)
        rows = (await self._transact(connection, Packet(_TAKE, values)))[-1].rows
        return rows[0][0] if rows else None

    async def renew(self, connection: Any, slot: Slot, holder: str, ttl: float) -> Renewed:
        own = (*slot_ids(slot), holder)
        rows = (await self._transact(connection, Packet(_RENEW, (micros(ttl), *own, *own))))[-1].rows
        return Renewed(held=True, waiting=bool(rows[0][0])) if rows else LOST

    async def leave(self, connection: Any, slot: Slot, holder: str) -> None:
        await self._transact(connection, Packet(_LEAVE, (*slot_ids(slot), holder) * 2))
