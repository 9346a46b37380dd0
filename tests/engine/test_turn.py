"""A turn: what is stored when, and how it goes on after it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    LeaseLost,
    Message,
    RuntimeContext,
    Session,
    SessionKey,
    SessionManager,
    open_store,
    tool,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, pair
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import Died, DyingStore

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture(params=["memory", "sqlite", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file:///{tmp_path}/files"}
    async with open_store(urls[request.param]) as opened:
        yield opened


class Kitchen:
    """Tools that count how often they ran."""

    def __init__(self) -> None:
        self.cooked: list[str] = []
        self.looked: list[str] = []

    def tools(self) -> list[Any]:
        @tool
        async def cook(dish: str) -> str:
            """Cook a dish."""
            self.cooked.append(dish)
            return f"{dish} is ready"

        @tool(read_only=True)
        async def look(dish: str) -> str:
            """Look at a dish."""
            self.looked.append(dish)
            return f"{dish} looks good"

        return [cook, look]


SCRIPT: list[Any] = [
    [call("cook", {"dish": "soup"}, id="c1"), call("look", {"dish": "soup"}, id="c2")],
    [call("cook", {"dish": "rice"}, id="c3")],
    "Dinner is ready.",
]


def agent(store: Any, script: Any, kitchen: Kitchen | None = None, **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=(kitchen or Kitchen()).tools(), **options)


def is_paired(messages: list[Message]) -> bool:
    found = pair(messages)
    return not any(found.is_waiting(item) for row in found.items for item in row if isinstance(item, Call))


async def texts(store: Store) -> list[str]:
    history = await Session(store, "s1", user_id="alice", agent_id="cook").get_raw_history()
    return [f"{message.role}: {message.text or [part.get('id') for part in message.parts]}" for message in history]


async def test_each_step_is_one_commit_and_the_slot_is_written_once_more(store: Store) -> None:
    dying = DyingStore(store)
    reply = await agent(dying, SCRIPT).call("Cook dinner", ALICE)

    assert reply.text == "Dinner is ready."
    # The empty slot, input, intent, results (together or apart), intent, result, reply, slot.
    assert dying.commits in (8, 9)
    history = await Session(store, "s1", user_id="alice", agent_id="cook").get_raw_history()
    assert [message.role for message in history] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert [message.id for message in slot.context] == [message.id for message in history]
    assert slot.extra["leafward"]["leaf"] == history[-1].id


async def test_a_turn_that_is_cut_off_after_any_commit_goes_on_without_loss(store: Store) -> None:
    question = user("Cook dinner", id="q1")
    for commits in range(10):
        await SessionManager(store, user_id="alice", agent_id="cook").delete("s1")
        await store.states.delete(SessionKey("s1", "alice"))
        kitchen = Kitchen()
        dying = DyingStore(store, commits)
        with suppress(Died):
            await agent(dying, list(SCRIPT), kitchen).call(question, ALICE)
        cooked = list(kitchen.cooked)
        model = ScriptedModel(lambda request: "Dinner is ready.")
        resumed = ReActAgent("cook", model, store=store, tools=kitchen.tools())

        reply = await resumed.call(question, ALICE)

        assert reply.text == "Dinner is ready."
        assert all(is_paired(list(request.messages)) for request in model.requests)
        assert kitchen.cooked == cooked, "a tool that changes something never runs twice"
        history = await resumed.session("alice", "s1").get_raw_history()
        assert is_paired(history)
        assert [message.text for message in history if message.role == "user"] == ["Cook dinner"]
        state = await resumed.get_agent_state("alice", "s1")
        assert [message.id for message in state.context] == [message.id for message in history]


async def test_input_whose_reply_is_stored_is_answered_without_the_model(store: Store) -> None:
    question = user("Cook dinner", id="q1")
    first = await agent(store, ["Done."]).call(question, ALICE)

    again = await agent(store, []).call(question, ALICE)

    assert (again.id, again.text) == (first.id, "Done.")
    assert await texts(store) == ["user: Cook dinner", "assistant: Done."]


async def test_a_cancelled_call_leaves_no_open_call_and_is_resumed_by_the_same_input(store: Store) -> None:
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    slow = ReActAgent("cook", ScriptedModel([[call("wait", {}, id="c1")]]), store=store, tools=[wait])
    task = asyncio.create_task(slow.call("Cook dinner", ALICE))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert is_paired(await slow.session("alice", "s1").get_raw_history())
    reply = await agent(store, ["It was cancelled."]).call("Cook dinner", ALICE)
    assert reply.text == "It was cancelled."
    assert [line for line in await texts(store) if line.startswith("user")] == ["user: Cook dinner"]


async def test_leaving_a_stream_keeps_what_was_said_so_far(store: Store) -> None:
    async with aclosing(agent(store, ["A long answer in pieces"]).stream("Tell me", ALICE)) as events:
        async for event in events:
            if event.type == "TEXT_BLOCK_DELTA":
                break

    stored = await texts(store)
    assert stored[0] == "user: Tell me"
    assert stored[1].startswith("assistant: A long answer")


async def test_an_error_of_the_model_is_raised_and_the_input_stays(store: Store) -> None:
    with pytest.raises(RuntimeError, match="no such model"):
        await agent(store, [RuntimeError("no such model")]).call("Cook dinner", ALICE)

    assert await texts(store) == ["user: Cook dinner"]
    assert (await agent(store, ["Done."]).call(None, ALICE)).text == "Done."


async def test_calls_to_one_session_run_in_the_order_they_were_made(store: Store) -> None:
    one = agent(store, lambda request: f"answer to {request.messages[-1].text}")

    await asyncio.gather(*(one.call(f"question {number}", ALICE) for number in range(8)))

    lines = await texts(store)
    assert lines[::2] == [f"user: question {number}" for number in range(8)]
    assert lines[1::2] == [f"assistant: answer to question {number}" for number in range(8)]


async def test_a_tool_that_calls_the_agent_on_its_own_session_gets_an_error(store: Store) -> None:
    found: list[BaseException] = []

    @tool
    async def ask_again() -> str:
        """Ask again."""
        try:
            await asking.call("inside", ALICE)
        except ConfigurationError as error:
            found.append(error)
        return "asked"

    asking = ReActAgent(
        "cook", ScriptedModel([[call("ask_again", {}, id="c1")], "Done."]), store=store, tools=[ask_again]
    )
    assert (await asking.call("Cook dinner", ALICE)).text == "Done."
    assert "'s1'" in str(found[0])


async def test_a_slot_that_another_writer_saved_is_taken_over(store: Store) -> None:
    key = SessionKey("s1", "alice")
    await agent(store, ["Done."]).call("Cook dinner", ALICE)
    state = await store.states.get(key, "agent_state", AgentState)
    assert state is not None
    # Java drops what it does not know.
    del state.extra["leafward"]
    state.context += [user("More salt"), Message("assistant", "Salted.")]
    await store.states.save(key, "agent_state", state)

    model = ScriptedModel(["Enjoy."])
    await ReActAgent("cook", model, store=store).call("Thanks", ALICE)

    assert [message.text for message in model.requests[0].messages] == [
        "Cook dinner",
        "Done.",
        "More salt",
        "Salted.",
        "Thanks",
    ]
    assert len(await texts(store)) == 6


async def test_a_checkout_brings_the_state_of_that_point(store: Store) -> None:
    @tool
    async def plan(task: str, ctx: RuntimeContext) -> str:
        """Note a task."""
        ctx.agent_state.summary = task
        return "noted"

    script = [part for n in range(3) for part in ([call("plan", {"task": f"task {n}"})], f"reply {n}")]
    planning = ReActAgent("cook", ScriptedModel(script), store=store, tools=[plan])
    replies = [await planning.call(f"question {n}", ALICE) for n in range(3)]
    session = planning.session("alice", "s1")

    for number, reply in enumerate(replies):
        await session.checkout(reply.id)
        state = await planning.get_agent_state("alice", "s1")
        assert (state.summary, state.context[-1].id) == (f"task {number}", reply.id)


async def test_a_turn_that_lost_its_lease_starts_no_tool_and_stores_nothing(store: Store) -> None:
    kitchen = Kitchen()

    async def lose_the_lease(request: Any) -> Any:
        holder = await store.leases.holder("s1", "alice")
        assert holder is not None
        await store.leases.release("s1", "alice", token=holder.token)
        return [call("cook", {"dish": "soup"}, id="c1")]

    with pytest.raises(LeaseLost):
        await agent(store, lose_the_lease, kitchen).call("Cook dinner", ALICE)

    assert kitchen.cooked == []
    assert await texts(store) == ["user: Cook dinner"]


async def test_an_interrupt_keeps_what_was_said_and_stores_its_message_last(store: Store) -> None:
    begun = asyncio.Event()

    async def think(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    thinking = agent(store, think)
    task = asyncio.create_task(thinking.call("Cook dinner", ALICE))
    await begun.wait()

    assert await agent(store, []).interrupt("alice", "s1", "stop and sum up")

    reply = await task
    assert reply.metadata == {"agentscope_generate_reason": "INTERRUPTED"}
    assert await texts(store) == ["user: Cook dinner", "user: stop and sum up"]
    assert not await thinking.interrupt("alice", "s1")
    assert (await agent(store, ["Nothing is cooked."]).call("And?", ALICE)).text == "Nothing is cooked."


async def test_an_interrupt_lets_running_tools_finish(store: Store) -> None:
    stopped = asyncio.Event()

    @tool
    async def stir(ctx: RuntimeContext) -> str:
        """Stir until interrupted."""
        assert await stirring.interrupt("alice", "s1")
        stopped.set()
        return f"stirred, interrupted: {ctx.agent_state.interrupt_control.is_interrupted}"

    script = [[call("stir", {}, id="c1"), call("cook", {"dish": "soup"}, id="c2")], "never said"]
    stirring = ReActAgent("cook", ScriptedModel(script), store=store, tools=[stir, *Kitchen().tools()])
    reply = await stirring.call("Cook dinner", ALICE)

    assert stopped.is_set()
    assert (reply.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    history = await stirring.session("alice", "s1").get_raw_history()
    assert [message.role for message in history] == ["user", "assistant", "tool", "tool"]
    assert "interrupted: True" in str([message.parts for message in history])
    assert is_paired(history)


async def test_a_message_that_steers_joins_after_the_round_of_tools_and_is_answered(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        assert await steered.steer("alice", "s1", "with less salt")
        return "stirred"

    model = ScriptedModel([[call("stir", {}, id="c1")], "With less salt, then."])
    steered = ReActAgent("cook", model, store=store, tools=[stir])

    assert (await steered.call("Cook dinner", ALICE)).text == "With less salt, then."
    assert model.requests[1].messages[-1].text == "with less salt"
    assert len(await texts(store)) == 5
