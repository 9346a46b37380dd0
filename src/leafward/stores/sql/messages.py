"""`MessageStore` on SQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leafward.core.attached_state import AttachedState
from leafward.core.ids import Owner, Scope, new_id
from leafward.core.message import Message
from leafward.core.notices import Reclaimed
from leafward.core.overlays import Compaction
from leafward.core.parent import ParentId
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.core.tree import Outline
from leafward.stores.contracts import (
    Appended,
    Changes,
    Cursor,
    Head,
    NewOverlay,
    PathPage,
    Revision,
    SearchFilter,
    Unchanged,
    Usage,
    View,
    Weight,
    check_usage,
)
from leafward.stores.drafts import Draft
from leafward.stores.leases import Fence
from leafward.stores.sql import commands, overlays, points, reads
from leafward.stores.sql.running import Runner


class SqlMessages:
    """Runs each call as one operation."""

    def __init__(self, runner: Runner, fence: Fence | None = None, unfenced: SqlMessages | None = None) -> None:
        self._runner = runner
        self._fence = fence
        self._unfenced = unfenced

    @property
    def kept(self) -> SqlMessages:
        """The messages that these are a view of: one compaction at a time goes for all views."""
        return self._unfenced or self

    async def append(
        self,
        scope: Scope,
        drafts: Sequence[Draft],
        parent: ParentId,
        *,
        weigh: bool = False,
        state: Sequence[AttachedState] = (),
        usage: Usage | None = None,
        expected_version: int | None = None,
    ) -> Appended:
        if usage is not None:
            usage = check_usage(usage)
            if usage.model is not None and usage.usage_id is None and not drafts:
                # Only usage with a name is kept by itself, with its model.
                usage = usage._replace(usage_id=new_id())
        command = commands.Append(scope, drafts, parent, weigh, state, usage, expected_version)
        return await self._runner.write(command, self._fence)

    async def head(self, scope: Scope, names: Sequence[str], *, ids: Sequence[str] = ()) -> Head:
        return await self._runner.read(scope, points.HeadOf(scope, names, ids))

    async def states(
        self, scope: Scope, leaf_id: str | None, names: Sequence[str] | None = None
    ) -> dict[str, dict[str, Any]]:
        return await self._runner.read(scope, points.StatesOf(scope, leaf_id, names))

    async def update(self, scope: Scope, draft: Draft) -> Message:
        return await self._runner.write(commands.Update(scope, draft), self._fence)

    async def upsert(self, scope: Scope, draft: Draft, parent: ParentId, *, weigh: bool = False) -> Appended:
        return await self._runner.write(commands.Upsert(scope, draft, parent, weigh), self._fence)

    async def delete(self, scope: Scope, message_ids: Sequence[str]) -> int:
        return await self._runner.write(commands.Delete(scope, message_ids), self._fence)

    async def clear(self, scope: Scope) -> None:
        await self._runner.write(commands.Clear(scope), self._fence)

    async def checkout(self, scope: Scope, message_id: str | None, *, tip: bool = False) -> None:
        await self._runner.write(commands.Checkout(scope, message_id, tip), self._fence)

    async def label(self, scope: Scope, message_id: str, name: str | None) -> None:
        await self._runner.write(commands.Label(scope, message_id, name), self._fence)

    async def add_overlay(
        self, scope: Scope, overlay: NewOverlay, *, unchanged: Unchanged | None = None
    ) -> Compaction | None:
        return await self._runner.write(commands.AddOverlay(scope, overlay, unchanged), self._fence)

    async def overlays(self, scope: Scope) -> list[Compaction]:
        return await self._runner.read(scope, lambda: overlays.overlays(scope))

    async def summaries(self, scope: Scope) -> list[str]:
        return await self._runner.read(scope, lambda: overlays.summaries(scope))

    async def covered(self, scope: Scope, compaction_id: str, *, offset: int, limit: int) -> list[Message]:
        return await self._runner.read(scope, lambda: overlays.covered(scope, compaction_id, offset, limit))

    async def reclaim(self, scope: Scope, results: Sequence[Reclaimed]) -> None:
        await self._runner.write(commands.Reclaim(scope, results), self._fence)

    async def weigh(self, scope: Scope) -> Weight:
        return await self._runner.read(scope, lambda: overlays.weigh(scope))

    async def revision(self, scope: Scope) -> Revision:
        return await self._runner.read(scope, lambda: reads.revision(scope))

    async def get(self, scope: Scope, message_id: str) -> Message | None:
        return await self._runner.read(scope, lambda: reads.get(scope, message_id))

    async def leaf(self, scope: Scope) -> Message | None:
        return await self._runner.read(scope, lambda: reads.leaf(scope))

    async def parent(self, scope: Scope, message_id: str) -> Message | None:
        return await self._runner.read(scope, lambda: reads.parent(scope, message_id))

    async def children(self, scope: Scope, message_id: str | None) -> list[Message]:
        return await self._runner.read(scope, lambda: reads.children(scope, message_id))

    async def leaves(self, scope: Scope) -> list[Message]:
        return await self._runner.read(scope, lambda: reads.leaves(scope))

    async def tip(self, scope: Scope, message_id: str) -> Message:
        return await self._runner.read(scope, lambda: reads.tip(scope, message_id))

    async def path(self, scope: Scope, leaf_id: str | None, *, raw: bool = False) -> list[Message]:
        return await self._runner.read(scope, lambda: reads.path(scope, leaf_id, raw))

    async def view(self, scope: Scope, leaf_id: str | None) -> View:
        return await self._runner.read(scope, lambda: reads.view(scope, leaf_id))

    async def raw_page(
        self, scope: Scope, leaf_id: str | None, *, before: str | None, limit: int | None
    ) -> list[Message]:
        return await self._runner.read(scope, lambda: reads.raw_page(scope, leaf_id, before, limit))

    async def path_page(
        self,
        scope: Scope,
        *,
        leaf_id: str | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> PathPage:
        return await self._runner.read(scope, lambda: reads.path_page(scope, leaf_id, cursor, newest_first, limit))

    async def path_length(self, scope: Scope, leaf_id: str | None) -> int:
        return await self._runner.read(scope, lambda: reads.path_length(scope, leaf_id))

    async def outline(self, scope: Scope) -> Outline:
        return await self._runner.read(scope, lambda: reads.outline(scope))

    async def labels(self, scope: Scope) -> dict[str, str]:
        return await self._runner.read(scope, lambda: reads.labels(scope))

    async def search(self, where: Scope | Owner, query: Query, *, only: SearchFilter, limit: int) -> list[SearchResult]:
        return await self._runner.search(where, query, only, limit)

    async def changes(self, scope: Scope, since: int, *, messages: bool = False) -> Changes:
        return await self._runner.read(scope, lambda: reads.changes(scope, since, messages))

    async def wait(self, scope: Scope, revision: Revision) -> None:
        await self._runner.wait(scope, revision)
