"""`SessionRegistry` on SQL."""

from __future__ import annotations

from leafward.core.archive import Archive
from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.stores.drafts import Draft
from leafward.stores.registry import ErasureReport, Origin, Page
from leafward.stores.sql import copying, registry
from leafward.stores.sql.running import Runner


class SqlRegistry:
    """Runs each call as one operation."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._indexing = runner.indexing

    async def create(self, scope: Scope, origin: Origin) -> SessionInfo:
        return await self._runner.write(scope, lambda: registry.create(scope, origin))

    async def get(self, scope: Scope) -> SessionInfo | None:
        return await self._runner.read(registry.get(scope))

    async def list(self, owner: Owner, *, limit: int | None, cursor: str | None) -> Page[SessionInfo]:
        return await self._runner.read(registry.list_sessions(owner, limit, cursor))

    async def count(self, owner: Owner) -> int:
        return await self._runner.read(registry.count(owner))

    async def rename(self, scope: Scope, name: str) -> None:
        await self._runner.write(scope, lambda: registry.rename(scope, name))

    async def add_usage(self, scope: Scope, input_tokens: int, output_tokens: int, cost: float) -> None:
        await self._runner.write(scope, lambda: registry.add_usage(scope, input_tokens, output_tokens, cost))

    async def delete(self, scope: Scope) -> bool:
        return await self._runner.write(scope, lambda: registry.delete(scope)) is not None

    async def erase(self, scope: Scope) -> ErasureReport:
        return await self._runner.erase(scope)

    async def fork(self, scope: Scope, at_message_id: str, target: Scope, name: str) -> SessionInfo:
        return await self._runner.write(
            target, lambda: copying.fork(self._indexing, scope, at_message_id, target, name)
        )

    async def split(self, scope: Scope, target: Scope, name: str | None, first: Draft) -> SessionInfo:
        return await self._runner.write(target, lambda: copying.split(self._indexing, scope, target, name, first))

    async def dump(self, scope: Scope) -> Archive:
        return await self._runner.read(copying.dump(scope))

    async def restore(self, scope: Scope, archive: Archive) -> SessionInfo:
        size = sum(one.tokens for one in archive.messages) * 4
        return await self._runner.write(scope, lambda: copying.restore(self._indexing, scope, archive), size=size)
