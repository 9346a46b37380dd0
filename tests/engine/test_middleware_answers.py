"""Middleware answers in the model's place: what is shown, stored and counted."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import ConfigurationError, Message, SessionManager, open_store
from leafward.engine import AgentEvent, Budget, ModelRequest, ModelUsage, ReActAgent, TextDelta, to_ag_ui, to_ui_stream
from leafward.stores import Store
from tests.engine.surrounded import ALICE, Reasoning, agent, goes_on, texts

USED = ModelUsage(100, 10)


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


def answer(text: str, **fields: Any) -> AgentEvent:
    message = Message("assistant", [{"type": "text", "text": text}], **fields)
    return AgentEvent("MODEL_CALL_END", message=message)


async def in_place(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
    """Let the model speak, and say something else."""
    async for event in call_next(request):
        if event.type != "MODEL_CALL_END":
            yield event
    yield answer("Other words.")


async def alone(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
    """Say something without the model."""
    yield answer("Cached.")


def ends(events: list[AgentEvent]) -> list[tuple[str, bool]]:
    return [(event.reply_id, event.discarded) for event in events if event.type == "MODEL_CALL_END"]


async def test_a_reply_that_is_replaced_is_discarded_and_what_it_used_counts(store: Store) -> None:
    cook = agent(store, [["First words.", USED]], Reasoning(in_place), budget=Budget(tokens=1_000))

    events = [event async for event in cook.stream("Hi", ALICE)]

    (start,) = [event.reply_id for event in events if event.type == "MODEL_CALL_START"]
    stored = (await cook.session("alice", "s1").get_raw_history())[-1]
    assert ends(events) == [(start, True), (stored.id, False)]
    assert await texts(cook) == ["Hi", "Other words."]
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    assert (info.input_tokens, info.output_tokens) == (100, 10)


async def test_a_replaced_reply_whose_usage_is_unknown_breaks_no_budget_unseen(store: Store) -> None:
    class Silent:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[Any]:
            yield TextDelta("First words.")

    cook = ReActAgent("cook", Silent(), store=store, middlewares=[Reasoning(in_place)], budget=Budget(tokens=1_000))

    with pytest.raises(ConfigurationError, match="a budget needs a model that reports usage"):
        await cook.call("Hi", ALICE)
    await goes_on(cook, store)


async def test_an_answer_without_the_model_needs_no_usage(store: Store) -> None:
    cook = agent(store, [], Reasoning(alone), budget=Budget(tokens=1_000))

    assert (await cook.call("Hi", ALICE)).text == "Cached."


async def test_one_message_answers_many_times(store: Store) -> None:
    kept = answer("Cached.")

    async def cached(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        yield kept

    cook = agent(store, [], Reasoning(cached))

    replies = [await cook.call(text, ALICE) for text in ("Hi", "Again")]
    assert await texts(cook) == ["Hi", "Cached.", "Again", "Cached."]
    assert kept.message is not None
    assert len({kept.message.id, *(reply.id for reply in replies)}) == 3


async def test_the_fields_of_an_answer_are_stored_and_the_message_stays_as_it_was(store: Store) -> None:
    given = answer("Cached.", name="archive", metadata={"from": "cache"}, rating=5)

    async def cached(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        yield given

    cook = agent(store, [], Reasoning(cached))
    assert given.message is not None
    before = given.message.to_dict()

    await cook.call("Hi", ALICE)

    stored = (await cook.session("alice", "s1").get_raw_history())[-1]
    assert (stored.name, stored.metadata, stored.extra) == ("archive", {"from": "cache"}, {"rating": 5})
    assert given.message.to_dict() == before


@pytest.mark.parametrize("around", [alone, in_place])
async def test_pages_show_an_answer_once_and_take_back_what_it_replaces(store: Store, around: Any) -> None:
    said = "Cached." if around is alone else "Other words."
    first = [] if around is alone else ["First words."]
    cook = agent(store, [first], Reasoning(around))

    chunks = [chunk async for chunk in to_ui_stream(cook.stream("Hi", ALICE), version=7)]
    assert [chunk["delta"] for chunk in chunks if chunk["type"] == "text-delta"] == [*first, said]
    assert [chunk["type"] for chunk in chunks].count("reset-step") == len(first)

    cook = agent(store, [first], Reasoning(around))
    shown = [event async for event in to_ag_ui(cook.stream("Again", ALICE), "s1", "r1")]
    contents = [event for event in shown if event["type"] == "TEXT_MESSAGE_CONTENT"]
    assert [event["delta"] for event in contents] == [*first, said]
    stored = (await cook.session("alice", "s1").get_raw_history())[-1]
    assert contents[-1]["messageId"] == stored.id


async def test_an_answer_that_is_asked_about_again_is_discarded_under_its_own_id(store: Store) -> None:
    async def again(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        yield answer("Mine.")
        async for event in call_next(request):
            yield event

    cook = agent(store, ["The model's."], Reasoning(again))

    found = ends([event async for event in cook.stream("Hi", ALICE)])

    assert [discarded for _, discarded in found] == [False, True, False]
    assert found[0][0] == found[1][0] != found[2][0]
    assert await texts(cook) == ["Hi", "The model's."]
