"""The leases of a store, by what its backend does for them."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Sequence

from leafward.core.errors import ConfigurationError
from leafward.core.ids import check_id, check_label
from leafward.stores.contracts import DEFAULT_TTL
from leafward.stores.finishing import settled
from leafward.stores.leases.acquisition import Acquisition
from leafward.stores.leases.contracts import LONGEST_TEXT, Holder, Leases, LeaseTable, Slot
from leafward.stores.leases.held_leases import HeldLeases
from leafward.stores.leases.lease import Lease
from leafward.stores.leases.local_queue import LocalQueue

LONGEST_TTL = 366 * 86_400.0


class TableLeases(Leases):
    """Leases by what a backend's `LeaseTable` does."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        # Those who wait and those who hold have the queue; when all are gone, it goes.
        self._queues: weakref.WeakValueDictionary[Slot, LocalQueue] = weakref.WeakValueDictionary()
        # Who asked may wait no longer; what was asked for must not be lost before it is withdrawn.
        self._asking: set[asyncio.Future[Lease]] = set()
        self._held = HeldLeases()

    def acquire(
        self,
        session_id: str,
        user_id: str | None = None,
        ttl: float = DEFAULT_TTL,
        wait: float | None = None,
        *,
        label: str | None = None,
    ) -> Acquisition:
        slot = _slot(session_id, user_id)
        if not _is_number(ttl) or not 0 < ttl <= LONGEST_TTL:
            raise ConfigurationError(f"ttl is a number of seconds, above 0 and up to a year, not {ttl!r}")
        if wait is not None and (not _is_number(wait) or not wait >= 0):
            raise ConfigurationError(f"wait is a number of seconds, or None to wait as long as it takes, not {wait!r}")
        if label is not None:
            check_label(label)
        queue = self._queues.setdefault(slot, LocalQueue())
        return Acquisition(
            self._table, queue, slot, ttl=ttl, wait=wait, label=label, asking=self._asking, held=self._held
        )

    async def holder(self, session_id: str, user_id: str | None = None) -> Holder | None:
        return await self._table.holder(_slot(session_id, user_id))

    async def send(self, session_id: str, user_id: str | None, text: str, *, label: str | None = None) -> bool:
        slot = _slot(session_id, user_id)
        if label is not None:
            check_label(label)
        _check_text(text)
        return await self._table.send(slot, text, label)

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        return await self._table.waiting(slots) if slots else set()

    async def release(self, session_id: str, user_id: str | None = None, *, token: int) -> bool:
        slot = _slot(session_id, user_id)
        if not isinstance(token, int) or isinstance(token, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigurationError(f"token is the number that holder() gives, not {token!r}")
        ended = await settled(lambda: self._table.end(slot, token))
        queue = self._queues.get(slot)
        if ended and queue is not None:
            queue.held_until = 0.0
            queue.wake()
        return ended


def _slot(session_id: str, user_id: str | None) -> Slot:
    check_id("session id", session_id)
    if user_id is not None:
        check_id("user id", user_id)
    return Slot(user_id, session_id)


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TypeError(f"a text is a string, not {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("a text that is sent holds no lone surrogate") from None
    if size > LONGEST_TEXT:
        raise ValueError(f"a text that is sent has at most {LONGEST_TEXT:,} bytes, not {size:,}: send where it is kept")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
