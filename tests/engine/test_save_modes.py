"""`save="call"` writes whole turns, `slot="off"` writes no slot."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from leafward import AgentShuttingDown, Message, RuntimeContext, SessionKey, StateDecodeError, tool, user
from leafward.core.agent_state import AgentState
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import Died, DyingStore
from tests.engine.test_turn import ALICE, SCRIPT, Kitchen, agent, is_paired, store, texts

__all__ = ["store"]

KEY = SessionKey("s1", "alice")


async def slot_of(store: Store) -> AgentState | None:
    return await store.states.get(KEY, "agent_state", AgentState)


# Whole turns.


async def test_a_turn_is_one_commit_and_one_slot(store: Store) -> None:
    dying = DyingStore(store)
    reply = await agent(dying, SCRIPT, save="call").call("Cook dinner", ALICE)

    # The empty slot of a first call, the turn, the slot.
    assert dying.commits == 3
    lines = await texts(store)
    assert len(lines) == 7
    assert lines[-1] == "assistant: Dinner is ready."
    slot = await slot_of(store)
    assert slot is not None
    assert slot.context[-1] == reply
    assert is_paired(slot.context)


async def test_a_kill_loses_the_turn_and_nothing_else(store: Store) -> None:
    await agent(store, ["Hello."], save="call").call("Hi", ALICE)
    begun = asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return "never"

    # From the first tool on, nothing reaches the store.
    dying: Any = DyingStore(store, 0)
    script = [[call("cook", {"dish": "soup"}, id="c1")], [call("wait", {}, id="c2")]]
    kitchen = Kitchen()
    killed = ReActAgent(
        "cook",
        ScriptedModel(script),
        store=dying,
        tools=[wait, *kitchen.tools()],
        save="call",
    )
    task = asyncio.create_task(killed.call("Cook dinner", ALICE))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await dying.bury("s1", "alice")
    assert await texts(store) == ["user: Hi", "assistant: Hello."]

    model = ScriptedModel(["It is cooked."])
    again = ReActAgent("cook", model, store=store, save="call")
    assert (await again.call("Cook dinner", ALICE)).text == "It is cooked."

    assert [message.text for message in model.requests[0].messages] == ["Hi", "Hello.", "Cook dinner"]
    with pytest.raises(ValueError, match="no turn is open"):
        await again.call(None, ALICE)


async def test_a_kill_in_the_middle_of_the_last_writes_leaves_all_of_the_turn_or_nothing(store: Store) -> None:
    question = user("Cook dinner", id="q1")
    for commits in range(3):
        ctx = RuntimeContext("alice", f"s{commits}")
        dying = DyingStore(store, commits)
        with suppress(Died):
            await agent(dying, list(SCRIPT), save="call").call(question, ctx)
        await dying.bury(f"s{commits}", "alice")
        one = agent(store, ["Another dinner."], save="call")
        history = await one.session("alice", f"s{commits}").get_raw_history()
        assert len(history) == (7 if commits == 2 else 0)

        reply = await one.call(question, ctx)

        assert reply.text == ("Dinner is ready." if commits == 2 else "Another dinner.")


async def test_a_failed_turn_and_a_cancelled_one_are_written(store: Store) -> None:
    with pytest.raises(RuntimeError, match="no such model"):
        await agent(store, [[call("cook", {"dish": "soup"})], RuntimeError("no such model")], save="call").call(
            "Cook dinner", ALICE
        )
    assert [line.split(":")[0] for line in await texts(store)] == ["user", "assistant", "tool"]

    thinking = asyncio.Event()

    async def think(request: Any) -> Any:
        thinking.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(agent(store, think, save="call").call("And now?", ALICE))
    await thinking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await texts(store))[3:] == ["user: And now?"]
    assert (await agent(store, ["Now it is."], save="call").call("And now?", ALICE)).text == "Now it is."
    assert (await texts(store))[3:] == ["user: And now?", "assistant: Now it is."]


async def test_an_interrupt_is_a_boundary(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir until interrupted."""
        assert await texts(store) == []
        assert await stirring.interrupt("alice", "s1", "stop")
        return "stirred"

    stirring = ReActAgent("cook", ScriptedModel([[call("stir", {}, id="c1")]]), store=store, tools=[stir], save="call")
    reply = await stirring.call("Cook dinner", ALICE)

    assert (reply.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    assert [line.split(":")[0] for line in await texts(store)] == ["user", "assistant", "tool", "user"]


async def test_an_external_tool_is_a_boundary_and_its_result_another(store: Store) -> None:
    @tool(external=True)
    async def buy(what: str) -> str:
        """Have a person buy something."""
        raise AssertionError

    kitchen = Kitchen()
    tools = [buy, *kitchen.tools()]
    script: list[Any] = [
        [call("cook", {"dish": "soup"}, id="c1"), call("buy", {"what": "salt"}, id="c2")],
        [call("cook", {"dish": "rice"}, id="c3")],
        "Ready.",
    ]
    first = ReActAgent("cook", ScriptedModel(script[:1]), store=store, tools=tools, save="call")
    reply = await first.call("Cook dinner", ALICE)
    assert (reply.metadata or {})["agentscope_generate_reason"] == "TOOL_SUSPENDED"
    assert len(await texts(store)) == 3, "the input, the reply, and the result of the tool that ran"

    dying: Any = DyingStore(store)
    second = ReActAgent("cook", ScriptedModel(script[1:]), store=dying, tools=tools, save="call")
    assert (await second.call(Message.tool_result("c2", "bought", "buy"), ALICE)).text == "Ready."

    assert dying.commits == 2
    assert kitchen.cooked == ["soup", "rice"]
    assert is_paired(await first.session("alice", "s1").get_raw_history())


async def test_a_shutdown_is_a_boundary(store: Store) -> None:
    @tool
    async def wait() -> str:
        """Wait until the shutdown has begun."""
        stopping.append(asyncio.create_task(one.shutdown()))
        await asyncio.sleep(0)
        return "waited"

    stopping: list[asyncio.Task[bool]] = []
    one = ReActAgent("cook", ScriptedModel([[call("wait", {}, id="c1")]]), store=store, tools=[wait], save="call")
    with pytest.raises(AgentShuttingDown):
        await one.call("Cook dinner", ALICE)
    await asyncio.gather(*stopping)
    assert len(await texts(store)) == 3

    assert (await agent(store, ["Ready."], save="call").call("Cook dinner", ALICE)).text == "Ready."
    assert len(await texts(store)) == 4


async def test_a_kill_loses_no_message_that_was_sent_to_the_turn(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        assert await stirring.steer("alice", "s1", "with less salt")
        return "stirred"

    def die(request: Any) -> str:
        assert request.messages[-1].text == "with less salt"
        dying.die()
        return "With less salt, then."

    dying: Any = DyingStore(store)
    script: list[Any] = [[call("stir", {}, id="c1")], die]
    stirring = ReActAgent("cook", ScriptedModel(script), store=dying, tools=[stir], save="call")
    with pytest.raises(Died):
        await stirring.call("Cook dinner", ALICE)
    await dying.bury("s1", "alice")
    assert await texts(store) == []

    model = ScriptedModel(["Salted."])
    await ReActAgent("cook", model, store=store, save="call").call("Cook lunch", ALICE)

    assert [message.text for message in model.requests[0].messages] == ["with less salt", "Cook lunch"]


# No slot.


async def test_without_a_slot_the_tree_is_all_that_is_written(store: Store) -> None:
    dying = DyingStore(store)
    await agent(dying, ["Hello."], slot="off").call("Hi", ALICE)

    assert dying.commits == 2
    assert await slot_of(store) is None
    model = ScriptedModel(["Fine."])
    await ReActAgent("cook", model, store=store, slot="off").call("How are you?", ALICE)
    assert [message.text for message in model.requests[0].messages] == ["Hi", "Hello.", "How are you?"]
    assert not await store.states.exists(KEY)


async def test_an_old_slot_is_neither_read_nor_written(store: Store) -> None:
    await agent(store, ["Hello."]).call("Hi", ALICE)
    state = await slot_of(store)
    assert state is not None
    del state.extra["leafward"]
    state.context.append(user("Nobody reads this"))
    await store.states.save(KEY, "agent_state", state)
    before = await store.states.get_versioned(KEY, "agent_state")

    model = ScriptedModel(["Fine."])
    without = ReActAgent("cook", model, store=store, slot="off")
    await without.call("How are you?", ALICE)

    assert [message.text for message in model.requests[0].messages] == ["Hi", "Hello.", "How are you?"]
    assert await store.states.get_versioned(KEY, "agent_state") == before
    assert [message.text for message in (await without.get_agent_state("alice", "s1")).context][-1] == "Fine."


async def test_a_slot_that_cannot_be_read_is_not_in_the_way(store: Store) -> None:
    await store.states.save_list(KEY, "agent_state", [{"a": "list, and no state"}])
    with pytest.raises(StateDecodeError):
        await agent(store, ["Hello."]).call("Hi", ALICE)

    assert (await agent(store, ["Hello."], slot="off").call("Hi", ALICE)).text == "Hello."


async def test_turns_without_a_slot_are_shown_by_the_slot_once_it_is_written_again(store: Store) -> None:
    await agent(store, ["one"]).call("1", ALICE)
    await agent(store, ["two"], slot="off").call("2", ALICE)
    slot = await slot_of(store)
    assert slot is not None
    assert [message.text for message in slot.context] == ["1", "one"]

    model = ScriptedModel(["three"])
    await ReActAgent("cook", model, store=store).call("3", ALICE)

    assert [message.text for message in model.requests[0].messages] == ["1", "one", "2", "two", "3"]
    slot = await slot_of(store)
    assert slot is not None
    assert [message.text for message in slot.context] == ["1", "one", "2", "two", "3", "three"]
    assert len(await texts(store)) == 6


async def test_a_slot_that_was_deleted_while_none_was_written_deletes_nothing(store: Store) -> None:
    await agent(store, ["one"]).call("1", ALICE)
    await agent(store, ["two"], slot="off").call("2", ALICE)
    await store.states.delete(KEY)

    model = ScriptedModel(["three"])
    await ReActAgent("cook", model, store=store).call("3", ALICE)

    assert [message.text for message in model.requests[0].messages] == ["1", "one", "2", "two", "3"]


async def test_both_savings_together_write_one_commit(store: Store) -> None:
    dying = DyingStore(store)
    await agent(dying, SCRIPT, save="call", slot="off").call("Cook dinner", ALICE)

    assert dying.commits == 1
    assert len(await texts(store)) == 7
