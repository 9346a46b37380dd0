"""Turns without input of their own, which answer a stored message: after a checkout, or an append by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any

import pytest

from leafward import AgentShuttingDown, ReActAgent, open_store, tool, user
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.going_on import ALICE


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


@tool
async def look() -> str:
    """Look."""
    return "seen"


def agent(store: Store, script: Any, **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[look], **options)


async def stopped(store: Store, how: str) -> None:
    """Go on without input, and stop after a tool has run."""
    asked = asyncio.Event()

    async def second(request: object) -> str:
        asked.set()
        if how == "fail":
            raise RuntimeError("down")
        await asyncio.Event().wait()
        return "never"

    one = agent(store, [[call("look", id="c1")], second])
    turn = asyncio.create_task(one.call(None, ALICE))
    await asked.wait()
    if how == "cancel":
        turn.cancel()
    if how == "shutdown":
        await one.shutdown(timeout=1)
    with suppress(RuntimeError, AgentShuttingDown, asyncio.CancelledError):
        await turn


@pytest.mark.parametrize("how", ["fail", "cancel", "shutdown"])
@pytest.mark.parametrize("again", ["words", "id", "nothing"])
async def test_a_regenerated_turn_that_was_stopped_goes_on_with_the_message_it_answers(
    store: Store, how: str, again: str
) -> None:
    asked = user("hello", id="u1")
    await agent(store, ["First."]).call(asked, ALICE)
    session = agent(store, []).session("alice", "s1")
    await session.checkout("u1")
    await stopped(store, how)

    reply = await agent(store, ["Second."]).call({"words": "hello", "id": asked, "nothing": None}[again], ALICE)

    assert reply.text == "Second."
    assert [message.role for message in await session.get_history()] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize("again", ["words", "id"])
async def test_a_turn_that_answers_an_appended_message_goes_on_with_that_message(store: Store, again: str) -> None:
    await agent(store, ["First."]).call("hello", ALICE)
    session = agent(store, []).session("alice", "s1")
    asked = user("and now?", id="u2")
    await session.append_message(asked)
    with pytest.raises(RuntimeError):
        await agent(store, [[call("look", id="c1")], RuntimeError("down")]).call(asked, ALICE)

    reply = await agent(store, ["Second."]).call("and now?" if again == "words" else asked, ALICE)

    assert reply.text == "Second."
    roles = [message.role for message in await session.get_history()]
    assert roles == ["user", "assistant", "user", "assistant", "tool", "assistant"]


async def test_attaching_to_a_regenerated_turn_shows_its_intent(store: Store) -> None:
    go, runs = asyncio.Event(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait."""
        runs.set()
        await go.wait()
        return "waited"

    await agent(store, ["First."]).call("one", ALICE)
    await agent(store, ["Second."]).call(user("two", id="u2"), ALICE)
    one = ReActAgent("cook", ScriptedModel([[call("wait", id="c1")], "Again."]), store=store, tools=[wait])
    await one.session("alice", "s1").checkout("u2")
    turn = asyncio.create_task(one.call(None, ALICE))
    await runs.wait()
    events = one.attach("alice", "s1")

    async with asyncio.timeout(10):
        shown = [await anext(events) for _ in range(3)]
        go.set()
        shown += [event async for event in events]
        await turn

    assert [event.message.id for event in shown[1:2] if event.message] == ["u2"]
    assert [event.type for event in shown] == [
        *("AGENT_START", "CUSTOM", "MODEL_CALL_END", "TOOL_RESULT_END", "MODEL_CALL_END", "AGENT_RESULT", "AGENT_END")
    ]
