"""`SessionRegistry` on SQL."""

from __future__ import annotations

from dataclasses import replace

from leafward.core.archive import Archive
from leafward.core.ids import Owner, Scope
from leafward.core.info import SessionInfo
from leafward.stores.drafts import Draft
from leafward.stores.leases import Slot
from leafward.stores.registry import ErasureReport, Origin, Page
from leafward.stores.sql import commands, copying, registry
from leafward.stores.sql.running import Runner
from leafward.stores.states.table import StateTable

COPIES = ("backups and other copies of the store, and what its logs keep",)
"""Where states may be found that had no session beside them."""


class SqlRegistry:
    """Runs each call as one operation."""

    def __init__(self, runner: Runner, states: StateTable) -> None:
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

    async def add_usage(self, scope: Scope, input_tokens: int, output_tokens: int, cost: float) -> None:
        await self._runner.write(commands.AddUsage(scope, input_tokens, output_tokens, cost))

    async def delete(self, scope: Scope) -> bool:
        # The states first: a session whose deletion was cut short can be seen, and be deleted again.
        shared = await self._runner.is_shared(scope)
        if not shared:
            await self._forget_states(scope)
        removed = await self._runner.write(commands.Remove(scope)) is not None
        if shared and not await self._runner.is_shared(scope):
            # Who had it too has deleted it meanwhile, and left the states to us.
            await self._forget_states(scope)
        return removed

    async def erase(self, scope: Scope) -> ErasureReport:
        shared = await self._runner.is_shared(scope)
        forgotten = False if shared else await self._forget_states(scope)
        report = await self._runner.erase(scope, scrub=forgotten)
        if shared and not await self._runner.is_shared(scope):
            # Who had it too has deleted it meanwhile, and left the states to us.
            forgotten = await self._forget_states(scope)
            if forgotten:
                rest = await self._runner.erase(scope, scrub=True)
                known = report.not_reached
                report = replace(report, not_reached=[*known, *(one for one in rest.not_reached if one not in known)])
        if forgotten and not report.erased:
            return ErasureReport(scope.session_id, True, [*report.not_reached, *COPIES])
        return report

    async def _forget_states(self, scope: Scope) -> bool:
        """Remove the states of a session, and tell whether there were any."""
        return await self._states.forget(Slot(scope.owner.user_id, scope.session_id))

    async def fork(self, scope: Scope, at_message_id: str, target: Scope, name: str) -> SessionInfo:
        return await self._runner.write(commands.Fork(target, scope, at_message_id, name))

    async def split(self, scope: Scope, target: Scope, name: str | None, first: Draft) -> SessionInfo:
        return await self._runner.write(commands.Split(target, scope, name, first))

    async def dump(self, scope: Scope) -> Archive:
        return await self._runner.read(scope, lambda: copying.dump(scope))

    async def restore(self, scope: Scope, archive: Archive) -> SessionInfo:
        return await self._runner.write(commands.Restore(scope, archive))
