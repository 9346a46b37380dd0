"""An agent on a store of states that a user wrote: eight methods, no tree, no leases."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    ConfigurationError,
    Message,
    RuntimeContext,
    SessionKey,
    StateDecodeError,
    tool,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.engine.agent import ReActAgent
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import AsyncStates, PlainStates
from tests.engine.test_turn import SCRIPT, Kitchen, agent, is_paired

ALICE = RuntimeContext("alice", "s1")
KEY = SessionKey("s1", "alice")
Custom = PlainStates | AsyncStates


@pytest.fixture(params=[PlainStates, AsyncStates])
def states(request: pytest.FixtureRequest) -> Custom:
    return request.param()


def on(states: Any, model: ScriptedModel, **options: Any) -> ReActAgent:
    return ReActAgent("cook", model, store=states, **options)


def saved(states: Custom) -> list[list[str]]:
    """Return the roles of each state that was saved."""
    return [[str(message["role"]).lower() for message in state["context"]] for state in states.saves]


def notes(states: Custom) -> list[dict[str, Any]]:
    return [state["leafward.turn"] for state in states.saves]


def said(state: AgentState) -> list[str]:
    return [f"{message.role}: {message.text}" for message in state.context]


async def test_the_whole_state_is_saved_at_each_step_with_the_note_of_the_turn(states: Custom) -> None:
    reply = await agent(states, [[call("cook", {"dish": "soup"}, id="c1")], "Ready."]).call("Cook dinner", ALICE)

    assert reply.text == "Ready."
    assert saved(states) == [
        ["user"],
        ["user", "assistant"],
        ["user", "assistant", "tool"],
        ["user", "assistant", "tool", "assistant"],
    ]
    assert [note["open"] for note in notes(states)] == ["running", "running", "running", None]
    state = await agent(states, []).get_agent_state("alice", "s1")
    assert state.context[-1] == reply
    assert "leafward.turn" not in state.extra


async def test_the_next_call_goes_on_where_the_last_one_ended(states: Custom) -> None:
    await agent(states, ["Soup."]).call("What is there?", ALICE)
    model = ScriptedModel(["Yes."])

    await on(states, model).call("Is it hot?", ALICE)

    assert [message.text for message in model.requests[0].messages] == ["What is there?", "Soup.", "Is it hot?"]


async def test_a_turn_that_is_cut_off_after_any_save_goes_on_without_loss(states: Custom) -> None:
    question = user("Cook dinner", id="q1")
    for saves in range(8):
        states = type(states)(saves)
        kitchen = Kitchen()
        with suppress(OSError):
            await agent(states, list(SCRIPT), kitchen).call(question, ALICE)
        cooked = list(kitchen.cooked)
        states.stops_after = None
        model = ScriptedModel(lambda request: "Dinner is ready.")

        reply = await on(states, model, tools=kitchen.tools()).call(question, ALICE)

        assert reply.text == "Dinner is ready."
        assert all(is_paired(list(request.messages)) for request in model.requests)
        assert kitchen.cooked == cooked, "a tool that changes something never runs twice"
        state = await agent(states, []).get_agent_state("alice", "s1")
        assert is_paired(state.context)
        assert [message.text for message in state.context if message.role == "user"] == ["Cook dinner"]


async def test_a_killed_call_is_reported_as_unknown_and_a_read_only_one_runs_again(states: Custom) -> None:
    states.stops_after = 2
    kitchen = Kitchen()
    with suppress(OSError):
        await agent(states, list(SCRIPT), kitchen).call("Cook dinner", ALICE)
    assert (kitchen.cooked, kitchen.looked) == (["soup"], ["soup"])
    states.stops_after = None

    await agent(states, ["Done."], kitchen).call(None, ALICE)

    assert (kitchen.cooked, kitchen.looked) == (["soup"], ["soup", "soup"])
    state = await agent(states, []).get_agent_state("alice", "s1")
    results = {message.parts[0]["id"]: message for message in state.context if message.role == "tool"}
    assert results["c1"].metadata == {"leafward_outcome": "unknown"}
    assert results["c2"].parts[0]["state"] == "success"
    assert sum(notes(states)[2]["attempts"].values()) == 1, "counted before it ran again"


async def test_input_whose_reply_is_stored_is_answered_without_the_model(states: Custom) -> None:
    question = user("Cook dinner", id="q1")
    first = await agent(states, ["Done."]).call(question, ALICE)
    saves = len(states.saves)

    again = await agent(states, []).call(question, ALICE)

    assert (again.id, again.text) == (first.id, "Done.")
    assert len(states.saves) == saves


async def test_the_results_of_parallel_calls_are_saved_in_the_order_of_the_calls(states: Custom) -> None:
    second_ended = asyncio.Event()

    @tool
    async def first() -> str:
        """Wait for the second."""
        await second_ended.wait()
        return "one"

    @tool
    async def second() -> str:
        """End at once."""
        asyncio.get_running_loop().call_later(0.05, second_ended.set)
        return "two"

    model = ScriptedModel([[call("first", {}, id="c1"), call("second", {}, id="c2")], "Done."])
    await on(states, model, tools=[first, second]).call("Go", ALICE)

    assert [message.parts[0]["id"] for message in model.requests[1].messages if message.role == "tool"] == ["c1", "c2"]
    assert [message["content"][0]["id"] for message in states.saves[-1]["context"][2:4]] == ["c1", "c2"]
    assert [message["content"][0]["id"] for message in states.saves[2]["context"][2:]] == ["c2"]


async def test_an_external_tool_leaves_the_turn_open_until_its_result_is_sent(states: Custom) -> None:
    @tool(external=True)
    async def buy(what: str) -> str:
        """Have a person buy something."""
        raise AssertionError

    script = [[call("buy", {"what": "salt"}, id="c1")], "Salted."]
    reply = await on(states, ScriptedModel(script[:1]), tools=[buy]).call("More salt", ALICE)
    assert (reply.metadata or {})["agentscope_generate_reason"] == "TOOL_SUSPENDED"
    assert notes(states)[-1]["open"] == "asking"

    resumed = on(states, ScriptedModel(script[1:]), tools=[buy])
    assert (await resumed.call(Message.tool_result("c1", "bought", "buy"), ALICE)).text == "Salted."
    assert is_paired((await resumed.get_agent_state("alice", "s1")).context)


async def test_whole_turns_are_saved_once_if_asked_to(states: Custom) -> None:
    await agent(states, list(SCRIPT), save="call").call("Cook dinner", ALICE)

    assert len(states.saves) == 1
    assert saved(states)[0] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]


async def test_a_failed_turn_is_saved_and_goes_on_with_the_same_input(states: Custom) -> None:
    with pytest.raises(RuntimeError, match="no such model"):
        await agent(states, [RuntimeError("no such model")]).call("Cook dinner", ALICE)
    assert "no such model" in notes(states)[-1]["failed"]

    assert (await agent(states, ["Done."]).call("Cook dinner", ALICE)).text == "Done."
    assert said(await agent(states, []).get_agent_state("alice", "s1")) == ["user: Cook dinner", "assistant: Done."]


async def test_an_interrupt_and_a_steering_message_reach_a_turn_of_this_process(states: Custom) -> None:
    begun = asyncio.Event()

    async def think(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    @tool
    async def stir() -> str:
        """Stir."""
        assert await agent(states, []).steer("alice", "s1", "with less salt")
        return "stirred"

    script: list[Any] = [[call("stir", {}, id="c1")], think]
    thinking = on(states, ScriptedModel(script), tools=[stir])
    assert not await thinking.interrupt("alice", "s1")
    task = asyncio.create_task(thinking.call("Cook dinner", ALICE))
    await begun.wait()

    other = on(states, ScriptedModel([]), agent_id="waiter")
    assert not await other.interrupt("alice", "s1"), "it has no turn there"
    assert await agent(states, []).interrupt("alice", "s1", "stop and sum up")

    assert ((await task).metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    assert said(await thinking.get_agent_state("alice", "s1")) == [
        "user: Cook dinner",
        "assistant: ",
        "tool: ",
        "user: with less salt",
        "user: stop and sum up",
    ]
    assert not await thinking.interrupt()


async def test_calls_to_one_session_take_turns_and_one_warning_says_that_only_this_process_does(
    states: Custom, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="leafward.engine")
    agents = [agent(states, lambda request: f"answer to {request.messages[-1].text}") for _ in range(2)]

    await asyncio.gather(*(agents[number % 2].call(f"question {number}", ALICE) for number in range(8)))

    lines = said(await agents[0].get_agent_state("alice", "s1"))
    assert lines[::2] == [f"user: question {number}" for number in range(8)]
    assert lines[1::2] == [f"assistant: answer to question {number}" for number in range(8)]
    warnings = [record.getMessage() for record in caplog.records if record.name == "leafward.engine"]
    assert len(warnings) == 1
    assert type(states).__name__ in warnings[0]


async def test_one_call_may_be_kept_in_a_custom_store(states: Custom) -> None:
    here = agent("memory://", ["Here."])
    there = RuntimeContext("alice", "s1", session=states)
    async with here:
        await here.call("Where?", ALICE)

        await agent(states, ["There."]).call("Where?", there)

        assert said(await here.get_agent_state("alice", "s1")) == ["user: Where?", "assistant: Here."]
    assert said(await agent(states, []).get_agent_state("alice", "s1")) == ["user: Where?", "assistant: There."]


async def test_what_needs_a_tree_is_refused(states: Custom) -> None:
    with pytest.raises(ConfigurationError, match="custom store of states"):
        agent(states, []).session("alice", "s1")
    with pytest.raises(ConfigurationError, match="attach needs a tree"):
        await anext(agent(states, []).attach("alice", "s1"))
    with pytest.raises(ConfigurationError, match="slot='off'"):
        await agent(states, ["Never."], slot="off").call("Hello", ALICE)


async def test_a_state_that_is_saved_by_hand_belongs_to_no_turn(states: Custom) -> None:
    states.stops_after = 1
    with suppress(OSError):
        await agent(states, ["Never said."]).call("Cook dinner", ALICE)
    states.stops_after = None
    one = agent(states, ["Done."])
    state = await one.get_agent_state("alice", "s1")
    state.context.append(Message("assistant", "Not today."))

    await one.save_agent_state("alice", "s1", state)

    assert "leafward.turn" not in states.saves[-1]
    with pytest.raises(ValueError, match="no turn is open"):
        await one.call(None, ALICE)


@pytest.mark.parametrize("words", ["Cook dinner", None])
@pytest.mark.parametrize("call_state", ["pending", "asking"])
async def test_a_turn_that_java_left_open_goes_on_or_asks_again(
    states: Custom, call_state: str, words: str | None
) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "cook", "input": {"dish": "soup"}, "state": call_state}
    left = [user("Cook dinner", id="j1"), Message("assistant", [use], id="j2")]
    one = agent(states, ["Done."])
    await one.save_agent_state("alice", "s1", AgentState(context=left))

    reply = await one.call(words, ALICE)

    if call_state == "asking":
        assert (reply.id, (reply.metadata or {})["agentscope_generate_reason"]) == ("j2", "PERMISSION_ASKING")
    else:
        assert reply.text == "Done."
        context = (await one.get_agent_state("alice", "s1")).context
        assert [message.role for message in context] == ["user", "assistant", "tool", "assistant"]
        assert context[2].parts[0]["state"] == "success"


async def test_a_state_that_cannot_be_read_is_an_error_and_never_an_empty_session(states: Custom) -> None:
    await agent(states, ["Done."]).call("Cook dinner", ALICE)
    broken = {**states.saves[-1], "leafward.turn": {"id": 7}}
    plain = states if isinstance(states, PlainStates) else states.plain
    plain.save(KEY, "agent_state", broken)

    with pytest.raises(StateDecodeError):
        await agent(states, ["Never."]).call("Hello", ALICE)


async def test_the_store_stays_open_when_the_agent_is_closed(states: Custom) -> None:
    async with agent(states, ["Done."]) as one:
        await one.call("Cook dinner", ALICE)

    assert said(await agent(states, []).get_agent_state("alice", "s1")) == ["user: Cook dinner", "assistant: Done."]


async def test_what_is_sent_to_a_turn_that_is_ending_begins_the_next_one(states: Custom) -> None:
    class Late:
        """Steers while the last step is being saved."""

        def __init__(self) -> None:
            self.sent = False

        async def save(self, key: SessionKey, name: str, value: dict[str, Any]) -> None:
            if len(value["context"]) == 2 and not self.sent:
                self.sent = True
                assert await one.steer("alice", "s1", "one more thing")
            PlainStates.save(plain, key, name, value)

        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

    plain = PlainStates()
    model = ScriptedModel(["Hello.", "Both."])
    one = on(Late(), model)

    assert (await one.call("Hi", ALICE)).text == "Hello."
    assert said(await one.get_agent_state("alice", "s1")) == ["user: Hi", "assistant: Hello."]
    await one.call("And you?", ALICE)

    assert [message.text for message in model.requests[1].messages] == ["Hi", "Hello.", "one more thing", "And you?"]
    await on(plain, ScriptedModel(["Bye."])).call("Bye", ALICE)
    assert [line for line in said(await one.get_agent_state("alice", "s1")) if "one more" in line] == [
        "user: one more thing"
    ]


async def test_a_rule_that_comes_while_a_turn_is_ending_is_in_force_in_the_next_one(states: Custom) -> None:
    class Late:
        """Brings a rule while the last step is being saved."""

        async def save(self, key: SessionKey, name: str, value: dict[str, Any]) -> None:
            if len(value["context"]) == 2:
                await one.add_rule("alice", "s1", {"tool_name": "cook", "behavior": "deny", "source": "policy"})
            PlainStates.save(plain, key, name, value)

        def __getattr__(self, name: str) -> Any:
            return getattr(plain, name)

    plain = PlainStates()
    one = on(Late(), ScriptedModel(["Hello.", "Again."]))

    await one.call("Hi", ALICE)
    await one.call("And you?", ALICE)

    assert [*(await one.get_permissions("alice", "s1")).deny_rules] == ["cook"]


async def test_a_message_to_a_turn_that_is_cancelled_begins_the_next_one(states: Custom) -> None:
    begun = asyncio.Event()

    async def think(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    one = on(states, ScriptedModel([think, "Both."]))
    task = asyncio.create_task(one.call("Hi", ALICE))
    await begun.wait()
    assert await one.steer("alice", "s1", "one more thing")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await one.call("And you?", ALICE)

    assert said(await one.get_agent_state("alice", "s1")) == [
        "user: Hi",
        "user: one more thing",
        "user: And you?",
        "assistant: Both.",
    ]


async def test_a_turn_that_is_paused_for_a_shutdown_goes_on_in_another_agent(states: Custom) -> None:
    kitchen = Kitchen()

    @tool
    async def wait() -> str:
        """Wait until the shutdown has begun."""
        stopping.append(asyncio.create_task(one.shutdown()))
        await asyncio.sleep(0)
        return "waited"

    stopping: list[asyncio.Task[bool]] = []
    one = on(states, ScriptedModel([[call("wait", {}, id="c1")]]), tools=[wait, *kitchen.tools()])
    with pytest.raises(AgentShuttingDown):
        await one.call("Cook dinner", ALICE)
    await asyncio.gather(*stopping)
    assert states.saves[-1]["shutdown_interrupted"] is True
    assert notes(states)[-1]["open"] == "paused"

    reply = await on(states, ScriptedModel(["Ready."]), tools=[wait, *kitchen.tools()]).call("Cook dinner", ALICE)

    assert reply.text == "Ready."
    assert states.saves[-1]["shutdown_interrupted"] is False
    assert [line for line in saved(states)[-1] if line == "user"] == ["user"]


async def test_clearing_a_context_keeps_everything_but_messages_and_summary(states: Custom) -> None:
    one = on(states, ScriptedModel(["Hello.", "Hello again."]))
    await one.call("Hi", ALICE)
    state = await one.get_agent_state("alice", "s1")
    state.summary = "They met."
    state.permission_context.mode = "accept_edits"
    await one.save_agent_state("alice", "s1", state)

    await one.clear_context("alice", "s1")

    state = await one.get_agent_state("alice", "s1")
    assert (state.context, state.summary, state.permission_context.mode) == ([], "", "accept_edits")
    await one.call("Hi", ALICE)
    assert saved(states)[-1] == ["user", "assistant"]


@pytest.mark.parametrize("kind", ["steer", "interrupt"])
async def test_what_a_caller_does_to_a_message_that_was_sent_to_a_turn_changes_nothing(
    states: Custom, kind: str
) -> None:
    looking, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def look() -> str:
        """Look."""
        looking.set()
        await go_on.wait()
        return "fine"

    cook = on(states, ScriptedModel([[call("look", {}, id="c1")], "Done."]), tools=[look])
    running = asyncio.create_task(cook.call("Cook", ALICE))
    await looking.wait()
    sent = user("with less salt")

    assert await getattr(cook, kind)("alice", "s1", message=sent)
    sent.parts[0]["text"] = "with more salt"
    go_on.set()
    await running

    assert "user: with less salt" in said(await on(states, ScriptedModel([])).get_agent_state("alice", "s1"))
