"""A tool has ended, and hooks or middleware that follow are cut off or fail: what it did is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from leafward import RuntimeContext, open_store, tool
from leafward.engine import ActingChunkEvent, Hook, HookEvent, Middleware, Outcome, PostActingEvent
from leafward.stores import Store
from leafward.testing import call
from tests.engine.surrounded import ADD, ALICE, agent, goes_on, reason


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


class At(Hook):
    """Does something at one kind of event."""

    def __init__(self, kind: type[HookEvent], do: Callable[[], Any]) -> None:
        self.events = {kind}
        self.do = do

    async def on_event(self, event: HookEvent, ctx: RuntimeContext) -> None:
        await self.do()


class Around(Middleware):
    """Does something once a tool has ended."""

    def __init__(self, do: Callable[[], Any]) -> None:
        self.do = do

    async def on_acting(self, ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Outcome]:
        async for outcome in call_next(request):
            await self.do()
            yield outcome


HOOKED = [(kind, end) for kind in (ActingChunkEvent, PostActingEvent) for end in ("interrupt", "error", "cancel")]


@pytest.mark.parametrize(("where", "end"), [*HOOKED, (Around, "error"), (Around, "cancel")])
async def test_what_a_tool_has_done_is_kept_where_what_follows_is_cut_off_or_fails(
    store: Store, where: Any, end: str
) -> None:
    waiting = asyncio.Event()

    async def hang() -> None:
        waiting.set()
        if end == "error":
            raise ValueError("boom")
        await asyncio.Event().wait()

    around: dict[str, Any] = {} if where is Around else {"hooks": [At(where, hang)]}
    cook = agent(store, [[ADD], "Never said."], *([Around(hang)] if where is Around else []), **around)
    calling = asyncio.create_task(cook.call("Go.", ALICE))
    await waiting.wait()
    if end == "interrupt":
        await cook.interrupt("alice", "s1")
        assert reason(await calling) == "INTERRUPTED"
    else:
        if end == "cancel":
            calling.cancel()
        with pytest.raises(ValueError if end == "error" else asyncio.CancelledError):
            await calling

    result = (await cook.session("alice", "s1").get_raw_history())[2]
    assert (result.parts[0]["state"], result.parts[0]["output"][0]["text"]) == ("success", "3")
    await goes_on(cook, store)


async def test_an_earlier_run_does_not_stand_for_one_that_was_cut_off(store: Store) -> None:
    runs = 0
    begun = asyncio.Event()

    async def pay() -> str:
        """Pay."""
        nonlocal runs
        runs += 1
        if runs == 2:
            begun.set()
            await asyncio.Event().wait()
        return "paid"

    class Twice(Middleware):
        async def on_acting(self, ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Outcome]:
            async for _ in call_next(request):
                pass
            async for outcome in call_next(request):
                yield outcome

    cook = agent(store, [[call("pay", id="c1")], "Never said."], Twice(), tools=[tool(pay)])
    calling = asyncio.create_task(cook.call("Go.", ALICE))
    await begun.wait()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    result = (await cook.session("alice", "s1").get_raw_history())[2]
    assert result.parts[0]["state"] == "interrupted"
