"""What a call does with a turn that another process left behind, beside what `test_stopped_store` tries out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest

from leafward import Message, RuntimeContext, SessionKey, open_store, tool, user
from leafward.core.agent_state import AgentState
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import Died, DyingStore

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


def agent(store: Any, script: Any) -> ReActAgent:
    @tool
    async def cook() -> str:
        """Cook."""
        return "cooked"

    @tool(external=True)
    async def taste() -> str:
        """Have it tasted."""
        raise AssertionError("an external tool is not run")

    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[cook, taste])


async def cut_off(store: Store, commits: int, script: Any, *inputs: Any) -> None:
    """Let a process be lost after some commits."""
    dying = DyingStore(store, commits)
    lost = agent(dying, script)
    with suppress(Died):
        for one in inputs:
            await asyncio.create_task(lost.call(one, ALICE))
    assert dying.is_dead
    await dying.bury("s1", "alice")


async def results(one: ReActAgent) -> list[str]:
    history = await one.session("alice", "s1").get_raw_history()
    return [message.parts[0]["output"][0]["text"] for message in history if message.role == "tool"]


async def test_other_input_leaves_calls_that_may_have_run_as_unknown_and_others_as_not_run(store: Store) -> None:
    both = [call("cook", {}, id="c1"), call("taste", {}, id="c2")]
    await cut_off(store, 3, [both], "Cook")
    following = agent(store, ["As you wish."])

    await following.call("Never mind", ALICE)

    assert await results(following) == [
        "Outcome unknown: the process ended while this ran. Find out before you call it again.",
        "Interrupted before it ran.",
    ]


@pytest.mark.parametrize("id", [None, "r1"])
async def test_a_result_that_is_sent_again_is_the_same_result(store: Store, id: str | None) -> None:
    def result() -> Message:
        return Message.tool_result("c1", "tasty", "taste", id=id)

    # The empty slot, input, intent, the question, its slot, the result.
    await cut_off(store, 6, [[call("taste", {}, id="c1")], "never said"], "Cook", result())
    following = agent(store, ["Tasty it is."])

    assert (await following.call(result(), ALICE)).text == "Tasty it is."
    assert (await agent(store, []).call(result(), ALICE)).text == "Tasty it is."
    assert await results(following) == ["tasty"]


async def test_a_result_that_nothing_waits_for_is_refused_also_when_no_turn_is_open(store: Store) -> None:
    one = agent(store, ["Hello."])
    await one.call("Hello", ALICE)

    with pytest.raises(ValueError, match="no call 'c9' waits"):
        await one.call(Message.tool_result("c9", "tasty"), ALICE)

    assert len(await one.session("alice", "s1").get_raw_history()) == 2


async def test_a_stored_reply_is_given_back_and_the_slot_shows_it(store: Store) -> None:
    question = user("Cook", id="q1")
    await cut_off(store, 3, ["Cooked."], question)

    reply = await agent(store, []).call(question, ALICE)

    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert [message.text for message in slot.context] == ["Cook", "Cooked."]
    assert slot.extra["leafward"]["leaf"] == reply.id


async def test_a_summary_that_is_laid_during_a_turn_is_in_its_next_request_and_in_the_slot(store: Store) -> None:
    @tool
    async def sum_up(ctx: RuntimeContext) -> str:
        """Sum up what was said before."""
        session = one.session("alice", "s1")
        first, second, *_ = await session.get_history()
        await session.add_compaction("They greeted.", first.id, second.id)
        return "summed up"

    model = ScriptedModel(["Hello.", [call("sum_up", {})], "Done."])
    one = ReActAgent("cook", model, store=store, tools=[sum_up])
    await one.call("Hello", ALICE)
    await one.call("Sum up", ALICE)

    seen = [message.text for message in model.requests[2].messages]
    assert "They greeted." in seen[0]
    assert seen[1] == "Sum up"
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert [message.text for message in slot.context] == [*seen, "Done."]


async def test_the_summary_of_a_state_is_that_of_the_compaction_in_force(store: Store) -> None:
    model = ScriptedModel(["one", "two", "three"])
    agent = ReActAgent("cook", model, store=store)
    for words in ("first", "second"):
        await agent.call(words, ALICE)
    session = agent.session("alice", "s1")
    history = await session.get_history()
    await session.add_compaction("They said hello.", history[0].id, history[1].id)

    assert (await agent.get_agent_state("alice", "s1")).summary == "They said hello."
    await agent.call("third", ALICE)
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert slot.summary == "They said hello."

    await session.checkout(history[0].id)
    assert (await agent.get_agent_state("alice", "s1")).summary == ""
