"""Calls to one session wait for each other, in the order they were made; calls to others do not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from leafward import ConfigurationError, RuntimeContext, open_store, tool
from leafward.engine.agent import ReActAgent
from leafward.engine.models.model import ModelRequest
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")
QUEUED = 200
AT_ONCE = 500


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


async def test_200_queued_calls_keep_their_order_although_many_are_cancelled(store: Store) -> None:
    rng = random.Random(17)
    answered: list[str] = []

    async def answer(request: ModelRequest) -> str:
        answered.append(request.messages[-1].text)
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(0)
        return "Done."

    agents = [ReActAgent("cook", ScriptedModel(answer), store=store) for _ in range(3)]
    calls = [asyncio.create_task(rng.choice(agents).call(f"{number}", ALICE)) for number in range(QUEUED)]
    cancelled: set[int] = set()
    while not all(one.done() for one in calls):
        victim = rng.randrange(QUEUED)
        if not calls[victim].done() and len(cancelled) < QUEUED // 2:
            calls[victim].cancel()
            cancelled.add(victim)
        await asyncio.sleep(0)

    assert len(cancelled) > QUEUED // 4
    kept = [number for number in range(QUEUED) if number not in cancelled]
    assert all(calls[number].result().text == "Done." for number in kept)
    # One that was cancelled in its turn had been asked; nobody was asked before one who called earlier.
    assert [int(text) for text in answered] == sorted(int(text) for text in answered)
    assert set(kept) <= {int(text) for text in answered}
    history = await agents[0].session("alice", "s1").get_raw_history()
    said = [int(message.text) for message in history if message.role == "user"]
    assert said == sorted(said)
    assert set(kept) <= set(said)


async def test_a_waiter_that_is_cancelled_lets_nobody_pass(store: Store) -> None:
    order: list[str] = []
    entered, leave = asyncio.Event(), asyncio.Event()

    async def answer(request: ModelRequest) -> str:
        order.append(request.messages[-1].text)
        entered.set()
        await leave.wait()
        return "Done."

    agent = ReActAgent("cook", ScriptedModel(answer), store=store)
    first, second, third = (asyncio.create_task(agent.call(name, ALICE)) for name in ("first", "second", "third"))
    await entered.wait()
    second.cancel()
    with suppress(asyncio.CancelledError):
        await second
    late = asyncio.create_task(agent.call("late", ALICE))
    leave.set()
    await asyncio.gather(first, third, late)

    assert order == ["first", "third", "late"]


async def test_500_sessions_are_served_at_once_by_one_agent(store: Store) -> None:
    together = asyncio.Barrier(AT_ONCE)

    async def answer(request: ModelRequest) -> str:
        # Nobody goes on before everybody is here.
        await together.wait()
        return f"answer to {request.messages[-1].text}"

    agent = ReActAgent("cook", ScriptedModel(answer), store=store)
    async with asyncio.timeout(60):
        replies = await asyncio.gather(
            *(agent.call(f"question {n}", RuntimeContext("alice", f"s{n}")) for n in range(AT_ONCE))
        )

    assert [reply.text for reply in replies] == [f"answer to question {n}" for n in range(AT_ONCE)]
    for number in (0, AT_ONCE // 2, AT_ONCE - 1):
        history = await agent.session("alice", f"s{number}").get_raw_history()
        assert [message.text for message in history] == [f"question {number}", f"answer to question {number}"]


Within = Callable[[Awaitable[Any]], Awaitable[Any]]


async def _in_a_task(work: Awaitable[Any]) -> Any:
    async def do() -> Any:
        return await work

    return await asyncio.create_task(do())


async def _directly(work: Awaitable[Any]) -> Any:
    return await work


@pytest.mark.parametrize("within", [_directly, _in_a_task])
@pytest.mark.parametrize("by", ["the same agent", "another agent", "another agent of another name"])
async def test_a_tool_that_calls_an_agent_on_its_own_session_gets_an_error(
    store: Store, within: Within, by: str
) -> None:
    found: list[BaseException] = []

    @tool
    async def ask_again() -> str:
        """Ask again."""
        name = "helper" if by.endswith("name") else "cook"
        agent = asking if by == "the same agent" else ReActAgent(name, ScriptedModel(["Never."]), store=store)
        async with asyncio.timeout(10):
            try:
                await within(agent.call("inside", ALICE))
            except ConfigurationError as error:
                found.append(error)
        # Another session is another matter.
        other = ReActAgent("helper", ScriptedModel(["Of course."]), store=store)
        return (await within(other.call("inside", RuntimeContext("alice", "s2")))).text

    model = ScriptedModel([[call("ask_again", {}, id="c1")], "Done."])
    asking = ReActAgent("cook", model, store=store, tools=[ask_again])

    assert (await asking.call("Ask", ALICE)).text == "Done."
    assert "'s1'" in str(found[0])
    assert "Of course." in str(model.requests[1].messages[-1].parts)


async def test_what_a_tool_left_running_may_call_the_agent_once_the_turn_has_ended(store: Store) -> None:
    tasks: list[asyncio.Task[Any]] = []
    ended = asyncio.Event()

    async def later() -> str:
        await ended.wait()
        return (await agent.call("And then?", ALICE)).text

    @tool
    async def begin() -> str:
        """Begin something that goes on."""
        tasks.append(asyncio.create_task(later()))
        return "begun"

    agent = ReActAgent("cook", ScriptedModel([[call("begin", {})], "Begun.", "Later."]), store=store, tools=[begin])
    assert (await agent.call("Begin", ALICE)).text == "Begun."
    ended.set()

    async with asyncio.timeout(10):
        assert await tasks[0] == "Later."


async def test_a_call_while_this_task_streams_the_same_session_gets_an_error(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["One."]), store=store)

    async with asyncio.timeout(10):
        async for event in agent.stream("Hello", ALICE):
            if event.type == "MODEL_CALL_START":
                with pytest.raises(ConfigurationError, match="s1"):
                    await agent.call("inside", ALICE)


@pytest.mark.parametrize("within", [_directly, _in_a_task])
async def test_a_call_under_a_lease_of_the_callers_own_gets_an_error(store: Store, within: Within) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Hello."]), store=store)
    async with asyncio.timeout(10):
        async with store.leases.acquire("s1", "alice"):
            with pytest.raises(ConfigurationError, match="s1"):
                await within(agent.call("Hello", ALICE))

        assert (await agent.call("Hello", ALICE)).text == "Hello."
