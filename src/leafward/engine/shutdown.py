"""Shuts agents down together: when a program asks for it, or when a signal does."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from leafward.core.errors import ConfigurationError
from leafward.engine.agent_calls import PartialReasoning, ShutdownState, check_shutdown

if TYPE_CHECKING:
    from leafward.engine.agent import ReActAgent

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class ShutdownManager:
    """Shuts down the agents that it was given, at once and with the same options.

    `timeout` is how long tools that have begun are waited for, in seconds; `None` waits without end.
    `partial_reasoning` says whether the text of a reply that is being streamed is stored (`save`), or asked for again
    when the turn goes on (`discard`).

    Raises:
        ConfigurationError: an option is wrong, or there is no agent.
    """

    def __init__(
        self,
        *agents: ReActAgent,
        timeout: float | None = 30,
        partial_reasoning: PartialReasoning = "save",
    ) -> None:
        check_shutdown(timeout, partial_reasoning)
        if not agents:
            raise ConfigurationError("no agent to shut down was given")
        self._agents = agents
        self._timeout = timeout
        self._partial_reasoning: PartialReasoning = partial_reasoning

    @property
    def state(self) -> ShutdownState:
        """`running` while every agent takes calls, `terminated` once none has any left, else `shutting_down`."""
        states: set[ShutdownState] = {agent.shutdown_state for agent in self._agents}
        return states.pop() if len(states) == 1 else "shutting_down"

    async def shutdown(self) -> bool:
        """Shut all agents down, as `agent.shutdown` does, and return whether all their calls have ended.

        A second call waits for the same calls. One that is cancelled has stopped waiting, and nothing else.
        """
        ended = await asyncio.gather(
            *(
                agent.shutdown(timeout=self._timeout, partial_reasoning=self._partial_reasoning)
                for agent in self._agents
            )
        )
        return all(ended)


def install_shutdown_signals(
    *agents: ReActAgent, timeout: float | None = 30, partial_reasoning: PartialReasoning = "save"
) -> ShutdownSignals:
    """Shut agents down when the process gets SIGTERM or SIGINT, and then do what the signal did before.

    Call it in the main thread, in a running event loop; with uvicorn, in the application's lifespan. What was installed
    before is called once the agents are shut down, or at once for a second signal: uvicorn stops, asyncio cancels its
    main task, and a process without a handler ends as it would have. Leaving the returned object, or its `uninstall()`,
    brings back what was there.

    Raises:
        ConfigurationError: it is called elsewhere, or an option is wrong.
    """
    manager = ShutdownManager(*agents, timeout=timeout, partial_reasoning=partial_reasoning)
    if threading.current_thread() is not threading.main_thread():
        raise ConfigurationError("signals are handled in the main thread: install them there")
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        raise ConfigurationError("no event loop runs here: install signals in a coroutine, such as main()") from None
    return ShutdownSignals(manager, loop, SIGNALS)


class ShutdownSignals:
    """Handlers of signals that shut agents down; `with` removes them at its end."""

    def __init__(
        self, manager: ShutdownManager, loop: asyncio.AbstractEventLoop, signals: Sequence[signal.Signals]
    ) -> None:
        self.manager = manager
        self._loop = loop
        self._task: asyncio.Task[None] | None = None
        self._has_begun = False
        self._has_passed_on = False
        # `None` is a handler that was not installed by Python, and cannot be called from here.
        self._before: dict[int, Any] = {number: signal.signal(number, self._handle) for number in signals}

    def uninstall(self) -> None:
        """Bring back the handlers that were there before; one that was installed since then stays."""
        for number, before in self._before.items():
            if signal.getsignal(number) == self._handle:
                signal.signal(number, signal.SIG_DFL if before is None else before)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.uninstall()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._has_begun or self._loop.is_closed():
            self._pass_on(number, frame)
            return
        self._has_begun = True
        # A handler may run between any two steps of the program: the loop does the rest.
        self._loop.call_soon_threadsafe(self._begin, number)

    def _begin(self, number: int) -> None:
        self._task = self._loop.create_task(self._shut_down(number), name="leafward shutdown by a signal")

    async def _shut_down(self, number: int) -> None:
        try:
            await self.manager.shutdown()
        finally:
            if not self._has_passed_on:
                self._pass_on(number, None)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        self._has_passed_on = True
        before = self._before[number]
        if callable(before):
            before(number, frame)
        elif before != signal.SIG_IGN:
            self.uninstall()
            signal.raise_signal(number)
