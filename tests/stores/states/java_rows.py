"""The other side of a table of states: AgentScope for Java, by its own statements."""

from __future__ import annotations

from typing import Any

from tests.stores.both_servers import Kind
from tests.stores.states.test_servers import JAVAS_TABLE

_IN_POSTGRES = {
    "LONGTEXT": "TEXT",
    "DATETIME": "TIMESTAMP",
    " ON UPDATE CURRENT_TIMESTAMP": "",
    " DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci": "",
}
_SAVE_OVER = {
    "mysql": "ON DUPLICATE KEY UPDATE state_data = VALUES(state_data)",
    "postgres": "ON CONFLICT (session_id, state_key, item_index) DO UPDATE SET state_data = EXCLUDED.state_data, "
    "updated_at = EXCLUDED.updated_at",
}

RELEASED, NEXT = "2.0.2", "2.0.3"
"""The last Java that does not count versions, and the first that does."""


class Java:
    """Writes and reads one table as a version of AgentScope does; 1.x does what 2.0.2 does, in slots of other names."""

    def __init__(self, kind: Kind, url: str, table: str, version: str) -> None:
        self._kind = kind
        self._url = url
        self._table = table
        self._counts = version == NEXT

    async def make_table(self) -> None:
        statement = JAVAS_TABLE.format(self._table)
        if self._counts:
            statement = statement.replace("created_at", "version BIGINT NOT NULL DEFAULT 0, created_at")
        if self._kind.name == "mysql":
            await self._ask(statement)
            return
        for name, spelling in _IN_POSTGRES.items():
            statement = statement.replace(name, spelling)
        await self._ask("CREATE SCHEMA IF NOT EXISTS agentscope", statement)

    async def save(self, slot: str, key: str, text: str) -> None:
        columns, values, over = "", "", _SAVE_OVER[self._kind.name]
        if self._counts:
            columns, values = ", version", ", 1"
            counted = "version" if self._kind.name == "mysql" else f"{self._table}.version"
            over += f", version = {counted} + 1"
        await self._ask(
            f"INSERT INTO {self._table} (session_id, state_key, item_index, state_data{columns}, updated_at) "
            f"VALUES ('{slot}', '{key}', 0, '{text}'{values}, CURRENT_TIMESTAMP) {over}"
        )

    async def save_list(self, slot: str, key: str, *texts: str) -> None:
        """Write a list whose hash it does not recognise."""
        into = f"INSERT INTO {self._table} (session_id, state_key, item_index, state_data) VALUES"
        hashed = f"{into} ('{slot}', '{key}:_hash', 0, '76dead55')"
        if self._kind.name == "postgres":
            hashed = hashed.replace("state_data)", "state_data, updated_at)").replace("55')", "55', CURRENT_TIMESTAMP)")
        await self._ask(
            f"DELETE FROM {self._table} WHERE session_id = '{slot}' AND state_key = '{key}'",
            *(f"{into} ('{slot}', '{key}', {index}, '{text}')" for index, text in enumerate(texts)),
            f"{hashed} {_SAVE_OVER[self._kind.name]}",
        )

    async def save_if_version(self, slot: str, key: str, text: str, expected: int) -> None:
        here = f"session_id = '{slot}' AND state_key = '{key}' AND item_index = 0"
        await self._ask(
            f"UPDATE {self._table} SET state_data = '{text}', version = {expected + 1} "
            f"WHERE {here} AND version = {expected}"
        )

    async def get(self, slot: str, key: str) -> tuple[Any, ...] | None:
        """Return a text, with its version where there are any."""
        columns = "state_data, version" if self._counts else "state_data"
        here = f"session_id = '{slot}' AND state_key = '{key}' AND item_index = 0"
        rows = await self._ask(f"SELECT {columns} FROM {self._table} WHERE {here}")
        return rows[0] if rows else None

    async def columns(self) -> set[str]:
        """Return the names of the table's columns."""
        named = f"table_name = '{self._table.removeprefix('agentscope.')}'"
        return {
            name for (name,) in await self._ask(f"SELECT column_name FROM information_schema.columns WHERE {named}")
        }

    async def _ask(self, *statements: str) -> list[tuple[Any, ...]]:
        return await self._kind.ask(self._url, *statements)
