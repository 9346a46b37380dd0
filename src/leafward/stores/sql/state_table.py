"""`StateTable` on SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from leafward.stores.gate import Gate
from leafward.stores.leases import Fence, Slot
from leafward.stores.sql.operations import Operation, Statement
from leafward.stores.sql.states import StateRows
from leafward.stores.states.table import Stored

T = TypeVar("T")


class StateRunner(Protocol):
    """Runs operations on states, each in one transaction."""

    async def look(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that changes nothing; it may be made and run more than once."""
        ...

    async def change(
        self, operation: Callable[[bool], Operation[T]], fence: Fence | None, alone: Statement | None = None
    ) -> T:
        """Run an operation if the fence holds, and return once it is durable.

        It may be made and run more than once; it is told whether an earlier run may have been done all the same. Where
        statements travel, one that gives the result `alone`, or does and gives nothing, is tried before.
        """
        ...


class SqlStates:
    """Runs each call as one operation."""

    def __init__(self, runner: StateRunner, rows: StateRows) -> None:
        self._runner = runner
        self._rows = rows
        # What is saved last is what stays, on servers with many connections too.
        self._gate = Gate()

    async def _ready(self, *, saving: bool = False) -> StateRows:
        """Return the operations, once there is a table; for who saves, one that has all that is needed."""
        return self._rows

    async def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        return (await self.get_beside(slot, name, ()))[0]

    async def get_beside(self, slot: Slot, name: str, others: Sequence[str]) -> tuple[Stored | None, bool]:
        rows = await self._ready()
        found, has_others = await self._runner.look(lambda: rows.get(slot, name, others))
        stored = None if found is None else Stored(found.row.text, await rows.version(slot, name, found))
        return stored, has_others

    async def put(self, slot: Slot, name: str, text: str, expected: int | None, fence: Fence | None) -> int:
        async with self._gate.turn(slot):
            rows = await self._ready(saving=True)
            value = await rows.prepared(text)
            is_first = expected == 0
            alone = (
                rows.add_first(slot, name, value, fence)
                if is_first
                else rows.replace(slot, name, value, expected, fence)
            )
            version = await self._runner.change(
                lambda again: rows.put(slot, name, value, expected, again), fence, alone
            )
            rows.saved(slot, name, value, version)
            return version

    async def get_list(self, slot: Slot, name: str) -> Sequence[str | bytes]:
        rows = await self._ready()
        return await self._runner.look(lambda: rows.get_list(slot, name))

    async def put_list(
        self, slot: Slot, name: str, texts: Sequence[str], fence: Fence | None, *, fresh: bool = False
    ) -> None:
        async with self._gate.turn(slot):
            rows = await self._ready(saving=True)
            await self._runner.change(lambda again: rows.put_list(slot, name, texts, fresh=fresh, again=again), fence)

    async def exists(self, slot: Slot) -> bool:
        rows = await self._ready()
        return await self._runner.look(lambda: rows.exists(slot))

    async def names(self, slot: Slot) -> dict[str, bool]:
        rows = await self._ready()
        return await self._runner.look(lambda: rows.names(slot))

    async def drop(self, slot: Slot, name: str | None, fence: Fence | None) -> None:
        async with self._gate.turn(slot):
            rows = await self._ready()
            await self._runner.change(lambda _: rows.drop(slot, name), fence)

    async def forget(self, slot: Slot) -> bool:
        rows = await self._ready()
        return await self._runner.change(lambda _: rows.forget(slot), None)

    async def sessions(self, user_id: str | None) -> set[str]:
        rows = await self._ready()
        return await self._runner.look(lambda: rows.sessions(user_id))
