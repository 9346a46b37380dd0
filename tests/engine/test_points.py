"""A conversation that goes on from any of its messages has the state of that point."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from leafward import (
    AgentState,
    Message,
    ReActAgent,
    RuntimeContext,
    Session,
    SessionManager,
    Toolkit,
    open_store,
    tool,
)
from leafward.core.agent_contexts import PermissionRule, Task
from leafward.engine.models.model import ModelRequest
from leafward.engine.small_state import plan_text, write_small_state
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE, is_paired, results
from tests.engine.java_slots import BACKENDS, java_slot

SERVERS = ("postgres", "mysql", "redis")
TURNS = 50
NOT_ANSWERED = ("interrupted", "Not answered on this branch.")


@pytest.fixture(
    params=[
        "memory",
        *(pytest.param(name, marks=[pytest.mark.server] if name in SERVERS else []) for name in BACKENDS),
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    if request.param == "memory":
        async with open_store("memory://") as opened:
            yield opened
        return

    def server_url(name: str) -> str:
        return request.getfixturevalue("server_url")(name)

    async with java_slot(request.param, tmp_path, server_url) as slot:
        yield slot.agent_store if isinstance(slot.agent_store, Store) else await slot.agent_store.open()


@pytest.fixture
async def memory() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


def change(state: AgentState, number: int) -> None:
    """Change one part of the small state."""
    match number % 5:
        case 0:
            state.tasks_context.tasks.append(
                Task(f"task {number}", "do it", created_at="2026-08-22T23:15:56Z", id=f"t{number}")
            )
        case 1:
            state.plan_mode_context.plan_active = not state.plan_mode_context.plan_active
            state.plan_mode_context.current_plan_file = f"plans/{number}.md"
        case 2:
            state.tool_context.activated_groups = [f"group {number}"]
        case 3:
            rules = state.permission_context.deny_rules.setdefault("rm", [])
            rules.append(PermissionRule("rm", "deny", "session", f"/{number}"))
        case _:
            state.summary = f"summary {number}"


def small(state: AgentState) -> dict[str, Any]:
    return {key: value for key, value in write_small_state(state).items() if key != "reply_id"}


def after(changes: int) -> dict[str, Any]:
    """Return the small state after so many changes."""
    state = AgentState()
    for number in range(changes):
        change(state, number)
    return small(state)


class Talk:
    """An agent whose tool changes the small state once in each turn."""

    def __init__(self, store: Store) -> None:
        self.seen: list[dict[str, Any]] = []
        self.model = ScriptedModel(self._reply)
        self.agent = ReActAgent("cook", self.model, store=store, tools=self._tools())
        self.manager = SessionManager(store, user_id="alice", agent_id="cook")

    @property
    def session(self) -> Session:
        return self.agent.session("alice", "s1")

    def _tools(self) -> list[Any]:
        # The rules that are added here are for another tool, and have the user asked about all that says nothing.
        @tool(check=lambda arguments, ctx: "allow")
        async def alter(number: int, ctx: RuntimeContext) -> str:
            """Change the state."""
            change(ctx.agent_state, number)
            return f"changed {number}"

        @tool(check=lambda arguments, ctx: "allow")
        async def look(ctx: RuntimeContext) -> str:
            """Look at the state."""
            self.seen.append(small(ctx.agent_state))
            return "seen"

        return [alter, look]

    def _reply(self, request: ModelRequest) -> Any:
        words = request.messages[-1].text.split()
        if request.messages[-1].role != "user":
            return f"reply, of {len(request.messages)}"
        return [call("alter", {"number": int(words[1])}) if words[0] == "change" else call("look", {})]

    async def talk(self, turns: int) -> list[Message]:
        for number in range(turns):
            await self.agent.call(f"change {number}", ALICE)
        return await self.session.get_raw_history()

    async def sees(self, ctx: RuntimeContext = ALICE) -> tuple[dict[str, Any], list[Message]]:
        """Make the next call, and return the state that its tool and the messages that its model saw."""
        asked = len(self.model.requests)
        await self.agent.call("look", ctx)
        request = self.model.requests[asked].messages
        assert all(is_paired(one.messages) for one in self.model.requests[asked:])
        assert request[-1].text == "look"
        return self.seen[-1], list(request[:-1])


def changes_in(path: Sequence[Message]) -> int:
    return sum(message.role == "tool" for message in path)


async def test_after_a_checkout_and_in_a_fork_the_next_call_sees_the_state_of_that_message(store: Store) -> None:
    talk = Talk(store)
    history = await talk.talk(TURNS)
    assert len(history) == 4 * TURNS
    # Three and seventeen share no divisor with the four messages of a turn, so each kind of message has its turn.
    every = 3 if type(store).__name__ == "MemoryStore" else 17
    for row in range(len(history) - 1, -1, -every):
        message, expected = history[row], after(changes_in(history[: row + 1]))
        await talk.session.checkout(message.id)

        state, request = await talk.sees()

        assert state == expected
        assert [one.id for one in request[: row + 1]] == [one.id for one in history[: row + 1]]
        calls = row % 4 == 1
        assert list(results(request[row + 1 :]).values()) == [NOT_ANSWERED] * calls

    for row in range(2, len(history), 19):
        fork = await talk.manager.fork("s1", history[row].id, f"from {row}")

        state, request = await talk.sees(RuntimeContext("alice", fork.id))

        assert state == after(changes_in(history[: row + 1]))
        assert [one.id for one in request[: row + 1]] == [one.id for one in history[: row + 1]]


class Controls(NamedTuple):
    """What the rules, the plan, the list and the groups of a session are, and what a model is asked with them."""

    planning: bool = False
    plan: str | None = None
    todos: tuple[str, ...] = ()
    groups: tuple[str, ...] = ("red",)
    rules: tuple[str | None, ...] = ()

    def after_call(self, number: int) -> Controls:
        """Return what the model's call in a turn has changed."""
        match number % 5:
            case 0:
                return self._replace(planning=True)
            case 1:
                return self._replace(plan=f"plan {number}")
            case 2:
                return self._replace(todos=(*self.todos[-2:], f"todo {number}"))
            case 3:
                return self._replace(groups=(("red", "blue"), ("blue",), ())[number % 3])
            case _:
                return self

    def after_turn(self, number: int) -> Controls:
        """Return what the program has changed after a turn."""
        match number % 5:
            case 2:
                return self._replace(planning=False)
            case 4:
                return self._replace(rules=(*self.rules, f"/{number}"))
            case _:
                return self

    @property
    def request(self) -> tuple[str, list[str], list[str]]:
        """Return what a request says of it: the first words of the prompt, the reminder, and tools in groups."""
        hint = "" if self.plan is None else "This session has a plan"
        shown = [f"- [ ] {one}" for one in self.todos]
        return ("# Plan mode" if self.planning else hint, shown, [f"tool_{name}" for name in self.groups])


