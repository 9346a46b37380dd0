"""A turn: what is stored when, and how it goes on after it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    LeaseLost,
    Message,
    ReActAgent,
    RuntimeContext,
    Session,
    SessionKey,
    StaleState,
    open_store,
    tool,
    tool_result,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, pair
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import DyingStore

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


@pytest.mark.parametrize("change", ["saved", "deleted"])
async def test_input_that_another_writer_left_on_another_branch_is_not_stored_there(store: Store, change: str) -> None:
    key, question = SessionKey("s1", "alice"), user("Cook dinner", id="q1")

    async def meddle(request: Any) -> Any:
        state = await store.states.get(key, "agent_state", AgentState)
        assert state is not None
        del state.extra["leafward"]
        state.context.append(user("Set the table"))
        await store.states.save(key, "agent_state", state)
        return "Done."

    cook = agent(store, ["Hello."] + ([meddle] if change == "saved" else ["Done."]))
    await cook.call("Hi", ALICE)
    with pytest.raises(StaleState) if change == "saved" else nullcontext():
        await cook.call(question, ALICE)
    if change == "deleted":
        await store.states.delete(key)

    with pytest.raises(ValueError, match="'q1' is on another branch: send it without an id"):
        await agent(store, []).call(question, ALICE)

    second = agent(store, ["Done again."])
    await second.call("Cook dinner", ALICE)
    shown = (await second.get_agent_state("alice", "s1")).context
    assert shown == await second.session("alice", "s1").get_history(), "slot and tree agree"


async def test_a_session_of_1x_goes_on_with_its_messages_and_active_groups(store: Store) -> None:
    key = SessionKey("s1", "alice")
    await store.states.save_list(key, "memory_messages", [user("Cook dinner"), Message("assistant", "Done.")])
    await store.states.save(key, "toolkit_activeGroups", {"activeGroups": ["kitchen"]})
    reading = await agent(store, []).get_agent_state("alice", "s1")
    assert [message.text for message in reading.context] == ["Cook dinner", "Done."]

    cook = agent(store, ["Enjoy.", "Bye."])
    await cook.call("Thanks", ALICE)
    await cook.call("Bye", ALICE)

    assert [line.partition(": ")[2] for line in await texts(store)] == [
        *("Cook dinner", "Done.", "Thanks", "Enjoy.", "Bye", "Bye.")
    ]
    state = await cook.get_agent_state("alice", "s1")
    assert (len(state.context), state.tool_context.activated_groups) == (6, ["kitchen"])


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


async def test_a_client_may_send_the_whole_history_with_the_ids_that_it_got(store: Store) -> None:
    await agent(store, ["Done."]).call("Cook dinner", ALICE)
    known = (await agent(store, []).get_agent_state("alice", "s1")).context

    reply = await agent(store, ["Enjoy."]).call([*(message.to_dict() for message in known), user("Thanks")], ALICE)

    assert reply.text == "Enjoy."
    assert len(await texts(store)) == 4


async def test_the_same_words_under_another_id_are_other_input(store: Store) -> None:
    with pytest.raises(RuntimeError):
        await agent(store, [RuntimeError("no such model")]).call(user("Yes", id="01arz3ndektsv4rrffq69g5fav"), ALICE)

    await agent(store, ["Done."]).call(user("Yes", id="01arz3ndektsv4rrffq69g5faw"), ALICE)

    assert await texts(store) == ["user: Yes", "user: Yes", "assistant: Done."]


async def test_a_cleared_context_starts_empty_and_keeps_the_small_state_and_the_tree(store: Store) -> None:
    @tool
    async def plan(ctx: RuntimeContext) -> str:
        """Note a plan."""
        ctx.agent_state.summary = "soup"
        ctx.agent_state.plan_mode_context.plan_active = True
        return "noted"

    model = ScriptedModel([[call("plan", {}, id="c1")], "Planned.", "Fresh."])
    planning = ReActAgent("cook", model, store=store, tools=[plan])
    await planning.call("Cook dinner", ALICE)

    await planning.clear_context("alice", "s1")

    state = await planning.get_agent_state("alice", "s1")
    assert (state.context, state.summary, state.plan_mode_context.plan_active) == ([], "", True)
    await planning.call("Hello", ALICE)
    assert [message.text for message in model.requests[-1].messages] == ["Hello"]
    state = await planning.get_agent_state("alice", "s1")
    assert [message.text for message in state.context] == ["Hello", "Fresh."]
    assert state.plan_mode_context.plan_active
    assert len(await planning.session("alice", "s1").get_branches(None)) == 2


async def test_the_steps_of_a_running_turn_are_seen_by_another_agent(store: Store) -> None:
    cooking, may_end = asyncio.Event(), asyncio.Event()

    @tool
    async def cook() -> str:
        """Cook."""
        cooking.set()
        await may_end.wait()
        return "ready"

    first = ReActAgent("cook", ScriptedModel([[call("cook", {}, id="c1")], "Done."]), store=store, tools=[cook])
    running = asyncio.create_task(first.call("Cook dinner", ALICE))
    await cooking.wait()

    seen: list[tuple[str, str]] = []
    async for event in agent(store, []).attach("alice", "s1"):
        seen.append((event.type, event.message.role if event.message else ""))
        if event.type == "MODEL_CALL_END":
            may_end.set()

    assert seen == [
        ("AGENT_START", ""),
        ("CUSTOM", "user"),
        ("MODEL_CALL_END", "assistant"),
        ("TOOL_RESULT_END", "tool"),
        ("MODEL_CALL_END", "assistant"),
        ("AGENT_RESULT", "assistant"),
        ("AGENT_END", ""),
    ]
    await running
    assert [event async for event in first.attach("alice", "s1")] == []


@pytest.mark.parametrize("how", ["append", "checkout"])
@pytest.mark.parametrize("last", ["final", "final, then a checkout"])
async def test_what_others_do_to_the_session_is_not_seen_as_steps_of_the_turn(
    store: Store, how: str, last: str
) -> None:
    cooking, may_end, done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @tool
    async def cook() -> str:
        """Cook."""
        cooking.set()
        await may_end.wait()
        return "ready"

    script = ["Hello.", [call("cook", {}, id="c1")], "Done."]
    first = ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook])
    await first.call("Hello", ALICE)
    session = first.session("alice", "s1")
    hello = (await session.get_history())[0]
    running = asyncio.create_task(first.call("Cook dinner", ALICE))
    await cooking.wait()

    async def disturb() -> None:
        if how == "append":
            await session.append_message(user("from elsewhere"))
        else:
            await session.checkout(hello.id)
        # What follows the turn has looked there.
        await asyncio.sleep(0.05)
        may_end.set()
        await running
        if last != "final":
            await session.checkout(hello.id)
        done.set()

    seen: list[tuple[str, str]] = []
    disturbing: asyncio.Task[None] | None = None
    async for event in first.attach("alice", "s1"):
        seen.append((event.type, event.message.text if event.message else ""))
        if disturbing is None and event.type == "MODEL_CALL_END":
            disturbing = asyncio.create_task(disturb())
            if last != "final":
                await done.wait()

    assert seen == [
        ("AGENT_START", ""),
        ("CUSTOM", "Cook dinner"),
        ("MODEL_CALL_END", ""),
        ("TOOL_RESULT_END", ""),
        ("MODEL_CALL_END", "Done."),
        ("AGENT_RESULT", "Done."),
        ("AGENT_END", ""),
    ]
    await done.wait()


async def test_an_agent_with_another_state_name_needs_an_agent_id_of_its_own(store: Store) -> None:
    await agent(store, ["Done."]).call("Cook dinner", ALICE)

    with pytest.raises(ConfigurationError, match=r"'s1'.*'cook'.*'agent_state'.*'second'.*another agent_id"):
        await agent(store, ["Done."], state_name="second").call("Cook dinner", ALICE)

    await agent(store, []).session("alice", "s1").checkout(None)
    with pytest.raises(ConfigurationError, match="another agent_id"):
        await agent(store, ["Done."], state_name="second").call("Cook dinner", ALICE)

    second = agent(store, ["Mine."], state_name="second", agent_id="other")
    assert (await second.call("Cook dinner", ALICE)).text == "Mine."


async def test_a_message_that_was_sent_to_a_turn_outlives_the_turn_that_did_not_store_it(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir, and fail for good."""
        assert await first.steer("alice", "s1", "with less salt")
        raise LeaseLost("s1")

    first = ReActAgent("cook", ScriptedModel([[call("stir", {}, id="c1")]]), store=store, tools=[stir])
    with pytest.raises(LeaseLost):
        await first.call("Cook dinner", ALICE)
    holder = await store.leases.holder("s1", "alice")
    if holder is not None:
        await store.leases.release("s1", "alice", token=holder.token)

    model = ScriptedModel(["Here it is."])
    second = ReActAgent("cook", model, store=store)
    await second.call("And?", ALICE)

    assert [message.text for message in model.requests[0].messages][-2:] == ["with less salt", "And?"]
    assert [line for line in await texts(store) if "salt" in line] == ["user: with less salt"]


