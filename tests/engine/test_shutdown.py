"""Shutdown: calls are refused or paused, and any agent on the same store goes on with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    ConfigurationError,
    RuntimeContext,
    open_store,
    tool,
    user,
)
from leafward.engine import ShutdownManager
from leafward.stores import Store
from leafward.testing import call
from tests.engine.bakery import (
    ALICE,
    BAKE,
    Oven,
    agent,
    go_on,
    history,
    is_flagged,
    is_paused,
    lines,
)


@pytest.fixture(params=["memory", "sqlite", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file:///{tmp_path}/files"}
    async with open_store(urls[request.param]) as opened:
        yield opened


# ── calls that have not begun ─────────────────────────────────────────────────


async def test_a_call_after_shutdown_is_refused_and_stores_nothing(store: Store) -> None:
    shut = agent(store, ["never said"])
    assert shut.shutdown_state == "running"

    assert await shut.shutdown()

    assert shut.shutdown_state == "terminated"
    with pytest.raises(AgentShuttingDown, match="send the same input again"):
        await shut.call("Bake", ALICE)
    assert await history(store) == []
    assert await shut.shutdown(), "twice is fine"


async def test_200_queued_calls_are_refused_and_the_running_one_is_paused(store: Store) -> None:
    oven = Oven()
    baking = agent(store, [BAKE], oven.tools())
    first = asyncio.create_task(baking.call("Bake", ALICE))
    await oven.began.wait()
    queued = [asyncio.create_task(baking.call(f"question {number}", ALICE)) for number in range(200)]
    await asyncio.sleep(0)

    shutting = asyncio.create_task(baking.shutdown())
    refused = await asyncio.gather(*queued, return_exceptions=True)

    assert all(isinstance(error, AgentShuttingDown) for error in refused)
    assert not shutting.done(), "a tool that has begun is waited for"
    assert baking.shutdown_state == "shutting_down"
    oven.is_done.set()
    assert await shutting
    assert await is_paused(first)
    assert await lines(store) == ["user: Bake", "assistant: ['c1']", "tool: c1 success bread is baked"]
    assert not any(task.cancelling() for task in [first, *queued])
    await go_on(store, "Bake", ["Done."])


async def test_a_call_that_waits_for_the_lease_is_refused_and_leaves_the_queue(store: Store) -> None:
    waiting = agent(store, ["never said"])
    outside = copy_context()
    async with store.leases.acquire("s1", "alice"):
        # A task that knew of the lease would be refused it at once.
        task = asyncio.create_task(waiting.call("Bake", ALICE), context=outside)
        await asyncio.sleep(0.05)
        assert await waiting.shutdown(timeout=5)
        assert await is_paused(task)

    async with store.leases.acquire("s1", "alice", wait=0):
        pass
    assert await history(store) == []


async def test_a_call_that_waits_for_the_store_to_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def never(url: str) -> Store:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError(url)

    monkeypatch.setattr("leafward.stores.opening.open_store", never)
    waiting = agent("memory://", ["never said"])
    tasks = [asyncio.create_task(waiting.call("Bake", RuntimeContext("alice", f"s{number}"))) for number in range(3)]
    await asked.wait()

    await waiting.close()

    assert all([await is_paused(task) for task in tasks])


async def test_an_agent_that_shuts_down_leaves_others_on_its_store_alone(store: Store) -> None:
    oven, other_oven = Oven(), Oven()
    first, second = agent(store, [BAKE], oven.tools()), agent(store, [BAKE, "Done."], other_oven.tools())
    paused = asyncio.create_task(first.call("Bake", ALICE))
    kept = asyncio.create_task(second.call("Bake", RuntimeContext("alice", "s2")))
    await oven.began.wait()
    await other_oven.began.wait()

    oven.is_done.set()
    assert await first.shutdown()

    assert await is_paused(paused)
    other_oven.is_done.set()
    assert (await kept).text == "Done."
    assert (first.shutdown_state, second.shutdown_state) == ("terminated", "running")


# ── while the model answers ───────────────────────────────────────────────────


async def pause_in_stream(store: Store, reply: list[Any], **options: Any) -> None:
    """Shut an agent down when its model has sent these pieces of a reply."""
    sent = asyncio.Event()

    async def hang(_: Any) -> None:
        sent.set()
        await asyncio.Event().wait()

    thinking = agent(store, [[*reply, hang, "never said"]])
    task = asyncio.create_task(thinking.call("Bake", ALICE))
    await sent.wait()
    assert await thinking.shutdown(timeout=5, **options)
    assert await is_paused(task)
    assert not task.cancelling()
    assert await is_flagged(store)


async def test_text_that_a_model_has_sent_is_kept_and_the_model_goes_on_from_there(store: Store) -> None:
    await pause_in_stream(store, ["First the dough, "])

    assert await lines(store) == ["user: Bake", "assistant: First the dough, "]
    model = await go_on(store, "Bake", ["then the oven."])
    said = [message.text for message in model.requests[0].messages]
    assert said == ["Bake", "First the dough, ", "Your reply was cut off. Go on where it ended."]
    assert await lines(store) == ["user: Bake", "assistant: First the dough, ", "assistant: then the oven."]


async def test_a_partial_reply_is_dropped_if_the_policy_says_so(store: Store) -> None:
    await pause_in_stream(store, ["First the dough, "], partial_reasoning="discard")

    assert await lines(store) == ["user: Bake"]
    model = await go_on(store, None, ["Bread is baked."])
    assert [message.text for message in model.requests[0].messages] == ["Bake"]


async def test_calls_of_a_reply_that_was_cut_off_are_not_kept(store: Store) -> None:
    await pause_in_stream(store, ["I bake.", BAKE[0]])

    assert await lines(store) == ["user: Bake", "assistant: I bake."]
    oven = Oven()
    oven.is_done.set()
    await go_on(store, "Bake", [BAKE, "Done."], oven.tools())
    assert oven.baked == ["bread"]


async def test_thinking_alone_is_not_kept(store: Store) -> None:
    await pause_in_stream(store, [{"type": "thinking", "thinking": "hm"}, BAKE[0]])

    assert await lines(store) == ["user: Bake"]


async def test_a_model_that_ignores_its_cancellation_is_paused_at_its_next_piece(store: Store) -> None:
    asked = asyncio.Event()

    async def stubborn(_: Any) -> str:
        asked.set()
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "Here I am again"

    thinking = agent(store, [[stubborn, "never said"]])
    task = asyncio.create_task(thinking.call("Bake", ALICE))
    await asked.wait()

    assert await thinking.shutdown(timeout=5)

    assert await is_paused(task)
    assert not task.cancelling()


# ── the reader of a stream ────────────────────────────────────────────────────


@pytest.mark.parametrize("stops_at", ["AGENT_START", "TEXT_BLOCK_DELTA", "TOOL_RESULT_END"])
async def test_a_stream_that_is_not_read_on_is_paused_without_its_reader(store: Store, stops_at: str) -> None:
    oven = Oven()
    oven.is_done.set()
    streaming = agent(store, [["I bake.", *BAKE], "Done."], oven.tools())
    async with aclosing(streaming.stream("Bake", ALICE)) as events:
        async for event in events:
            if event.type == stops_at:
                break

        assert await streaming.shutdown(timeout=5)

        stored = {"AGENT_START": 0, "TEXT_BLOCK_DELTA": 2, "TOOL_RESULT_END": 3}[stops_at]
        assert len(await history(store)) == stored
        async with store.leases.acquire("s1", "alice", wait=0):
            pass
        with pytest.raises(AgentShuttingDown):
            await anext(events)
    assert len(await history(store)) == stored
    await go_on(store, "Bake", ["Done."], oven.tools())


async def test_a_stream_whose_turn_has_ended_can_be_read_to_its_end_after_a_shutdown(store: Store) -> None:
    streaming = agent(store, ["Done."])
    found: list[str] = []
    async for event in streaming.stream("Bake", ALICE):
        found.append(event.type)
        if event.type == "AGENT_RESULT":
            assert await streaming.shutdown(timeout=5)

    assert found[-1] == "AGENT_END"


async def test_closing_a_paused_stream_leaves_its_turn_paused(store: Store) -> None:
    streaming = agent(store, [["First the dough, ", "then the oven."]])
    async with aclosing(streaming.stream("Bake", ALICE)) as events:
        async for event in events:
            if event.type == "TEXT_BLOCK_DELTA":
                break
        assert await streaming.shutdown(timeout=5)

    assert await is_flagged(store)
    assert await lines(store) == ["user: Bake", "assistant: First the dough,"]


# ── the shutdown itself ───────────────────────────────────────────────────────


async def test_a_cancelled_shutdown_has_refused_and_pauses_all_the_same(store: Store) -> None:
    oven = Oven()
    baking = agent(store, [BAKE], oven.tools())
    task = asyncio.create_task(baking.call("Bake", ALICE))
    await oven.began.wait()
    shutting = asyncio.create_task(baking.shutdown())
    await asyncio.sleep(0)
    shutting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shutting

    with pytest.raises(AgentShuttingDown):
        await baking.call("And?", ALICE)
    oven.is_done.set()
    assert await is_paused(task)
    assert await baking.shutdown()


async def test_a_tool_may_shut_its_own_agent_down_and_its_turn_is_paused_after_it(store: Store) -> None:
    @tool
    async def go_home() -> str:
        """Go home."""
        assert await baking.shutdown()
        with pytest.raises(ConfigurationError, match="inside a tool of its own turn"):
            await baking.close()
        return "gone"

    baking = agent(store, [[call("go_home", {}, id="c1")]], [go_home])

    assert await is_paused(asyncio.create_task(baking.call("Go home", ALICE)))

    assert baking.shutdown_state == "terminated"
    assert (await lines(store))[2:] == ["tool: c1 success gone"]


async def test_closing_an_agent_pauses_its_turns_and_closes_its_store(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    oven = Oven()
    async with agent(url, [BAKE], oven.tools()) as baking:
        task = asyncio.create_task(baking.call("Bake", ALICE))
        await oven.began.wait()
        asyncio.get_running_loop().call_later(0.05, oven.is_done.set)

    assert await is_paused(task)
    await baking.close()
    with pytest.raises(AgentShuttingDown):
        await baking.call("Bake", ALICE)
    async with open_store(url) as store:
        assert await is_flagged(store)
        await go_on(store, user("Bake"), ["Done."])


async def test_options_that_make_no_sense_are_refused_and_change_nothing() -> None:
    one = agent("memory://", ["Done."])

    for timeout in (-1, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError, match="timeout is a number of seconds"):
            await one.shutdown(timeout=timeout)
    with pytest.raises(ConfigurationError, match="partial_reasoning is 'save' or 'discard'"):
        ShutdownManager(one, partial_reasoning="keep")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigurationError, match="no agent"):
        ShutdownManager()

    assert (await one.call("Bake", ALICE)).text == "Done."
    await one.close()


async def test_a_manager_shuts_its_agents_down_together(store: Store) -> None:
    ovens = [Oven(), Oven()]
    agents = [agent(store, [BAKE], oven.tools()) for oven in ovens]
    manager = ShutdownManager(*agents, timeout=5)
    assert manager.state == "running"
    running = [
        asyncio.create_task(one.call("Bake", RuntimeContext("alice", f"s{number}")))
        for number, one in enumerate(agents)
    ]
    for oven in ovens:
        await oven.began.wait()

    shutting = asyncio.create_task(manager.shutdown())
    ovens[0].is_done.set()
    assert await is_paused(running[0])
    assert manager.state == "shutting_down"
    ovens[1].is_done.set()

    assert await shutting
    assert manager.state == "terminated"
    assert await is_paused(running[1])
