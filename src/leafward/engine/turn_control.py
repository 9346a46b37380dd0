"""How a running turn is reached from outside: stop, go on with another message, pause for a shutdown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from leafward.core.agent_state import InterruptControl
from leafward.core.message import Message

Stop = Literal["interrupt", "shutdown"]


class TurnStopped(Exception):
    """The turn is to end at this point; only the turn itself sees this error."""


@dataclass(eq=False, slots=True)
class TurnControl:
    """What a running turn is asked to do; it looks at every safe point."""

    stop: Stop | None = None
    messages: list[Message] = field(default_factory=list[Message])
    """Messages that came with an interrupt, stored after everything else."""
    steering: list[Message] = field(default_factory=list[Message])
    """Messages that join after the current round of tools."""
    earlier: list[Message] = field(default_factory=list[Message])
    """Messages that were sent to an earlier turn, which did not receive them; stored before this turn's input."""
    interrupt_control: InterruptControl | None = None
    """What tools look at."""
    _waiting: asyncio.Task[object] | None = None
    """The task that waits for the model right now."""
    _cancelled: bool = False
    """Whether the wait was cancelled from here."""

    def interrupt(self) -> None:
        """Stop the turn at its next safe point; a wait for the model ends at once."""
        if self.stop is None:
            self.stop = "interrupt"
        if self.interrupt_control is not None:
            self.interrupt_control.interrupt()
        if self._waiting is not None and not self._cancelled:
            self._cancelled = True
            self._waiting.cancel()

    def pause(self) -> None:
        """Pause the turn at its next safe point, for another process to go on with."""
        if self.stop is None:
            self.stop = "shutdown"

    # Around each piece of a stream, so kept to what is needed.

    def begin_wait(self) -> None:
        """Allow the wait for the model that begins now to be ended.

        Raises:
            TurnStopped: it is not to begin.
        """
        if self.stop == "interrupt":
            raise TurnStopped
        self._waiting = asyncio.current_task()

    def end_wait(self) -> None:
        self._waiting = None

    def was_ended(self) -> bool:
        """Tell whether a cancellation of the wait came from here alone, and take it back if it did."""
        task, self._waiting = self._waiting, None
        if not self._cancelled or task is None:
            return False
        self._cancelled = False
        return task.uncancel() == 0
