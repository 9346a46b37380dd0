"""Deliberately broken sessions: a judge that does not catch them proves nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from faults.perform import Writable
from faults.tree import Wire
from leafward import LATEST_LEAF, Session
from leafward.core.parent import ParentId


class _Passing:
    """Hands every call on to the real session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def append_message(self, message: Wire, parent_id: ParentId = LATEST_LEAF) -> object:
        return await self._session.append_message(message, parent_id)

    async def append_messages(self, messages: Sequence[Wire]) -> object:
        return await self._session.append_messages(messages)

    async def update_message(self, message: Wire) -> object:
        return await self._session.update_message(message)

    async def delete_messages(self, message_ids: Sequence[str]) -> object:
        return await self._session.delete_messages(message_ids)

    async def checkout(self, message_id: str | None) -> object:
        return await self._session.checkout(message_id)


class AcksEarly(_Passing):
    """Says an append is done before it is: the write follows in the background."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._running: set[asyncio.Task[object]] = set()

    async def append_message(self, message: Wire, parent_id: ParentId = LATEST_LEAF) -> object:
        task = asyncio.create_task(super().append_message(message, parent_id))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        await asyncio.sleep(0)
        return message


class TearsBatches(_Passing):
    """Stores a batch message by message, each in a commit of its own."""

    async def append_messages(self, messages: Sequence[Wire]) -> object:
        return [await self._session.append_message(message) for message in messages]


class WritesAfterCancel(_Passing):
    """Raises `CancelledError` at once and stores the message a little later."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._running: set[asyncio.Task[object]] = set()

    async def append_message(self, message: Wire, parent_id: ParentId = LATEST_LEAF) -> object:
        task = asyncio.create_task(self._slowly(message, parent_id))
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def _slowly(self, message: Wire, parent_id: ParentId) -> object:
        await asyncio.sleep(0.02)
        return await self._session.append_message(message, parent_id)


class HidesCancel(_Passing):
    """Returns as if all was well when it was cancelled, whether or not the message was stored."""

    async def append_message(self, message: Wire, parent_id: ParentId = LATEST_LEAF) -> object:
        try:
            await asyncio.sleep(0.001)
            return await self._session.append_message(message, parent_id)
        except asyncio.CancelledError:
            return message


VARIANTS = {
    "honest": _Passing,
    "acks-early": AcksEarly,
    "tears-batches": TearsBatches,
    "writes-after-cancel": WritesAfterCancel,
    "hides-cancel": HidesCancel,
}


def variant(name: str, session: Session) -> Writable:
    """Return `session` behind the variant called `name`; `honest` hands every call on unchanged."""
    return VARIANTS[name](session)
