"""`EntryIndex` on SQL."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.ids import Scope
from leafward.core.notices import Reclaimed
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.stores.entries import BLOCK, Edit, Entry, Prompt, Shelf
from leafward.stores.leases import Fence
from leafward.stores.sql import commands, entries
from leafward.stores.sql.running import Runner


class SqlEntries:
    """Runs each call as one operation."""

    def __init__(self, runner: Runner, fence: Fence | None = None) -> None:
        self._runner = runner
        self._fence = fence

    async def get(self, shelf: Shelf, key: str = BLOCK) -> Entry | None:
        return await self._runner.read(shelf.scope, lambda: entries.get(shelf, key))

    async def edit(
        self, shelf: Shelf, key: str, change: Edit, *, description: str | None = None, searchable: bool = False
    ) -> str | None:
        command = commands.EditEntry(shelf, key, change, description, searchable)
        return await self._runner.write(command, self._fence)

    async def count(self, shelf: Shelf) -> int:
        return await self._runner.read(shelf.scope, lambda: entries.count(shelf))

    async def list_entries(self, shelf: Shelf) -> list[Entry]:
        return await self._runner.read(shelf.scope, lambda: entries.list_entries(shelf))

    async def search(self, shelf: Shelf, query: Query, *, limit: int) -> list[SearchResult]:
        return await self._runner.read(shelf.scope, lambda: entries.search(shelf, query, limit))

    async def skills(self, scope: Scope) -> list[tuple[str, str]]:
        return await self._runner.read(scope, lambda: entries.skills(scope))

    async def load_skill(self, scope: Scope, label: str, key: str) -> None:
        await self._runner.write(commands.LoadSkill(scope, label, key), self._fence)

    async def unload_skill(self, scope: Scope, label: str, key: str, reclaimed: Sequence[Reclaimed]) -> bool:
        return await self._runner.write(commands.UnloadSkill(scope, label, key, reclaimed), self._fence)

    async def prompt(self, scope: Scope) -> Prompt | None:
        return await self._runner.read(scope, lambda: entries.prompt(scope))

    async def keep_prompt(self, scope: Scope, prompt: Prompt, *, replace: bool) -> Prompt:
        return await self._runner.write(commands.KeepPrompt(scope, prompt, replace), self._fence)
