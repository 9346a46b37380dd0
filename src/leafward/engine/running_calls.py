"""The calls of one reply while they run, all at once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING, cast

from leafward.core.calls import Call
from leafward.core.errors import AgentShuttingDown, LeaseLost, StoreError
from leafward.engine.child_sessions import enter_call
from leafward.engine.recovery import idempotency_key
from leafward.engine.turn_control import TurnControl, TurnStopped
from leafward.tools.answers import describe_failure, describe_missing
from leafward.tools.definition import Tool
from leafward.tools.runner import TIMEOUT_GRACE_S, Outcome, ask_probe, attempt, failed, log_failure
from leafward.tools.runtime_context import RuntimeContext, for_tool
from leafward.tools.toolkit import Toolkit

if TYPE_CHECKING:
    from leafward.engine.call_layers import CallLayers
    from leafward.stores.leases.lease import Lease

Started = asyncio.Task[Outcome | None]
Ended = tuple[Call, Outcome | None]
"""A call that has ended, and how; `None` if that is not known."""

_log = logging.getLogger("leafward.engine")

_given_up: set[Started] = set()
"""Calls that are no longer waited for, kept from the garbage collector until they end."""


class RunningCalls:
    """The calls of one reply while they run."""

    def __init__(
        self,
        tools: Toolkit,
        ctx: RuntimeContext,
        lease: Lease | None,
        *,
        control: TurnControl,
        enter: Callable[[], None],
        layers: CallLayers,
    ) -> None:
        self._tools = tools
        self._ctx = ctx
        self._lease = lease
        self._control = control
        self._forced = control.forced
        self._enter = enter
        self._layers = layers
        self.running: dict[Started, Call] = {}
        self._begun: set[tuple[str, str]] = set()
        """All calls that were started; replies may use the same ids."""
        self._paused: set[tuple[str, str]] = set()
        self._known: dict[tuple[str, str], Outcome] = {}
        """How tools have ended whose calls may still be with middleware or hooks."""

    def start(self, calls: Sequence[Call], *, probed: bool = False) -> None:
        """Begin calls whose intent is stored; with `probed`, their tools find out first whether they took effect.

        Raises:
            LeaseLost: another process may have the session; no tool was started.
        """
        self._check_lease()
        # Before a tool runs: it may change which groups are active.
        offered = self.offered()
        for call in calls:
            context = copy_context()
            context.run(self._enter)
            context.run(enter_call, call)
            task = asyncio.create_task(self._perform(call, offered, probed), name=f"call {call.id}", context=context)
            self.running[task] = call
            self._begun.add((call.message.id, call.id))

    def offered(self) -> dict[str, Tool]:
        """Return the tools that are active in the session now."""
        return self._tools.offered(self._ctx.agent_state.tool_context.activated_groups)

    def has_begun(self, call: Call) -> bool:
        """Tell whether a call was started, here."""
        return (call.message.id, call.id) in self._begun

    def is_paused(self, call: Call) -> bool:
        """Tell whether a call was cut off by the shutdown of an agent that its tool has called."""
        return (call.message.id, call.id) in self._paused

    def _check_lease(self) -> None:
        if self._lease is not None and not self._lease.held:
            raise LeaseLost(self._lease.session_id)

    def is_lost(self, error: BaseException) -> bool:
        """Tell whether an error says that the lease of this turn is lost, and not that of another session."""
        if not isinstance(error, LeaseLost):
            return False
        return error.session_id == self._ctx.session_id or (self._lease is not None and not self._lease.held)

    async def _perform(self, call: Call, offered: Mapping[str, Tool], probed: bool) -> Outcome | None:
        """Return what became of a call; `None` if nothing finds out."""
        key = idempotency_key(call.message.id, call.id)
        token = None if self._lease is None else self._lease.token
        ctx = for_tool(self._ctx, idempotency_key=key, fencing_token=token)
        try:
            return await self._layers.acting(
                call, ctx, lambda arguments: self._attempt_anew(call, arguments, ctx, offered, probed)
            )
        except LeaseLost as error:
            if self.is_lost(error):
                raise
            # Such as that of an agent which the tool has called.
            outcome = failed(describe_failure(call.name, error), error)
            log_failure(call.name, outcome)
            return outcome

    async def _attempt_anew(
        self, call: Call, arguments: object, ctx: RuntimeContext, offered: Mapping[str, Tool], probed: bool
    ) -> Outcome | None:
        """Run the tool, and remember how it ended, in case what surrounds it fails or is cut off."""
        named = call.message.id, call.id
        self._known.pop(named, None)
        outcome = await self._attempt(call, arguments, ctx, offered, probed)
        if outcome is not None:
            self._known[named] = outcome
        return outcome

    async def _attempt(
        self, call: Call, arguments: object, ctx: RuntimeContext, offered: Mapping[str, Tool], probed: bool
    ) -> Outcome | None:
        tool = offered.get(call.name)
        if tool is None:
            if call.name in self._tools:
                return failed(describe_missing(call.name, offered, why="this session has not activated the tool"))
            return failed(describe_missing(call.name, offered))
        if probed:
            try:
                found = await ask_probe(tool, arguments, ctx.idempotency_key or "")
            except StoreError:
                raise
            except Exception as error:
                if self.is_lost(error):
                    raise
                _log.warning("the probe of tool %r failed: the outcome is unknown", tool.name, exc_info=True)
                return None
            if found is not None:
                return found
        outcome = await attempt(tool, arguments, ctx, check=self._check_lease)
        if self._control.is_shutting_down and _is_of_shutdown(outcome.error):
            # Where this turn goes on, the call does, and so the agent that it called.
            self._paused.add((call.message.id, call.id))
            raise TurnStopped
        log_failure(tool.name, outcome)
        return outcome

    async def next_results(self, news: asyncio.Future[None]) -> list[Ended]:
        """Wait until one of the calls ends, and return all that have; `None` for one whose outcome is unknown.

        None has where there are `news` before.

        Raises:
            TurnStopped: none has, and they are no longer waited for, or what one called is shut down with this turn.
            StoreError, LeaseLost: a tool met a store that failed, or a lease that was lost.
        """
        await asyncio.wait((*self.running, self._forced, news), return_when=asyncio.FIRST_COMPLETED)
        ended = self._ended()
        if not ended and self._forced.done():
            raise TurnStopped
        return ended

    def _ended(self) -> list[Ended]:
        done = [task for task in self.running if task.done()]
        # An error is raised when no result is left that could be stored.
        sound = [task for task in done if not task.cancelled() and task.exception() is None]
        ended = [(self.running[task], task.result()) for task in sound or done]
        for task in sound:
            del self.running[task]
        return ended

    async def finish(self) -> list[Ended]:
        """Wait until all calls have ended, and return how; `None` for a call that was cut off.

        Those that run when they are no longer waited for are cancelled. One that does not end then goes on by itself.
        """
        while left := [task for task in self.running if not task.done()]:
            if self._forced.done():
                await self._cancel(left)
                break
            await asyncio.wait((*left, self._forced), return_when=asyncio.FIRST_COMPLETED)
        return self._all_ended()

    async def _cancel(self, tasks: Sequence[Started]) -> None:
        for task in tasks:
            _given_up.add(task)
            task.add_done_callback(_has_ended)
            task.cancel()
        await asyncio.wait(tasks, timeout=TIMEOUT_GRACE_S)

    async def stop(self) -> list[Ended]:
        """Cancel what runs, wait for it, and return how it ended; `None` for a call that was cut off."""
        for task in self.running:
            task.cancel()
        return await self.finish()

    def _all_ended(self) -> list[Ended]:
        ended = [(call, self._outcome(task, call)) for task, call in self.running.items()]
        self.running.clear()
        return ended

    def _outcome(self, task: Started, call: Call) -> Outcome | None:
        is_cut_off = not task.done() or task.cancelled() or task.exception() is not None
        return self._known.get((call.message.id, call.id)) if is_cut_off else task.result()


def _is_of_shutdown(error: BaseException | None) -> bool:
    """Tell whether a tool failed only because agents that it has called shut down."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_of_shutdown, cast(BaseExceptionGroup[BaseException], error).exceptions))
    return isinstance(error, AgentShuttingDown)


def _has_ended(task: Started) -> None:
    _given_up.discard(task)
    if not task.cancelled():
        task.exception()  # No caller is left to raise it to.
