"""A reply in which the provider paused is stored, and the provider goes on with it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leafward import ReActAgent, tool
from leafward.engine import ModelUsage, Stop, WholePart
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.test_turn import ALICE, store
from tests.engine.test_usage import used

__all__ = ["store"]

SEARCH = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "tea"}}
PAUSED = ["Let me search.", WholePart(SEARCH), ModelUsage(10, 5), Stop("paused")]
REST = ["There is tea.", ModelUsage(20, 7)]


async def test_a_paused_reply_is_sent_back_as_the_last_message_until_it_is_whole(store: Store) -> None:
    model = ScriptedModel([PAUSED, ["Once more.", ModelUsage(1, 1), Stop("paused")], REST])
    cook = ReActAgent("cook", model, store=store)

    assert (await cook.call("Is there tea?", ALICE)).text == "There is tea."

    history = await cook.session("alice", "s1").get_history()
    assert [message.text for message in history] == [
        "Is there tea?",
        "Let me search.",
        "Once more.",
        "There is tea.",
    ]
    assert [[one.id for one in request.messages] for request in model.requests] == [
        [one.id for one in history[:length]] for length in (1, 2, 3)
    ]
    assert model.requests[1].messages[-1].parts[-1] == SEARCH
    assert await used(store) == (31, 13)


async def test_a_provider_that_only_pauses_is_asked_to_sum_up(store: Store) -> None:
    model = ScriptedModel([PAUSED, PAUSED, "Enough."])

    reply = await ReActAgent("cook", model, store=store, max_iterations=2).call("Is there tea?", ALICE)

    assert reply.text == "Enough."
    assert model.requests[-1].messages[-1].text.startswith("You have used all your steps.")


async def test_a_paused_reply_with_calls_goes_on_with_their_results(store: Store) -> None:
    @tool
    async def boil() -> str:
        """Boil water."""
        return "boiled"

    model = ScriptedModel([[call("boil", {}, id="c1"), Stop("paused")], "Done."])

    await ReActAgent("cook", model, store=store, tools=[boil]).call("Tea", ALICE)

    assert [one.role for one in model.requests[1].messages] == ["user", "assistant", "tool"]


async def test_a_message_that_joins_comes_behind_a_paused_reply(store: Store) -> None:
    thinking, go_on = asyncio.Event(), asyncio.Event()

    def think(_: Any) -> Any:
        thinking.set()
        return go_on.wait()

    model = ScriptedModel([["Let me see.", think, Stop("paused")], "Coffee, then."])
    cook = ReActAgent("cook", model, store=store)
    running = asyncio.create_task(cook.call("Tea", ALICE))
    await thinking.wait()
    assert await cook.steer("alice", "s1", "No, coffee")
    go_on.set()

    assert (await running).text == "Coffee, then."
    assert [one.text for one in model.requests[1].messages] == ["Tea", "Let me see.", "No, coffee"]


@pytest.mark.parametrize("again", ["Is there tea?", None])
async def test_a_turn_that_is_stopped_at_a_paused_reply_goes_on_with_it(store: Store, again: Any) -> None:
    cook = ReActAgent("cook", ScriptedModel([PAUSED, KeyError("the line is dead")]), store=store)
    with pytest.raises(KeyError):
        await cook.call("Is there tea?", ALICE)

    reply = await ReActAgent("cook", ScriptedModel([REST]), store=store).call(again, ALICE)

    assert reply.text == "There is tea."
    history = await cook.session("alice", "s1").get_history()
    assert [message.text for message in history] == ["Is there tea?", "Let me search.", "There is tea."]
