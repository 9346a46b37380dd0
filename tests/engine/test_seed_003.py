"""The examples and statements of seed 003 about the agent itself, on memory and on a SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    AgentState,
    ConfigurationError,
    ReActAgent,
    RuntimeContext,
    SessionKey,
    open_store,
    tool,
    user,
)
from leafward.engine import ModelRequest
from leafward.stores import InMemoryAgentStateStore, JsonFileAgentStateStore, Store
from leafward.testing import ScriptedModel, call

ALICE, BOB = RuntimeContext("alice", "s1"), RuntimeContext("bob", "s2")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/s.db"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, url: str) -> AsyncGenerator[Store]:
    async with open_store("memory://" if request.param == "memory" else url) as opened:
        yield opened


def echo(request: ModelRequest) -> str:
    return f"{len(request.messages)} messages, the last: {request.messages[-1].text}"


def said(state: AgentState) -> list[str]:
    return [message.text for message in state.context]


class TestStatelessEngine:
    async def test_one_agent_serves_all_users_and_keeps_nothing_of_them(self, store: Store) -> None:
        shared = ReActAgent("shared", ScriptedModel(echo), store=store, state_cache=0)
        before = dict(vars(shared))

        await asyncio.gather(shared.call("Hi from Alice", ALICE), shared.call("Hi from Bob", BOB))

        assert vars(shared) == before
        assert said(await shared.get_agent_state("alice", "s1"))[0] == "Hi from Alice"
        assert said(await shared.get_agent_state("bob", "s2"))[0] == "Hi from Bob"

    async def test_a_tool_sees_the_state_of_its_own_call_while_others_run(self, store: Store) -> None:
        both = asyncio.Barrier(2)
        seen: dict[str | None, list[str]] = {}

        @tool
        async def look(ctx: RuntimeContext) -> str:
            """Look at the state."""
            await both.wait()
            ctx.agent_state.summary = f"of {ctx.user_id}"
            seen[ctx.user_id] = said(ctx.agent_state)[:1]
            return "seen"

        def script(request: ModelRequest) -> Any:
            return [call("look", {})] if len(request.messages) == 1 else "Done."

        agent = ReActAgent("shared", ScriptedModel(script), tools=[look], store=store)
        await asyncio.gather(agent.call("from Alice", ALICE), agent.call("from Bob", BOB))

        assert seen == {"alice": ["from Alice"], "bob": ["from Bob"]}
        assert (await agent.get_agent_state("alice", "s1")).summary == "of alice"
        assert (await agent.get_agent_state("bob", "s2")).summary == "of bob"


class TestPersistence:
    async def test_a_state_is_loaded_when_a_call_begins_and_saved_when_it_ends(self, store: Store) -> None:
        agent = ReActAgent("shared", ScriptedModel(echo), store=store)
        await agent.call("One", ALICE)

        slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
        assert slot is not None
        assert said(slot) == ["One", "1 messages, the last: One"]
        assert (await agent.call("Two", ALICE)).text == "3 messages, the last: Two"

    async def test_a_call_without_a_session_uses_the_default_one(self, store: Store) -> None:
        agent = ReActAgent("shared", ScriptedModel(echo), store=store, default_session_id="desk")
        await agent.call("One")
        await agent.call("Two", RuntimeContext.empty())

        assert said(await agent.get_agent_state(None, "desk")) == said(await agent.get_agent_state())
        assert len((await agent.get_agent_state()).context) == 4

    async def test_what_a_tool_changes_in_the_context_is_stored(self, store: Store) -> None:
        @tool
        async def forget(ctx: RuntimeContext) -> str:
            """Take the first message out of the context."""
            del ctx.agent_state.context[0]
            return "forgotten"

        model = ScriptedModel(["Noted.", [call("forget", {}, id="c1")], "Done."])
        agent = ReActAgent("shared", model, tools=[forget], store=store)
        await agent.call("My secret is 7.", ALICE)
        await agent.call("Forget it.", ALICE)

        assert said(await agent.get_agent_state("alice", "s1"))[:2] == ["Noted.", "Forget it."]
        history = await agent.session("alice", "s1").get_raw_history()
        assert history[0].text == "My secret is 7.", "what is stored stays"

    async def test_without_a_store_an_agent_writes_json_files_below_the_state_home(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AGENTSCOPE_STATE_HOME", str(tmp_path))
        async with ReActAgent("MyAgent", ScriptedModel(echo)) as agent:
            await agent.call("Hi", ALICE)

        text = (tmp_path / "MyAgent" / "alice" / "s1" / "agent_state.json").read_text(encoding="utf-8")
        assert said(AgentState.from_json(text)) == ["Hi", "1 messages, the last: Hi"]


class TestElsewhere:
    async def test_another_node_goes_on_by_user_and_session(self, url: str) -> None:
        ctx = RuntimeContext(user_id="alice", session_id="alice-2026-06-02-001")
        async with (
            ReActAgent("helper", ScriptedModel(echo), store=url) as node_a,
            ReActAgent("helper", ScriptedModel(echo), store=url) as node_b,
        ):
            await node_a.call("Where were we?", ctx)

            assert (await node_b.call("Go on.", ctx)).text == "3 messages, the last: Go on."
            assert (await node_a.call("And back.", ctx)).text == "5 messages, the last: And back."

    async def test_a_store_of_states_can_be_the_agents_store(self, tmp_path: Path) -> None:
        async with JsonFileAgentStateStore(tmp_path / "state") as states:
            agent = ReActAgent("helper", ScriptedModel(echo), store=states)
            await agent.call("Hi", ALICE)

            assert await states.exists(SessionKey("s1", "alice"))


class TestReadingAndWriting:
    async def test_a_state_is_read_written_as_json_and_read_again(self, store: Store) -> None:
        agent = ReActAgent("helper", ScriptedModel(echo), store=store)
        await agent.call("Hi", ALICE)

        state = await agent.get_agent_state("alice", "s1")
        assert len(tuple(state.context)) == 2
        assert AgentState.from_json(state.to_json()) == state

        state.summary = "greetings"
        state.context.append(user("By the way."))
        await agent.save_agent_state("alice", "s1", state)
        assert (await agent.call("Well?", ALICE)).text == "4 messages, the last: Well?"
        assert (await agent.get_agent_state("alice", "s1")).summary == "greetings"

    async def test_an_unknown_session_has_a_fresh_state(self, store: Store) -> None:
        state = await ReActAgent("helper", ScriptedModel(echo), store=store).get_agent_state("carol", "s9")

        assert (state.user_id, state.session_id, state.context) == ("carol", "s9", [])


class TestInterrupts:
    async def test_one_session_is_interrupted_and_the_other_goes_on(self, store: Store) -> None:
        both, may_end = asyncio.Barrier(3), asyncio.Event()

        async def think(request: ModelRequest) -> str:
            await both.wait()
            await may_end.wait()
            return "thought through"

        agent = ReActAgent("helper", ScriptedModel(think), store=store)
        alice, bob = (asyncio.create_task(agent.call("Think.", ctx)) for ctx in (ALICE, BOB))
        await both.wait()
        with pytest.raises(ConfigurationError, match="'s1', 's2'"):
            await agent.interrupt()

        assert await agent.interrupt("alice", "s1", "Stop and sum up.")
        stopped = await alice
        may_end.set()

        assert stopped.metadata == {"agentscope_generate_reason": "INTERRUPTED"}
        assert said(await agent.get_agent_state("alice", "s1")) == ["Think.", "Stop and sum up."]
        assert (await bob).text == "thought through"

    async def test_without_arguments_the_one_running_session_is_interrupted(self, store: Store) -> None:
        asked = asyncio.Event()

        async def think(request: ModelRequest) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "never"

        agent = ReActAgent("helper", ScriptedModel(think), store=store)
        assert not await agent.interrupt()
        turn = asyncio.create_task(agent.call("Think.", ALICE))
        await asked.wait()

        assert await agent.interrupt()
        assert (await turn).text == ""
        state = await agent.get_agent_state("alice", "s1")
        assert not state.interrupt_control.is_interrupted


class TestConcurrency:
    async def test_sessions_run_at_the_same_time_and_calls_of_one_in_their_order(self, store: Store) -> None:
        running: dict[str, int] = {}
        both = asyncio.Barrier(2)

        async def answer(request: ModelRequest) -> str:
            who = request.messages[0].text[:1]
            running[who] = running.get(who, 0) + 1
            assert running[who] == 1, "two calls of one session at a time"
            await both.wait()  # passes only while both sessions run
            running[who] -= 1
            return "answered"

        agent = ReActAgent("helper", ScriptedModel(answer), store=store)
        calls = [agent.call(f"{who[0]}{n}", RuntimeContext(who, "s1")) for n in range(3) for who in ("alice", "bob")]
        await asyncio.gather(*calls)

        assert said(await agent.get_agent_state("alice", "s1"))[::2] == ["a0", "a1", "a2"]
        assert said(await agent.get_agent_state("bob", "s1"))[::2] == ["b0", "b1", "b2"]


@dataclass
class TenantInfo:
    name: str


class TestRuntimeContext:
    async def test_a_tool_gets_the_attributes_of_the_call_and_none_is_stored(self, store: Store) -> None:
        seen: list[Any] = []

        @tool
        async def who(ctx: RuntimeContext) -> str:
            """Say whose call it is."""
            seen.append((ctx.user_id, ctx.session_id, ctx.get("request_id"), ctx.get(TenantInfo)))
            return "seen"

        model = ScriptedModel([[call("who", {}, id="c1")], "Done."])
        agent = ReActAgent("helper", model, tools=[who], store=store)
        ctx = RuntimeContext("alice", "s-001", request_id="req-abc").put(TenantInfo, TenantInfo("tenant-7"))
        await agent.call([user("Hi")], ctx)

        assert seen == [("alice", "s-001", "req-abc", TenantInfo("tenant-7"))]
        assert "req-abc" not in (await agent.get_agent_state("alice", "s-001")).to_json()
        assert ctx.agent_state is None, "the caller's context is not changed"

    async def test_a_call_may_name_another_store_of_states(self, store: Store) -> None:
        agent = ReActAgent("helper", ScriptedModel(echo), store=store)
        async with InMemoryAgentStateStore() as other:
            await agent.call("Hi", RuntimeContext("alice", "s1", session=other))

            assert await other.exists(SessionKey("s1", "alice"))
            assert not await store.states.exists(SessionKey("s1", "alice"))

    async def test_the_state_without_a_context_is_that_of_the_default_session(self, store: Store) -> None:
        agent = ReActAgent("helper", ScriptedModel(echo), store=store)
        await agent.call("Hi", ALICE)

        assert (await agent.get_agent_state()).session_id == "helper"
        assert (await RuntimeContext.resolve_agent_state(ALICE, agent)).session_id == "s1"
