"""`LeaseTable` for a backend that keeps each lease as a JSON object which it can change in one step."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from leafward.core.errors import LeaseBusy, LeaseLost
from leafward.stores.leases.contracts import LOST, MOST_WAITING, Holder, LeaseTable, Renewed, SentText, Slot, ticket_ttl

T = TypeVar("T")

Document = dict[str, Any]


class DocumentLeases(LeaseTable):
    """Leases by the clocks of those who ask: one that is wrong may take a lease early, and tokens keep writers apart.

    A lease is an object with `token`, `holder` and `queue`, a list of those who wait, and first the holder, each with
    when its time is up. The order of the object's keys means nothing. `sent` are texts with their numbers and labels,
    `last` is the last number.
    """

    @abstractmethod
    async def change_lease(self, slot: Slot, change: Callable[[Document], T]) -> T:
        """Apply `change`, which alters what it is given, to a slot's lease, and return what it returns.

        A lease that was never taken is an empty object. `change` may be applied more than once, to what is stored then;
        when it raises, nothing is stored.

        Raises:
            OutcomeUnknown: it is not known whether the lease was replaced.
        """

    @abstractmethod
    async def read_lease(self, slot: Slot) -> Document:
        """Return a slot's lease, an empty object if it was never taken."""

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        def change(lease: Document) -> int | None:
            now = time.time()
            queue = {name: until for name, until in _queue(lease).items() if until > now}
            if queue.get(holder, 0) < now + ticket_ttl(ttl) / 2:
                queue[holder] = now + ticket_ttl(ttl)
            if next(iter(queue)) == holder and lease.get("holder") != holder:
                queue[holder] = now + ttl
                token = max(lease.get("token", 0) + 1, int(now * 1e6))
                lease |= {"holder": holder, "token": token, "since": now, "label": label}
            _set_queue(lease, queue)
            return lease["token"] if lease.get("holder") == holder else None

        return await self.change_lease(slot, change)

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        def change(lease: Document) -> Renewed:
            if lease.get("holder") != holder:
                return LOST
            _set_queue(lease, {holder: 0} | _queue(lease) | {holder: time.time() + ttl})
            return Renewed(held=True, waiting=bool(_waiting(lease)))

        return await self.change_lease(slot, change)

    async def leave(self, slot: Slot, holder: str) -> None:
        def change(lease: Document) -> None:
            _leave(lease, holder)
            if lease.get("holder") == holder:
                _end(lease)

        await self.change_lease(slot, change)

    async def end(self, slot: Slot, token: int) -> bool:
        def change(lease: Document) -> bool:
            holder = lease.get("holder")
            if holder is None or lease["token"] != token:
                return False
            _leave(lease, holder)
            _end(lease)
            return True

        return await self.change_lease(slot, change)

    async def holder(self, slot: Slot) -> Holder | None:
        lease = await self.read_lease(slot)
        if not _is_held(lease):
            return None
        since, expires = lease.get("since", lease["token"] / 1e6), _queue(lease)[lease["holder"]]
        return Holder.of(lease["token"], int(since * 1e6), int(expires * 1e6), lease.get("label"))

    async def send(self, slot: Slot, text: str, label: str | None = None) -> bool:
        def change(lease: Document) -> bool:
            if not _is_held(lease) or label not in (None, lease.get("label")):
                return False
            sent = lease.setdefault("sent", [])
            if sum(wanted in (None, label) for _, wanted, _ in sent) >= MOST_WAITING:
                raise LeaseBusy(slot.session_id, texts=MOST_WAITING)
            lease["last"] = lease.get("last", 0) + 1
            sent.append([lease["last"], label, text])
            return True

        return await self.change_lease(slot, change)

    async def texts(self, slot: Slot, holder: str) -> list[SentText]:
        lease = await self.read_lease(slot)
        if lease.get("holder") != holder:
            raise LeaseLost(slot.session_id)
        return _waiting(lease)

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        def change(lease: Document) -> None:
            if lease.get("holder") != holder:
                raise LeaseLost(slot.session_id)
            had = {one.number for one in _waiting(lease) if one.number <= number}
            lease["sent"] = [one for one in lease.get("sent", []) if one[0] not in had]

        await self.change_lease(slot, change)

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        return {slot for slot in slots if _waiting(await self.read_lease(slot))}

    async def clear(self, slot: Slot) -> bool:
        def change(lease: Document) -> bool:
            return bool(lease.pop("sent", []))

        return bool(await self.read_lease(slot)) and await self.change_lease(slot, change)


def _queue(lease: Document) -> dict[str, float]:
    queue = lease.get("queue", [])
    # An object in leases of the version before.
    return dict(queue)


def _set_queue(lease: Document, queue: dict[str, float]) -> None:
    lease["queue"] = [[name, until] for name, until in queue.items()]


def _leave(lease: Document, holder: str) -> None:
    _set_queue(lease, {name: until for name, until in _queue(lease).items() if name != holder})


def _end(lease: Document) -> None:
    # A larger token: writes behind the lease that ended are refused by it alone.
    lease |= {"holder": None, "token": lease["token"] + 1, "label": None}


def _is_held(lease: Document) -> bool:
    return lease.get("holder") is not None and _queue(lease).get(lease["holder"], 0) > time.time()


def _waiting(lease: Document) -> list[SentText]:
    """Return the texts that wait for the present holder."""
    sent = lease.get("sent", [])
    return [SentText(number, text) for number, label, text in sent if label in (None, lease.get("label"))]
