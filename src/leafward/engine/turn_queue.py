"""Which call has its turn: within a process in the order of the calls, between processes by the session's lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import cast
from weakref import WeakKeyDictionary

from leafward.core.errors import ConfigurationError, LeafwardError, StoreError
from leafward.core.message import Message
from leafward.engine.agent_store import Place
from leafward.engine.custom_states import CustomStates
from leafward.engine.state_changes import StateChange
from leafward.engine.turn_control import TurnControl
from leafward.engine.turn_mail import LocalBox, MailBox, MailWatch
from leafward.stores.background import BackgroundTasks
from leafward.stores.gate import Gate
from leafward.stores.leases import Slot
from leafward.stores.leases.lease import Lease

_log = logging.getLogger("leafward.engine")


@dataclass(eq=False, slots=True)
class Held:
    """A session that a call of this process has its turn on."""

    slot: Slot
    label: str | None
    """Whose turn it is; `None` for one in which no agent answers."""
    lease: Lease | None
    """`None` on a custom store of states, which has no leases."""
    task: asyncio.Task[object] | None
    control: TurnControl
    mail: MailBox | LocalBox | None = None
    left: bool = False
    """Whether the caller has left the stream of the call, which is ending."""
    ended: bool = False
    on_tool: Callable[[], None] | None = None
    """What else is done in the context of each tool."""


@dataclass(eq=False, slots=True)
class _Queues:
    """The queues of all sessions of one open store, for every agent that uses it."""

    gate: Gate = field(default_factory=Gate)
    held: dict[Slot, Held] = field(default_factory=dict[Slot, Held])
    releases: dict[Slot, asyncio.Task[None]] = field(default_factory=dict[Slot, asyncio.Task[None]])
    """Leases that are being released."""
    unreleased: dict[Slot, Lease] = field(default_factory=dict[Slot, Lease])
    """Leases that a store was too full or too far away to take back, until they run out."""
    watch: MailWatch = field(default_factory=MailWatch)
    unread: dict[tuple[Slot, str | None], list[Message | StateChange]] = field(
        default_factory=dict[tuple[Slot, str | None], list[Message | StateChange]]
    )
    """On a custom store of states: what was sent to turns and is not stored."""
    loop: asyncio.AbstractEventLoop | None = None
    """The event loop of the store, once a turn has begun there. A wait in another one would never end."""


_STEPS_TO_LEAVE = 4
"""After how many steps of the event loop a stream that was left is being closed."""

_queues: WeakKeyDictionary[object, _Queues] = WeakKeyDictionary()
_inside: ContextVar[tuple[tuple[object, Held], ...]] = ContextVar("leafward turns", default=())
"""The turns that the running tool belongs to, each with its store."""


def queues_of(place: Place) -> _Queues:
    """Return the queues that all agents on one open store share."""
    found = _queues.get(place.shared)
    if found is None and place.store is None:
        _log.warning(
            "%s is a custom store of states and has no leases: calls to one session take turns within this process "
            "only, so let no other process serve the same sessions",
            type(cast(CustomStates, place.states).source).__name__,
        )
    if found is None:
        found = _queues[place.shared] = _Queues()
    return found


def enter_tool(place: Place, held: Held) -> None:
    """Take note, in the context of a tool, which turn it belongs to."""
    _inside.set((*_inside.get(), (place.shared, held)))
    if held.on_tool is not None:
        held.on_tool()


def turns_around() -> list[TurnControl]:
    """Return the turns that the running tool belongs to."""
    return [held.control for _, held in _inside.get() if not held.ended]


@asynccontextmanager
async def turn_of(
    place: Place, slot: Slot, control: TurnControl, *, label: str | None, ttl: float
) -> AsyncGenerator[Held]:
    """Wait for the turn of a session, and have it for the length of the block; `control` can end the wait.

    Raises:
        ConfigurationError: the call is made inside a turn of the same session, which would wait for itself.
        StoreError: the store was opened in another event loop.
    """
    queues = queues_of(place)
    await _refuse_inside(place, slot, queues)
    if queues.loop not in (None, asyncio.get_running_loop()):
        raise StoreError("the agent's store was opened in another event loop: open it again in this one")
    async with AsyncExitStack() as leaving:
        await leaving.enter_async_context(queues.gate.turn(slot))
        held = Held(slot, label, None, asyncio.current_task(), control)
        if place.store is None:
            unread = queues.unread.setdefault((slot, label), [])
            leaving.callback(_forget_read, queues, held, unread)
            held.mail = LocalBox(control, unread)
        else:
            if (release := queues.releases.get(slot)) is not None:
                await asyncio.wait((release,))
            if (kept := queues.unreleased.pop(slot, None)) is not None:
                await _released(queues, kept, ttl)
            held.lease = lease = await place.store.leases.acquire(slot.session_id, slot.user_id, ttl, label=label)
            leaving.push_async_callback(_release, queues, held, ttl, getattr(place.store, "background", None))
            queues.loop = asyncio.get_running_loop()
            held.mail = MailBox(lease, control, largest=place.store.max_message_bytes)
        leaving.enter_context(_holding(place, queues, held))
        # Where the stream of a paused turn is not read on, this is left before the block is.
        control.leave_queue = leaving.aclose
        try:
            yield held
        finally:
            # The garbage collector closes the generators of an abandoned stream in any order.
            await control.close()


def _forget_read(queues: _Queues, held: Held, unread: list[Message | StateChange]) -> None:
    if not unread:
        del queues.unread[held.slot, held.label]


@contextmanager
def _holding(place: Place, queues: _Queues, held: Held) -> Generator[None]:
    queues.held[held.slot] = held
    held.control.end_wait()
    if place.store is not None and isinstance(held.mail, MailBox):
        queues.watch.add(held.mail, place.store.leases)
    try:
        yield
    finally:
        held.ended = True
        del queues.held[held.slot]
        if isinstance(held.mail, MailBox):
            queues.watch.remove(held.mail)


async def wait_for_releases(place: Place, timeout: float) -> None:
    """Wait until leases that are being released are, but not for longer than some seconds."""
    releases = queues_of(place).releases.values()
    if releases:
        await asyncio.wait(set(releases), timeout=timeout)


async def _release(queues: _Queues, held: Held, ttl: float, background: object) -> None:
    """Release a lease without waiting for the store's answer, where a closing store waits for it."""
    lease, task = held.lease, None
    assert lease is not None
    # A process that shuts down may be gone before its background tasks have ended.
    if isinstance(background, BackgroundTasks) and not held.control.is_shutting_down:
        task = background.start(_released(queues, lease, ttl))
    if task is None:
        await _released(queues, lease, ttl)
        return
    slot = lease.fence.slot
    queues.releases[slot] = task

    def forget(ended: asyncio.Task[None]) -> None:
        if queues.releases.get(slot) is ended:
            del queues.releases[slot]

    task.add_done_callback(forget)
    # A task that is cancelled before its first step does nothing at all.
    await asyncio.sleep(0)


async def _released(queues: _Queues, lease: Lease, ttl: float) -> None:
    slot = lease.fence.slot
    try:
        await lease.release()
    except LeafwardError as error:
        queues.unreleased[slot] = lease
        asyncio.get_running_loop().call_later(ttl, queues.unreleased.pop, slot, None)
        _log.warning("the lease of session %r was not released and runs out by itself: %s", lease.session_id, error)


async def _refuse_inside(place: Place, slot: Slot, queues: _Queues) -> None:
    in_its_tool = any(store is place.shared and held.slot == slot and not held.ended for store, held in _inside.get())
    if in_its_tool or await _is_in_its_stream(slot, queues):
        raise ConfigurationError(
            f"this call is made inside a turn of session {slot.session_id!r} and would wait for itself: "
            "call the agent on another session"
        )


async def _is_in_its_stream(slot: Slot, queues: _Queues) -> bool:
    """Tell whether the running task is reading the stream of the present turn, and so would wait for itself."""
    for _ in range(_STEPS_TO_LEAVE):
        held = queues.held.get(slot)
        if held is None or held.left or held.task is not asyncio.current_task():
            return False
        # A stream that was left, but not closed, is ended by the event loop.
        await asyncio.sleep(0)
    return True
