"""Which call has its turn: within a process in the order of the calls, between processes by the session's lease."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from leafward.core.errors import ConfigurationError
from leafward.engine.agent_store import Place
from leafward.engine.turn_control import TurnControl
from leafward.engine.turn_mail import MailBox, MailWatch
from leafward.stores.gate import Gate
from leafward.stores.lease import Lease
from leafward.stores.leases import Slot


@dataclass(eq=False, slots=True)
class Held:
    """A session that a call of this process has its turn on."""

    slot: Slot
    lease: Lease | None
    """`None` on a custom store of states, which has no leases."""
    task: asyncio.Task[object] | None
    control: TurnControl = field(default_factory=TurnControl)
    mail: MailBox | None = None
    ended: bool = False


@dataclass(eq=False, slots=True)
class _Queues:
    """The queues of all sessions of one open store, for every agent that uses it."""

    gate: Gate = field(default_factory=Gate)
    held: dict[Slot, Held] = field(default_factory=dict[Slot, Held])
    watch: MailWatch | None = None
    """`None` on a custom store of states."""


_queues: WeakKeyDictionary[object, _Queues] = WeakKeyDictionary()
_inside: ContextVar[tuple[tuple[object, Held], ...]] = ContextVar("leafward turns", default=())
"""The turns that the running tool belongs to, each with its store."""


def queues_of(place: Place) -> _Queues:
    """Return the queues that all agents on one open store share."""
    found = _queues.get(place.shared)
    if found is None:
        found = _queues[place.shared] = _Queues(watch=None if place.store is None else MailWatch(place.store.leases))
    return found


def enter_tool(place: Place, held: Held) -> None:
    """Take note, in the context of a tool, which turn it belongs to."""
    _inside.set((*_inside.get(), (place.shared, held)))


@asynccontextmanager
async def turn_of(
    place: Place, slot: Slot, *, label: str, ttl: float, admitted: Callable[[], None]
) -> AsyncGenerator[Held]:
    """Wait for the turn of a session, and have it for the length of the block.

    `admitted` is asked once more when the turn has come, and raises if the call is to be refused after all.

    Raises:
        ConfigurationError: the call is made inside a turn of the same session, which would wait for itself.
    """
    queues = queues_of(place)
    _refuse_inside(place, slot, queues.held.get(slot))
    async with queues.gate.turn(slot):
        admitted()
        task = asyncio.current_task()
        if place.store is None:
            held = Held(slot, None, task)
            async with _holding(queues, held):
                yield held
            return
        lease = await place.store.leases.acquire(slot.session_id, slot.user_id, ttl, label=label)
        try:
            held = Held(slot, lease, task)
            held.mail = MailBox(lease, held.control)
            async with _holding(queues, held):
                yield held
        finally:
            await lease.release()


@asynccontextmanager
async def _holding(queues: _Queues, held: Held) -> AsyncGenerator[None]:
    queues.held[held.slot] = held
    if queues.watch is not None and held.mail is not None:
        queues.watch.add(held.mail)
    try:
        yield
    finally:
        held.ended = True
        del queues.held[held.slot]
        if queues.watch is not None and held.mail is not None:
            queues.watch.remove(held.mail)


def _refuse_inside(place: Place, slot: Slot, present: Held | None) -> None:
    same_task = present is not None and present.task is asyncio.current_task()
    in_its_tool = any(store is place.shared and held.slot == slot and not held.ended for store, held in _inside.get())
    if same_task or in_its_tool:
        raise ConfigurationError(
            f"this call is made inside a turn of session {slot.session_id!r} and would wait for itself: "
            "call the agent on another session"
        )
