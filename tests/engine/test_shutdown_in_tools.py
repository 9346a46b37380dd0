"""Shutdown while tools run, and messages that come meanwhile: nothing is lost, and nothing runs twice."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    Message,
    ReActAgent,
    RuntimeContext,
    SessionKey,
    open_store,
    tool,
    tool_result,
    user,
)
from leafward.core.agent_state import AgentState
from leafward.engine.tree_log import TreeLog
from leafward.stores import Store
from leafward.testing import call
from tests.engine.bakery import (
    ALICE,
    BAKE,
    UNKNOWN,
    Oven,
    agent,
    begin_shutdown,
    go_on,
    history,
    is_flagged,
    is_paused,
    lines,
    on_commit,
    shown,
)
from tests.engine.dying_store import Died, DyingStore


@pytest.fixture(params=["memory", "sqlite", "file"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file:///{tmp_path}/files"}
    async with open_store(urls[request.param]) as opened:
        yield opened


# ── while tools run ───────────────────────────────────────────────────────────


async def forced(store: Store, tools: Any, reply: list[Any], began: Awaitable[Any]) -> ReActAgent:
    """Shut an agent down whose tools do not end."""
    stuck = agent(store, [reply], tools)
    task = asyncio.create_task(stuck.call("Bake", ALICE))
    await began
    asked = time.monotonic()
    assert await stuck.shutdown(timeout=0.05)
    assert time.monotonic() - asked < 4
    assert await is_paused(task)
    assert await is_flagged(store)
    return stuck


async def test_a_tool_that_does_not_end_in_time_has_an_unknown_outcome(store: Store) -> None:
    oven = Oven()

    @tool
    async def look() -> str:
        """Look."""
        return "brown"

    await forced(store, [*oven.tools(), look], [*BAKE, call("look", {}, id="c2")], oven.began.wait())

    results = [f"tool: c1 interrupted {UNKNOWN}", "tool: c2 success brown"]
    assert sorted((await lines(store))[2:]) == results
    slot = await store.states.get(SessionKey("s1", "alice"), "agent_state", AgentState)
    assert slot is not None
    assert [shown(message)[:2] for message in slot.context[2:]] == ["c1", "c2"], "in the order of the calls"
    await go_on(store, "Bake", ["I shall look into the oven."], oven.tools())
    assert oven.baked == ["bread"], "what has begun does not run again"


async def test_a_shutdown_returns_though_a_tool_swallows_its_cancellation(store: Store) -> None:
    began, is_done = asyncio.Event(), asyncio.Event()

    @tool
    async def bake(dish: str) -> str:
        """Bake on."""
        began.set()
        while not is_done.is_set():
            with suppress(asyncio.CancelledError):
                await is_done.wait()
        return dish

    await forced(store, [bake], BAKE, began.wait())

    assert (await lines(store))[2:] == [f"tool: c1 interrupted {UNKNOWN}"]
    is_done.set()


async def test_a_shutdown_returns_though_a_tool_hangs_in_a_thread(store: Store) -> None:
    began, is_done = threading.Event(), threading.Event()

    @tool
    def bake(dish: str) -> str:
        """Bake on a thread."""
        began.set()
        is_done.wait(30)
        return dish

    await forced(store, [bake], BAKE, asyncio.to_thread(began.wait))

    assert (await lines(store))[2:] == [f"tool: c1 interrupted {UNKNOWN}"]
    is_done.set()


async def test_a_tool_that_looks_can_end_early_with_a_result(store: Store) -> None:
    began = threading.Event()

    @tool
    def bake(dish: str, ctx: RuntimeContext) -> str:
        """Bake until asked to stop."""
        began.set()
        while not ctx.agent_state.interrupt_control.is_interrupted:
            time.sleep(0.005)
        return f"half-baked {dish}"

    baking = agent(store, [BAKE], [bake])
    task = asyncio.create_task(baking.call("Bake", ALICE))
    await asyncio.to_thread(began.wait)

    assert await baking.shutdown()

    assert await is_paused(task)
    assert (await lines(store))[2:] == ["tool: c1 success half-baked bread"]


async def test_calls_that_have_not_begun_run_where_the_turn_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oven = Oven()
    oven.is_done.set()
    first = agent(store, [[*BAKE, call("bake", {"dish": "cake"}, id="c2")]], oven.tools())
    on_commit(monkeypatch, 2, lambda: begin_shutdown(first))

    assert await is_paused(asyncio.create_task(first.call("Bake", ALICE)))

    assert oven.baked == []
    assert await lines(store) == ["user: Bake", "assistant: ['c1', 'c2']"]
    assert await is_flagged(store)
    await go_on(store, None, ["Done."], oven.tools())
    assert oven.baked == ["bread", "cake"]
    assert len(await history(store)) == 5


async def test_other_input_after_a_pause_answers_the_open_calls_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agent(store, [BAKE], Oven().tools())
    on_commit(monkeypatch, 2, lambda: begin_shutdown(first))
    assert await is_paused(asyncio.create_task(first.call("Bake", ALICE)))

    await go_on(store, "No, cook", ["Soup, then."])

    expected = ["tool: c1 interrupted Interrupted before it ran.", "user: No, cook", "assistant: Soup, then."]
    assert (await lines(store))[2:] == expected


@pytest.mark.parametrize("again", ["Bake", None])
async def test_a_turn_that_agentscope_has_paused_goes_on_here(store: Store, again: str | None) -> None:
    context = [user("Hello"), Message("assistant", "Hello!"), user("Bake"), Message("assistant", BAKE)]
    state = AgentState(session_id="s1", user_id="alice", context=context, shutdown_interrupted=True)
    await store.states.save(SessionKey("s1", "alice"), "agent_state", state)
    oven = Oven()
    oven.is_done.set()

    await go_on(store, again, ["Done."], oven.tools())

    assert oven.baked == ["bread"]
    assert (await lines(store))[2:] == [
        "user: Bake",
        "assistant: ['c1']",
        "tool: c1 success bread is baked",
        "assistant: Done.",
    ]


async def test_results_of_external_tools_can_be_sent_after_a_pause(store: Store) -> None:
    oven = Oven()

    @tool(external=True)
    async def ask(question: str) -> str:
        """Ask the guest."""
        raise AssertionError(question)

    reply = [*BAKE, call("ask", {"question": "sweet?"}, id="c2")]
    await forced(store, [*oven.tools(), ask], reply, oven.began.wait())
    assert len(await history(store)) == 3

    await go_on(store, tool_result("c2", "yes", "ask"), ["Sweet, then."], [*oven.tools(), ask])

    assert oven.baked == ["bread"]
    assert (await lines(store))[3:] == ["tool: c2 success yes", "assistant: Sweet, then."]


@pytest.mark.parametrize("has_probe", [False, True])
async def test_a_turn_of_a_lost_process_that_is_paused_before_it_goes_on_keeps_its_doubt(
    store: Store, monkeypatch: pytest.MonkeyPatch, has_probe: bool
) -> None:
    baked: list[str] = []
    asked: list[str] = []

    async def probe(arguments: Any, key: str) -> str:
        asked.append(key)
        return "it was baked"

    @tool(probe=probe if has_probe else None)
    async def bake(dish: str) -> str:
        """Bake a dish."""
        baked.append(dish)
        return f"{dish} is baked"

    dying = DyingStore(store, 3)
    with pytest.raises(Died):
        # The empty slot, the input, the intent: the tool has run, and its result is lost.
        await agent(dying, [BAKE], [bake]).call("Bake", ALICE)
    await dying.bury("s1", "alice")
    second = agent(store, ["never said"], [bake])
    path_with = TreeLog.path_with

    async def shutting(self: TreeLog, *args: Any) -> Any:
        await begin_shutdown(second)
        return await path_with(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(TreeLog, "path_with", shutting)
        assert await is_paused(asyncio.create_task(second.call("Bake", ALICE)))
    assert await lines(store) == ["user: Bake", "assistant: ['c1']"]
    assert not await is_flagged(store), "AgentScope would run the tool again"
    assert not asked

    await go_on(store, "Bake", ["I shall look."], [bake])

    assert baked == ["bread"]
    result = "tool: c1 success it was baked" if has_probe else f"tool: c1 interrupted {UNKNOWN}"
    assert (await lines(store))[2] == result


# ── messages that come meanwhile ──────────────────────────────────────────────


async def test_a_message_that_steers_during_a_shutdown_is_stored_and_answered_later(store: Store) -> None:
    oven = Oven()
    baking = agent(store, [BAKE], oven.tools())
    task = asyncio.create_task(baking.call("Bake", ALICE))
    await oven.began.wait()
    shutting = asyncio.create_task(baking.shutdown())
    await asyncio.sleep(0)

    assert await baking.steer("alice", "s1", "with less salt")
    oven.is_done.set()
    assert await shutting
    assert await is_paused(task)

    model = await go_on(store, "Bake", ["With less salt."])
    assert model.requests[0].messages[-1].text == "with less salt"
    assert (await lines(store))[3:] == ["user: with less salt", "assistant: With less salt."]


async def test_a_message_that_steers_before_calls_have_run_joins_after_their_results(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    oven = Oven()
    oven.is_done.set()
    first = agent(store, [BAKE], oven.tools())

    async def steer_and_shut_down() -> None:
        assert await first.steer("alice", "s1", "with less salt")
        await begin_shutdown(first)

    on_commit(monkeypatch, 2, steer_and_shut_down)
    assert await is_paused(asyncio.create_task(first.call("Bake", ALICE)))
    assert await lines(store) == ["user: Bake", "assistant: ['c1']"]

    await go_on(store, "Bake", ["With less salt."], oven.tools())

    expected = ["tool: c1 success bread is baked", "user: with less salt", "assistant: With less salt."]
    assert (await lines(store))[2:] == expected


async def test_such_a_message_is_not_lost_either_if_other_input_follows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = agent(store, [BAKE], Oven().tools())

    async def steer_and_shut_down() -> None:
        assert await first.steer("alice", "s1", "with less salt")
        await begin_shutdown(first)

    on_commit(monkeypatch, 2, steer_and_shut_down)
    assert await is_paused(asyncio.create_task(first.call("Bake", ALICE)))

    await go_on(store, "No, cook", ["Soup, then."])

    assert [line for line in await lines(store) if line.startswith("user")] == [
        "user: Bake",
        "user: with less salt",
        "user: No, cook",
    ]


@pytest.mark.parametrize("comes_first", [True, False])
async def test_an_interrupt_before_or_during_a_shutdown_ends_the_turn(store: Store, comes_first: bool) -> None:
    oven = Oven()
    baking = agent(store, [BAKE], oven.tools())
    task = asyncio.create_task(baking.call("Bake", ALICE))
    await oven.began.wait()
    if comes_first:
        assert await baking.interrupt("alice", "s1", "stop")
    shutting = asyncio.create_task(baking.shutdown())
    await asyncio.sleep(0)
    if not comes_first:
        assert await baking.interrupt("alice", "s1", "stop")
    oven.is_done.set()
    assert await shutting

    assert ((await task).metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    assert (await lines(store))[2:] == ["tool: c1 success bread is baked", "user: stop"]
    assert not await is_flagged(store)
