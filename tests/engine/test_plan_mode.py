"""Plan mode: the agent looks and plans, and changes nothing before the user has approved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    AgentState,
    ConfigurationError,
    Message,
    ReActAgent,
    SessionKey,
    open_store,
    tool,
    user,
)
from leafward.core.agent_contexts import PermissionContext, PermissionRule, PlanModeContext
from leafward.engine import PlanMode
from leafward.engine.permissions import MODES, accepted
from leafward.engine.state_changes import StateChange
from leafward.engine.turn_control import TurnControl
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import AsyncStates, PlainStates
from tests.engine.going_on import ALICE, is_paired, results
from tests.engine.house import DENIED, HINT, House, build, enter, is_banner, leave, look, reason, write
from tests.engine.two_handles import Handles, on

LISTED = ("agent_spawn", "agent_send", "agent_list", "task_output", "task_list")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store({"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db"}[request.param]) as opened:
        yield opened


# ── what runs ────────────────────────────────────────────────────────────────


async def test_an_agent_plans_asks_and_carries_the_plan_out_after_the_approval(store: Store) -> None:
    house = House(store, [[enter()], [look()], [write("1. A roof")], [leave()], [build()], "Built."])

    asked = await house.agent.call("Repair the house", ALICE)

    assert (reason(asked), house.ran, await house.active()) == ("PERMISSION_ASKING", ["look"], True)
    (question,) = await house.agent.questions("alice", "s1")
    assert (question.call["name"], question.call["input"]) == ("plan_exit", {"summary": "A roof"})
    assert question.suggested_rules == []
    assert await house.plan() == "1. A roof"

    reply = await house.agent.answer("alice", "s1", {"exit": True})

    assert (reply.text, house.ran, await house.active()) == ("Built.", ["look", "build a roof"], False)
    assert [is_banner(prompt) for prompt in house.prompts] == [False, True, True, True, False, False]
    assert [house.prompts[0], *house.prompts[4:]] == ["Build.", HINT, HINT]
    context = (await house.state()).plan_mode_context
    assert (context.plan_active, context.current_plan_file) == (False, "plans/PLAN.md")


async def test_while_it_plans_calls_that_are_not_read_only_are_denied_and_the_others_of_the_reply_run(
    store: Store,
) -> None:
    house = House(store, [[enter()], [build(), look(), call("order", {"what": "tiles"}, id="order")], "I see."])

    reply = await house.agent.call("Repair the house", ALICE)

    assert (reply.text, house.ran) == ("I see.", ["look"])
    found = await house.results()
    assert found["look"] == ("success", "It is old.")
    for id in ("build", "order"):
        assert found[id] == ("denied", DENIED.format(id))
    assert results(house.model.requests[-1].messages) == found
    assert is_paired(house.model.requests[-1].messages)


async def test_where_all_calls_of_a_reply_are_denied_the_stream_says_so(store: Store) -> None:
    house = House(store, [[enter()], [build()], "I see."])

    events = [event.type async for event in house.agent.stream("Repair the house", ALICE)]

    assert events.count("ALL_TOOLS_DENIED") == 1


async def test_tools_of_agentscopes_list_and_those_that_were_allowed_run_while_it_plans(store: Store) -> None:
    ran: list[str] = []

    def named(name: str) -> Any:
        async def run() -> str:
            ran.append(name)
            return "done"

        return tool(name=name)(run)

    names = [*LISTED, "shell", "shell2"]
    script = [
        [enter()],
        [call(name, id=name) for name in names] + [call("todo_write", {"todos": []}, id="todo")],
        "Done.",
    ]
    plan_mode = PlanMode(allow=("shell",))
    model = ScriptedModel(script)
    agent = ReActAgent("a", model, store=store, tools=map(named, names), plan_mode=plan_mode, task_list=True)
    await agent.call("Plan", ALICE)

    assert sorted(ran) == sorted([*LISTED, "shell"])
    states = {id: state for id, (state, _) in results(model.requests[-1].messages).items()}
    assert states == {
        "enter": "success",
        "todo": "success",
        **dict.fromkeys([*LISTED, "shell"], "success"),
        "shell2": "denied",
    }


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rules", ["none", "allow", "accepted", "ask"])
async def test_the_end_of_plan_mode_is_asked_about_in_every_mode_that_asks(mode: Any, rules: str) -> None:
    permissions = PermissionContext(mode=mode)
    if rules == "ask":
        permissions.ask_rules["build"] = [PermissionRule("build", "ask", "policy")]
    elif rules != "none":
        rule = PermissionRule("plan_exit", "allow", "userSettings")
        permissions.allow_rules["plan_exit"] = [accepted(rule) if rules == "accepted" else rule]
    house = House("memory://", [[enter()], [write("1. A roof")], [leave()], "Done."], permissions=permissions)

    reply = await house.agent.call("Plan", ALICE)

    assert await house.plan() == "1. A roof"
    assert await house.active()
    if mode == "dont_ask":
        assert (reply.text, (await house.results())["exit"][0]) == ("Done.", "denied")
        return
    assert reason(reply) == "PERMISSION_ASKING"
    await house.agent.answer("alice", "s1", {"exit": True})
    assert not await house.active()


async def test_a_deny_rule_comes_before_the_question() -> None:
    permissions = PermissionContext(deny_rules={"plan_exit": [PermissionRule("plan_exit", "deny", "policy")]})
    house = House("memory://", [[enter()], [leave()], "Done."], permissions=permissions)

    assert (await house.agent.call("Plan", ALICE)).text == "Done."
    assert await house.active()


async def test_a_plan_that_the_user_declines_leaves_plan_mode_on(store: Store) -> None:
    house = House(store, [[enter()], [write("1.")], [leave()], [write("1. and 2.", "w2")], [leave("e2")], "Done."])
    await house.agent.call("Plan", ALICE)

    again = await house.agent.answer("alice", "s1", {"exit": False})

    assert (reason(again), await house.active(), await house.plan()) == ("PERMISSION_ASKING", True, "1. and 2.")
    assert (await house.results())["exit"] == ("denied", "Permission denied by user")
    # A plain message declines it as well.
    await house.agent.call("Leave it", ALICE)
    assert await house.active()


async def test_a_call_that_waited_to_run_when_plan_mode_was_switched_on_is_denied(store: Store) -> None:
    # As an agent leaves it that is shut down after it stored its reply.
    context = [user("Build"), Message("assistant", [build(), look()])]
    state = AgentState(session_id="s1", user_id="alice", context=context, shutdown_interrupted=True)
    await store.states.save(SessionKey("s1", "alice"), "agent_state", state)
    house = House(store, ["I see."])
    await house.agent.enter_plan_mode("alice", "s1")

    await house.agent.call(None, ALICE)

    assert house.ran == ["look"]
    assert {id: state for id, (state, _) in (await house.results()).items()} == {"build": "denied", "look": "success"}


# ── states as they may be found ──────────────────────────────────────────────


@pytest.mark.parametrize(
    ("context", "plan", "prompt"),
    [
        (PlanModeContext(), None, "Build."),
        (PlanModeContext(plan_active=False, current_plan_file="plans/PLAN.md"), "one", HINT),
        (PlanModeContext(plan_active=False, current_plan_file="plans/PLAN.md"), None, "Build."),
        (PlanModeContext(plan_active=True, current_plan_file="plans/PLAN.md"), "one", "banner"),
        (PlanModeContext(plan_active=True, current_plan_file="plans/PLAN.md"), None, "banner"),
        (PlanModeContext(plan_active=True, current_plan_file=None), None, "banner"),
    ],
    ids=["never entered", "exited", "exited without a plan", "active with file", "no plan yet", "active without file"],
)
async def test_each_state_that_plan_mode_can_be_in_is_gone_on_with(
    store: Store, context: PlanModeContext, plan: str | None, prompt: str
) -> None:
    house = House(store, [[build()], [write("two")], [leave()], "Done."])
    state = AgentState(plan_mode_context=context, extra={} if plan is None else {"leafward.plan": plan})
    await house.agent.save_agent_state("alice", "s1", state)
    assert (await house.active(), await house.plan()) == (context.plan_active, plan)

    await house.agent.call("Build", ALICE)

    is_on = prompt == "banner"
    assert is_banner(house.prompts[0]) if is_on else house.prompts[0] == prompt
    assert house.ran == ([] if is_on else ["build a roof"])
    assert await house.plan() == ("two" if is_on else plan)
    found = (await house.state()).plan_mode_context
    assert found.current_plan_file == ("plans/PLAN.md" if is_on else context.current_plan_file)
    await house.agent.answer("alice", "s1", {"exit": True})
    assert (await house.state()).plan_mode_context == PlanModeContext(False, found.current_plan_file)


async def test_entering_and_leaving_twice_changes_nothing_more(store: Store) -> None:
    house = House(store)
    state = AgentState(plan_mode_context=PlanModeContext(current_plan_file="mine.md"))
    await house.agent.save_agent_state("alice", "s1", state)

    for _ in range(2):
        await house.agent.enter_plan_mode("alice", "s1")
        assert (await house.state()).plan_mode_context == PlanModeContext(True, "mine.md")
    for _ in range(2):
        await house.agent.exit_plan_mode("alice", "s1")
        assert (await house.state()).plan_mode_context == PlanModeContext(False, "mine.md")


# ── as a program switches it ─────────────────────────────────────────────────


async def test_a_program_switches_plan_mode_without_a_question_and_it_is_stored_at_once(store: Store) -> None:
    house = House(store)
    await house.agent.enter_plan_mode("alice", "s1")

    other = House(store, [[build()], "I see.", [build()], "Built."])
    assert await other.active()
    assert not await other.agent.is_plan_mode_active("bob", "s1")
    assert not await other.agent.is_plan_mode_active("alice", "s2")
    await other.agent.call("Build", ALICE)
    assert other.ran == []

    await house.agent.exit_plan_mode("alice", "s1")
    assert (await other.agent.call("Build now", ALICE)).text == "Built."
    assert other.ran == ["build a roof"]


async def test_a_running_turn_goes_by_it_from_its_next_step_on(store: Store) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    async def script(request: Any) -> Any:
        begun.set()
        await over.wait()
        return [build(), look()] if len(request.messages) == 1 else "I see."

    house = House(store, script)
    task = asyncio.create_task(house.agent.call("Build", ALICE))
    await begun.wait()
    await house.agent.enter_plan_mode("alice", "s1")
    over.set()
    await task

    assert (house.ran, await house.active()) == (["look"], True)
    assert [is_banner(prompt) for prompt in house.prompts] == [False, True]


@on("sqlite", "files", "postgres", "redis")
async def test_another_process_switches_it_for_a_running_turn(
    handles: Handles, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, received = asyncio.Event(), asyncio.Event()
    take_change = TurnControl.take_change

    def take(control: TurnControl, change: StateChange) -> str:
        received.set()
        return take_change(control, change)

    async def script(request: Any) -> Any:
        begun.set()
        await received.wait()
        return [build(), look()] if len(request.messages) == 1 else "I see."

    monkeypatch.setattr(TurnControl, "take_change", take)
    house, other = House(handles[0], script), House(handles[1])
    task = asyncio.create_task(house.agent.call("Build", ALICE))
    await begun.wait()
    await other.agent.enter_plan_mode("alice", "s1")
    await task

    assert house.ran == ["look"]
    assert await other.active()


@pytest.mark.parametrize("states", [PlainStates, AsyncStates])
async def test_in_a_custom_store_of_states_the_plan_is_in_the_state(states: Any) -> None:
    kept = states()
    house = House(kept, [[enter()], [write("one")], [leave()], "Done."])
    await house.agent.call("Plan", ALICE)

    other = House(kept, ["Done."])
    assert (await other.plan(), await other.active()) == ("one", True)
    await other.agent.answer("alice", "s1", {"exit": True})
    assert (await House(kept).plan(), await other.active(), other.prompts[0]) == ("one", False, HINT)
    await other.agent.enter_plan_mode("alice", "s1")
    assert await House(kept).active()


async def test_an_agent_without_plan_mode_neither_switches_it_nor_goes_by_it(store: Store) -> None:
    await House(store).agent.enter_plan_mode("alice", "s1")
    house = House(store, [[build()], "Built."], plan_mode=False)

    for switch in (house.agent.enter_plan_mode, house.agent.exit_plan_mode):
        with pytest.raises(ConfigurationError, match=r"ReActAgent\(…, plan_mode=True\)"):
            await switch("alice", "s1")
    assert await house.active()
    await house.agent.call("Build", ALICE)

    assert (house.ran, house.prompts) == (["build a roof"], ["Build."] * 2)
    assert not [name for name in house.model.requests[0].tools if name.startswith("plan_")]


@pytest.mark.parametrize("wrong", ["yes", None, 1, {"directory": "plans"}])
def test_what_says_nothing_of_plan_mode_is_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="plan_mode is True, False or PlanMode"):
        House("memory://", plan_mode=wrong)


@pytest.mark.parametrize("wrong", [{"directory": 3}, {"write_file": "file"}, {"allow": "shell"}])
def test_wrong_arguments_of_plan_mode_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError):
        PlanMode(**wrong)
