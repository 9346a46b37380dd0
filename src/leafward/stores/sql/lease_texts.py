"""Texts for the holders of leases, as operations: a row for each, until it is received."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.errors import LeaseBusy, LeaseLost
from leafward.stores.leases import MOST_WAITING, SentText, Slot
from leafward.stores.sql import lease_statements as sql
from leafward.stores.sql.leases import find, slot_ids, store_clock
from leafward.stores.sql.operations import Operation


def send(slot: Slot, text: str, label: str | None) -> Operation[bool]:
    lease = yield from find(slot)
    if lease is None or not lease.is_held((yield from store_clock())):
        return False
    if label is not None and label != lease.label:
        return False
    if (yield sql.IS_FULL, (*slot_ids(slot), label)):
        raise LeaseBusy(slot.session_id, texts=MOST_WAITING)
    yield sql.ADD_TEXT, (*slot_ids(slot), label, text)
    return True


def texts(slot: Slot, holder: str) -> Operation[list[SentText]]:
    rows = yield sql.LIST_TEXTS, slot_ids(slot)
    if not rows or rows[0][0] != holder:
        raise LeaseLost(slot.session_id)
    return [SentText(number, text) for _, number, text in rows if number is not None]


def received(slot: Slot, holder: str, number: int) -> Operation[None]:
    lease = yield from find(slot)
    if lease is None or lease.holder != holder:
        raise LeaseLost(slot.session_id)
    yield sql.DROP_RECEIVED, (*slot_ids(slot), number, lease.label)


def waiting(slots: Sequence[Slot]) -> Operation[set[Slot]]:
    asked = set(slots)
    if len(asked) > sql.AT_ONCE:
        rows = yield sql.WAITING_ANYWHERE, ()
    else:
        # The last one fills up a list that is short: the statement is the same for all.
        ids = [slot_ids(slot) for slot in asked]
        ids += ids[-1:] * (sql.AT_ONCE - len(ids))
        rows = yield sql.WAITING_IN, tuple(one for pair in ids for one in pair)
    return {Slot(user_id or None, session_id) for user_id, session_id in rows} & asked


def has_any(slot: Slot) -> Operation[bool]:
    return bool((yield sql.HAS_TEXTS, slot_ids(slot)))


def clear(slot: Slot) -> Operation[None]:
    yield sql.DROP_TEXTS, slot_ids(slot)
