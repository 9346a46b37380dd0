"""Turns that are stopped while a middleware waits, or catches what it can."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    CompactionConfig,
    Message,
    open_store,
    tool,
)
from leafward.engine import (
    AgentEvent,
    Middleware,
    ModelRequest,
)
from leafward.stores import Store
from leafward.testing import call
from tests.engine.surrounded import (
    ALICE,
    Agent,
    Model,
    Noted,
    Reasoning,
    agent,
    goes_on,
    reason,
    texts,
)


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


# Stops.


class Waits(Middleware):
    """Waits at one place, until the turn is stopped."""

    def __init__(self, point: str, when: str) -> None:
        self.waiting = asyncio.Event()
        self.point = point
        self.when = when
        self.swallows = False
        setattr(self, point, self._around)

    async def _around(self, ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        if self.when == "before":
            await self._wait()
        async for event in call_next(request):
            if self.when == "during":
                self.when = "done"
                await self._wait()
            yield event
        if self.when == "after":
            await self._wait()

    async def _wait(self) -> None:
        self.waiting.set()
        await asyncio.sleep(60)


STREAMS = ("on_agent", "on_reasoning", "on_model_call")


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("point", STREAMS)
async def test_an_interrupt_ends_the_wait_of_a_middleware(store: Store, point: str, when: str) -> None:
    waits = Waits(point, when)
    cook = agent(store, [["Half ", "a thought."]], Noted("a", []), waits, Noted("b", []))
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await waits.waiting.wait()

    if point == "on_agent" and when == "after":
        # The reply is stored and passed on: there is no turn any more.
        assert not await cook.interrupt("alice", "s1", "stop")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await texts(cook) == ["Hi", "Half \na thought."]
    else:
        assert await cook.interrupt("alice", "s1", "stop")
        async with asyncio.timeout(5):
            assert reason(await task) == "INTERRUPTED"
        assert (await texts(cook))[-1] == "stop"
    await goes_on(cook, store)


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("point", STREAMS)
async def test_a_shutdown_ends_the_wait_of_a_middleware_and_another_agent_goes_on(
    store: Store, point: str, when: str
) -> None:
    waits = Waits(point, when)
    cook = agent(store, [["Half ", "a thought."]], waits)
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await waits.waiting.wait()

    async with asyncio.timeout(5):
        assert await cook.shutdown(timeout=1)
    with pytest.raises(AgentShuttingDown):
        await task
    assert (await agent(store, ["Whole."]).call("Hi", ALICE)).text == "Whole."
    assert (await texts(agent(store, []))).count("Hi") == 1


async def test_an_interrupt_reaches_a_middleware_that_waits_while_the_reader_has_an_event(store: Store) -> None:
    async def lazy(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        async for event in call_next(request):
            yield event
            if event.type == "TEXT_BLOCK_DELTA":
                await asyncio.sleep(60)

    cook = agent(store, [["Half ", "a thought."]], Agent(lazy))
    reply: Message | None = None

    async with asyncio.timeout(5):
        async for event in cook.stream("Hi", ALICE):
            if event.type == "TEXT_BLOCK_DELTA":
                assert await cook.interrupt("alice", "s1")
            reply = event.message or reply

    assert reply is not None
    assert reason(reply) == "INTERRUPTED"
    await goes_on(cook, store)


async def test_a_middleware_that_catches_every_exception_does_not_hold_up_an_interrupt(store: Store) -> None:
    asked = asyncio.Event()

    async def think(_: ModelRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "late"

    async def stubborn(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        while True:
            try:
                async for event in call_next(request):
                    yield event
                return
            except Exception:
                continue

    cook = agent(store, think, Reasoning(stubborn), Model(stubborn))
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await asked.wait()

    assert await cook.interrupt("alice", "s1")
    async with asyncio.timeout(5):
        assert reason(await task) == "INTERRUPTED"
    await goes_on(cook, store)


@pytest.mark.parametrize("compaction", [None, CompactionConfig(trigger_tokens=50_000)])
async def test_the_prompt_is_made_once_for_a_request_and_an_interrupt_ends_its_making(
    store: Store, compaction: CompactionConfig | None
) -> None:
    made: list[str] = []
    waiting = asyncio.Event()

    class Slow(Middleware):
        async def on_system_prompt(self, ctx: Any, prompt: str) -> str:
            made.append(prompt)
            if len(made) > 1:
                waiting.set()
                await asyncio.sleep(60)
            return prompt

    cook = agent(store, ["Hi."], Slow(), compaction=compaction)
    await cook.call("Hi", ALICE)
    assert len(made) == 1

    task = asyncio.create_task(cook.call("Again", ALICE))
    await waiting.wait()
    assert await cook.interrupt("alice", "s1")
    async with asyncio.timeout(3):
        assert reason(await task) == "INTERRUPTED"
    await goes_on(cook, store)


async def test_an_interrupt_ends_the_check_of_a_tool(store: Store) -> None:
    waiting = asyncio.Event()

    async def check(arguments: Any, ctx: Any) -> None:
        waiting.set()
        await asyncio.sleep(60)

    @tool(check=check)
    async def pay() -> str:
        """Pay."""
        raise AssertionError

    cook = agent(store, [[call("pay", id="c1")]], tools=[pay])
    task = asyncio.create_task(cook.call("Pay.", ALICE))
    await waiting.wait()

    assert await cook.interrupt("alice", "s1")
    async with asyncio.timeout(3):
        assert reason(await task) == "INTERRUPTED"
    result = (await cook.session("alice", "s1").get_raw_history())[-1]
    assert result.parts[0]["output"][0]["text"] == "Interrupted before it ran."
    await goes_on(cook, store)
