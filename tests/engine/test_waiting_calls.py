"""Calls that wait to run are judged again before they do: what denies them by then keeps them from running."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import AgentState, Message, ReActAgent, SessionKey, open_store, tool, tool_result, user
from leafward.core.agent_contexts import PermissionRule
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE, is_paired, results

CHANGES = ["plan mode", "deny rule", "explore"]


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


class Farm:
    """An agent that sows, waters and harvests, and what ran."""

    def __init__(self, store: Store, script: Any = ("Done.",)) -> None:
        self.ran: list[str] = []
        self.model = ScriptedModel(script)
        self.agent = ReActAgent("farmer", self.model, store=store, tools=self._tools(), plan_mode=True)

    def _tools(self) -> list[Any]:
        @tool(check=lambda arguments, ctx: "ask")
        async def sow() -> str:
            """Sow, once the user agrees."""
            self.ran.append("sow")
            return "sown"

        @tool(retry_safe=True)
        async def water() -> str:
            """Water, as often as one likes."""
            self.ran.append("water")
            return "watered"

        async def find(arguments: Any, key: str) -> None:
            self.ran.append("find")

        @tool(probe=find)
        async def harvest() -> str:
            """Harvest, if that is not done."""
            self.ran.append("harvest")
            return "harvested"

        @tool(external=True)
        async def sell() -> str:
            """Have it sold."""
            return ""

        @tool(external=True)
        async def ship() -> str:
            """Have it shipped."""
            return ""

        return [sow, water, harvest, sell, ship]

    async def change(self, what: str, name: str) -> None:
        if what == "plan mode":
            await self.agent.enter_plan_mode("alice", "s1")
        elif what == "deny rule":
            await self.agent.add_rule("alice", "s1", PermissionRule(name, "deny", "policy"))
        else:
            await self.agent.set_permission_mode("alice", "s1", "explore")

    async def results(self) -> dict[str, str]:
        context = (await self.agent.get_agent_state("alice", "s1")).context
        assert is_paired(context)
        return {id: state for id, (state, _) in results(context).items()}


async def leave(store: Store, *names: str, in_doubt: bool = False) -> None:
    """Leave calls without results, as an agent that was shut down does, or one that was killed."""
    reply = Message("assistant", [call(name, id=name) for name in names], id="r1")
    state = AgentState(session_id="s1", user_id="alice", context=[user("Work"), reply])
    if in_doubt:
        state.extra["leafward"] = {"running": "r1"}
    else:
        state.shutdown_interrupted = True
    await store.states.save(SessionKey("s1", "alice"), "agent_state", state)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["water", "harvest", "sell"])
async def test_a_call_that_has_not_begun_is_denied_by_what_was_set_meanwhile(
    store: Store, name: str, change: str
) -> None:
    await leave(store, name)
    farm = Farm(store)
    await farm.change(change, name)

    assert (await farm.agent.call(None, ALICE)).text == "Done."

    assert (farm.ran, await farm.results()) == ([], {name: "denied"})


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["water", "harvest"])
async def test_a_call_that_may_have_run_is_not_run_again_and_its_outcome_is_unknown(
    store: Store, name: str, change: str
) -> None:
    await leave(store, name, in_doubt=True)
    farm = Farm(store)
    await farm.change(change, name)

    await farm.agent.call(None, ALICE)

    assert (farm.ran, await farm.results()) == ([], {name: "interrupted"})
    assert "Outcome unknown" in results(farm.model.requests[0].messages)[name][1]


async def test_calls_that_nothing_denies_by_now_run(store: Store) -> None:
    await leave(store, "water", "harvest")
    farm = Farm(store)

    await farm.agent.call(None, ALICE)

    assert (sorted(farm.ran), set((await farm.results()).values())) == (["harvest", "water"], {"success"})


@pytest.mark.parametrize("change", CHANGES)
async def test_what_the_user_has_confirmed_runs_unless_plan_mode_or_a_rule_denies_it(store: Store, change: str) -> None:
    farm = Farm(store, [[call("sow", id="sow"), call("sell", id="sell")], "Done."])
    await farm.agent.call("Work", ALICE)
    await farm.change(change, "sow")

    await farm.agent.answer("alice", "s1", {"sow": True})

    assert farm.ran == (["sow"] if change == "explore" else [])
    if change == "deny rule":
        await farm.agent.call(tool_result("sell", "sold"), ALICE)
    assert await farm.results() == {
        "sow": "success" if change == "explore" else "denied",
        "sell": "success" if change == "deny rule" else "denied",
    }


@pytest.mark.parametrize("change", CHANGES)
async def test_the_result_of_outside_work_is_taken_although_it_would_be_denied_now(store: Store, change: str) -> None:
    farm = Farm(store, [[call("sell", id="sell"), call("ship", id="ship")], "Done."])
    await farm.agent.call("Work", ALICE)
    await farm.change(change, "ship")

    await farm.agent.call(tool_result("sell", "sold"), ALICE)
    reply = await farm.agent.call(tool_result("ship", "shipped"), ALICE)

    assert (reply.text, await farm.results()) == ("Done.", {"sell": "success", "ship": "success"})
