"""What a server does for leases in one round trip."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from leafward.stores.leases import Renewed, Slot


class QuickLeases(ABC):
    """Each call is one round trip and one transaction, and may be repeated."""

    @abstractmethod
    async def take(self, connection: Any, slot: Slot, holder: str, ttl: float, label: str | None) -> int | None:
        """Take a lease that is free and that no one waits for; `None` if it is not, or was taken by this holder."""

    @abstractmethod
    async def renew(self, connection: Any, slot: Slot, holder: str, ttl: float) -> Renewed:
        """Let a lease last from now."""

    @abstractmethod
    async def leave(self, connection: Any, slot: Slot, holder: str) -> None:
        """Give back the lease, or the place in the queue."""


def micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
