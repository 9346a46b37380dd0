"""A tool calls another agent in a session of its own, which is found again and stops with its parent."""

from __future__ import annotations

import asyncio
import re
import threading
from contextvars import Context
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    ConfigurationError,
    InvalidId,
    Message,
    ReActAgent,
    RuntimeContext,
    SessionManager,
    open_store,
    tool,
    user,
)
from leafward.engine import Budget, ModelUsage, ShutdownManager
from leafward.engine.turn_queue import turns_around
from leafward.stores import Store
from leafward.stores.leases.lease import Lease
from leafward.testing import ScriptedModel, call
from leafward.tools.runtime_context import for_call, for_tool
from tests.engine.custom_stores import PlainStates
from tests.engine.dying_store import Died, DyingStore
from tests.engine.test_turn import store

__all__ = ["store"]

ALICE = RuntimeContext("alice", "s1")
ASK = [call("ask", {"question": "How old is tea?"}, id="c1")]


def pair_of_agents(
    store: Any, script: Any, said: Any, *, retry_safe: bool = True, **options: Any
) -> tuple[ReActAgent, ReActAgent, list[str]]:
    """Return an agent whose tool asks another, and the sessions that it was asked in."""
    researcher = ReActAgent("researcher", ScriptedModel(said), store=store, **options)
    asked: list[str] = []

    @tool(retry_safe=retry_safe)
    async def ask(question: str, ctx: RuntimeContext) -> str:
        """Ask the researcher."""
        child = ctx.child("researcher")
        asked.append(str(child.session_id))
        return (await researcher.call(user(question, id="question"), child)).text

    return ReActAgent("boss", ScriptedModel(script), store=store, tools=[ask]), researcher, asked


async def test_a_child_has_a_session_of_its_own_that_names_its_parent(store: Store) -> None:
    boss, researcher, asked = pair_of_agents(store, [ASK, "Very old."], ["5,000 years."])

    await boss.call("Tea?", ALICE)

    assert re.fullmatch("s1~[0-9a-f]{16}", asked[0])
    (info,) = await SessionManager(store, user_id="alice", agent_id="researcher").list()
    assert (info.id, info.name, info.parent_session_id) == (asked[0], "researcher", "s1")
    assert [one.text for one in await researcher.session("alice", asked[0]).get_history()] == [
        "How old is tea?",
        "5,000 years.",
    ]
    parent = await boss.session("alice", "s1").get_history()
    assert parent[2].parts[0]["output"][0]["text"] == "5,000 years."


async def test_a_parent_keeps_nothing_of_a_child_that_has_answered(store: Store) -> None:
    kept: list[int] = []

    @tool
    async def ask(ctx: RuntimeContext) -> str:
        """Ask the researcher."""
        reply = await researcher.call("How old is tea?", ctx.child("researcher"))
        kept.append(len(turns_around()[-1].children))
        return reply.text

    researcher = ReActAgent("researcher", ScriptedModel(["5,000 years."]), store=store)
    script = [[call("ask", {}, id="c1")], "Very old."]
    await ReActAgent("boss", ScriptedModel(script), store=store, tools=[ask]).call("Tea?", ALICE)

    assert kept == [0]


async def test_two_calls_and_two_names_are_different_children(store: Store) -> None:
    made: list[str] = []

    @tool
    async def split(ctx: RuntimeContext) -> str:
        """Make children."""
        made.extend(str(ctx.child(name).session_id) for name in ("one", "two", "one"))
        return "made"

    script = [[call("split", {}, id="c1"), call("split", {}, id="c2")], "Done."]
    await ReActAgent("boss", ScriptedModel(script), store=store, tools=[split]).call("Go", ALICE)

    assert len(made) == 6
    assert len(set(made)) == 4
    assert made[0] == made[2]


async def test_children_have_children(store: Store) -> None:
    seen: list[RuntimeContext] = []

    @tool
    async def dig(ctx: RuntimeContext) -> str:
        """Dig."""
        seen.append(ctx)
        below = ctx.child("deeper")
        return (await miner.call("Go", below)).text if len(seen) < 3 else "gold"

    miner = ReActAgent(
        "miner",
        ScriptedModel(lambda request: [call("dig", {})] if len(request.messages) == 1 else "Found."),
        store=store,
        tools=[dig],
    )
    await miner.call("Go", ALICE)

    assert [ctx.parent_session_id for ctx in seen] == [None, seen[0].session_id, seen[1].session_id]
    assert len({ctx.session_id for ctx in seen}) == 3


