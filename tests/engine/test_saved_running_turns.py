"""States that are saved while a turn runs: what they show without a result may have begun, whoever goes on with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from leafward import AgentState, Message, ReActAgent, RuntimeContext, SessionKey, StaleState, open_store, tool, user
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import PlainStates
from tests.engine.dying_store import Died, DyingStore
from tests.engine.going_on import ALICE, results

UNKNOWN = "Outcome unknown: the process ended while this ran. Find out before you call it again."
Save = Callable[[ReActAgent, RuntimeContext, Any], Awaitable[None]]


async def by_the_agent(agent: ReActAgent, ctx: RuntimeContext, store: Any) -> None:
    state = await agent.get_agent_state("alice", "s1")
    state.summary = "looked at"
    await agent.save_agent_state("alice", "s1", state)


async def as_the_tool_has_it(agent: ReActAgent, ctx: RuntimeContext, store: Any) -> None:
    await agent.save_agent_state("alice", "s1", ctx.agent_state)


async def past_the_agent(agent: ReActAgent, ctx: RuntimeContext, store: Any) -> None:
    state = AgentState.from_json((await agent.get_agent_state("alice", "s1")).to_json())
    await store.states.save(SessionKey("s1", "alice"), "agent_state", state)


@pytest.mark.parametrize("save", [by_the_agent, as_the_tool_has_it, past_the_agent])
@pytest.mark.parametrize("again", [user("Pay", id="p1"), "Pay", None])
async def test_another_agent_does_not_run_a_call_of_a_turn_that_ran_when_its_state_was_saved(
    save: Save, again: Message | str | None
) -> None:
    async with open_store("memory://") as store:
        paid: list[str | None] = []

        @tool
        async def pay(ctx: RuntimeContext) -> str:
            """Pay."""
            paid.append(ctx.idempotency_key)
            await save(first, ctx, store)
            return "paid"

        first = ReActAgent("cook", ScriptedModel([[call("pay", id="c1")], "Paid."]), tools=[pay], store=store)
        with pytest.raises(StaleState):
            await first.call(user("Pay", id="p1"), ALICE)

        model = ScriptedModel(["I do not know."])
        second = ReActAgent("waiter", model, tools=[pay], store=store)
        assert (await second.get_agent_state("alice", "s1")).context[-1].role == "assistant"
        await second.call(again, ALICE)

        assert len(paid) == 1
        assert results(model.requests[0].messages) == {"c1": ("interrupted", UNKNOWN)}
        assert [message.role for message in model.requests[0].messages] == ["user", "assistant", "tool"]


async def test_a_call_of_a_lost_process_is_in_doubt_also_above_what_was_added_by_hand() -> None:
    async with open_store("memory://") as store:
        paid: list[str] = []
        dying: Any = DyingStore(store)

        @tool
        async def pay() -> str:
            """Pay."""
            paid.append("paid")
            dying.die()
            return "paid"

        with suppress(Died):
            lost = ReActAgent("cook", ScriptedModel([[call("pay", id="c1")]]), tools=[pay], store=dying)
            await lost.call("Pay", ALICE)
        await dying.bury("s1", "alice")
        model = ScriptedModel(["I do not know."])
        agent = ReActAgent("cook", model, tools=[pay], store=store)
        state = await agent.get_agent_state("alice", "s1")
        state.context.append(user("Well?"))
        # As Java saves it, which drops what it does not know.
        state.extra.clear()
        await agent.save_agent_state("alice", "s1", state)

        await agent.call(None, ALICE)

        assert paid == ["paid"]
        assert results(model.requests[0].messages) == {"c1": ("interrupted", UNKNOWN)}


async def test_a_call_is_in_doubt_in_a_custom_store_too() -> None:
    states: Any = PlainStates()
    paid: list[str] = []

    @tool
    async def pay(ctx: RuntimeContext) -> str:
        """Pay."""
        paid.append("paid")
        await by_the_agent(agent, ctx, states)
        # The process is killed here: it saves nothing more.
        states.stops_after = len(states.saves)
        return "paid"

    agent = ReActAgent("cook", ScriptedModel([[call("pay", id="c1")]]), tools=[pay], store=states)
    with suppress(OSError):
        await agent.call("Pay", ALICE)
    states.stops_after = None

    model = ScriptedModel(["I do not know."])
    await ReActAgent("cook", model, tools=[pay], store=states).call("Pay", ALICE)

    assert paid == ["paid"]
    assert results(model.requests[0].messages) == {"c1": ("interrupted", UNKNOWN)}


async def test_a_state_that_was_saved_while_no_call_was_open_says_nothing_of_a_turn() -> None:
    async with open_store("memory://") as store:
        agent = ReActAgent("cook", ScriptedModel(["Hello.", "Again."]), store=store)
        await agent.call("hello", ALICE)

        state = await agent.get_agent_state("alice", "s1")

        assert state.extra == {}
        with suppress(ValueError):
            await agent.call(None, ALICE)
        assert (await agent.get_agent_state("alice", "s1")).extra == {}