async def test_a_message_that_steers_is_stored_although_the_turn_is_interrupted(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        assert await stirring.steer("alice", "s1", "with less salt")
        assert await stirring.interrupt("alice", "s1", "no, stop")
        return "stirred"

    stirring = ReActAgent("cook", ScriptedModel([[call("stir", {}, id="c1")], "never said"]), store=store, tools=[stir])
    await stirring.call("Cook dinner", ALICE)

    assert (await texts(store))[-2:] == ["user: with less salt", "user: no, stop"]


async def test_a_stream_that_was_left_does_not_stand_in_the_way_of_the_next_call(store: Store) -> None:
    leaving = agent(store, ["A long answer in pieces", "Again."])

    async for event in leaving.stream("Tell me", ALICE):
        if event.type == "TEXT_BLOCK_DELTA":
            break

    assert (await leaving.call("Tell me more", ALICE)).text == "Again."
    assert (await texts(store))[1].startswith("assistant: A long answer")


async def test_an_external_tool_suspends_the_turn_until_its_result_is_sent(store: Store) -> None:
    @tool(external=True)
    async def deliver(dish: str) -> str:
        """Deliver a dish; the driver does it."""
        raise AssertionError("another program does this")

    asked = [call("deliver", {"dish": "soup"}, id="c1"), call("cook", {"dish": "soup"}, id="c2")]
    model = ScriptedModel([asked, "Delivered."])
    waiting = ReActAgent("cook", model, store=store, tools=[deliver, *Kitchen().tools()])

    async with aclosing(waiting.stream("Deliver soup", ALICE)) as stream:
        events = [event async for event in stream]

    required = next(event for event in events if event.type == "REQUIRE_EXTERNAL_EXECUTION")
    assert [part["id"] for part in required.data] == ["c1"]
    result = next(event.message for event in events if event.type == "AGENT_RESULT")
    assert result is not None
    assert (result.metadata or {})["agentscope_generate_reason"] == "TOOL_SUSPENDED"
    with pytest.raises(ValueError, match="'c9' waits for a result"):
        await waiting.call(tool_result("c9", "what?"), ALICE)

    reply = await waiting.call(tool_result("c1", "on the table", "deliver"), ALICE)

    assert reply.text == "Delivered."
    assert is_paired(list(model.requests[-1].messages))


async def test_what_is_sent_to_a_turn_is_one_message_of_the_user(store: Store) -> None:
    one = agent(store, [])

    for message in (["one", "two"], Message("assistant", "hello"), tool_result("c1", "done")):
        with pytest.raises(ValueError, match="one message of the user's is sent"):
            await one.steer("alice", "s1", message)  # pyright: ignore[reportArgumentType]
