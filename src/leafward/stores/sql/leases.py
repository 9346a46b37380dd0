"""Leases, as operations: a row for each slot, and a row for each that waits for it."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from leafward.core.errors import LeaseLost
from leafward.stores.leases import LOST, Fence, Holder, Renewed, Slot, ticket_ttl
from leafward.stores.leases.holder_process import is_gone
from leafward.stores.sql import lease_statements as sql
from leafward.stores.sql.commands import Command
from leafward.stores.sql.operations import STORE_CLOCK, Indexing, Operation

T = TypeVar("T")


class LeaseRow(NamedTuple):
    """A lease as stored; without a holder it is free."""

    token: int
    holder: str | None
    expires_at: int
    label: str | None
    since: int | None
    process: str | None

    def is_held(self, now: int) -> bool:
        """Tell whether somebody has it: it did not run out, and the process, if it is known, lives."""
        return self.holder is not None and self.expires_at > now and not is_gone(self.process)


def fenced(command: Command[T], indexing: Indexing, fence: Fence | None) -> Operation[T]:
    """Return the operation of a command, which first checks that the lease is still held."""
    return behind(fence, command.operation(indexing))


def behind(fence: Fence | None, operation: Operation[T]) -> Operation[T]:
    """Return an operation that first checks that the lease, if there is one, is still held."""
    return operation if fence is None else _behind(fence, operation)


def _behind(fence: Fence, operation: Operation[T]) -> Operation[T]:
    rows = yield sql.CHECK_LEASE, (*slot_ids(fence.slot), fence.token)
    if not rows:
        raise LeaseLost(fence.slot.session_id)
    return (yield from operation)


def take(slot: Slot, holder: str, ttl: float, label: str | None, process: str | None) -> Operation[int | None]:
    ids = slot_ids(slot)
    now = yield from store_clock()
    lease = yield from find(slot)
    if lease is None:
        yield sql.ADD_LEASE, ids
        lease = LeaseRow(0, None, 0, None, None, None)
    if lease.holder == holder:
        return lease.token
    alive = yield from _alive_tickets(ids, now)
    if lease.is_held(now) or next(iter(alive), holder) != holder:
        yield from _queue_up(ids, holder, alive.get(holder), now, _micros(ticket_ttl(ttl)), process)
        return None
    # By the clock as well, so that tokens grow even where the table was lost.
    token = max(lease.token + 1, now)
    yield sql.SET_LEASE, (token, holder, now + _micros(ttl), label, now, process, *ids)
    if alive:
        yield sql.DROP_TICKET, (*ids, holder)
    return token


def _alive_tickets(ids: tuple[str, str], now: int) -> Operation[dict[str, int]]:
    """Return who waits, and until when its place is kept; delete the tickets of those who are gone."""
    tickets: list[tuple[str, int, str | None]] = yield sql.LIST_TICKETS, ids
    if any(until <= now for _, until, _ in tickets):
        yield sql.DROP_DEAD_TICKETS, (*ids, now)
    alive: dict[str, int] = {}
    for waiter, until, process in tickets:
        if until <= now:
            continue
        if is_gone(process):
            yield sql.DROP_TICKET, (*ids, waiter)
        else:
            alive[waiter] = until
    return alive


def _queue_up(
    ids: tuple[str, str], holder: str, until: int | None, now: int, lasts: int, process: str | None
) -> Operation[None]:
    if until is None:
        yield sql.ADD_TICKET, (*ids, holder, now + lasts, process)
    elif until < now + lasts // 2:
        # Not each time: who waits asks often, and asking should write nothing.
        yield sql.KEEP_TICKET, (now + lasts, *ids, holder)


def renew(slot: Slot, holder: str, ttl: float) -> Operation[Renewed]:
    now = yield from store_clock()
    lease = yield from find(slot)
    if lease is None or lease.holder != holder:
        return LOST
    yield sql.KEEP_LEASE, (now + _micros(ttl), *slot_ids(slot), holder)
    waiting = yield sql.HAS_WAITING, (*slot_ids(slot), lease.label)
    return Renewed(held=True, waiting=bool(waiting))


def leave(slot: Slot, holder: str) -> Operation[None]:
    lease = yield from find(slot)
    if lease is not None and lease.holder == holder:
        yield sql.END_LEASE, (*slot_ids(slot), holder)
    yield sql.DROP_TICKET, (*slot_ids(slot), holder)


def end(slot: Slot, token: int) -> Operation[bool]:
    lease = yield from find(slot)
    if lease is None or lease.holder is None or lease.token != token:
        return False
    yield sql.END_LEASE, (*slot_ids(slot), lease.holder)
    return True


def holder_of(slot: Slot) -> Operation[Holder | None]:
    lease = yield from find(slot)
    if lease is None or not lease.is_held((yield from store_clock())):
        return None
    # A lease of the version before does not say since when it is held; its token is by the clock.
    return Holder.of(lease.token, lease.since or lease.token, lease.expires_at, lease.label)


def find(slot: Slot) -> Operation[LeaseRow | None]:
    rows: list[Any] = yield sql.GET_LEASE, slot_ids(slot)
    return LeaseRow(*rows[0]) if rows else None


def store_clock() -> Operation[int]:
    return (yield STORE_CLOCK, ())[0][0]


def slot_ids(slot: Slot) -> tuple[str, str]:
    return slot.user_id or "", slot.session_id


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
