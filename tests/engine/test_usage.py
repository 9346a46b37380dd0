"""What a model used is counted once, whatever happens to the turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leafward import OutcomeUnknown, ReActAgent, SessionManager, tool
from leafward.engine import CallDelta, ModelUsage, TextDelta, ThinkingDelta
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.test_turn import ALICE, store

__all__ = ["store"]


@tool
async def stir() -> str:
    """Stir."""
    return "stirred"


def agent(store: Any, **options: Any) -> ReActAgent:
    script = [[call("stir", {}, id="c1"), ModelUsage(10, 5)], ["Done.", ModelUsage(20, 7)]]
    return ReActAgent("cook", ScriptedModel(script), store=store, tools=[stir], **options)


async def used(store: Store) -> tuple[int, int]:
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    return info.input_tokens, info.output_tokens


@pytest.mark.parametrize("save", ["step", "call"])
async def test_the_usage_of_every_reply_is_counted(store: Store, save: Any) -> None:
    await agent(store, save=save).call("Cook dinner", ALICE)
    assert await used(store) == (30, 12)


@pytest.mark.parametrize("error", [asyncio.CancelledError(), OutcomeUnknown("the answer was lost")])
@pytest.mark.parametrize(
    ("save", "tokens", "expected"), [("step", 10, (10, 5)), ("step", 20, (30, 12)), ("call", 30, (30, 12))]
)
async def test_usage_that_is_stored_without_an_answer_is_counted_once(
    store: Store, error: BaseException, save: Any, tokens: int, expected: tuple[int, int], monkeypatch: Any
) -> None:
    messages = type(store.messages)
    append = messages.append

    async def lose(self: Any, *args: Any, **options: Any) -> Any:
        done = await append(self, *args, **options)
        usage = options.get("usage")
        if usage is not None and usage.input_tokens == tokens:
            monkeypatch.undo()
            raise error
        return done

    monkeypatch.setattr(messages, "append", lose)
    with pytest.raises(type(error)):
        await agent(store, save=save).call("Cook dinner", ALICE)

    assert await used(store) == expected


HALF_A_CALL = CallDelta('{"spoon', "stir", "c1")


@pytest.mark.parametrize("ends", ["interrupt", "save", "discard", "cancel"])
@pytest.mark.parametrize("shown", [None, TextDelta("Let me"), ThinkingDelta("Hm"), HALF_A_CALL])
async def test_what_a_reply_has_used_that_was_cut_off_is_counted(store: Store, shown: Any, ends: Any) -> None:
    thinking, never = asyncio.Event(), asyncio.Event()

    def think(_: Any) -> Any:
        thinking.set()
        return never.wait()

    pieces = [ModelUsage(1_000, 5), *([] if shown is None else [shown]), think]
    cook = ReActAgent("cook", ScriptedModel([pieces]), store=store)
    running = asyncio.create_task(cook.call("Cook dinner", ALICE))
    await thinking.wait()

    if ends == "interrupt":
        assert await cook.interrupt("alice", "s1")
    elif ends == "cancel":
        running.cancel()
    else:
        assert await cook.shutdown(partial_reasoning=ends)
    await asyncio.wait([running])

    assert await used(store) == (1_000, 5)
