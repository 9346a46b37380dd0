"""Leases that are kept by another table, which may have to be opened first."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from leafward.stores.leases.contracts import Holder, LeaseTable, Renewed, SentText, Slot

T = TypeVar("T")


class ForwardingLeaseTable(LeaseTable):
    """Passes each call on."""

    @abstractmethod
    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        """Make a call to the table that keeps the leases."""

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        return await self.on_table(lambda table: table.take(slot, holder, ttl, label))

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        return await self.on_table(lambda table: table.renew(slot, holder, ttl))

    async def leave(self, slot: Slot, holder: str) -> None:
        await self.on_table(lambda table: table.leave(slot, holder))

    async def end(self, slot: Slot, token: int) -> bool:
        return await self.on_table(lambda table: table.end(slot, token))

    async def holder(self, slot: Slot) -> Holder | None:
        return await self.on_table(lambda table: table.holder(slot))

    async def send(self, slot: Slot, text: str, label: str | None = None) -> bool:
        return await self.on_table(lambda table: table.send(slot, text, label))

    async def texts(self, slot: Slot, holder: str) -> list[SentText]:
        return await self.on_table(lambda table: table.texts(slot, holder))

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        await self.on_table(lambda table: table.received(slot, holder, number))

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        return await self.on_table(lambda table: table.waiting(slots))

    async def clear(self, slot: Slot) -> bool:
        return await self.on_table(lambda table: table.clear(slot))
