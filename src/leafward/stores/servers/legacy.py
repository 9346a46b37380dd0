"""What AgentScope left in tables of a MySQL: in rows of 1.x, and in the table of before 1.0.5, which had their name."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.stores.guard import Guard
from leafward.stores.leases import Slot
from leafward.stores.servers.mysql import connected
from leafward.stores.servers.running import ServerRunner
from leafward.stores.servers.server import Server
from leafward.stores.servers.setup import DEFAULT_PREFIX
from leafward.stores.servers.states import NEEDED, OLD
from leafward.stores.sql.dialect import STATES
from leafward.stores.states.older import Place, Remark, Text, Texts
from leafward.stores.states.row_names import ANONYMOUS, HASH, IDS, plain_name, read_ids, read_key
from leafward.stores.states.table import OF_SANDBOXES

PAGE = 1000
BACKUP = "_backup"
"""What is added to the name of a table of before 1.0.5, to make way for the one of today."""

_COLUMNS = """
    SELECT table_name, column_name FROM information_schema.columns
    WHERE table_schema = DATABASE() AND table_name IN (?, ?)"""
_RENAME = "RENAME TABLE `{table}` TO `{other}`"
_COUNT = "SELECT COUNT(DISTINCT session_id) FROM `{table}`"
_IDS = "SELECT DISTINCT session_id FROM `{table}`{after} ORDER BY session_id LIMIT " + str(PAGE)
_AFTER = " WHERE session_id > ?"
# A table may take one id for another: here each spelling is one.
_SPELLINGS = "SELECT DISTINCT HEX(session_id), session_id FROM `{table}` WHERE session_id BETWEEN ? AND ?"
_ROWS = "SELECT session_id, state_key, state_data FROM `{table}` WHERE session_id = ? ORDER BY state_key, item_index"
# Those with a colon that hold nothing which only 2.x has.
_OF_TWO_KINDS = """
    SELECT session_id FROM `{table}` WHERE session_id LIKE ? AND session_id NOT LIKE ?
    GROUP BY session_id HAVING SUM(state_key IN (?, ?)) = 0 ORDER BY session_id"""
_FOR_TWO_KINDS = ("%:%", f"{ANONYMOUS}:%".replace("_", r"\_"), "agent_state", OF_SANDBOXES)
_DOCUMENT = "SELECT session_id, state_data FROM `{table}` WHERE session_id = ?"


async def open_older_rows(url: str, *, rename: bool, needed: bool = True, table: str = STATES.table) -> OlderRows:
    """Connect to a server, and with `rename` make way for the table of today.

    Raises:
        ConfigurationError: AgentScope has no table there, and one is `needed`, or the other name is taken.
    """
    async with connected(url, DEFAULT_PREFIX, STATES._replace(table=table)) as server:
        older = OlderRows(server, table)
        try:
            await older.look(rename=rename, needed=needed)
        except BaseException:
            await older.stop()
            raise
        return older


class OlderRows:
    """The sessions in a table, and in its backup."""

    def __init__(self, server: Server, table: str) -> None:
        self._server = server
        self._guard = Guard(f"the tables on {server.where}")
        self._runner = ServerRunner(server, self._guard, tidies=False)
        self._table = table
        self.has_rows = False
        """Whether there is a table of 1.x or of today."""
        self._old: str | None = None
        """The table of before 1.0.5."""
        self.renamed: str | None = None

    async def look(self, *, rename: bool, needed: bool) -> None:
        """Find out which tables there are."""
        await self._runner.use(lambda connection: self._look(connection, rename))
        if needed and not self.has_rows and self._old is None:
            raise ConfigurationError(f"there is no table {self._table} on {self._server.where}: name another database")

    async def _look(self, connection: Any, rename: bool) -> None:
        table, backup = self._table, self._table + BACKUP
        shapes: dict[str, set[str]] = {}
        for name, column in await self._server.execute(connection, _COLUMNS, (table, backup), writing=False):
            shapes.setdefault(name.lower(), set()).add(column.lower())
        where = self._server.where
        self.has_rows = _is_new(shapes.get(table))
        if _is_old(shapes.get(table)):
            if backup in shapes:
                raise ConfigurationError(
                    f"both {table}, of AgentScope 1.0.4 or earlier, and {backup} are on {where}: "
                    "rename the one that is not to be moved"
                )
            self.renamed, self._old = backup, table
            if rename:
                text = _RENAME.format(table=table, other=backup)
                await self._server.execute(connection, text, (), writing=True)
                self._old = backup
        elif table in shapes and not self.has_rows:
            raise ConfigurationError(f"the table {table} on {where} is not AgentScope's: nothing was touched")
        elif _is_old(shapes.get(backup)):
            self._old = backup

    async def _ask(self, statement: str, table: str, *parameters: str) -> list[Any]:
        text = statement.replace("{table}", table)
        return await self._runner.use(lambda one: self._server.execute(one, text, parameters, writing=False))

    async def count(self) -> int:
        tables = [*([self._table] if self.has_rows else []), *([self._old] if self._old else [])]
        return sum([(await self._ask(_COUNT, table))[0][0] for table in tables])

    async def places(self) -> AsyncIterator[Place]:
        if self.has_rows:
            async for page in self._pages(self._table):
                for _, name in sorted(await self._ask(_SPELLINGS, self._table, page[0], page[-1])):
                    # With a colon it is the slot of a user, in 2.x.
                    if ":" not in name:
                        yield Place(self._shown(name, self._table), name)

    async def documents(self) -> AsyncIterator[Place]:
        if self._old is not None:
            async for page in self._pages(self._old):
                for name in page:
                    yield Place(self._shown(name, self._old), name)

    async def _pages(self, table: str) -> AsyncIterator[list[str]]:
        page = await self._ask(_IDS.replace("{after}", ""), table)
        while page:
            yield [name for (name,) in page]
            page = await self._ask(_IDS.replace("{after}", _AFTER), table, page[-1][0])

    def _shown(self, name: str, table: str) -> str:
        return f"row {name!r} of {table} on {self._server.where}"

    async def read(self, place: Place) -> tuple[Slot, Texts]:
        rows = await self._rows(place.at)
        slot = Slot(None, place.at)
        if plain_name(slot, "1.x") is None:
            kept = [str(data) for key, data in rows if key == IDS]
            # AgentScope takes any name for a session.
            slot = read_ids(kept[0] if kept else place.at) or slot
        return slot, _texts(slot, rows)

    async def _rows(self, name: str) -> list[tuple[str, Text]]:
        rows = await self._ask(_ROWS, self._table, name)
        return [(key, data) for spelled, key, data in rows if spelled == name]

    async def document(self, session_id: str) -> Text | None:
        rows = [] if self._old is None else await self._ask(_DOCUMENT, self._old, session_id)
        return next((data for spelled, data in rows if spelled == session_id), None)

    async def stop(self) -> None:
        """Wait for what was begun."""
        self._guard.closed = True
        await self._runner.close()

    async def left_out(self) -> list[Remark]:
        if not self.has_rows:
            return []
        names = [name for (name,) in await self._ask(_OF_TWO_KINDS, self._table, *_FOR_TWO_KINDS) if ":" in name]
        return [Remark(self._shown(name, self._table), _may_be_of_2x(name)) for name in names]

    async def of_2x(self) -> int:
        """Return how many sessions are of 2.x for certain."""
        if not self.has_rows:
            return 0
        [(all_of_them,)] = await self._ask(_COUNT + " WHERE session_id LIKE ?", self._table, "%:%")
        return all_of_them - len(await self.left_out())

    async def unclear(self) -> list[Remark]:
        return []

    async def close(self) -> None:
        await self.stop()
        await self._server.close()


def _may_be_of_2x(name: str) -> str:
    user, _, session = name.partition(":")
    return f"it may be session {session!r} of user {user!r} in 2.x, and is not moved"


def _is_new(columns: set[str] | None) -> bool:
    return columns is not None and columns >= NEEDED


def _is_old(columns: set[str] | None) -> bool:
    return columns is not None and columns >= OLD and not _is_new(columns)


def _texts(slot: Slot, rows: list[tuple[str, Text]]) -> Texts:
    lists = {key.removesuffix(HASH) for key, _ in rows if key.endswith(HASH) and key != IDS}
    found: dict[str, list[Text]] = {key: [] for key in lists}
    for key, data in rows:
        if not key.endswith(HASH):
            found.setdefault(key, []).append(data)
    texts: Texts = {}
    for key, items in found.items():
        name = read_key(key)
        if name is None:
            raise StateDecodeError(*slot, None, f"the name of a state is too long to be kept: {key}")
        texts[name] = items if key in lists or len(items) > 1 else items[0]
    return texts
