"""What is sent to a running turn is stored once, whatever becomes of the turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest

from faults.kitchen import unpaired
from leafward import AgentState, Message, MessageTooLarge, RuntimeContext, SessionKey, open_store, tool, user
from leafward.engine.agent import ReActAgent
from leafward.engine.state_changes import StateChange
from leafward.engine.turn_mail import TurnText
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.dying_store import Died, DyingStore

ALICE = RuntimeContext("alice", "s1")
SALT = user("with less salt", id="salt")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


def steered(store: Any, script: Any, *, by: str = "steer") -> tuple[ReActAgent, ScriptedModel]:
    """Return an agent with a tool during which the turn is steered or interrupted, and one that others run."""

    @tool
    async def stir() -> str:
        """Stir."""
        assert await getattr(agent, by)("alice", "s1", SALT)
        return "stirred"

    @tool(external=True)
    async def taste() -> str:
        """Have it tasted."""
        raise AssertionError("an external tool is not run")

    model = ScriptedModel(script)
    agent = ReActAgent("cook", model, store=store, tools=[stir, taste])
    return agent, model


async def ids(agent: ReActAgent) -> list[str]:
    return [message.id for message in await agent.session("alice", "s1").get_raw_history()]


async def cut_off(store: Store, commits: int, *, by: str = "steer") -> None:
    """Let a turn be steered, and its process be lost after some commits."""
    dying = DyingStore(store, commits)
    agent, _ = steered(dying, [[call("stir", {}, id="c1")], "never said"], by=by)
    with suppress(Died):
        await asyncio.create_task(agent.call(user("Cook", id="q1"), ALICE))
    assert dying.is_dead
    await dying.bury("s1", "alice")


@pytest.mark.parametrize("by", ["steer", "interrupt"])
@pytest.mark.parametrize("commits", [3, 4])
async def test_the_next_turn_stores_what_a_lost_one_had_read_but_not_stored(
    store: Store, commits: int, by: str
) -> None:
    await cut_off(store, commits, by=by)
    agent, model = steered(store, ["Served."])

    assert (await agent.call(user("Serve", id="q2"), ALICE)).text == "Served."

    stored = await ids(agent)
    assert stored[-3:-1] == ["salt", "q2"]
    assert unpaired(model.requests[0].messages) is None
    # It is gone from where it waited.
    await steered(store, ["And more."])[0].call("More", ALICE)
    assert (await ids(agent)).count("salt") == 1


async def test_a_message_joins_a_resumed_turn_after_the_results_of_its_calls(store: Store) -> None:
    await cut_off(store, 3)
    agent, model = steered(store, ["With less salt."])

    await agent.call(user("Cook", id="q1"), ALICE)

    assert unpaired(model.requests[0].messages) is None
    assert (await ids(agent))[3] == "salt"


async def test_a_message_that_comes_while_an_external_tool_is_asked_joins_after_its_result(store: Store) -> None:
    script = [[call("stir", {}, id="c1"), call("taste", {}, id="c2")], "With less salt."]
    agent, model = steered(store, script)
    await agent.call("Cook", ALICE)

    await agent.call(Message.tool_result("c2", "too salty"), ALICE)

    assert model.requests[1].messages[-1].text == "with less salt"
    assert unpaired(model.requests[1].messages) is None


async def test_an_interrupt_ends_a_turn_that_would_wait_for_an_external_tool(store: Store) -> None:
    script = [[call("stir", {}, id="c1"), call("taste", {}, id="c2")]]
    agent, _ = steered(store, script, by="interrupt")

    reply = await agent.call("Cook", ALICE)

    assert (reply.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    history = await agent.session("alice", "s1").get_raw_history()
    assert unpaired(history) is None
    assert history[-1].id == "salt"


async def test_a_reply_that_was_stored_before_leaves_a_message_to_the_next_turn(store: Store) -> None:
    agent, _ = steered(store, ["Cooked."])
    await agent.call(user("Cook", id="q1"), ALICE)
    lease = await asyncio.create_task(_acquired(store))
    assert await agent.steer("alice", "s1", SALT)
    await lease.release()

    assert (await agent.call(user("Cook", id="q1"), ALICE)).text == "Cooked."
    await steered(store, ["Served."])[0].call(user("Serve", id="q2"), ALICE)

    assert (await ids(agent))[2:4] == ["salt", "q2"]


async def _acquired(store: Store) -> Any:
    return await store.leases.acquire("s1", "alice", label="agent:cook")


async def test_a_message_that_is_sent_twice_is_stored_once(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        assert await agent.steer("alice", "s1", SALT)
        assert await agent.steer("alice", "s1", SALT)
        return "stirred"

    agent = ReActAgent(
        "cook", ScriptedModel([[call("stir", {})], [call("stir", {})], "Done."]), store=store, tools=[stir]
    )
    await agent.call("Cook", ALICE)

    assert (await ids(agent)).count("salt") == 1
    assert len(await ids(agent)) == 7


@pytest.mark.parametrize("by", ["steer", "interrupt"])
async def test_a_message_that_the_store_does_not_take_is_not_sent(by: str) -> None:
    async with open_store("memory://", max_message_bytes=1_000) as store:

        @tool
        async def stir() -> str:
            """Stir."""
            with pytest.raises(MessageTooLarge, match=r"'long' is 1,\d\d\d bytes of JSON, the store accepts 1,000"):
                await getattr(agent, by)("alice", "s1", user("x" * 1_000, id="long"))
            return "stirred"

        agent = ReActAgent("cook", ScriptedModel([[call("stir", {})], "Served.", "More."]), store=store, tools=[stir])
        reply = await agent.call("Cook", ALICE)

        is_stopped = (reply.metadata or {}).get("agentscope_generate_reason") == "INTERRUPTED"
        assert is_stopped == (by == "interrupt")
        assert (await agent.call("More", ALICE)).text == ("Served." if is_stopped else "More.")


@pytest.mark.parametrize("by", ["steer", "interrupt"])
async def test_a_message_of_a_process_with_a_larger_limit_is_left_out(
    by: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        open_store("memory://limits", max_message_bytes=1_000) as store,
        open_store("memory://limits", max_message_bytes=9_000) as other,
    ):
        sender, _ = steered(other, [])

        @tool
        async def stir() -> str:
            """Stir."""
            assert await getattr(sender, by)("alice", "s1", user("x" * 1_000, id="long"))
            return "stirred"

        agent = ReActAgent("cook", ScriptedModel([[call("stir", {})], "Served.", "More."]), store=store, tools=[stir])
        async with asyncio.timeout(5):
            await agent.call("Cook", ALICE)
            await agent.call("More", ALICE)

        assert "long" not in await ids(agent)
        assert "a message to the turn of session 's1' is left out: message 'long' is 1," in caplog.text


async def test_a_change_that_was_made_is_not_made_again_after_a_newer_one(store: Store) -> None:
    # In front of it waits a message that only a turn stores.
    agent = ReActAgent("cook", ScriptedModel(["Cooked.", "Served."]), store=store)
    await agent.call("Cook", ALICE)
    lease = await store.leases.acquire("s1", "alice", label="agent:cook")
    await agent.steer("alice", "s1", SALT)
    await agent.set_permission_mode("alice", "s1", "bypass")
    await lease.release()

    await agent.set_permission_mode("alice", "s1", "explore")
    await agent.set_permission_mode("alice", "s1", "default")
    await agent.call("Serve", ALICE)

    assert (await agent.get_permissions("alice", "s1")).mode == "default"
    assert "salt" in await ids(agent)
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert "leafward.changes" not in slot.extra


@pytest.mark.parametrize("spoilt", ["extra", "permissions"])
async def test_changes_that_were_sent_are_stored_although_the_state_of_the_step_cannot_be(
    store: Store, spoilt: str
) -> None:
    @tool
    async def spoil(ctx: RuntimeContext) -> str:
        """Put into the state what cannot be stored."""
        await agent.set_permission_mode("alice", "s1", "bypass")
        await agent.add_rule("alice", "s1", {"tool_name": "stir", "behavior": "deny", "source": "policy"})
        if spoilt == "extra":
            ctx.agent_state.extra["spoilt"] = object()
        else:
            ctx.agent_state.permission_context = None
        return "spoilt"

    agent = ReActAgent("cook", ScriptedModel([[call("spoil", id="c1")], "One.", "Two."]), store=store, tools=[spoil])
    with pytest.raises(ValueError, match=r"state|spoilt"):
        await agent.call("Cook", ALICE)

    for _ in range(2):
        found = await agent.get_permissions("alice", "s1")
        assert (found.mode, [*found.deny_rules]) == ("bypass", ["stir"])
        await agent.call("Serve", ALICE)


async def test_a_change_that_no_state_can_take_keeps_no_turn_from_running(store: Store) -> None:
    agent = ReActAgent("cook", ScriptedModel(["Served."]), store=store)
    lease = await store.leases.acquire("s1", "alice", label="agent:cook")
    change = StateChange("wrong", rule={"tool_name": "stir", "behavior": "pray", "source": "policy"})
    await store.leases.send("s1", "alice", TurnText("change", lease.token, change=change).write(), label="agent:cook")
    await lease.release()

    assert (await agent.call("Serve", ALICE)).text == "Served."
