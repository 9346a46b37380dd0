"""`SessionRegistry` on SQL."""

from __future__ import annotations

from leafward.core.archive import Archive
from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.stores.contracts import Usage, check_usage
from leafward.stores.drafts import Draft
from leafward.stores.finishing import to_its_end
from leafward.stores.leases import Slot
from leafward.stores.registry import ErasureReport, Origin, Page
from leafward.stores.sql import commands, copying, registry
from leafward.stores.sql.running import Serving
from leafward.stores.states.table import StateTable

COPIES = ("backups and other copies of the store, and what its logs keep",)
"""Where states may be found that had no session beside them."""


class SqlRegistry:
    """Runs each call as one operation."""

    def __init__(self, runner: Serving, states: StateTable) -> None:
        self._runner = runner
        self._states = states

    async def create(self, scope: Scope, origin: Origin) -> SessionInfo:
        return await self._runner.write(commands.Create(scope, origin))

    async def get(self, scope: Scope) -> SessionInfo | None:
        return await self._runner.read(scope, lambda: registry.get(scope))

    async def list(self, owner: Owner, *, limit: int | None, cursor: str | None) -> Page[SessionInfo]:
        return await self._runner.read(owner, lambda: registry.list_sessions(owner, limit, cursor))

    async def count(self, owner: Owner) -> int:
        return await self._runner.read(owner, lambda: registry.count(owner))

    async def rename(self, scope: Scope, name: str) -> None:
        await self._runner.write(commands.Rename(scope, name))

    async def add_usage(self, scope: Scope, usage: Usage) -> bool:
        return await self._runner.write(commands.AddUsage(scope, check_usage(usage)))

    async def delete(self, scope: Scope) -> bool:
        return await to_its_end(self._delete(scope, shared=await self._runner.is_shared(scope)))

    async def _delete(self, scope: Scope, *, shared: bool) -> bool:
        if not shared:
            # First: a session whose deletion was cut short can be seen, and be deleted again.
            await self._forget_states(scope)
        removed = await self._runner.write(commands.Remove(scope)) is not None
        if shared:
            await self._forget_orphaned_states(scope)
        return removed

    async def erase(self, scope: Scope) -> ErasureReport:
        return await to_its_end(self._erase(scope, shared=await self._runner.is_shared(scope)))

    async def _erase(self, scope: Scope, *, shared: bool) -> ErasureReport:
        forgotten = not shared and await self._forget_states(scope)
        report = await self._runner.erase(scope)
        orphaned = shared and await self._forget_orphaned_states(scope)
        if not orphaned and (report.erased or not forgotten):
            return report
        # Their bytes did not go with those of a session.
        left = [*report.not_reached, *await self._runner.scrub(), *(() if report.erased else COPIES)]
        return ErasureReport(scope.session_id, True, list(dict.fromkeys(left)))

    async def _forget_states(self, scope: Scope) -> bool:
        """Delete the states of a session and the texts for its holder; return whether there were any."""
        slot = Slot(scope.owner.user_id, scope.session_id)
        had_texts = await self._runner.clear(slot)
        return await self._states.forget(slot) or had_texts

    async def _forget_orphaned_states(self, scope: Scope) -> bool:
        """Remove them if whoever had the session too has ended it meanwhile, and left them to us."""
        if await self._runner.is_shared(scope) or await self.get(scope) is not None:
            return False
        return await self._forget_states(scope)

    async def fork(self, scope: Scope, at_message_id: str, target: Scope, name: str) -> SessionInfo:
        return await self._runner.write(commands.Fork(target, scope, at_message_id, name))

    async def split(self, scope: Scope, target: Scope, name: str | None, first: Draft) -> SessionInfo:
        return await self._runner.write(commands.Split(target, scope, name, first))

    async def dump(self, scope: Scope) -> Archive:
        return await self._runner.read(scope, lambda: copying.dump(scope))

    async def restore(self, scope: Scope, archive: Archive) -> SessionInfo:
        return await self._runner.write(commands.Restore(scope, archive))
