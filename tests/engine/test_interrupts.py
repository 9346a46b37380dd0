"""Interrupts and steering from every place, and what is returned for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Literal

import pytest

from leafward import Message, RuntimeContext, open_store, tool, user
from leafward.core.agent_state import AgentState
from leafward.engine import Hook, HookEvent, PostActingEvent
from leafward.engine.agent import ReActAgent
from leafward.engine.models.model import ModelRequest
from leafward.engine.models.model_events import ModelEvent, TextDelta, WholePart
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


def reason(reply: Message) -> str | None:
    return (reply.metadata or {}).get("agentscope_generate_reason")


async def texts(agent: ReActAgent) -> list[str]:
    return [message.text for message in await agent.session("alice", "s1").get_raw_history()]


async def test_an_interrupt_from_inside_the_model_gives_the_interrupted_reply(store: Store) -> None:
    async def think(_: ModelRequest) -> str:
        assert await agent.interrupt("alice", "s1", "stop!")
        return "half a thought"

    agent = ReActAgent("cook", ScriptedModel(think), store=store)

    reply = await agent.call("Cook", ALICE)

    assert reason(reply) == "INTERRUPTED"
    assert (await texts(agent))[-1] == "stop!"
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()
    # Nothing is left that would cancel a later wait.
    await asyncio.sleep(0)


async def test_an_interrupt_from_inside_the_model_ends_its_wait(store: Store) -> None:
    async def think(_: ModelRequest) -> str:
        assert await agent.interrupt("alice", "s1")
        await asyncio.sleep(60)
        return "too late"

    agent = ReActAgent("cook", ScriptedModel(think), store=store)

    async with asyncio.timeout(5):
        assert reason(await agent.call("Cook", ALICE)) == "INTERRUPTED"


async def test_a_second_interrupt_reaches_a_turn_whose_hook_is_being_ended(store: Store) -> None:
    begun, ending = asyncio.Event(), asyncio.Event()

    class Slow(Hook):
        async def on_event(self, event: HookEvent, ctx: RuntimeContext) -> None:
            if isinstance(event, PostActingEvent):
                begun.set()
                try:
                    await asyncio.sleep(60)
                finally:
                    ending.set()
                    await asyncio.sleep(0.05)

    @tool
    async def stir() -> str:
        """Stir."""
        begun.set()
        await asyncio.sleep(0.05)
        return "stirred"

    model = ScriptedModel([[call("stir", id="c1")], "never said"])
    agent = ReActAgent("cook", model, store=store, tools=[stir], hooks=[Slow()])
    task = asyncio.create_task(agent.call("Cook", ALICE))
    await begun.wait()

    assert await agent.interrupt("alice", "s1", "stop!")
    await ending.wait()
    assert await agent.interrupt("alice", "s1", "now!")

    assert reason(await task) == "INTERRUPTED"
    assert (await texts(agent))[-2:] == ["stop!", "now!"]


async def test_what_a_model_said_that_no_message_can_hold_keeps_no_turn_from_being_interrupted(store: Store) -> None:
    begun = asyncio.Event()

    class Model:
        name = "m"

        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
            yield TextDelta("Hello")
            yield WholePart({"type": "x", "v": float("nan")})
            begun.set()
            await asyncio.sleep(60)

    agent = ReActAgent("cook", Model(), store=store)
    task = asyncio.create_task(agent.call("Cook", ALICE))
    await begun.wait()
    assert await agent.interrupt("alice", "s1", "stop!")

    assert reason(await task) == "INTERRUPTED"
    assert await texts(agent) == ["Cook", "stop!"]
    again = ReActAgent("cook", ScriptedModel(["Done."]), store=store)
    assert (await again.call("And now?", ALICE)).text == "Done."


@pytest.mark.parametrize("save", ["step", "call"])
@pytest.mark.parametrize("where", ["in a reply", "in a tool", "before a reply"])
async def test_the_same_id_gives_the_interrupted_reply_again(
    store: Store, where: str, save: Literal["step", "call"]
) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        assert await agent.interrupt("alice", "s1", "stop")
        return "stirred"

    async def stop(_: ModelRequest) -> None:
        assert await agent.interrupt("alice", "s1", "stop")

    replies = {"in a reply": ["Half", stop, " a thought."], "in a tool": [call("stir", {})], "before a reply": [stop]}
    agent = ReActAgent("cook", ScriptedModel([replies[where], "Served."]), store=store, tools=[stir], save=save)
    first = await agent.call(user("Cook", id="q1"), ALICE)

    again = await agent.call(user("Cook", id="q1"), ALICE)

    assert (again.parts, reason(again)) == (first.parts, "INTERRUPTED")
    assert (await agent.call(user("Serve", id="q2"), ALICE)).metadata is None
    if where == "in a reply":
        assert reason(await agent.call(user("Cook", id="q1"), ALICE)) == "INTERRUPTED"


@pytest.mark.parametrize("sent", [("interrupt", None), ("interrupt", "stop"), ("steer", "with salt")])
async def test_a_turn_that_has_ended_is_not_reached(store: Store, sent: tuple[str, str | None]) -> None:
    how, message = sent
    agent = ReActAgent("cook", ScriptedModel(["Cooked.", "Served."]), store=store)
    await agent.call("Cook", ALICE)

    assert not await getattr(agent, how)("alice", "s1", message)

    await agent.call("Serve", ALICE)
    assert await texts(agent) == ["Cook", "Cooked.", "Serve", "Served."]


async def test_a_turn_whose_reply_was_handed_out_is_not_reached(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Cooked."]), store=store)

    async for event in agent.stream("Cook", ALICE):
        if event.type == "AGENT_RESULT":
            assert not await agent.steer("alice", "s1", "with salt")
            assert not await agent.interrupt()


async def test_an_interrupt_that_comes_late_does_not_stop_a_call_that_waited(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Cooked.", "Served."]), store=store)
    await agent.call("Cook", ALICE)
    serving = asyncio.create_task(agent.call("Serve", ALICE))

    assert not await agent.interrupt("alice", "s1")

    assert (await serving).text == "Served."


async def test_without_arguments_only_a_turn_of_this_object_is_interrupted(store: Store) -> None:
    thinks, is_free = asyncio.Event(), asyncio.Event()

    async def think(_: ModelRequest) -> str:
        thinks.set()
        await is_free.wait()
        return "Cooked."

    first, second = (ReActAgent("cook", ScriptedModel(think), store=store) for _ in range(2))
    cooking = asyncio.create_task(first.call("Cook", ALICE))
    await thinks.wait()

    assert not await second.interrupt()
    assert await first.interrupt()

    assert reason(await cooking) == "INTERRUPTED"


async def test_an_interrupt_stops_although_its_message_is_too_long(store: Store) -> None:
    thinks = asyncio.Event()

    async def think(_: ModelRequest) -> str:
        thinks.set()
        await asyncio.sleep(60)
        return "never said"

    agent = ReActAgent("cook", ScriptedModel(think), store=store)
    cooking = asyncio.create_task(agent.call("Cook", ALICE))
    await thinks.wait()

    with pytest.raises(ValueError, match=r"nothing was sent; send it as the input of the next call"):
        await agent.steer("alice", "s1", "x" * 70_000)
    assert not cooking.done()
    with pytest.raises(ValueError, match=r"at most 65,536: the turn is interrupted without it"):
        await agent.interrupt("alice", "s1", "x" * 70_000)

    assert reason(await cooking) == "INTERRUPTED"
    assert await texts(agent) == ["Cook"]


async def test_a_tool_stops_its_turn_by_the_interrupt_control(store: Store) -> None:
    @tool
    async def stir(ctx: RuntimeContext) -> str:
        """Stir."""
        ctx.agent_state.interrupt_control.interrupt()
        return "stirred"

    agent = ReActAgent("cook", ScriptedModel([[call("stir", {})], "Served."]), store=store, tools=[stir])

    assert reason(await agent.call("Cook", ALICE)) == "INTERRUPTED"
    assert (await agent.call("Serve", ALICE)).text == "Served."


@pytest.mark.parametrize("message", [None, "stop!"])
async def test_input_of_an_interrupted_turn_gives_its_reply_after_later_turns(
    store: Store, message: str | None
) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        assert await agent.interrupt("alice", "s1", message)
        return "stirred"

    model = ScriptedModel([[call("stir", {})], "Served.", "Welcome."])
    agent = ReActAgent("cook", model, store=store, tools=[stir])
    first = await agent.call(user("Cook", id="q1"), ALICE)

    for later in ("Serve", "Thanks"):
        await agent.call(later, ALICE)
        again = await agent.call(user("Cook", id="q1"), ALICE)

        assert (again.id, reason(again)) == (first.id, "INTERRUPTED")


async def test_input_of_a_turn_that_had_no_steps_left_gives_its_reply_after_a_later_turn(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        return "stirred"

    model = ScriptedModel([[call("stir", {})], [call("stir", {})], "Served."])
    agent = ReActAgent("cook", model, store=store, tools=[stir], max_iterations=1)
    first = await agent.call(user("Cook", id="q1"), ALICE)
    await agent.call("Serve", ALICE)

    again = await agent.call(user("Cook", id="q1"), ALICE)

    assert (again.id, reason(again)) == (first.id, "MAX_ITERATIONS")


async def test_an_interrupt_changes_no_reply_of_an_earlier_turn(store: Store) -> None:
    async def think(request: ModelRequest) -> str:
        if len(request.messages) == 1:
            return "Cooked."
        state = states.pop()
        del state.context[2:]
        assert await agent.interrupt("alice", "s1")
        await asyncio.sleep(60)
        return "never said"

    @tool
    def stir(ctx: RuntimeContext) -> str:
        """Stir."""
        states.append(ctx.agent_state)
        return "stirred"

    states: list[AgentState] = []
    script = [think, [call("stir", {})], think]
    agent = ReActAgent("cook", ScriptedModel(script), store=store, tools=[stir])
    await agent.call("Cook", ALICE)

    assert reason(await agent.call("Serve", ALICE)) == "INTERRUPTED"

    history = await agent.session("alice", "s1").get_raw_history()
    assert [reason(message) for message in history] == [None] * 5


async def test_input_of_a_turn_that_failed_has_the_reply_that_the_next_message_got(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        return "stirred"

    model = ScriptedModel([[call("stir", {})], KeyError("no gas"), "Both are served."])
    agent = ReActAgent("cook", model, store=store, tools=[stir])
    with pytest.raises(KeyError):
        await agent.call(user("Soup", id="q1"), ALICE)
    reply = await agent.call(user("And bread", id="q2"), ALICE)

    again = await agent.call(user("Soup", id="q1"), ALICE)

    assert (again.id, again.text, reason(again)) == (reply.id, "Both are served.", None)
