"""The list of sessions, as the server keeps it beside the journals."""

from __future__ import annotations

import re

import msgspec

from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.stores.guard import Guard
from leafward.stores.registry import Page
from leafward.stores.replicated.journals import Listing, Server
from leafward.stores.sql.running import Serving
from leafward.stores.sql.sessions import SqlRegistry
from leafward.stores.states.table import StateTable

_CURSOR = re.compile(r"([0-9]{16})\.(.+)", re.ASCII)
_decode = msgspec.json.Decoder(SessionInfo).decode


class ReplicatedRegistry(SqlRegistry):
    """Reads the list without reading the sessions; all else is done as everywhere."""

    def __init__(self, runner: Serving, server: Server, states: StateTable, guard: Guard) -> None:
        super().__init__(runner, states)
        self._server = server
        self._guard = guard

    async def get(self, scope: Scope) -> SessionInfo | None:
        self._guard.check()
        found = await self._server.session(scope)
        return None if found is None else _decode(found.info)

    async def list(self, owner: Owner, *, limit: int | None, cursor: str | None) -> Page[SessionInfo]:
        self._guard.check()
        after = None if cursor is None else _read_cursor(cursor)
        page: Page[SessionInfo] = Page()
        if limit == 0:
            page.next_cursor = cursor
            return page
        rows = await self._server.sessions(owner, None if limit is None else limit + 1, after)
        page.extend(_decode(row.info) for row in rows[:limit])
        if limit is not None and len(rows) > limit:
            page.next_cursor = f"{rows[limit - 1].updated_at:016d}.{rows[limit - 1].session_id}"
        return page

    async def count(self, owner: Owner) -> int:
        self._guard.check()
        return await self._server.count(owner)


def _read_cursor(cursor: object) -> Listing:
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise ValueError(f"{cursor!r} is not the next_cursor of an earlier page")
    return Listing(int(found[1]), found[2], b"")


def parents(rows: list[Listing]) -> list[object]:
    """Return each session that was made from another which is still there, and that other."""
    infos = [_decode(row.info) for row in rows]
    there = {info.id for info in infos}
    return [(info.id, info.parent_session_id) for info in infos if info.parent_session_id in there]
