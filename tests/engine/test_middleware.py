"""Middleware as a whole: its order, its streams, prompts, and turns."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    Message,
    RuntimeContext,
    open_store,
    user,
)
from leafward.engine import (
    AgentEvent,
    AgentRequest,
    CallNext,
    Middleware,
    ModelError,
    ModelEvent,
    ModelRequest,
    ReActAgent,
    TextDelta,
)
from leafward.stores import Store
from leafward.testing import ScriptedModel
from tests.engine.surrounded import (
    ADD,
    ALICE,
    Acting,
    Agent,
    Model,
    Noted,
    Reasoning,
    agent,
    goes_on,
    texts,
)


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


async def test_the_first_middleware_is_the_outermost_at_every_point(store: Store) -> None:
    notes: list[str] = []
    cook = agent(store, [[ADD], "Three."], Noted("a", notes), Noted("b", notes), system_prompt="Cook.")

    reply = await cook.call("Add.", ALICE)

    a_round = [f"{n} {p} {d}" for d, ps in (("in", ("reasoning", "model")), ("out", ())) for p in ps for n in "ab"]
    a_round += [f"{n} {p} out" for p in ("model", "reasoning") for n in "ba"]
    acting = ["a acting in", "b acting in", "b acting out", "a acting out"]
    assert notes == ["a agent in", "b agent in", *a_round, *acting, *a_round, "b agent out", "a agent out"]
    assert reply.text == "Three."
    assert isinstance(cook._answers.setup.model, ScriptedModel)
    assert [request.system for request in cook._answers.setup.model.requests] == ["Cook. a b"] * 2


async def test_with_middleware_a_reader_sees_the_same_events_as_without(store: Store) -> None:
    async def shown(*middlewares: Middleware) -> list[Any]:
        cook = agent(store, [[ADD], "Three."], *middlewares)
        session = f"s{len(middlewares)}"
        return [
            (event.type, event.text, event.name, event.call_id, event.state, event.stop_reason)
            async for event in cook.stream("Add.", RuntimeContext("alice", session))
        ]

    assert await shown(*(Noted(name, []) for name in "abcde")) == await shown()


async def test_a_middleware_that_overrides_nothing_is_never_called(store: Store) -> None:
    cook = agent(store, ["Hi."], Middleware())

    assert (await cook.call("Hi", ALICE)).text == "Hi."
    layers = cook._answers.layers
    assert [layers.agent, layers.reasoning, layers.model, layers.acting, layers.prompt] == [()] * 5


async def test_a_method_may_return_a_stream_or_await_one(store: Store) -> None:
    class Plain(Middleware):
        def on_agent(self, ctx: Any, request: Any, call_next: Any) -> Any:
            return call_next(replace(request, messages=[user(f"{request.messages[0].text}!")]))

        async def on_model_call(self, ctx: Any, request: Any, call_next: Any) -> AsyncIterator[ModelEvent]:
            await asyncio.sleep(0)
            return call_next(request)

    cook = agent(store, ["Hi."], Plain())

    assert (await cook.call("Hello", ALICE)).text == "Hi."
    assert await texts(cook) == ["Hello!", "Hi."]


async def test_the_context_of_a_call_has_its_state_at_every_point(store: Store) -> None:
    seen: list[Any] = []

    def look(ctx: RuntimeContext, request: Any, call_next: CallNext[Any, Any]) -> Any:
        seen.append((ctx.user_id, ctx.session_id, ctx.agent_state, bool(ctx.idempotency_key)))
        return call_next(request)

    cook = agent(store, [[ADD], "Three."], Agent(look), Reasoning(look), Model(look), Acting(look))

    await cook.call("Add.", ALICE)

    assert {(user_id, session_id) for user_id, session_id, _, _ in seen} == {("alice", "s1")}
    assert len({id(state) for _, _, state, _ in seen}) == 1
    assert [in_tool for _, _, _, in_tool in seen] == [False, False, False, True, False, False]


# Streaming.


async def test_a_piece_passes_the_moment_it_is_made_and_a_reader_that_waits_stops_the_model(store: Store) -> None:
    sent = 0

    class Slow:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
            nonlocal sent
            for _ in range(20):
                sent += 1
                yield TextDelta("word ")

    cook = ReActAgent("cook", Slow(), store=store, middlewares=[Noted("a", []), Noted("b", [])])
    read = 0

    async for event in cook.stream("Speak.", ALICE):
        if event.type == "TEXT_BLOCK_DELTA":
            read += 1
            await asyncio.sleep(0)
            assert sent == read

    assert read == 20


@pytest.mark.parametrize("how", ["closed", "collected", "cancelled"])
async def test_a_stream_that_is_left_closes_every_middleware_and_the_model_and_the_session_goes_on(
    store: Store, how: str
) -> None:
    left: list[str] = []

    class Endless:
        async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
            try:
                while True:
                    yield TextDelta("word ")
                    await asyncio.sleep(0)
            finally:
                left.append("model")

    def noting(name: str) -> Any:
        async def around(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
            try:
                async for event in call_next(request):
                    yield event
            finally:
                left.append(name)

        return around

    cook = ReActAgent(
        "cook",
        Endless(),
        store=store,
        middlewares=[Agent(noting("agent")), Reasoning(noting("reasoning")), Model(noting("model call"))],
    )

    async def read() -> None:
        events = cook.stream("Speak.", ALICE)
        async for event in events:
            if event.type == "TEXT_BLOCK_DELTA":
                if how == "cancelled":
                    task = asyncio.current_task()
                    assert task is not None
                    task.cancel()
                elif how == "closed":
                    await events.aclose()
                    return
                else:
                    break

    task = asyncio.create_task(read())
    await asyncio.wait((task,))
    assert task.cancelled() == (how == "cancelled")
    del task
    gc.collect()
    await goes_on(cook, store)
    assert sorted(left) == ["agent", "model", "model call", "reasoning"]
    assert "word" in (await texts(cook))[1]


# on_agent.


async def test_a_middleware_may_answer_in_place_of_the_turn(store: Store) -> None:
    async def answer(ctx: Any, request: AgentRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        said = Message("assistant", [{"type": "text", "text": f"No {request.messages[0].text} today."}])
        yield AgentEvent("AGENT_RESULT", said.id, message=said)

    cook = agent(store, [], Agent(answer))

    assert (await cook.call("soup", ALICE)).text == "No soup today."
    assert await texts(cook) == []
    await goes_on(cook, store)


async def test_a_middleware_may_change_the_reply_that_the_caller_gets(store: Store) -> None:
    async def loud(ctx: Any, request: AgentRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        async for event in call_next(request):
            if event.type == "AGENT_RESULT":
                said = Message("assistant", [{"type": "text", "text": event.message.text.upper()}])
                event = AgentEvent("AGENT_RESULT", said.id, message=said)
            yield event

    cook = agent(store, ["Hello."], Agent(loud))

    assert (await cook.call("Hi", ALICE)).text == "HELLO."
    assert await texts(cook) == ["Hi", "Hello."]


async def test_a_turn_without_a_result_is_an_error(store: Store) -> None:
    async def nothing(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        for event in ():
            yield event

    async def half(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        async for event in call_next(request):
            if event.type != "AGENT_RESULT":
                yield event

    async def not_a_stream(ctx: Any, request: Any, call_next: Any) -> None:
        async for _ in call_next(request):
            pass

    for around, why in ((nothing, "no AGENT_RESULT"), (half, "no AGENT_RESULT"), (not_a_stream, "returned a NoneType")):
        cook = agent(store, ["Hello."], Agent(around))
        with pytest.raises(ConfigurationError, match=why):
            await cook.call("Hi", ALICE)
        await goes_on(cook, store)


async def test_a_turn_runs_once(store: Store) -> None:
    async def twice(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        for _ in range(2):
            async for event in call_next(request):
                yield event

    cook = agent(store, ["Hello.", "Hello again."], Agent(twice))

    with pytest.raises(ConfigurationError, match="called call_next twice: a turn runs once"):
        await cook.call("Hi", ALICE)
    assert await texts(cook) == ["Hi", "Hello."]
    await goes_on(cook, store)


async def test_errors_travel_outwards_and_may_be_caught(store: Store) -> None:
    caught: list[str] = []

    async def catching(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        try:
            async for event in call_next(request):
                yield event
        except ModelError as error:
            caught.append(str(error))
            said = Message("assistant", [{"type": "text", "text": "Sorry."}])
            yield AgentEvent("AGENT_RESULT", said.id, message=said)

    def raising(ctx: Any, request: Any, call_next: Any) -> Any:
        raise ValueError("not like this")

    cook = agent(store, [ModelError("no power")], Agent(catching), Noted("a", []))
    assert (await cook.call("Hi", ALICE)).text == "Sorry."
    assert caught == ["the model failed: no power"]

    for kind in (Agent, Reasoning, Model, Acting):
        with pytest.raises(ValueError, match="not like this"):
            await agent(store, [[ADD], "Three."], Noted("a", []), kind(raising)).call("Add.", ALICE)
        await goes_on(cook, store)


async def test_a_cancellation_that_a_middleware_keeps_to_itself_is_raised(store: Store) -> None:
    asked = asyncio.Event()

    async def think(_: ModelRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "late"

    async def swallowing(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        try:
            async for event in call_next(request):
                yield event
        except asyncio.CancelledError:
            pass

    cook = agent(store, think, Agent(swallowing))
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await asked.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    await goes_on(cook, store)


# The system prompt.


async def test_the_prompt_passes_the_middlewares_in_their_order(store: Store) -> None:
    class First(Middleware):
        async def on_system_prompt(self, ctx: RuntimeContext, prompt: str) -> str:
            return f"{prompt} For {ctx.user_id}."

    class Second(Middleware):
        def on_system_prompt(self, ctx: RuntimeContext, prompt: str) -> str:
            return prompt.upper()

    cook = agent(store, ["Hi."], First(), Second(), system_prompt="Cook.")
    await cook.call("Hi", ALICE)

    assert isinstance(cook._answers.setup.model, ScriptedModel)
    assert cook._answers.setup.model.requests[0].system == "COOK. FOR ALICE."


async def test_a_prompt_that_is_not_a_text_is_an_error(store: Store) -> None:
    class Forgets(Middleware):
        def on_system_prompt(self, ctx: RuntimeContext, prompt: str) -> Any:
            _ = prompt + "!"

    cook = agent(store, ["Hi."], Forgets())

    with pytest.raises(ConfigurationError, match=r"Forgets\.on_system_prompt returned None"):
        await cook.call("Hi", ALICE)
    await goes_on(cook, store)


@pytest.mark.parametrize("wrong", [Middleware(), Middleware, None])
def test_middlewares_that_are_no_list_are_refused(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="middlewares are given as a list, not as"):
        ReActAgent("cook", ScriptedModel([]), store="memory://", middlewares=wrong)


@pytest.mark.parametrize("wrong", [Middleware, "middleware", None, object()])
async def test_what_is_not_a_middleware_is_refused_when_the_agent_is_made(store: Store, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="middlewares are objects of subclasses of Middleware"):
        agent(store, [], wrong)
