"""Runs the calls of one reply, all at once, and stores each result as its tool ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import TYPE_CHECKING

from leafward.core.calls import Call
from leafward.core.errors import LeaseLost
from leafward.core.message import Message
from leafward.engine.events import AgentEvent
from leafward.engine.recovery import idempotency_key
from leafward.tools.definition import Tool
from leafward.tools.runner import Outcome, ask_probe, failed, run
from leafward.tools.runtime_context import RuntimeContext, for_tool

if TYPE_CHECKING:
    from leafward.stores.lease import Lease

Started = asyncio.Task[Outcome | None]


class Acting:
    """The calls of one reply while they run."""

    def __init__(
        self,
        tools: Mapping[str, Tool],
        ctx: RuntimeContext,
        lease: Lease | None,
        *,
        enter: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._ctx = ctx
        self._lease = lease
        self._enter = enter
        self.running: dict[Started, Call] = {}

    def start(self, calls: Sequence[Call], *, probed: bool = False) -> None:
        """Begin calls whose intent is stored; with `probed`, their tools find out first whether they took effect.

        Raises:
            LeaseLost: another process may have the session; no tool was started.
        """
        if self._lease is not None and not self._lease.held:
            raise LeaseLost(self._lease.session_id)
        for call in calls:
            context = copy_context()
            context.run(self._enter)
            task = asyncio.create_task(self._perform(call, probed), name=f"call {call.id}", context=context)
            self.running[task] = call

    async def _perform(self, call: Call, probed: bool) -> Outcome | None:
        tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return failed(f"there is no tool {call.name!r}. Call one of: {known}.")
        key = idempotency_key(call.message.id, call.id)
        if probed:
            found = await ask_probe(tool, call.arguments, key)
            if found is not None:
                return found
        token = None if self._lease is None else self._lease.token
        return await run(tool, call.arguments, for_tool(self._ctx, idempotency_key=key, fencing_token=token))

    async def next_results(self) -> list[tuple[Call, Outcome]]:
        """Wait until one of the calls ends, and return all that have.

        Raises:
            StoreError, LeaseLost: a tool met a store that failed, or a lease that was lost.
        """
        await asyncio.wait(self.running, return_when=asyncio.FIRST_COMPLETED)
        return self._ended()

    def _ended(self) -> list[tuple[Call, Outcome]]:
        done = [task for task in self.running if task.done()]
        return [(self.running.pop(task), outcome) for task in done if (outcome := task.result()) is not None]

    async def finish(self) -> list[tuple[Call, Outcome | None]]:
        """Wait until all calls have ended, and return how."""
        if self.running:
            await asyncio.wait(self.running)
        return self._all_ended()

    async def stop(self) -> list[tuple[Call, Outcome | None]]:
        """Cancel what runs, wait for it, and return how it ended; `None` for a call that was cut off."""
        for task in self.running:
            task.cancel()
        return await self.finish()

    def _all_ended(self) -> list[tuple[Call, Outcome | None]]:
        ended = [
            (call, None if task.cancelled() or task.exception() is not None else task.result())
            for task, call in self.running.items()
        ]
        self.running.clear()
        return ended


def result_message(call: Call, outcome: Outcome) -> Message:
    """Return the result of a call as it is stored."""
    return Message.tool_result(call.id, outcome.parts, call.name, state=outcome.state)


def result_events(reply_id: str, call: Call, message: Message) -> list[AgentEvent]:
    """Return the events of a result that is stored."""
    state = str(message.parts[0].get("state", ""))
    return [
        AgentEvent("TOOL_RESULT_START", reply_id, call_id=call.id, name=call.name),
        AgentEvent("TOOL_RESULT_TEXT_DELTA", reply_id, call_id=call.id, name=call.name, text=_text(message)),
        AgentEvent(
            "TOOL_RESULT_END", reply_id, call_id=call.id, name=call.name, message=message, state=state, committed=True
        ),
    ]


def _text(message: Message) -> str:
    blocks = message.parts[0]["output"]
    return "\n".join(block["text"] for block in blocks if block.get("type") == "text")
