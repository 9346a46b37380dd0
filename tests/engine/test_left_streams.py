"""Streams that are not read to their end: nothing is left to the garbage collector, and the turn is stored."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, cast

import pytest

from leafward import (
    open_store,
)
from leafward.core.attached_state import TURN
from leafward.core.ids import Scope
from leafward.stores import Store
from tests.engine.bakery import (
    ALICE,
    BAKE,
    Oven,
    agent,
    lines,
)
from tests.engine.dying_store import CountingStore
from tests.engine.going_on import goes_on


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://", max_message_bytes=5_000) as opened:
        yield opened


async def note_of(store: Store) -> dict[str, Any]:
    head = await store.messages.head(Scope.of("s1", user_id="alice", agent_id="cook"), (TURN,))
    return dict(head.states[TURN])


def left_tasks(before: set[asyncio.Task[Any]]) -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() - before if not task.done()]


def at_the_garbage_collector() -> tuple[list[str], Callable[[], None]]:
    """Return the names of our generators that nobody has closed, and what ends the watch."""
    found: list[str] = []
    hooks = sys.get_asyncgen_hooks()

    def finalizer(generator: AsyncGenerator[Any]) -> None:
        code = cast(Any, generator).ag_code
        if "leafward/engine" in code.co_filename:
            found.append(code.co_qualname)
        assert hooks.finalizer is not None
        hooks.finalizer(generator)

    sys.set_asyncgen_hooks(hooks.firstiter, finalizer)
    return found, lambda: sys.set_asyncgen_hooks(*hooks)


@pytest.mark.parametrize("stops_at", ["MODEL_CALL_START", "TEXT_BLOCK_DELTA", "TOOL_RESULT_START", "EXCEED_MAX_ITERS"])
async def test_closing_a_stream_leaves_no_generator_to_the_garbage_collector(store: Store, stops_at: str) -> None:
    found, end = at_the_garbage_collector()
    oven = Oven()
    oven.is_done.set()
    try:
        streaming = agent(store, [["I bake.", *BAKE], "Done."], oven.tools(), max_iterations=1)
        async with aclosing(streaming.stream("Bake", ALICE)) as events:
            async for event in events:
                if event.type == stops_at:
                    break
        assert (await note_of(store))["failed"] == "cancelled"
        gc.collect()
        assert found == []
    finally:
        end()
    await goes_on(store)


@pytest.mark.parametrize("is_in_a_cycle", [False, True])
@pytest.mark.parametrize("stops_at", ["TEXT_BLOCK_DELTA", "TOOL_RESULT_START"])
async def test_a_stream_that_is_left_to_the_garbage_collector_is_cancelled_and_stored(
    store: Store, stops_at: str, is_in_a_cycle: bool
) -> None:
    slow: Any = CountingStore(store)
    oven = Oven()
    oven.is_done.set()
    streaming = agent(slow, [["I bake.", *BAKE], "Done."], oven.tools())
    before = asyncio.all_tasks()

    async def leave() -> None:
        events = streaming.stream("Bake", ALICE)
        if is_in_a_cycle:
            cycle: list[Any] = [events]
            cycle.append(cycle)
        async for event in events:
            if event.type == stops_at:
                break

    await leave()
    gc.collect()
    # The next call waits for its end.
    await goes_on(slow)

    assert left_tasks(before) == []
    said = (await lines(store))[1:-2]
    assert said == (["assistant: I bake."] if stops_at == "TEXT_BLOCK_DELTA" else said[:2])
    assert slow.ends == 2


def test_a_stream_that_outlives_its_program_is_cancelled_and_stored() -> None:
    kept: list[Any] = []

    async def leave(store: Store) -> None:
        kept.append(agent(store, [["I bake.", *BAKE]], Oven().tools()).stream("Bake", ALICE))
        async for event in kept[0]:
            if event.type == "TEXT_BLOCK_DELTA":
                break

    async def look(store: Store) -> list[str]:
        async with store:
            assert (await note_of(store))["failed"] == "cancelled"
            return await lines(store)

    with asyncio.Runner() as runner:

        async def opened() -> Store:
            return await open_store("memory://")

        store = runner.run(opened())
        runner.run(leave(store))
        # As `asyncio.run` does at its end: all generators at once, in any order.
        loop = runner.get_loop()
        loop.run_until_complete(loop.shutdown_asyncgens())
        assert runner.run(look(store)) == ["user: Bake", "assistant: I bake."]
