"""The calls of one agent in this process, and how they are shut down."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Literal

from leafward.core.errors import AgentShuttingDown, ConfigurationError
from leafward.engine.turn_control import TurnControl, TurnStopped
from leafward.engine.turn_queue import turns_around

ShutdownState = Literal["running", "shutting_down", "terminated"]
"""Calls are taken; calls are refused, and some have not ended; calls are refused, and all have ended."""
PartialReasoning = Literal["save", "discard"]
"""What becomes of the text that a model has sent when its turn is paused."""

STORING_S = 5.0
"""How long a turn may take, after the time of a shutdown is over, to end its tools and to be stored."""

_log = logging.getLogger("leafward.engine")


class AgentCalls:
    """The calls that an agent has taken and not ended, in their queues or in their turns."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: set[TurnControl] = set()
        self._is_shutting_down = False

    @property
    def state(self) -> ShutdownState:
        if not self._is_shutting_down:
            return "running"
        return "terminated" if all(call.ended.done() for call in self._calls) else "shutting_down"

    @property
    def has_tool_around(self) -> bool:
        """Whether the running code belongs to a tool of one of these calls."""
        return not self._calls.isdisjoint(turns_around())

    def __contains__(self, control: TurnControl) -> bool:
        """Tell whether a call is one of this agent's."""
        return control in self._calls

    @contextmanager
    def begin(self) -> Generator[TurnControl]:
        """Take a call for the length of the block; it waits until its control says that the wait has ended.

        Raises:
            AgentShuttingDown: calls are refused, now or while this one waits.
            TurnStopped: an interrupt has ended its wait.
        """
        if self._is_shutting_down:
            raise AgentShuttingDown(self._name)
        control = TurnControl()
        self._calls.add(control)
        control.begin_wait()
        try:
            yield control
        except asyncio.CancelledError:
            if control.was_ended():
                raise (AgentShuttingDown(self._name) if control.is_shutting_down else TurnStopped) from None
            raise
        finally:
            self._calls.discard(control)
            control.has_ended()

    async def shut_down(self, timeout: float | None, partial_reasoning: PartialReasoning) -> bool:
        """Refuse calls, pause the turns, and wait for them; return whether all have ended.

        A call in one of whose tools this runs is not waited for.

        Raises:
            ConfigurationError: an option is wrong.
        """
        check_shutdown(timeout, partial_reasoning)
        self._is_shutting_down = True
        for call in list(self._calls):
            call.pause(keeps_partial=partial_reasoning == "save")
        left = self._calls.difference(turns_around())
        left = await _wait(left, timeout)
        for call in left:
            call.force()
        left = await _wait(left, STORING_S)
        if left:
            _log.warning(
                "agent %r shuts down with %d calls that did not end in time: they count as lost, and go on elsewhere",
                self._name,
                len(left),
            )
        return not left


async def _wait(calls: Iterable[TurnControl], timeout: float | None) -> set[TurnControl]:
    """Wait until calls have ended, and return those that have not."""
    ends = [call.ended for call in calls]
    if ends:
        await asyncio.wait(ends, timeout=timeout)
    return {call for call in calls if not call.ended.done()}


def check_shutdown(timeout: float | None, partial_reasoning: str) -> None:
    """Refuse options of a shutdown that are wrong.

    Raises:
        ConfigurationError: the text says which.
    """
    if timeout is not None and not 0 <= timeout < math.inf:
        raise ConfigurationError(f"timeout is a number of seconds, or None to wait without end, not {timeout!r}")
    if partial_reasoning not in ("save", "discard"):
        raise ConfigurationError(f"partial_reasoning is 'save' or 'discard', not {partial_reasoning!r}")
