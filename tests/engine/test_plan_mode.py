"""Plan mode: the agent looks and plans, and changes nothing before the user has approved."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    AgentState,
    ConfigurationError,
    Message,
    ReActAgent,
    RuntimeContext,
    SessionKey,
    SessionManager,
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
from tests.engine.two_handles import Handles, on

LISTED = ("agent_spawn", "agent_send", "agent_list", "task_output", "task_list")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store({"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db"}[request.param]) as opened:
        yield opened


class House:
    """An agent with a tool that looks and one that builds, and what ran."""

    def __init__(self, store: Any, script: Any = (), **options: Any) -> None:
        self.ran: list[str] = []
        self.model = ScriptedModel(script)
        options.setdefault("plan_mode", True)
        self.agent = ReActAgent(
            "builder", self.model, store=store, tools=self._tools(), system_prompt="Build.", **options
        )

    def _tools(self) -> list[Any]:
        @tool(read_only=True)
        async def look() -> str:
            """Look at the house."""
            self.ran.append("look")
            return "It is old."

        @tool
        async def build(what: str) -> str:
            """Build something."""
            self.ran.append(f"build {what}")
            return "built"

        @tool(external=True)
        async def order(what: str) -> str:
            """Have something brought."""
            return what

        return [look, build, order]

    @property
    def prompts(self) -> list[str]:
        return [request.system for request in self.model.requests]

    async def state(self) -> AgentState:
        return await self.agent.get_agent_state("alice", "s1")

    async def results(self) -> dict[str, tuple[str, str]]:
        return results((await self.state()).context)

    async def active(self) -> bool:
        return await self.agent.is_plan_mode_active("alice", "s1")

    async def plan(self) -> str | None:
        return await self.agent.get_plan("alice", "s1")


def enter() -> Any:
    return call("plan_enter", id="enter")


def write(text: Any, id: str = "write") -> Any:
    return call("plan_write", {"content": text}, id=id)


def leave(id: str = "exit") -> Any:
    return call("plan_exit", {"summary": "A roof"}, id=id)


def build(what: str = "a roof", id: str = "build") -> Any:
    return call("build", {"what": what}, id=id)


def look(id: str = "look") -> Any:
    return call("look", id=id)


def reason(message: Message) -> Any:
    return (message.metadata or {}).get("agentscope_generate_reason")


def is_banner(prompt: str) -> bool:
    return prompt.startswith("Build.\n\n# Plan mode\n\nPlan mode is on")


DENIED = (
    "Permission denied by rules: plan mode is on, and {!r} is not read-only. Put what it should do into the plan with"
    " plan_write, and call plan_exit when the plan is complete."
)
HINT = "Build.\n\nThis session has a plan. plan_read returns it."


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


# ── the plan ─────────────────────────────────────────────────────────────────


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

    plan_mode = PlanMode(directory="/work/plans/", write_file=write_file)
    house = House(store, [[enter()], [write("1. A roof")], "Planned.", "Hi."], plan_mode=plan_mode)
    await house.agent.call("Plan", ALICE)
    await house.agent.exit_plan_mode("alice", "s1")
    await house.agent.call("And now?", ALICE)

    assert (tmp_path / "alice/work/plans/PLAN.md").read_text(encoding="utf-8") == "1. A roof"
    assert (await house.state()).plan_mode_context.current_plan_file == "work/plans/PLAN.md"
    assert house.prompts[-1] == "Build.\n\nThis session has a plan in work/plans/PLAN.md. plan_read returns it."


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
