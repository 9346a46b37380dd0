"""A turn whose store its call has brought is reached like any other of its agent, in the same process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from leafward import ConfigurationError, Message, ReActAgent, RuntimeContext, SessionKey, open_store, tool
from leafward.engine import ModelRequest
from leafward.stores import InMemoryAgentStateStore, Store
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import PlainStates


@pytest.fixture
async def own() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


@pytest.fixture
async def other() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


def alice(session: Any = None, session_id: str = "s1") -> RuntimeContext:
    return RuntimeContext("alice", session_id, session=session)


def was_interrupted(reply: Message) -> bool:
    return (reply.metadata or {}).get("agentscope_generate_reason") == "INTERRUPTED"


class Cook:
    """An agent whose turns stay in a tool until they are let go on."""

    def __init__(self, store: Any) -> None:
        self._begun = asyncio.Semaphore(0)
        self._done = asyncio.Event()

        @tool
        async def stir() -> str:
            """Stir."""
            self._begun.release()
            await self._done.wait()
            return "stirred"

        self.agent = ReActAgent("cook", ScriptedModel(self._answer), store=store, tools=[stir])

    @staticmethod
    def _answer(request: ModelRequest) -> Any:
        last = request.messages[-1]
        return [call("stir", {})] if last.text == "Cook" else f"Served after: {last.text}"

    async def begin(self, ctx: RuntimeContext) -> asyncio.Task[Message]:
        turn = asyncio.create_task(self.agent.call("Cook", ctx))
        await self._begun.acquire()
        return turn

    async def end(self, *turns: asyncio.Task[Message]) -> list[Message]:
        self._done.set()
        return await asyncio.gather(*turns)


@pytest.fixture(params=["store", "states", "custom"])
async def session(request: pytest.FixtureRequest, other: Store) -> AsyncGenerator[Any]:
    async with InMemoryAgentStateStore() as states:
        yield {"store": other, "states": states, "custom": PlainStates()}[request.param]


async def test_an_interrupt_reaches_it_by_user_and_session(own: Store, session: Any) -> None:
    cook = Cook(own)
    turn = await cook.begin(alice(session))

    assert not await cook.agent.interrupt("bob", "s1")
    assert await cook.agent.interrupt("alice", "s1", "Stop.")

    (reply,) = await cook.end(turn)
    assert was_interrupted(reply)
    stored = await cook.agent.get_agent_state("alice", "s1", session=session)
    assert stored.context[-1].text == "Stop."
    assert not await cook.agent.interrupt("alice", "s1")


async def test_a_message_steers_it_by_user_and_session(own: Store, session: Any) -> None:
    cook = Cook(own)
    turn = await cook.begin(alice(session))

    assert await cook.agent.steer("alice", "s1", "less salt")

    (reply,) = await cook.end(turn)
    assert reply.text == "Served after: less salt"


async def test_its_steps_are_read_by_user_and_session(own: Store, other: Store) -> None:
    cook = Cook(own)
    turn = await cook.begin(alice(other))
    steps = [event async for event in _after(cook.agent.attach("alice", "s1"), lambda: cook.end(turn))]

    assert [event.type for event in steps if event.message is not None] == [
        "CUSTOM",
        "MODEL_CALL_END",
        "TOOL_RESULT_END",
        "MODEL_CALL_END",
        "AGENT_RESULT",
    ]


async def _after(events: AsyncGenerator[Any], then: Callable[[], Awaitable[Any]]) -> AsyncGenerator[Any]:
    """Yield events; after the first, let something happen."""
    yield await anext(events)
    await then()
    async for event in events:
        yield event


async def test_an_interrupt_without_a_session_counts_it(own: Store, other: Store) -> None:
    cook = Cook(own)
    there = await cook.begin(alice(other))
    here = await cook.begin(alice(session_id="s2"))
    with pytest.raises(ConfigurationError, match=r"several sessions are running, 's2', 's1'"):
        await cook.agent.interrupt()
    assert [was_interrupted(reply) for reply in await cook.end(there, here)] == [False, False]

    again = Cook(own)
    alone = await again.begin(alice(other))
    assert await again.agent.interrupt()
    assert [was_interrupted(reply) for reply in await again.end(alone)] == [True]


async def test_a_turn_in_the_store_of_the_agent_comes_first(own: Store, other: Store) -> None:
    cook = Cook(own)
    turns = [await cook.begin(alice(other)), await cook.begin(alice())]

    assert await cook.agent.interrupt("alice", "s1")

    assert [was_interrupted(reply) for reply in await cook.end(*turns)] == [False, True]


async def test_one_of_several_that_calls_have_brought_is_not_guessed(own: Store, other: Store) -> None:
    """Each may belong to another customer, who is not to get this message."""
    cook = Cook(own)
    async with InMemoryAgentStateStore() as third:
        turns = [await cook.begin(alice(other)), await cook.begin(alice(third))]

        for reach in (cook.agent.interrupt, cook.agent.steer):
            with pytest.raises(ConfigurationError, match="'s1' is running in several stores"):
                await reach("alice", "s1", "Stop.")
        with pytest.raises(ConfigurationError, match="'s1' is running in several stores"):
            await anext(cook.agent.attach("alice", "s1"))

        assert [was_interrupted(reply) for reply in await cook.end(*turns)] == [False, False]


async def test_the_turn_of_another_agent_in_that_store_is_left_alone(own: Store, other: Store) -> None:
    cook, waiter = Cook(own), ReActAgent("waiter", ScriptedModel(["Hello."]), store=own)
    await waiter.call("Hi", alice(other))
    turn = await cook.begin(alice(other))

    assert not await waiter.interrupt("alice", "s1")
    assert not await waiter.interrupt()

    (reply,) = await cook.end(turn)
    assert not was_interrupted(reply)


async def test_a_store_that_the_agent_does_not_need_is_not_opened(
    other: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTSCOPE_STATE_HOME", str(tmp_path / "home"))
    cook = Cook(None)
    turn = await cook.begin(alice(other))

    assert await cook.agent.interrupt("alice", "s1")

    await cook.end(turn)
    assert not (tmp_path / "home").exists()


async def test_an_agent_keeps_no_store_that_was_named_to_it(own: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel([]), store=own)
    async with InMemoryAgentStateStore() as states:
        await agent.get_agent_state("alice", "s1", session=states)
    seen = weakref.ref(states)
    del states
    gc.collect()

    assert seen() is None


async def test_the_state_of_a_context_is_that_in_its_store_and_under_its_key(own: Store, other: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(lambda request: request.messages[-1].text), store=own)
    contexts = {
        "own": alice(),
        "brought": alice(other),
        "own key": RuntimeContext(session_key=SessionKey("s9", "alice")),
        "brought key": RuntimeContext("bob", "s1", session=other, session_key=SessionKey("s9", "alice")),
    }
    for name, ctx in contexts.items():
        await agent.call(name, ctx)

    for name, ctx in contexts.items():
        state = await RuntimeContext.resolve_agent_state(ctx, agent)
        assert [message.text for message in state.context] == [name, name]


async def test_a_store_of_states_that_a_call_has_named_is_freed_with_its_last_reference(own: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Served."]), store=own)
    named = InMemoryAgentStateStore()
    await agent.call("Serve", alice(named))
    await named.close()

    freed = weakref.ref(named)
    del named
    await asyncio.sleep(0)
    gc.collect()

    assert freed() is None
