"""Leases on a database server: one round trip each, unless others wait."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from leafward.core.ids import new_id
from leafward.stores.leases import Fence, Renewed, Slot
from leafward.stores.servers.quick_leases import QuickLeases
from leafward.stores.sql import lease_texts, leases
from leafward.stores.sql.lease_table import SqlLeases
from leafward.stores.sql.operations import Operation, Statement

T = TypeVar("T")


class ServerLeases(SqlLeases):
    """What one round trip cannot do is done by an operation."""

    @property
    @abstractmethod
    def _quick_leases(self) -> QuickLeases: ...

    @abstractmethod
    async def transact(self, operation: Callable[[], Operation[T]], name: str | None = None) -> T:
        """Run an operation in a transaction; one that has a name is done once although it is repeated."""

    @abstractmethod
    async def change(
        self, operation: Callable[[bool], Operation[T]], fence: Fence | None, alone: Statement | None = None
    ) -> T:
        """Run an operation that may be repeated; one that loses its lease then has an unknown outcome."""

    @abstractmethod
    async def quickly(
        self, quick: Callable[[Any], Awaitable[T | None]], operation: Callable[[], Operation[T | None]]
    ) -> T | None:
        """Do something on a connection that may be repeated; if that gives `None`, run the operation."""

    async def change_lease(self, operation: Callable[[], Operation[T]], *, flushed: bool) -> T:
        return await self.transact(operation)

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        quick = self._quick_leases
        return await self.quickly(
            lambda connection: quick.take(connection, slot, holder, ttl, label),
            lambda: leases.take(slot, holder, ttl, label, None),
        )

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        return await self._alone(lambda connection: self._quick_leases.renew(connection, slot, holder, ttl))

    async def leave(self, slot: Slot, holder: str) -> None:
        async def left(connection: Any) -> bool:
            await self._quick_leases.leave(connection, slot, holder)
            return True

        await self._alone(left)

    async def _alone(self, quick: Callable[[Any], Awaitable[T]]) -> T:
        done = await self.quickly(quick, _nothing)
        assert done is not None
        return done

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        await self.change(lambda _: lease_texts.received(slot, holder, number), None)

    async def end(self, slot: Slot, token: int) -> bool:
        return await self.transact(lambda: leases.end(slot, token), new_id())

    async def send(self, slot: Slot, text: str, label: str | None = None) -> bool:
        return await self.transact(lambda: lease_texts.send(slot, text, label), new_id())


def _nothing() -> Operation[None]:
    return None
    yield