@pytest.mark.parametrize("commits", range(1, 13))
async def test_a_child_is_found_again_after_a_crash(tmp_path: Any, commits: int) -> None:
    url = f"sqlite:///{tmp_path}/c.db"
    script, said = [ASK, "Very old."], ["5,000 years."]
    question = user("Tea?", id="q1")
    async with open_store(url) as first:
        dying: Any = DyingStore(first, commits)
        boss, _, before = pair_of_agents(dying, script, said)
        try:
            await boss.call(question, ALICE)
        except Died:
            await dying.bury("s1", "alice")
            for child in before:
                await dying.bury(child, "alice")
    async with open_store(url) as second:
        boss, researcher, after = pair_of_agents(second, lambda r: script[len(r.messages) > 1], said)
        reply = await boss.call(question, ALICE)
        children = await SessionManager(second, user_id="alice", agent_id="researcher").list()

        assert reply.text == "Very old."
        assert [child.id for child in children] == list({*before, *after})
        assert children[0].parent_session_id == "s1"
        history = await researcher.session("alice", children[0].id).get_history()
        assert [one.text for one in history] == ["How old is tea?", "5,000 years."]


async def test_an_interrupt_of_the_parent_stops_the_child(store: Store) -> None:
    thinking, never = asyncio.Event(), asyncio.Event()

    def think(_: Any) -> Any:
        thinking.set()
        return never.wait()

    boss, researcher, asked = pair_of_agents(store, [ASK, "Very old."], [["Let me see.", think]])
    running = asyncio.create_task(boss.call("Tea?", ALICE))
    await thinking.wait()

    assert await boss.interrupt("alice", "s1", "Enough.")

    reply = await asyncio.wait_for(running, 10)
    assert (reply.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    child = await researcher.session("alice", asked[0]).get_history()
    assert [one.text for one in child] == ["How old is tea?", "Let me see."]
    assert (await boss.session("alice", "s1").get_history())[-1].text == "Enough."


async def test_an_interrupted_turn_asks_no_child(store: Store) -> None:
    boss: ReActAgent
    researcher = ReActAgent("researcher", ScriptedModel(["5,000 years."]), store=store)

    @tool
    async def ask(ctx: RuntimeContext) -> str:
        """Ask the researcher, after the turn was interrupted."""
        assert await boss.interrupt("alice", "s1")
        reply = await researcher.call("How old is tea?", ctx.child("researcher"))
        return str((reply.metadata or {}).get("agentscope_generate_reason"))

    boss = ReActAgent("boss", ScriptedModel([[call("ask", {}, id="c1")]]), store=store, tools=[ask])
    await boss.call("Tea?", ALICE)

    assert (await boss.session("alice", "s1").get_history())[2].parts[0]["output"][0]["text"] == "INTERRUPTED"


@pytest.mark.parametrize("goes_away", [False, True])
async def test_an_interrupt_of_the_parent_stops_a_child_in_another_event_loop(store: Store, goes_away: bool) -> None:
    thinking, ended = threading.Event(), threading.Event()
    replies: list[Message] = []

    async def think(_: Any) -> None:
        thinking.set()
        await asyncio.sleep(30)

    def ask(ctx: RuntimeContext) -> str:
        """Ask the researcher, from a thread."""

        async def asked() -> None:
            async with ReActAgent("researcher", ScriptedModel([["Let me see.", think]]), store="memory://") as one:
                replies.append(await one.call("How old is tea?", ctx.child("researcher")))

        async def left() -> None:
            one = ReActAgent("researcher", ScriptedModel(["Well."]), store="memory://")
            kept.append(stream := one.stream("How old is tea?", ctx.child("researcher")))
            await anext(stream)

        if goes_away:
            # A program that closes its loop, and leaves a stream open there.
            loop = asyncio.new_event_loop()
            loop.run_until_complete(left())
            loop.close()
            thinking.set()
            ended.wait(10)
        else:
            # With `debug`, the loop refuses what another thread does to it.
            asyncio.run(asked(), debug=True)
        return "asked"

    kept: list[Any] = []
    boss = ReActAgent("boss", ScriptedModel([[call("ask", {}, id="c1")]]), store=store, tools=[ask])
    running = asyncio.create_task(boss.call("Tea?", ALICE))
    await asyncio.to_thread(thinking.wait, 10)

    assert await boss.interrupt("alice", "s1")
    ended.set()

    assert ((await asyncio.wait_for(running, 10)).metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    assert [reply.text for reply in replies] == ([] if goes_away else ["Let me see."])


@pytest.mark.parametrize("waits_for", ["lease", "turn"])
async def test_an_interrupt_of_the_parent_ends_the_wait_of_a_child(store: Store, waits_for: str) -> None:
    waiting, thinking, never = asyncio.Event(), asyncio.Event(), asyncio.Event()

    def think(_: Any) -> Any:
        thinking.set()
        return never.wait()

    async def take(session_id: str) -> Lease:
        return await store.leases.acquire(session_id, "alice", 30, label="other")

    researcher = ReActAgent("researcher", ScriptedModel([[think]]), store=store)
    asked: list[str] = []
    replies: list[Message] = []

    @tool
    async def ask(ctx: RuntimeContext) -> str:
        """Ask the researcher, in a session that another one has."""
        child = ctx.child("researcher")
        asked.append(str(child.session_id))
        if waits_for == "turn":
            other = asyncio.create_task(researcher.call("Mine", RuntimeContext("alice", child.session_id)))
            await thinking.wait()
        else:
            other = await asyncio.create_task(take(asked[0]), context=Context())
        asyncio.get_running_loop().call_later(0.05, waiting.set)
        replies.append(await researcher.call("How old is tea?", child))
        assert isinstance(other, asyncio.Task) or await other.release() is None
        return "asked"

    script = [[call("ask", {}, id="c1")]]
    boss = ReActAgent("boss", ScriptedModel(script), store=store, tools=[ask])
    running = asyncio.create_task(boss.call("Tea?", ALICE))
    await waiting.wait()

    assert await boss.interrupt("alice", "s1")

    assert ((await asyncio.wait_for(running, 5)).metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    (reply,) = replies
    assert (reply.parts, (reply.metadata or {})["agentscope_generate_reason"]) == ([], "INTERRUPTED")
    said = [one.text for one in await researcher.session("alice", asked[0]).get_history()]
    assert said == (["Mine"] if waits_for == "turn" else [])
    assert await researcher.shutdown()


async def test_an_interrupt_leaves_other_sessions_alone_that_a_tool_calls(store: Store) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    def think(_: Any) -> Any:
        thinking.set()
        return go_on.wait()

    other = ReActAgent("other", ScriptedModel([[think, "Thought."]]), store=store)

    @tool
    async def ask() -> str:
        """Ask another agent."""
        return (await other.call("Think", RuntimeContext("alice", "s2"))).text

    boss = ReActAgent("boss", ScriptedModel([[call("ask", {}, id="c1")]]), store=store, tools=[ask])
    running = asyncio.create_task(boss.call("Tea?", ALICE))
    await thinking.wait()
    await boss.interrupt("alice", "s1")
    go_on.set()
    await running

    assert (await boss.session("alice", "s1").get_history())[2].parts[0]["output"][0]["text"] == "Thought."


class Researchers:
    """An agent that asks itself, or another one, in child sessions, and a shutdown of all while these think."""

    def __init__(self, store: Store, *, is_one: bool, retry_safe: bool = True, in_group: bool = False) -> None:
        self.thinking = asyncio.Semaphore(0)
        self.children = 2 if in_group else 1
        self.runs = 0
        self.boss: ReActAgent

        async def think(_: Any) -> None:
            self.thinking.release()
            await asyncio.Event().wait()

        def said(request: Any) -> Any:
            words = [message.text for message in request.messages if message.role != "tool"]
            if words[0] == "Tea?":
                return "Very old." if len(words) > 1 else ASK
            return "5,000 years." if len(words) > 1 else ["Let me see.", think]

        async def asked(ctx: RuntimeContext) -> str:
            return (await self.researcher.call(user("How old is tea?", id="question"), ctx)).text

        @tool(retry_safe=retry_safe)
        async def ask(question: str, ctx: RuntimeContext) -> str:
            """Ask the researcher."""
            self.runs += 1
            if not in_group:
                return await asked(ctx.child("researcher"))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(asked(ctx.child(name))) for name in ("one", "two")]
            return " ".join(task.result() for task in tasks)

        self.boss = ReActAgent("boss", ScriptedModel(said), store=store, tools=[ask])
        self.researcher = self.boss if is_one else ReActAgent("researcher", ScriptedModel(said), store=store)

    async def shut_down(self) -> None:
        running = asyncio.create_task(self.boss.call("Tea?", ALICE))
        for _ in range(self.children):
            await self.thinking.acquire()
        agents = {self.researcher, self.boss}
        assert await asyncio.wait_for(ShutdownManager(*agents, timeout=5).shutdown(), 10)
        with pytest.raises(AgentShuttingDown):
            await running

    async def results(self) -> list[tuple[str, str]]:
        history = await self.boss.session("alice", "s1").get_history()
        parts = [message.parts[0] for message in history if message.role == "tool"]
        return [(part["state"], part["output"][0]["text"]) for part in parts]


@pytest.mark.parametrize("in_group", [False, True])
@pytest.mark.parametrize("is_one", [False, True])
async def test_a_child_that_was_paused_with_its_parent_goes_on_with_it(
    store: Store, is_one: bool, in_group: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first = Researchers(store, is_one=is_one, in_group=in_group)
    await first.shut_down()
    assert await first.results() == []
    assert not [one for one in caplog.records if one.name.startswith("leafward")]

    second = Researchers(store, is_one=is_one, in_group=in_group)
    assert (await second.boss.call("Tea?", ALICE)).text == "Very old."

    assert (first.runs, second.runs) == (1, 1)
    assert await second.results() == [("success", " ".join(["5,000 years."] * second.children))]
    children = SessionManager(store, user_id="alice", agent_id=second.researcher.agent_id)
    for child in await children.list():
        if child.parent_session_id is not None:
            history = await second.researcher.session("alice", child.id).get_history()
            assert [one.text for one in history] == ["How old is tea?", "Let me see.", "5,000 years."]


async def test_a_paused_child_whose_tool_may_not_run_again_has_an_unknown_outcome(store: Store) -> None:
    first = Researchers(store, is_one=False, retry_safe=False)
    await first.shut_down()
    assert await first.results() == []

    second = Researchers(store, is_one=False, retry_safe=False)
    await second.boss.call("Tea?", ALICE)

    assert second.runs == 0
    ((state, text),) = await second.results()
    assert (state, text[:16]) == ("interrupted", "Outcome unknown:")


async def test_a_child_whose_agent_alone_shuts_down_is_an_error_that_the_parent_reads(store: Store) -> None:
    agents = Researchers(store, is_one=False)
    running = asyncio.create_task(agents.boss.call("Tea?", ALICE))
    await agents.thinking.acquire()

    await agents.researcher.shutdown()

    assert (await running).text == "Very old."
    ((state, text),) = await agents.results()
    assert state == "error"
    assert "'researcher' is shutting down" in text


async def test_a_budget_of_the_child_is_an_error_that_the_parent_reads(store: Store) -> None:
    used = ModelUsage(10, 10)
    boss, _, _ = pair_of_agents(store, [[*ASK, used], ["Too dear.", used]], [], budget=Budget(tokens=0))

    assert (await boss.call("Tea?", ALICE)).text == "Too dear."

    result = (await boss.session("alice", "s1").get_history())[2].parts[0]
    assert result["state"] == "error"
    assert "has used 0 of 0 tokens" in result["output"][0]["text"]


async def test_a_custom_store_of_states_knows_no_parents_and_serves_children() -> None:
    states: Any = PlainStates()
    boss, researcher, asked = pair_of_agents(states, [ASK, "Very old."], ["5,000 years."])

    await boss.call("Tea?", ALICE)

    state = await researcher.get_agent_state("alice", asked[0])
    assert [one.text for one in state.context] == ["How old is tea?", "5,000 years."]


def in_a_tool(session_id: str, ctx: RuntimeContext) -> RuntimeContext:
    return for_tool(
        for_call(ctx, user_id="alice", session_id=session_id, agent_state={}), idempotency_key="k1", fencing_token=7
    )


def test_a_child_has_the_user_the_attributes_and_the_store_of_its_parent_and_nothing_of_its_call() -> None:
    mine = RuntimeContext("alice", "s1", session="store", session_key="other", region="eu")

    child = in_a_tool("s1", mine).child("a")

    assert (child.user_id, child.session, child.get("region")) == ("alice", "store", "eu")
    assert (child.session_key, child.agent_state, child.idempotency_key, child.fencing_token) == (None,) * 4


@pytest.mark.parametrize("length", [1, 199, 200, 201, 255])
def test_the_id_of_a_child_begins_with_its_parents_and_is_an_id(length: int) -> None:
    parent = "é" * length

    child = in_a_tool(parent, RuntimeContext()).child("a")

    assert str(child.session_id)[:-17] == parent[:200]
    assert child.parent_session_id == parent
    assert RuntimeContext("alice", child.session_id).session_id == child.session_id


def test_only_a_tool_has_children_and_their_names_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="belongs to a tool call"):
        ALICE.child("a")
    with pytest.raises(InvalidId):
        in_a_tool("s1", RuntimeContext()).child("")
