"""`LeaseTable` on SQL."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from leafward.stores.leases import Holder, LeaseTable, Renewed, SentText, Slot
from leafward.stores.sql import lease_texts, leases
from leafward.stores.sql.operations import Operation

T = TypeVar("T")


class SqlLeases(LeaseTable):
    """Runs each call as one operation."""

    @abstractmethod
    async def change_lease(self, operation: Callable[[], Operation[T]], *, flushed: bool) -> T:
        """Run an operation that writes; unless it is `flushed`, its commit need not survive a power cut."""

    @abstractmethod
    async def look(self, operation: Callable[[], Operation[T]]) -> T:
        """Run an operation that reads."""

    def this_process(self) -> str | None:
        """Return what shows to other processes of this machine that this one lives, if they use the same store."""
        return None

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        process = self.this_process()
        return await self.change_lease(lambda: leases.take(slot, holder, ttl, label, process), flushed=False)

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        return await self.change_lease(lambda: leases.renew(slot, holder, ttl), flushed=False)

    async def leave(self, slot: Slot, holder: str) -> None:
        await self.change_lease(lambda: leases.leave(slot, holder), flushed=False)

    async def end(self, slot: Slot, token: int) -> bool:
        return await self.change_lease(lambda: leases.end(slot, token), flushed=False)

    async def holder(self, slot: Slot) -> Holder | None:
        return await self.look(lambda: leases.holder_of(slot))

    async def send(self, slot: Slot, text: str, label: str | None = None) -> bool:
        # A text, unlike a holder, is to survive a power cut.
        return await self.change_lease(lambda: lease_texts.send(slot, text, label), flushed=True)

    async def texts(self, slot: Slot, holder: str) -> list[SentText]:
        return await self.look(lambda: lease_texts.texts(slot, holder))

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        await self.change_lease(lambda: lease_texts.received(slot, holder, number), flushed=True)

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        return await self.look(lambda: lease_texts.waiting(slots)) if slots else set()

    async def clear(self, slot: Slot) -> bool:
        if not await self.look(lambda: lease_texts.has_any(slot)):
            return False
        await self.change_lease(lambda: lease_texts.clear(slot), flushed=True)
        return True
