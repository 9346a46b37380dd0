"""Leases on a Redis, and texts for their holders."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from leafward.core.errors import LeaseBusy, LeaseLost, OutcomeUnknown
from leafward.stores.leases import LOST, MOST_WAITING, Holder, LeaseTable, Renewed, SentText, Slot, ticket_ttl
from leafward.stores.redis import lease_scripts as scripts
from leafward.stores.redis.calls import Calls
from leafward.stores.redis.keys import Keys

KEPT_MS = 24 * 3_600_000
"""For how long the keys of a lease outlive it. Tokens grow by the clock as well, so nothing depends on them."""


class RedisLeases(LeaseTable):
    """Each call is one script, on keys of one slot of a cluster."""

    _calls: Calls
    _keys: Keys

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        lasts = [_micros(ttl), _micros(ticket_ttl(ttl)), KEPT_MS + int(ttl * 1000)]
        args = [holder.encode(), *lasts, _label(label)]
        token = (await self._calls.change(scripts.TAKE, self._keys.lease(slot), args)).value
        return None if token is None else int(token)

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        keys = [self._keys.lease(slot)[0], self._keys.texts(slot)[0]]
        args = [holder.encode(), _micros(ttl), KEPT_MS + int(ttl * 1000)]
        found = (await self._calls.change(scripts.RENEW, keys, args)).value
        return Renewed(held=True, waiting=found == 2) if found else LOST

    async def leave(self, slot: Slot, holder: str) -> None:
        await self._calls.change(scripts.LEAVE, self._keys.lease(slot), [holder.encode()])

    async def end(self, slot: Slot, token: int) -> bool:
        return (await self._calls.change(scripts.END, self._keys.lease(slot)[:1], [token])).value == 1

    async def holder(self, slot: Slot) -> Holder | None:
        found = await self._calls.ask(scripts.HOLDER, self._keys.lease(slot)[:1], [])
        if found is None:
            return None
        token, since, expires, label = found
        return Holder.of(int(token), int(since), int(expires), text_of(label) or None)

    async def send(self, slot: Slot, text: str, label: str | None = None) -> bool:
        answer = self._keys.answer(slot.user_id, os.urandom(16).hex())
        keys = [*self._text_keys(slot), answer]
        args = [_label(label), text.encode(), MOST_WAITING]
        sent = (await self._calls.change(scripts.SEND, keys, args)).value
        if sent == -1:
            raise LeaseBusy(slot.session_id, texts=MOST_WAITING)
        return sent == 1

    async def texts(self, slot: Slot, holder: str) -> list[SentText]:
        found = await self._calls.ask(scripts.TEXTS, self._text_keys(slot), [holder.encode()])
        if found is None:
            raise LeaseLost(slot.session_id)
        return [SentText(int(number), text_of(text)) for number, text in zip(*found, strict=True)]

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        reply = await self._calls.change(scripts.RECEIVED, self._text_keys(slot), [holder.encode(), number])
        if reply.value == 0:
            # What was sent before may have been done when the lease was held.
            raise OutcomeUnknown(self._calls.where, unanswered=True) if reply.repeated else LeaseLost(slot.session_id)

    def _text_keys(self, slot: Slot) -> list[bytes]:
        return [self._keys.lease(slot)[0], *self._keys.texts(slot)]

    async def waiting(self, slots: Sequence[Slot]) -> set[Slot]:
        if not slots:
            return set()
        groups = [list(slots)]
        if self._calls.in_a_cluster:
            # Keys of several users are in several places.
            ordered = sorted(slots, key=_user)
            groups = [list(group) for _, group in groupby(ordered, key=_user)]
        return set[Slot]().union(*await asyncio.gather(*map(self._waiting, groups)))

    async def _waiting(self, slots: list[Slot]) -> set[Slot]:
        keys = [key for slot in slots for key in (self._keys.lease(slot)[0], self._keys.texts(slot)[0])]
        found = await self._calls.ask(scripts.WAITING, keys, [])
        return {slot for slot, waits in zip(slots, found, strict=True) if waits}

    async def clear(self, slot: Slot) -> bool:
        return (await self._calls.change(scripts.CLEAR, self._keys.texts(slot), [])).value > 0


def text_of(value: Any) -> str:
    # A client that was given may decode what it gets.
    return value if isinstance(value, str) else value.decode()


def _label(label: str | None) -> bytes:
    return b"" if label is None else label.encode()


def _user(slot: Slot) -> tuple[bool, str]:
    return slot.user_id is not None, slot.user_id or ""


def _micros(seconds: float) -> int:
    return int(seconds * 1_000_000)
