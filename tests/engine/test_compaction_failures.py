"""A compaction that fails, is stopped, or costs too much, within a turn."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from leafward import (
    BudgetExceeded,
    CompactionConfig,
    LeaseLost,
    ReActAgent,
    RuntimeContext,
    StoreError,
    create_compact_function,
    open_store,
    tool,
    user,
)
from leafward.engine import Budget, ModelRequest, ModelUsage
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.bakery import ALICE
from tests.engine.flushes import counted_flushes
from tests.engine.talker import Talker, agent, events_of, is_prompt_for_summary, said, talk


@pytest.fixture
async def store() -> Any:
    async with open_store("memory://") as opened:
        yield opened


# ── failures ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("fault", ["raises", "is blank", "is too long"])
async def test_a_summary_that_fails_cuts_nothing_away_and_is_reported(
    store: Store, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    asked = 0

    async def reply(request: ModelRequest) -> Any:
        nonlocal asked
        if not is_prompt_for_summary(request):
            return f"{len(request.messages)} messages"
        asked += 1
        return {"raises": RuntimeError("no model"), "is blank": "", "is too long": "word " * 500}[fault]

    cook = agent(store, ScriptedModel(reply))
    await talk(cook, 3)
    with caplog.at_level(logging.WARNING, logger="leafward.engine"):
        events = await events_of(cook, "m4")

    assert events[-2].message is not None
    assert events[-2].message.text == "7 messages"
    (failed,) = [event for event in events if event.type == "CUSTOM"]
    assert failed.name == "compaction_failed"
    assert failed.data["reason"] in caplog.text
    assert asked == 1
    assert await cook.session("alice", "s1").get_compactions() == []
    assert (await cook.get_agent_state("alice", "s1")).summary == ""


async def test_attempts_that_fail_are_spaced_out(store: Store) -> None:
    asked = 0

    def summarize(prompt: str) -> str:
        nonlocal asked
        asked += 1
        raise RuntimeError("no model")

    compact = create_compact_function(summarize=summarize, protect_head=0, tail_token_budget=0)

    async def reply(request: ModelRequest) -> Any:
        return [call("look")] if len(request.messages) < 100 else "Done."

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "word " * 10_000

    cook = ReActAgent("cook", ScriptedModel(reply), store=store, tools=[look], compaction=compact, max_iterations=20)
    await cook.call("hello", ALICE)

    assert 1 < asked < 10


async def test_an_interrupt_stops_a_summary_that_is_being_written(store: Store) -> None:
    begun = asyncio.Event()

    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            begun.set()
            await asyncio.Event().wait()
        return "hi"

    cook = agent(store, ScriptedModel(reply))
    await talk(cook, 3)
    turn = asyncio.create_task(cook.call(user("m4", id="m4"), ALICE))
    await begun.wait()
    assert await cook.interrupt("alice", "s1", "stop")
    answer = await asyncio.wait_for(turn, 5)

    assert answer.metadata is not None
    assert answer.metadata["agentscope_generate_reason"] == "INTERRUPTED"
    history = await cook.session("alice", "s1").get_history()
    assert said(history)[-2:] == ["m4", "stop"]
    assert await cook.session("alice", "s1").get_compactions() == []
    assert (await agent(store, Talker().model()).call("m5", ALICE)).text == "You said: m5"


async def test_an_interrupt_stops_a_compaction_function_of_the_users(store: Store) -> None:
    begun = asyncio.Event()

    async def compact(messages: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    cook = agent(store, ScriptedModel(lambda _: "word " * 70_000), compaction=compact)
    await cook.call("m1", ALICE)
    turn = asyncio.create_task(cook.call("m2", ALICE))
    await begun.wait()
    assert await cook.interrupt("alice", "s1")
    answer = await asyncio.wait_for(turn, 5)

    assert answer.metadata is not None
    assert answer.metadata["agentscope_generate_reason"] == "INTERRUPTED"


async def test_a_caller_who_leaves_while_a_summary_is_written_loses_nothing(store: Store) -> None:
    begun = asyncio.Event()

    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            begun.set()
            await asyncio.Event().wait()
        return "hi"

    cook = agent(store, ScriptedModel(reply))
    await talk(cook, 3)
    turn = asyncio.create_task(cook.call(user("m4", id="m4"), ALICE))
    await begun.wait()
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    talker = Talker()
    assert (await agent(store, talker.model()).call(user("m4", id="m4"), ALICE)).text == "You said: m4"
    raw = await cook.session("alice", "s1").get_raw_history()
    assert [one.id for one in raw].count("m4") == 1


async def test_a_turn_that_has_lost_its_lease_lays_no_summary(store: Store) -> None:
    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            holder = await store.leases.holder("s1", "alice")
            assert holder is not None
            await store.leases.release("s1", "alice", token=holder.token)
            return "They greeted."
        return "hi"

    cook = agent(store, ScriptedModel(reply))
    await talk(cook, 3)
    with pytest.raises(LeaseLost):
        await talk(cook, 1, first=4)

    assert await cook.session("alice", "s1").get_compactions() == []


# ── usage ────────────────────────────────────────────────────────────────────


async def test_what_a_summary_used_is_counted_once(store: Store) -> None:
    cook = agent(store, ScriptedModel(Talker().reply, usage=ModelUsage(10, 1, cost=0.5)))

    await talk(cook, 4)

    info = await store.registry.get(cook.session("alice", "s1")._scope)  # pyright: ignore[reportPrivateUsage]
    assert info is not None
    assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (50, 5, 2.5)


@pytest.mark.parametrize("end", ["error", "cancel"])
async def test_what_a_summary_used_is_counted_where_it_could_not_be_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    cook = agent(store, ScriptedModel(Talker().reply, usage=ModelUsage(10, 1)))
    await talk(cook, 3)

    async def refuse(*_: Any, **__: Any) -> None:
        if end == "error":
            raise StoreError("the disk is full")
        turn.cancel()
        await asyncio.sleep(60)

    monkeypatch.setattr(type(store.messages), "add_overlay", refuse)
    turn = asyncio.create_task(talk(cook, 1, first=4))
    with pytest.raises(StoreError if end == "error" else asyncio.CancelledError):
        await turn

    info = await store.registry.get(cook.session("alice", "s1")._scope)  # pyright: ignore[reportPrivateUsage]
    assert info is not None
    assert (info.input_tokens, info.output_tokens) == (40, 4)


async def test_a_compaction_that_is_put_off_writes_nothing(tmp_path: Any) -> None:
    async def reply(request: ModelRequest) -> Any:
        if is_prompt_for_summary(request):
            raise RuntimeError("no model")
        return [call("look")] if len(request.messages) < 15 else "Done."

    @tool
    def look() -> str:
        """Look."""
        return "Nothing."

    async with open_store(f"sqlite:///{tmp_path}/a.db") as store:

        async def commits(session_id: str, **options: Any) -> int:
            cook = ReActAgent("cook", ScriptedModel(reply), store=store, tools=[look], save="call", **options)
            with counted_flushes() as found:
                events = [event async for event in cook.stream("Go.", RuntimeContext("alice", session_id))]
            tried = [event for event in events if event.name == "compaction_failed"]
            # An attempt stores what there is.
            return found.commits - len(tried)

        config = CompactionConfig(trigger_messages=3, keep_messages=1)
        assert await commits("s1", compaction=config) <= await commits("s2")


async def test_a_summary_counts_in_the_budget_of_its_turn(store: Store) -> None:
    cook = agent(store, ScriptedModel(Talker().reply, usage=ModelUsage(10, 1)), budget=Budget(tokens=11))
    await talk(cook, 3)

    with pytest.raises(BudgetExceeded):
        await talk(cook, 1, first=4)

    assert len(await cook.session("alice", "s1").get_compactions()) == 1