def controls_at(row: int) -> Controls:
    """Return what is in force at a message: each turn has four, of which the third is the result of its call."""
    found = Controls()
    for number in range(row // 4 + 1):
        if number < row // 4 or row % 4 >= 2:
            found = found.after_call(number)
        if number < row // 4 or row % 4 == 3:
            found = found.after_turn(number)
    return found


class Planner:
    """An agent whose model plans, lists and switches groups, and whose program adds rules."""

    def __init__(self, store: Store) -> None:
        toolkit = Toolkit().create_group("red", active=True).create_group("blue")
        for name in ("red", "blue"):
            toolkit.register(tool(name=f"tool_{name}")(lambda: "done"), group=name)
        self.model = ScriptedModel(self._reply)
        self.agent = ReActAgent(
            "cook", self.model, store=store, tools=toolkit, plan_mode=True, task_list=True, permissions="bypass"
        )

    def _reply(self, request: ModelRequest) -> Any:
        last = [one for one in request.messages if not one.text.startswith("This reminder")][-1]
        words = last.text.split()
        if last.role != "user" or words[0] != "change":
            return "Done."
        number = int(words[1])
        before, after = controls_at(4 * number + 1), controls_at(4 * number + 2)
        match number % 5:
            case 0:
                return [call("plan_enter")]
            case 1:
                return [call("plan_write", {"content": after.plan})]
            case 2:
                return [call("todo_write", {"todos": [{"content": one} for one in after.todos]})]
            case 3:
                return [call("reset_equipped_tools", {"to_activate": list(after.groups)})]
            case _:
                return [call("plan_read" if before.plan else "plan_enter")]

    async def talk(self, turns: int) -> list[Message]:
        for number in range(turns):
            await self.agent.call(f"change {number}", ALICE)
            if number % 5 == 2:
                await self.agent.exit_plan_mode("alice", "s1")
            if number % 5 == 4:
                await self.agent.add_rule("alice", "s1", PermissionRule("rm", "deny", "session", f"/{number}"))
        return await self.agent.session("alice", "s1").get_raw_history()

    async def controls(self, session_id: str = "s1") -> Controls:
        state = await self.agent.get_agent_state("alice", session_id)
        return Controls(
            state.plan_mode_context.plan_active,
            plan_text(state),
            tuple(task.subject for task in state.tasks_context.tasks),
            tuple(state.tool_context.activated_groups),
            tuple(rule.rule_content for rule in state.permission_context.deny_rules.get("rm", ())),
        )

    async def request(self, session_id: str = "s1") -> tuple[str, list[str], list[str]]:
        """Make the next call, and return what its request says."""
        await self.agent.call("look", RuntimeContext("alice", session_id))
        asked = self.model.requests[-1]
        shown = [line for line in asked.messages[-1].text.splitlines() if line.startswith("- [")]
        words = {"# Plan mode", "This session has a plan"}
        prompt = next((one for one in words if asked.system.startswith(one)), asked.system)
        return prompt, shown, [name for name in asked.tools if name.startswith("tool_")]


async def test_rules_plan_todos_and_groups_are_those_of_the_message_that_is_checked_out(store: Store) -> None:
    planner = Planner(store)
    history = await planner.talk(TURNS)
    assert len(history) == 4 * TURNS
    session = planner.agent.session("alice", "s1")
    every = 1 if type(store).__name__ == "MemoryStore" else 13
    for row in range(len(history) - 1, -1, -every):
        await session.checkout(history[row].id)

        assert await planner.controls() == controls_at(row), row
        if row % 3 == 0:
            assert await planner.request() == controls_at(row).request, row
            assert await planner.controls() == controls_at(row), row

    for row in range(3, len(history), 37):
        fork = await SessionManager(store, user_id="alice", agent_id="cook").fork("s1", history[row].id, f"from {row}")

        assert await planner.controls(fork.id) == controls_at(row), row
        assert await planner.request(fork.id) == controls_at(row).request, row


async def test_the_state_of_a_point_can_be_read_without_a_call(store: Store) -> None:
    talk = Talk(store)
    history = await talk.talk(5)
    for row, message in enumerate(history):
        await talk.session.checkout(message.id)
        state = await talk.agent.get_agent_state("alice", "s1")
        assert small(state) == after(changes_in(history[: row + 1]))
        assert [one.id for one in state.context] == [one.id for one in history[: row + 1]]


async def test_a_reply_is_made_again_from_any_message_of_a_turn(memory: Store) -> None:
    talk = Talk(memory)
    history = await talk.talk(3)
    for row in (4, 5, 6):
        await talk.session.checkout(history[row].id)
        asked = len(talk.model.requests)

        reply = await talk.agent.call(None, ALICE)

        request = talk.model.requests[asked].messages
        assert [one.id for one in request[: row + 1]] == [one.id for one in history[: row + 1]]
        assert list(results(request[row + 1 :]).values()) == ([NOT_ANSWERED] if row == 5 else [])
        assert all(is_paired(one.messages) for one in talk.model.requests[asked:])
        path = await talk.session.get_raw_history()
        assert path[-1].id == reply.id
        assert is_paired(path)
    # All of them are branches; nothing of the first reply is gone.
    assert {message.id for message in history} <= {message.id for message in await every_message(talk.session)}


async def every_message(session: Session) -> list[Message]:
    found: list[Message] = []
    waiting = (await session.get_raw_history())[:1]
    while waiting:
        message = waiting.pop()
        found.append(message)
        waiting += await session.get_branches(message.id)
    return found


async def test_a_checkout_to_the_end_of_a_turn_has_nothing_to_make_again(memory: Store) -> None:
    talk = Talk(memory)
    history = await talk.talk(2)
    await talk.session.checkout(history[3].id)

    with pytest.raises(ValueError, match="no turn is open"):
        await talk.agent.call(None, ALICE)

    assert (await talk.sees())[0] == after(1)


async def test_a_checkout_before_the_first_message_begins_with_a_fresh_state(memory: Store) -> None:
    talk = Talk(memory)
    await talk.talk(2)
    await talk.session.checkout(None)

    state, request = await talk.sees()

    assert (state, request) == (after(0), [])


async def test_results_sent_at_another_point_are_another_branch(memory: Store) -> None:
    @tool(external=True)
    async def sign(paper: str) -> str:
        """Have a person sign."""
        return "never run here"

    model = ScriptedModel([[call("sign", {"paper": "a"}, id="c1")], "Signed.", "Refused."])
    agent = ReActAgent("cook", model, store=memory, tools=[sign])
    asked = await agent.call("Sign", ALICE)
    await agent.call(Message.tool_result("c1", "signed", "sign"), ALICE)
    await agent.session("alice", "s1").checkout(asked.id)

    reply = await agent.call(Message.tool_result("c1", "refused", "sign"), ALICE)

    assert reply.text == "Refused."
    assert results(await agent.session("alice", "s1").get_history()) == {"c1": ("success", "refused")}
    assert [one.text for one in await agent.session("alice", "s1").get_branches(asked.id)] != []
