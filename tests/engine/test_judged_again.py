"""Calls that nobody has judged, or that were edited since, are judged before they run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import Message, ReActAgent, RuntimeContext, open_store, tool, user
from leafward.core.agent_contexts import PermissionContext, PermissionRule
from leafward.engine import AgentEvent, CallNext, Middleware, ModelRequest, Opinion
from leafward.testing import ScriptedModel, call
from tests.engine.custom_stores import PlainStates
from tests.engine.going_on import ALICE, results


@pytest.fixture(params=["ours", "custom"])
async def store(request: pytest.FixtureRequest) -> AsyncGenerator[Any]:
    if request.param == "custom":
        yield PlainStates()
        return
    async with open_store("memory://") as opened:
        yield opened


def booking(store: Any, ran: list[str], script: Any, check: Any = None, **options: Any) -> ReActAgent:
    @tool(check=check)
    async def book(city: str) -> str:
        """Book a room."""
        ran.append(city)
        return f"booked in {city}"

    return ReActAgent("desk", ScriptedModel(script), store=store, tools=[book], **options)


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    ("change", "check", "becomes"),
    [
        ({"deny_rules": {"book": [PermissionRule("book", "deny", "x")]}}, None, "denied"),
        ({"ask_rules": {"book": [PermissionRule("book", "ask", "x")]}}, None, "asked"),
        ({"mode": "explore"}, None, "denied"),
        ({"mode": "dont_ask"}, None, "denied"),
        ({}, lambda arguments, ctx: "deny", "denied"),
        ({}, lambda arguments, ctx: "ask", "asked"),
        ({}, None, "success"),
    ],
)
async def test_a_call_that_another_writer_left_is_judged_before_it_runs(
    store: Any, change: dict[str, Any], check: Any, becomes: str, paused: bool
) -> None:
    ran: list[str] = []
    agent = booking(store, ran, ["Done."], check)
    state = await agent.get_agent_state("alice", "s1")
    state.permission_context = PermissionContext(**change)
    state.shutdown_interrupted = paused
    open_call = {"type": "tool_use", "id": "c9", "name": "book", "input": {"city": "Uji"}}
    state.context = [user("Book it"), Message("assistant", [open_call])]
    await agent.save_agent_state("alice", "s1", state)

    await agent.call(None, ALICE)

    assert ran == (["Uji"] if becomes == "success" else [])
    questions = await agent.questions("alice", "s1")
    found = results((await agent.get_agent_state("alice", "s1")).context)
    assert ("asked" if questions else found["c9"][0]) == becomes
    if questions:
        assert (await agent.answer("alice", "s1", {"c9": True})).text == "Done."
        assert ran == ["Uji"]


@pytest.mark.parametrize("by", ["rule", "check"])
async def test_an_edited_call_is_denied_where_the_call_would_have_been(store: Any, by: str) -> None:
    def check(arguments: Any, ctx: Any) -> Opinion:
        return Opinion("deny" if by == "check" and arguments["city"] == "Nara" else "ask")

    ran: list[str] = []
    agent = booking(store, ran, [[call("book", {"city": "Uji"}, id="c1")], "Done."], check)
    await agent.call("Book", ALICE)
    if by == "rule":
        await agent.add_rule("alice", "s1", PermissionRule("book", "deny", "x", "Nara*"))

    answer = {"confirmed": True, "toolCall": {"id": "c1", "input": {"city": "Nara"}}}
    assert (await agent.answer("alice", "s1", [answer])).text == "Done."

    assert ran == []
    assert results((await agent.get_agent_state("alice", "s1")).context)["c1"][0] == "denied"


async def test_a_reply_that_a_middleware_has_kept_is_judged_as_any_other(store: Any) -> None:
    allowed = {"state": "allowed", "metadata": {"leafward_confirmed": True}}
    kept = Message("assistant", [{**call("book", {"city": "Uji"}, id="c1"), **allowed}])

    class Keeps(Middleware):
        async def on_reasoning(
            self, ctx: RuntimeContext, request: ModelRequest, call_next: CallNext[ModelRequest, AgentEvent]
        ) -> AsyncGenerator[AgentEvent]:
            yield AgentEvent("MODEL_CALL_END", message=kept)

    ran: list[str] = []
    agent = booking(store, ran, [], lambda arguments, ctx: "ask", middlewares=[Keeps()])

    reply = await agent.call("Book", ALICE)

    assert ((reply.metadata or {})["agentscope_generate_reason"], ran) == ("PERMISSION_ASKING", [])


async def test_rules_that_are_added_at_once_are_all_kept(store: Any) -> None:
    agent = booking(store, [], ["Hello.", "Hello again."])
    await agent.call("Hi", ALICE)
    names = [f"tool{number}" for number in range(12)]

    async def add(name: str, ticks: int) -> None:
        for _ in range(ticks):
            await asyncio.sleep(0)
        await agent.add_rule("alice", "s1", PermissionRule(name, "deny", "x"))

    await asyncio.gather(*(add(name, 3 * number) for number, name in enumerate(names)))
    await agent.call("Again", ALICE)

    assert sorted((await agent.get_permissions("alice", "s1")).deny_rules) == sorted(names)
