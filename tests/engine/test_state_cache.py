"""The states that an agent keeps between calls: used only while their slots are unchanged, and never shared."""

from __future__ import annotations

import pytest

from leafward import Message, ReActAgent, RuntimeContext, SessionKey, SessionManager, tool, user
from leafward.core.agent_state import AgentState
from leafward.core.message import body_to_read
from leafward.engine.state_cache import StateCache
from leafward.stores import Store
from leafward.stores.states.store import Known
from leafward.testing import ScriptedModel, call
from tests.engine.test_turn import store

__all__ = ["store"]

KEY = SessionKey("s1", "alice")
ALICE = RuntimeContext("alice", "s1")
SAVED = Known(1, "a save")


def state(text: str = "hello") -> AgentState:
    return AgentState(session_id="s1", user_id="alice", context=[user(text)])


def test_what_is_changed_after_a_call_does_not_reach_the_next() -> None:
    cache, given = StateCache(2), state()
    cache.put(KEY, given, SAVED)

    given.context.append(user("more"))
    given.plan_mode_context.plan_active = True
    given.interrupt_control.interrupt()

    found = cache.take(KEY)
    assert found is not None
    assert (len(found.context), found.plan_mode_context.plan_active) == (1, False)
    assert not found.interrupt_control.is_interrupted


def test_a_call_that_was_not_stored_leaves_nothing_to_the_next() -> None:
    cache = StateCache(2)
    cache.put(KEY, state(), SAVED)
    found = cache.take(KEY)
    assert found is not None
    found.context.append(user("more"))

    assert cache.known(KEY) is None
    assert cache.take(KEY) is None


def test_a_message_that_was_changed_in_place_is_not_used() -> None:
    cache, given = StateCache(2), state()
    cache.put(KEY, given, SAVED)

    given.context[0].parts[0]["text"] = "changed"

    assert cache.take(KEY) is None
    assert cache.known(KEY) is None


def test_the_last_used_states_are_kept_within_both_limits() -> None:
    cache = StateCache(2, largest=2_000)
    one, two, three = (SessionKey(name) for name in ("one", "two", "three"))
    for key in (one, two):
        cache.put(key, state(), SAVED)
    assert cache.take(one) is not None
    cache.put(one, state(), SAVED)
    cache.put(three, state(), SAVED)
    assert [cache.known(key) for key in (one, two, three)] == [SAVED, None, SAVED]

    cache.put(two, state("x" * 3_000), SAVED)
    assert cache.known(two) is None
    cache.put(two, state("x" * 1_700), SAVED)
    assert len(cache) == 1


async def test_an_agent_sees_a_slot_that_another_writer_changed_between_two_calls(store: Store) -> None:
    model = ScriptedModel(lambda request: "Done.")
    agent = ReActAgent("cook", model, store=store)
    await agent.call("Cook dinner", ALICE)
    await agent.call("More", ALICE)
    other = await store.states.get(KEY, "agent_state", AgentState)
    assert other is not None
    del other.extra["leafward"]
    other.context.append(Message("assistant", "Written by Java."))
    await store.states.save(KEY, "agent_state", other)

    await agent.call("Thanks", ALICE)

    assert [message.text for message in model.requests[-1].messages][-2:] == ["Written by Java.", "Thanks"]


async def test_an_erased_conversation_does_not_come_back_when_another_has_as_many_saves(store: Store) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        return "stirred"

    model = ScriptedModel([[call("stir", {}, id="c1")], "One.", "Back."])
    first = ReActAgent("cook", model, store=store, tools=[stir])
    await first.call("A secret", ALICE)
    before = await store.states.get_versioned(KEY, "agent_state")
    await SessionManager(store, user_id="alice", agent_id="cook").erase("s1")
    await ReActAgent("cook", ScriptedModel(["Fresh."]), store=store).call("New", ALICE)
    assert (await store.states.get_versioned(KEY, "agent_state")).version == before.version

    await first.call("Again", ALICE)

    assert [message.text for message in model.requests[-1].messages] == ["New", "Fresh.", "Again"]
    assert [message.text for message in await first.session("alice", "s1").get_raw_history()] == [
        "New",
        "Fresh.",
        "Again",
        "Back.",
    ]


async def test_a_slot_that_was_deleted_and_saved_as_often_again_is_read(store: Store) -> None:
    model = ScriptedModel(["Done.", "Welcome."])
    agent = ReActAgent("cook", model, store=store)
    await agent.call("Cook dinner", ALICE)
    version = (await store.states.get_versioned(KEY, "agent_state")).version
    await store.states.delete(KEY)
    for _ in range(version):
        await store.states.save(KEY, "agent_state", state("Written by Java."))

    await agent.call("Thanks", ALICE)

    assert [message.text for message in model.requests[-1].messages] == ["Written by Java.", "Thanks"]


async def test_an_unchanged_slot_is_not_read_again(store: Store) -> None:
    model = ScriptedModel(["One.", "Two."])
    agent = ReActAgent("cook", model, store=store)
    await agent.call("Cook dinner", ALICE)
    await agent.call("More", ALICE)

    first, second = model.requests
    assert body_to_read(second.messages[0]) is body_to_read(first.messages[0])


@pytest.mark.parametrize("by", ["reply", "input"])
async def test_what_a_caller_changes_while_a_later_turn_runs_is_not_stored(store: Store, by: str) -> None:
    @tool
    async def stir() -> str:
        """Stir."""
        theirs[by].parts[0]["text"] = "changed"
        return "stirred"

    agent = ReActAgent("cook", ScriptedModel(["Done.", [call("stir", {})], "Served."]), store=store, tools=[stir])
    given = user("Cook dinner")
    theirs = {"input": given, "reply": await agent.call(given, ALICE)}

    await agent.call("Stir it", ALICE)

    history = await agent.session("alice", "s1").get_raw_history()
    assert [message.text for message in history[:2]] == ["Cook dinner", "Done."]
