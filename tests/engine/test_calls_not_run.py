"""Calls of tools that are not run: those of a lost process after an interrupt, any when the lease ran out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any

import pytest

from leafward import LeaseLost, ReActAgent, RuntimeContext, open_store, tool, user
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from leafward.tools import Tool, runner
from leafward.tools.threads import ToolThreads
from tests.engine.dying_store import Died, DyingStore
from tests.engine.going_on import is_paired

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db"}
    async with open_store(urls[request.param]) as opened:
        yield opened


async def lose_a_process(store: Store, paying: Tool) -> None:
    """Leave a call of a tool without a result."""
    # The empty slot, the input, the intent.
    dying: Any = DyingStore(store, 3, at_once=True)
    agent = ReActAgent("cook", ScriptedModel([[call(paying.name, {}, id="c1")]]), store=dying, tools=[paying])
    with suppress(Died):
        await asyncio.create_task(agent.call(user("Pay", id="q1"), ALICE))
    await dying.bury("s1", "alice")


@pytest.mark.parametrize("commits", [0, 1])
async def test_an_interrupt_keeps_a_call_from_being_run_again(store: Store, commits: int) -> None:
    ran: list[str] = []

    @tool(retry_safe=True)
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    await lose_a_process(store, pay)
    interrupting: Any = InterruptingStore(store, commits)
    agent = ReActAgent("cook", ScriptedModel([]), store=interrupting, tools=[pay])
    interrupting.agent = agent
    reasons: list[Any] = []
    async with aclosing(agent.stream(None, ALICE)) as events:
        async for event in events:
            if event.type == "AGENT_START" and commits == 0:
                assert await agent.interrupt("alice", "s1")
            if event.type == "AGENT_RESULT" and event.message is not None:
                reasons.append((event.message.metadata or {})["agentscope_generate_reason"])

    assert (ran, reasons) == ([], ["INTERRUPTED"])
    assert is_paired(await agent.session("alice", "s1").get_raw_history())


class InterruptingStore(DyingStore):
    """Interrupts the turn of an agent at one of its commits, before that is stored."""

    agent: ReActAgent | None = None

    def __init__(self, store: Store, commit: int) -> None:
        super().__init__(store)
        self._life.do = self._do
        self._left = commit

    async def _do(self, name: str, call: Any) -> Any:
        self._left -= name == "append"
        if name == "append" and self._left == 0 and self.agent is not None:
            assert await self.agent.interrupt("alice", "s1")
        return await call()


class LeaseKeeper(DyingStore):
    """Lets a test end the lease of the turn, as far as this process knows."""

    def lose(self) -> None:
        assert self._life.lease is not None
        self._life.lease._hold(0.0)


async def test_a_tool_is_not_started_when_the_lease_ran_out_while_its_probe_was_asked(store: Store) -> None:
    ran: list[str] = []
    keeper: Any = LeaseKeeper(store)

    async def was_paid(arguments: dict[str, Any], key: str) -> None:
        keeper.lose()

    @tool(probe=was_paid)
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    await lose_a_process(store, pay)
    ran.clear()
    agent = ReActAgent("cook", ScriptedModel([]), store=keeper, tools=[pay])
    with pytest.raises(LeaseLost):
        await agent.call(None, ALICE)

    assert ran == []


async def test_a_tool_is_not_started_when_the_lease_ran_out_while_it_waited_for_a_thread(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = ToolThreads(running=1)
    monkeypatch.setattr(runner, "tool_threads", lambda: threads)
    ran: list[str] = []
    keeper: Any = LeaseKeeper(store)

    @tool
    def pay(what: str) -> str:
        """Pay."""
        ran.append(what)
        keeper.lose()
        return "paid"

    model = ScriptedModel([[call("pay", {"what": "soup"}, id="c1"), call("pay", {"what": "rice"}, id="c2")]])
    agent = ReActAgent("cook", model, store=keeper, tools=[pay])
    with pytest.raises(LeaseLost):
        await agent.call("Pay", ALICE)

    assert ran == ["soup"]
