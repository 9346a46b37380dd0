"""`EntryIndex` on SQL."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.ids import Scope
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.core.skills import Reclaimed
from leafward.stores.entries import BLOCK, Edit, Entry, Prompt, Shelf
from leafward.stores.sql import entries
from leafward.stores.sql.running import Runner


class SqlEntries:
    """Runs each call as one operation."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    async def get(self, shelf: Shelf, key: str = BLOCK) -> Entry | None:
        return await self._runner.read(entries.get(shelf, key))

    async def edit(
        self, shelf: Shelf, key: str, change: Edit, *, description: str | None = None, searchable: bool = False
    ) -> str | None:
        return await self._runner.write(shelf.scope, lambda: entries.edit(shelf, key, change, description, searchable))

    async def count(self, shelf: Shelf) -> int:
        return await self._runner.read(entries.count(shelf))

    async def search(self, shelf: Shelf, query: Query, *, limit: int) -> list[SearchResult]:
        return await self._runner.read(entries.search(shelf, query, limit))

    async def skills(self, scope: Scope) -> list[tuple[str, str]]:
        return await self._runner.read(entries.skills(scope))

    async def load_skill(self, scope: Scope, label: str, key: str) -> None:
        await self._runner.write(scope, lambda: entries.load_skill(scope, label, key))

    async def unload_skill(self, scope: Scope, label: str, key: str, reclaimed: Sequence[Reclaimed]) -> bool:
        return await self._runner.write(scope, lambda: entries.unload_skill(scope, label, key, reclaimed))

    async def prompt(self, scope: Scope) -> Prompt | None:
        return await self._runner.read(entries.prompt(scope))

    async def keep_prompt(self, scope: Scope, prompt: Prompt, *, replace: bool) -> Prompt:
        return await self._runner.write(scope, lambda: entries.keep_prompt(scope, prompt, replace))
