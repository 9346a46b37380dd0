"""How a running turn is reached from any process: by texts to the holder of its session's lease."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal

import msgspec

from leafward.core.errors import LeafwardError, LeaseLost
from leafward.core.message import Message
from leafward.engine.turn_control import TurnControl
from leafward.stores.lease import Lease
from leafward.stores.leases import Leases, Slot

LOOKS_EVERY_S = 0.25
"""How often a process asks whether texts wait for one of its turns."""

_log = logging.getLogger("leafward.engine")


class TurnText(msgspec.Struct):
    """What is sent to a turn."""

    kind: Literal["interrupt", "steer"]
    token: int
    """The fencing token of the turn that is meant."""
    message: dict[str, Any] | None = None

    def write(self) -> str:
        """Return the text to send."""
        return msgspec.json.encode(self).decode()


class MailBox:
    """The turn that holds a lease, and what is asked of it."""

    def __init__(self, lease: Lease, control: TurnControl) -> None:
        self._lease = lease
        self._control = control
        self._reading = asyncio.Lock()

    @property
    def slot(self) -> Slot:
        return self._lease.fence.slot

    async def read(self) -> None:
        """Take the texts that wait, and do what they say.

        A text that was meant for an earlier turn stops nothing; its message is kept.
        """
        async with self._reading:
            for text in await self._lease.receive():
                self._take(text)

    def _take(self, text: str) -> None:
        try:
            found = msgspec.json.decode(text, type=TurnText)
            message = None if found.message is None else Message.from_dict(found.message)
        except (msgspec.DecodeError, ValueError):
            _log.warning(
                "a text to the turn of session %r is not one of an agent's: %.200r", self.slot.session_id, text
            )
            return
        is_meant = found.token == self._lease.token
        if message is not None and not is_meant:
            self._control.earlier.append(message)
        elif message is not None:
            (self._control.messages if found.kind == "interrupt" else self._control.steering).append(message)
        if found.kind == "interrupt" and is_meant:
            self._control.interrupt()


class MailWatch:
    """Asks a store, once for all turns of this process, whether texts wait for them."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._boxes: dict[Slot, MailBox] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, box: MailBox) -> None:
        """Look after a turn that begins."""
        self._boxes[box.slot] = box
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="leafward turn mail")

    def remove(self, box: MailBox) -> None:
        """Look no longer after a turn that has ended."""
        if self._boxes.get(box.slot) is box:
            del self._boxes[box.slot]
        if not self._boxes and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        while self._boxes:
            await asyncio.sleep(LOOKS_EVERY_S)
            try:
                for slot in await self._leases.waiting(list(self._boxes)):
                    if (box := self._boxes.get(slot)) is not None:
                        await box.read()
            except LeaseLost:
                # The turn finds out at its next step.
                continue
            except LeafwardError as error:
                _log.warning("whether texts wait for running turns could not be asked: %s", error)
