"""How a running turn is reached from any process: by texts to the holder of its session's lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from itertools import takewhile
from typing import Any, Literal

import msgspec

from leafward.core.agent_state import AgentState
from leafward.core.errors import LeafwardError, LeaseLost, MessageTooLarge, StateDecodeError
from leafward.core.message import Message, check_size, own_copy
from leafward.engine.state_changes import StateChange
from leafward.engine.turn_control import TurnControl
from leafward.stores.leases import Leases, Slot
from leafward.stores.leases.lease import Lease

LOOKS_EVERY_S = 0.25
"""How often a process asks whether texts wait for one of its turns."""

_log = logging.getLogger("leafward.engine")


class TurnText(msgspec.Struct):
    """What is sent to a turn."""

    kind: Literal["interrupt", "steer", "change"]
    token: int
    """The fencing token of the turn that is meant."""
    message: dict[str, Any] | None = None
    change: StateChange | None = None
    """What is changed, whichever turn reads it."""

    def write(self) -> str:
        """Return the text to send."""
        return msgspec.json.encode(self).decode()


class MailBox:
    """The turn that holds a lease, and what is asked of it.

    The store keeps a text until its message is stored: a turn that ends before, however it ends, leaves it to the next.
    """

    def __init__(self, lease: Lease, control: TurnControl, *, largest: int) -> None:
        self._lease = lease
        self._control = control
        self._largest = largest
        """How many bytes of JSON a message may have in this store."""
        self._reading = asyncio.Lock()
        self._seen = 0
        """The number of the last text that was read."""
        self._kept: list[tuple[int, str | None]] = []
        """The texts that the store still has, by number, each with the id of its message."""

    @property
    def slot(self) -> Slot:
        return self._lease.fence.slot

    @property
    def waits(self) -> bool:
        """Whether a text was read whose message may not be stored."""
        return bool(self._kept)

    @property
    def kept(self) -> list[str]:
        """The ids of what was read and the store still has."""
        return [id for _, id in self._kept if id is not None]

    async def read(self) -> None:
        """Read the texts that wait, and do what they say.

        A text that was meant for an earlier turn stops nothing; its message is kept.

        Raises:
            LeaseLost: the lease is no longer held.
        """
        async with self._reading:
            for number, text in await self._lease.peek():
                if number > self._seen:
                    self._seen = number
                    self._kept.append((number, self._take(text)))

    async def acknowledge(self, stored: Collection[str]) -> None:
        """Have the store delete the texts whose messages are stored.

        Raises:
            LeaseLost: the lease is no longer held.
        """
        done = list(takewhile(lambda one: one[1] is None or one[1] in stored, self._kept))
        if done:
            await self._lease.acknowledge(done[-1][0])
            del self._kept[: len(done)]

    def _take(self, text: str) -> str | None:
        """Do what a text says, and return the id of its message."""
        try:
            found = msgspec.json.decode(text, type=TurnText)
            message = None if found.message is None else Message.from_dict(found.message)
            if found.change is not None:
                # One that no state can take would be refused at each step.
                found.change.apply(AgentState())
        except (msgspec.DecodeError, StateDecodeError, ValueError):
            _log.warning(
                "a text to the turn of session %r is not one of an agent's: %.200r", self.slot.session_id, text
            )
            return None
        if found.kind == "change":
            return None if found.change is None else self._control.take_change(found.change)
        if message is not None and not self._fits(message):
            message = None
        if found.token == self._lease.token:
            self._control.take(found.kind, message)
        elif message is not None:
            self._control.earlier.append(message)
        return None if message is None else message.id

    def _fits(self, message: Message) -> bool:
        """Tell whether the store takes a message, which a process with a larger limit may have sent."""
        try:
            check_size(message, message.sealed()[1], self._largest)
        except MessageTooLarge as error:
            _log.warning("a message to the turn of session %r is left out: %s", self.slot.session_id, error)
            return False
        return True


class LocalBox:
    """What is sent to the turns of a session whose store has no leases: only a turn of this process is reached.

    What a turn ends without storing is left to the next, as `MailBox` does.
    """

    def __init__(self, control: TurnControl, waiting: list[Message | StateChange]) -> None:
        self._control = control
        self._waiting = waiting
        self._earlier = list(waiting)

    @property
    def waits(self) -> bool:
        """Whether something may not be stored."""
        return bool(self._waiting)

    @property
    def kept(self) -> list[str]:
        """Nothing: what is stored is not kept."""
        return []

    def take_change(self, change: StateChange) -> None:
        """Have the turn store a change of the state with its next step, and keep the change until it is stored."""
        self._waiting.append(change)
        self._control.take_change(change)

    def take(self, kind: Literal["interrupt", "steer"], message: Message | None) -> None:
        """Do what is sent to the turn, and keep the message until it is stored."""
        # The caller still has the message.
        message = None if message is None else own_copy(message)
        if message is not None:
            self._waiting.append(message)
        self._control.take(kind, message)

    async def read(self) -> None:
        """Read what an earlier turn was sent and did not store."""
        earlier, self._earlier = self._earlier, []
        for one in earlier:
            if isinstance(one, StateChange):
                self._control.take_change(one)
            else:
                self._control.earlier.append(one)

    async def acknowledge(self, stored: Collection[str]) -> None:
        """Keep no longer what is stored."""
        self._waiting[:] = [one for one in self._waiting if one.id not in stored]


class MailWatch:
    """Asks a store, once for all turns of this process, whether texts wait for them.

    It has the leases only while a turn runs: what is kept for an open store must not keep it alive.
    """

    def __init__(self) -> None:
        self._boxes: dict[Slot, MailBox] = {}
        self._timer: asyncio.TimerHandle | None = None
        """Begins the next look. Most turns end before, so that none of them costs a task."""
        self._task: asyncio.Task[None] | None = None

    def add(self, box: MailBox, leases: Leases) -> None:
        """Look after a turn that begins."""
        self._boxes[box.slot] = box
        if self._timer is None and (self._task is None or self._task.done()):
            self._wait(leases)

    def remove(self, box: MailBox) -> None:
        """Look no longer after a turn that has ended."""
        if self._boxes.get(box.slot) is box:
            del self._boxes[box.slot]
        if self._boxes:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _wait(self, leases: Leases) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOKS_EVERY_S, self._begin, leases)

    def _begin(self, leases: Leases) -> None:
        self._timer = None
        self._task = asyncio.create_task(self._look(leases), name="leafward turn mail")

    async def _look(self, leases: Leases) -> None:
        try:
            for slot in await leases.waiting(list(self._boxes)):
                if (box := self._boxes.get(slot)) is not None:
                    await self._read(box)
        except LeafwardError as error:
            _log.warning("whether texts wait for running turns could not be asked: %s", error)
        if self._boxes and self._timer is None:
            self._wait(leases)

    async def _read(self, box: MailBox) -> None:
        try:
            await box.read()
        except LeaseLost:
            # The turn finds out at its next step; the texts are for its successor.
            self.remove(box)
        except LeafwardError as error:
            _log.warning("texts to a turn of session %r could not be read: %s", box.slot.session_id, error)
