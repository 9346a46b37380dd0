"""The text of a plan: state of the session, which follows it everywhere, and a file if one is asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    RuntimeContext,
    SessionKey,
    SessionManager,
    open_store,
)
from leafward.engine import PlanMode
from leafward.stores import Store
from leafward.testing import call
from tests.engine.going_on import ALICE
from tests.engine.house import HINT, House, enter, is_banner, write


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store({"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db"}[request.param]) as opened:
        yield opened


async def test_a_plan_is_replaced_as_a_whole_and_can_be_read(store: Store) -> None:
    script = [[enter()], [write("1. A roof")], [write("2. A door", "w2")], [call("plan_read", id="r")], "Done."]
    house = House(store, script)
    await house.agent.call("Plan", ALICE)

    assert (await house.results())["r"] == ("success", "2. A door")
    # Another process.
    later = House(store, ["Hi."])
    await later.agent.call("And now?", ALICE)
    assert (await later.plan(), await later.active()) == ("2. A door", True)


@pytest.mark.parametrize(
    ("calls", "says"),
    [
        ([write("1. A roof")], "plan mode is off. Call plan_enter first."),
        ([enter(), write("")], "the plan is empty. Send the whole plan."),
        ([enter(), write(" \n")], "the plan is empty. Send the whole plan."),
        ([enter(), write("x" * 100_001)], "the plan has 100,001 characters, and 100,000 are kept. Shorten it."),
        ([enter(), write(7)], "the argument 'content' is an integer, not a string."),
        ([enter(), call("plan_write", {}, id="write")], "the argument 'content' is missing. Send 'content'."),
        ([call("plan_read", id="write")], "this session has no plan."),
    ],
)
async def test_what_cannot_be_a_plan_is_answered_with_what_to_do(calls: list[Any], says: str) -> None:
    house = House("memory://", [*([one] for one in calls), "I see."])
    await house.agent.call("Plan", ALICE)

    assert (await house.results())["write"] == ("error", f"Error: {says}")
    assert await house.plan() is None
    assert house.prompts[-1] == "Build." or is_banner(house.prompts[-1])


@pytest.mark.parametrize(
    "options",
    [{}, {"slot": "off"}, {"save": "call"}, {"state_cache": 0}],
    ids=["steps", "no slot", "calls", "no cache"],
)
async def test_neither_banner_nor_hint_is_stored_and_the_plan_is_not_in_the_slot(store: Store, options: Any) -> None:
    house = House(store, [[enter()], [write("1. A secret roof")], "Planned.", "Hi."], **options)
    await house.agent.call("Plan", ALICE)
    await house.agent.exit_plan_mode("alice", "s1")
    await house.agent.call("And now?", ALICE)

    assert await house.plan() == "1. A secret roof"
    assert house.prompts[-1] == HINT
    raw = await house.agent.session("alice", "s1").get_raw_history()
    assert "lan mode is on: look" not in json.dumps([message.to_dict() for message in raw])
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state")
    assert (slot is None) == (options == {"slot": "off"})
    if slot is not None:
        assert slot["plan_mode_context"] == {"plan_active": False, "current_plan_file": "plans/PLAN.md"}
        beside = {key: value for key, value in slot.items() if key != "context"}
        assert "secret" not in json.dumps(beside)
    # An agent of another process, and one that has the state in its cache, find it.
    for agent in (house.agent, House(store, ["Hi."], **options).agent):
        assert await agent.get_plan("alice", "s1") == "1. A secret roof"


async def test_checkout_branch_and_fork_bring_the_plan_of_their_point(store: Store) -> None:
    script = [[enter()], [write("one")], "First.", [write("two")], "Second.", "On a branch.", "In a fork."]
    house = House(store, script)
    first = await house.agent.call("Plan", ALICE)
    second = await house.agent.call("Another", ALICE)
    await house.agent.exit_plan_mode("alice", "s1")
    session = house.agent.session("alice", "s1")

    await session.checkout(first.id)
    assert (await house.plan(), await house.active()) == ("one", True)
    await house.agent.call("Go on here", ALICE)
    assert (await house.plan(), await house.active()) == ("one", True)

    fork = await SessionManager(store, user_id="alice", agent_id="builder").fork("s1", second.id, "fork")
    assert await house.agent.get_plan("alice", fork.id) == "two"
    await house.agent.call("Go on there", RuntimeContext("alice", fork.id))
    assert await house.agent.get_plan("alice", fork.id) == "two"

    await session.checkout(second.id)
    assert (await house.plan(), await house.active()) == ("two", False)
    await session.checkout(None)
    assert (await house.plan(), await house.active()) == (None, False)


async def test_a_slot_that_agentscope_saved_keeps_the_plan(store: Store) -> None:
    house = House(store, [[enter()], [write("one")], "Planned.", "Hi."])
    await house.agent.call("Plan", ALICE)
    key = SessionKey("s1", "alice")
    slot = await store.states.get(key, "agent_state")
    assert slot is not None
    # It drops what it does not know.
    java = {key: value for key, value in slot.items() if not key.startswith("leafward")}
    java["plan_mode_context"]["plan_active"] = False
    await store.states.save(key, "agent_state", java)

    await house.agent.call("And now?", ALICE)

    assert (await house.plan(), await house.active(), house.prompts[-1]) == ("one", False, HINT)
    assert await House(store, state_cache=0).plan() == "one"


@pytest.mark.parametrize("policy", ["overwrite", "append_merge"])
async def test_a_slot_that_agentscope_saves_during_a_call_keeps_the_plan(store: Store, policy: Any) -> None:
    key = SessionKey("s1", "alice")
    house = House(store, [[enter()], [write("one")], "Planned."])
    await house.agent.call("Plan", ALICE)

    async def disturb(_: Any) -> str:
        slot = await store.states.get(key, "agent_state")
        assert slot is not None
        java = {name: value for name, value in slot.items() if not name.startswith("leafward")}
        java["permission_context"]["mode"] = "accept_edits"
        await store.states.save(key, "agent_state", java)
        return "Disturbed."

    disturbed = House(store, disturb, conflict_policy=policy)
    await disturbed.agent.call("And now?", ALICE)

    assert await House(store).plan() == "one"
    assert await House(store, slot="off").plan() == "one"
    later = House(store, ["Hi."])
    await later.agent.call("Then?", ALICE)
    assert is_banner(later.prompts[0])
    assert await later.plan() == "one"


async def test_a_deleted_session_begins_without_a_plan_and_a_cleared_one_keeps_it(store: Store) -> None:
    house = House(store, [[enter()], [write("one")], "Planned.", "Hi.", "Hi."])
    await house.agent.call("Plan", ALICE)

    await house.agent.clear_context("alice", "s1")
    assert (await house.plan(), (await house.state()).context) == ("one", [])

    await house.agent.call("Hello", ALICE)
    await store.states.delete(SessionKey("s1", "alice"))
    await house.agent.call("Hello again", ALICE)
    assert (await house.plan(), house.prompts[-1]) == (None, "Build.")


async def test_a_session_that_is_saved_elsewhere_and_loaded_again_has_its_plan_and_an_empty_one_none(
    store: Store,
) -> None:
    house = House(store, [[enter()], [write("one")], "Planned."])
    await house.agent.call("Plan", ALICE)
    key = SessionKey("s1", "alice")
    async with open_store("memory://") as backup, open_store("memory://") as elsewhere:
        await house.agent.save_to(backup, key)

        other = House(elsewhere, ["Hi."])
        await other.agent.load_from(backup, key)
        await other.agent.call("And now?")
        assert await other.agent.get_plan("alice", "s1") == "one"
        assert is_banner(other.prompts[0])

        async with open_store("memory://") as nothing:
            again = House(store, ["Hi."])
            assert not await again.agent.load_if_exists(nothing, key)
            await again.agent.call("Hello")
            assert (await again.plan(), again.prompts[0]) == (None, "Build.")


# ── a file as well ───────────────────────────────────────────────────────────


async def test_a_plan_is_written_to_a_file_before_it_is_stored(store: Store, tmp_path: Path) -> None:
    async def write_file(ctx: RuntimeContext, path: str, text: str) -> None:
        file = tmp_path / str(ctx.user_id) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    plan_mode = PlanMode(directory="/notes/plans/", write_file=write_file)
    house = House(store, [[enter()], [write("1. A roof")], "Planned.", "Hi."], plan_mode=plan_mode)
    await house.agent.call("Plan", ALICE)
    await house.agent.exit_plan_mode("alice", "s1")
    await house.agent.call("And now?", ALICE)

    assert (tmp_path / "alice/notes/plans/PLAN.md").read_text(encoding="utf-8") == "1. A roof"
    assert (await house.state()).plan_mode_context.current_plan_file == "notes/plans/PLAN.md"
    assert house.prompts[-1] == "Build.\n\nThis session has a plan in notes/plans/PLAN.md. plan_read returns it."


async def test_a_plan_whose_file_cannot_be_written_is_not_stored(store: Store) -> None:
    async def write_file(ctx: RuntimeContext, path: str, text: str) -> None:
        if "2." in text:
            raise OSError("the disk is full")

    script = [[enter()], [write("1. A roof")], [write("2. A door", "w2")], "I see."]
    house = House(store, script, plan_mode=PlanMode(write_file=write_file))
    await house.agent.call("Plan", ALICE)

    state, text = (await house.results())["w2"]
    assert state == "error"
    assert "the disk is full" in text
    assert await house.plan() == "1. A roof"
