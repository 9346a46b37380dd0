"""Leases, as operations: a row for each slot, and a row for each that waits for it."""

from __future__ import annotations

from typing import TypeVar

from leafward.core.errors import LeaseLost
from leafward.stores.leases import Fence, Slot, ticket_ttl
from leafward.stores.sql import statements as sql
from leafward.stores.sql.commands import Command
from leafward.stores.sql.operations import STORE_CLOCK, Indexing, Operation

T = TypeVar("T")


def fenced(command: Command[T], indexing: Indexing, fence: Fence | None) -> Operation[T]:
    """Return the operation of a command, which first sees to it that the lease is still held."""
    return behind(fence, command.operation(indexing))


def behind(fence: Fence | None, operation: Operation[T]) -> Operation[T]:
    """Return an operation that first sees to it that the lease, if there is one, is still held."""
    return operation if fence is None else _behind(fence, operation)


def _behind(fence: Fence, operation: Operation[T]) -> Operation[T]:
    rows = yield sql.CHECK_LEASE, (*_ids(fence.slot), fence.token)
    if not rows:
        raise LeaseLost(fence.slot.session_id)
    return (yield from operation)


def take(slot: Slot, holder: str, ttl: float) -> Operation[int | None]:
    ids = _ids(slot)
    now = (yield STORE_CLOCK, ())[0][0]
    rows = yield sql.GET_LEASE, ids
    if not rows:
        yield sql.ADD_LEASE, ids
    token, held_by, expires_at = rows[0] if rows else (0, None, 0)
    if held_by == holder:
        return token
    tickets: list[tuple[str, int]] = yield sql.LIST_TICKETS, ids
    alive = {waiter: until for waiter, until in tickets if until > now}
    if len(alive) < len(tickets):
        yield sql.DROP_DEAD_TICKETS, (*ids, now)
    if (held_by is not None and expires_at > now) or next(iter(alive), holder) != holder:
        yield from _queue_up(ids, holder, alive.get(holder), now, _micros(ticket_ttl(ttl)))
        return None
    # By the clock as well, so that tokens grow even where the table was lost.
    token = max(token + 1, now)
    yield sql.SET_LEASE, (token, holder, now + _micros(ttl), *ids)
    if alive:
        yield sql.DROP_TICKET, (*ids, holder)
    return token


def _queue_up(ids: tuple[str, str], holder: str, until: int | None, now: int, lasts: int) -> Operation[None]:
    if until is None:
        yield sql.ADD_TICKET, (*ids, holder, now + lasts)
    elif until < now + lasts // 2:
        # Not each time: who waits asks often, and asking should cost no flush to disk.
        yield sql.KEEP_TICKET, (now + lasts, *ids, holder)


def renew(slot: Slot, holder: str, ttl: float) -> Operation[bool]:
    now = (yield STORE_CLOCK, ())[0][0]
    rows = yield sql.GET_LEASE, _ids(slot)
    if not rows or rows[0][1] != holder:
        return False
    yield sql.SET_LEASE, (rows[0][0], holder, now + _micros(ttl), *_ids(slot))
    return True


def leave(slot: Slot, holder: str) -> Operation[None]:
    rows = yield sql.GET_LEASE, _ids(slot)
    if rows and rows[0][1] == holder:
        yield sql.SET_LEASE, (rows[0][0], None, 0, *_ids(slot))
    yield sql.DROP_TICKET, (*_ids(slot), holder)


def _ids(slot: Slot) -> tuple[str, str]:
    return slot.user_id or "", slot.session_id


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
