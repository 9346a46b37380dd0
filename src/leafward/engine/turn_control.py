"""How a running turn is reached from outside: stop, go on with another message, pause for a shutdown."""

from __future__ import annotations

import asyncio
import logging
from asyncio import current_task
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

from leafward.core.agent_state import InterruptControl
from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.state_changes import StateChange
from leafward.stores.finishing import to_its_end

Stop = Literal["interrupt", "shutdown"]

_log = logging.getLogger("leafward.engine")


class TurnStopped(BaseException):
    """The turn is to end at this point; code of users does not catch it by `except Exception`."""


class Stoppable(Protocol):
    """A turn that can be ended from outside, once."""

    @property
    def is_over(self) -> bool:
        """Whether its end is stored, or could not be."""
        ...

    async def stop(self) -> None:
        """End an interrupted turn, or pause it for a shutdown, where it stands."""
        ...

    async def cancel(self) -> None:
        """End the turn of a caller who is cancelled or gone; nothing for one that has ended."""
        ...


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(eq=False, slots=True)
class TurnControl:
    """What a call is asked to do, from the moment it is made; its turn looks at every safe point."""

    stop: Stop | None = None
    messages: list[Message] = field(default_factory=list[Message])
    """Messages that came with an interrupt, stored after everything else."""
    steering: list[Message] = field(default_factory=list[Message])
    """Messages that join after the current round of tools."""
    earlier: list[Message] = field(default_factory=list[Message])
    """Messages that were sent to an earlier turn, which did not receive them; stored before this turn's input."""
    changes: list[StateChange] = field(default_factory=list["StateChange"])
    """Changes of the state, stored with the next step."""
    interrupt_control: InterruptControl | None = None
    """What tools look at."""
    is_shutting_down: bool = False
    keeps_partial: bool = True
    """Whether a pause stores what the model has said by then."""
    forced: asyncio.Future[None] = field(default_factory=_future)
    """Done when tools are no longer waited for."""
    ended: asyncio.Future[None] = field(default_factory=_future)
    """Done when nothing of the call is left that a shutdown would wait for."""
    turn: Stoppable | None = None
    """`None` while there is no turn."""
    leave_queue: Callable[[], Awaitable[None]] | None = None
    """Lets the next call have the session; `None` while this one waits for it."""
    leaving: asyncio.Task[None] | None = None
    """Ends a turn whose stream is not read on."""
    children: set[TurnControl] = field(default_factory=set["TurnControl"])
    """Turns of sub-agents, which tools of this turn have called."""
    exposed: list[AgentEvent] = field(default_factory=list["AgentEvent"])
    """What shows sub-agents that tools of this turn have called, until the stream shows it."""
    on_exposed: asyncio.Future[None] = field(default_factory=_future)
    """Done when there is something exposed."""
    is_with_reader: bool = False
    """Whether the stream's reader has an event, and has neither come for the next nor closed the stream."""
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    waiting: asyncio.Task[object] | None = None
    """The task that waits right now, for the model or for its turn."""
    tool_waits: set[asyncio.Timeout] = field(default_factory=set["asyncio.Timeout"])
    """What an interrupt ends in the tasks of tools, and while calls are judged."""
    _cancelled: bool = False
    """Whether the wait was cancelled from here."""

    def take(self, kind: Literal["interrupt", "steer"], message: Message | None) -> None:
        """Do what was sent to the turn: stop, with or without a message, or go on with one."""
        if message is not None:
            (self.messages if kind == "interrupt" else self.steering).append(message)
        if kind == "interrupt":
            self.interrupt()

    def take_change(self, change: StateChange) -> str:
        """Have a change of the state stored with the next step, and return its id."""
        self.changes.append(change)
        return change.id

    def expose(self, event: AgentEvent) -> None:
        """Have the stream show a sub-agent while its tool runs."""
        self.exposed.append(event)
        if not self.on_exposed.done():
            self.on_exposed.set_result(None)

    def take_exposed(self) -> list[AgentEvent]:
        """Return what the stream is to show now of sub-agents."""
        found, self.exposed = self.exposed, []
        if found:
            self.on_exposed = _future()
        return found

    @property
    def is_over(self) -> bool:
        """Whether the turn has ended, although its session may still be held."""
        return self.turn is not None and self.turn.is_over

    def heed_tools(self) -> None:
        """Stop the turn here if a tool has asked for it by `interrupt_control`."""
        asked = self.interrupt_control is not None and self.interrupt_control.is_interrupted
        if self.stop is None and asked:
            self.stop = "interrupt"

    def interrupt(self) -> None:
        """Stop the turn at its next safe point; a wait for the model ends at once."""
        self.stop = "interrupt"
        self._stop_now()
        while self.tool_waits:
            wait = self.tool_waits.pop()
            # One that is ending already takes no other time.
            if not wait.expired():
                wait.reschedule(self._loop.time())
        for child in list(self.children):
            if child._loop is self._loop:
                child.interrupt()
            else:
                # A tool on a thread may run it in a loop of its own, which may be closed by now.
                with suppress(RuntimeError):
                    child._loop.call_soon_threadsafe(child.interrupt)

    def pause(self, *, keeps_partial: bool = True) -> None:
        """Pause the turn at its next safe point, for another process to go on with; a call without a turn ends."""
        if self.is_shutting_down:
            return
        self.is_shutting_down = True
        self.keeps_partial = keeps_partial
        if self.stop is None:
            self.stop = "shutdown"
        self._stop_now()
        if self.is_with_reader:
            self._leave()

    def force(self) -> None:
        """Wait no longer for tools: their outcome is unknown."""
        if not self.forced.done():
            self.forced.set_result(None)

    def has_ended(self) -> None:
        """Say that nothing is left to wait for."""
        if not self.ended.done():
            self.ended.set_result(None)

    # Around each event that is handed out, so kept to what is needed.

    def hand_out(self) -> None:
        """Take note that the reader of the stream gets an event; it may never come for the next one."""
        # Nothing ends a wait, and no shutdown begins, without a stop.
        if self.stop is not None:
            self.end_wait()
            if self.is_shutting_down:
                self._leave()
        self.waiting = None
        self.is_with_reader = True

    def _leave(self) -> None:
        if self.leaving is None:
            self.leaving = asyncio.create_task(self._end_without_reader(), name="leafward turn that is not read on")
            self.leaving.add_done_callback(_report)

    async def _end_without_reader(self) -> None:
        try:
            if self.turn is not None:
                await self.turn.stop()
        finally:
            if self.leave_queue is not None:
                await self.leave_queue()
            if self.is_with_reader:
                # Else the reader has come back, and its call is about to end.
                self.has_ended()

    async def close(self) -> None:
        """Wait until nothing of the call goes on any more: a turn that has no end gets one."""
        if self.leaving is not None:
            await to_its_end(asyncio.wait((self.leaving,)))
        if self.turn is not None:
            await self.turn.cancel()

    # Around each wait that can be ended.

    def begin_wait(self) -> None:
        """Allow the wait that begins now to be ended.

        Raises:
            TurnStopped: it is not to begin.
        """
        if self.stop is not None:
            self.end_wait()
            raise TurnStopped
        self.waiting = current_task(self._loop)

    def begin_foreign_wait(self) -> None:
        """Allow a wait of a user's code to be ended, until `end_wait`; it begins also if it is to end at once."""
        self.waiting = current_task(self._loop)
        if self.stop is not None and not self.is_over:
            self._loop.call_soon(self._end_wait_now)

    def end_wait(self) -> None:
        """Take note that the wait has ended by itself."""
        if self._cancelled and self.waiting is not None:
            # Such as a model's stream that goes on in spite of a cancellation.
            self._cancelled = False
            self.waiting.uncancel()
        self.waiting = None

    def was_ended(self) -> bool:
        """Tell whether a cancellation of the wait came from here alone, and take it back if it did."""
        task, self.waiting = self.waiting, None
        if not self._cancelled or task is None:
            return False
        self._cancelled = False
        return task.uncancel() == 0

    @contextmanager
    def endable(self) -> Generator[None]:
        """Have what is awaited in the block end when the turn is to stop.

        Raises:
            TurnStopped: it has ended so, or was not to begin.
        """
        self.begin_wait()
        try:
            yield
        except BaseException as error:
            if self.was_ended() and isinstance(error, asyncio.CancelledError):
                raise TurnStopped from None
            raise
        self.end_wait()

    @asynccontextmanager
    async def interruptible(self) -> AsyncGenerator[None]:
        """Have what is awaited in the block end when the turn is interrupted, and not when it is to pause.

        Raises:
            TurnStopped: it was interrupted.
        """
        wait = asyncio.timeout(0 if self.stop == "interrupt" else None)
        try:
            async with wait:
                self.tool_waits.add(wait)
                yield
        except TimeoutError:
            if wait.expired():
                raise TurnStopped from None
            raise
        finally:
            self.tool_waits.discard(wait)

    def _stop_now(self) -> None:
        """End a wait for the model, and say so to tools that look."""
        if self.interrupt_control is not None:
            self.interrupt_control.interrupt()
        if self.waiting is not None and self.waiting is current_task(self._loop):
            # The model itself asks. A task that cancels itself may end this wait first, and be cut off in the next one.
            self._loop.call_soon(self._end_wait_now)
        else:
            self._end_wait_now()

    def _end_wait_now(self) -> None:
        if self.waiting is not None and not self._cancelled:
            self._cancelled = True
            self.waiting.cancel()


def _report(leaving: asyncio.Task[None]) -> None:
    # The reader gets the error as well, if it ever comes back.
    if not leaving.cancelled() and (error := leaving.exception()) is not None:
        _log.warning("a turn whose stream is not read on could not be paused: %s", error)
