"""Middleware around the model and tools: what it changes, replaces, asks again and stops."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest

from leafward import (
    CompactionConfig,
    ConfigurationError,
    Message,
    ReActAgent,
    RuntimeContext,
    SessionManager,
    open_store,
    tool,
    user,
)
from leafward.engine import (
    AgentEvent,
    Budget,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelUsage,
    Outcome,
    TextDelta,
    ToolRequest,
)
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.surrounded import (
    ADD,
    ALICE,
    Acting,
    Model,
    Noted,
    Reasoning,
    add,
    agent,
    goes_on,
    reason,
    texts,
)


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


# on_reasoning.


async def test_asking_again_stores_one_reply_and_counts_both(store: Store) -> None:
    async def pedant(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        said = ""
        async for event in call_next(request):
            said += event.text
            yield event
        if "please" not in said:
            async for event in call_next(replace(request, system="Be polite.")):
                yield event

    used = ModelUsage(10, 5, cost=0.25)
    cook = agent(store, [["Eat.", used], ["Eat, please.", used]], Reasoning(pedant))

    events = [event async for event in cook.stream("Hi", ALICE)]

    assert await texts(cook) == ["Hi", "Eat, please."]
    ends = [event for event in events if event.type == "MODEL_CALL_END"]
    first, discarded, second = ends
    assert first.reply_id == discarded.reply_id != second.reply_id
    assert [end.discarded for end in ends] == [False, True, False]
    (info,) = await SessionManager(store, user_id="alice", agent_id="cook").list()
    assert (info.input_tokens, info.output_tokens) == (20, 10)
    assert isinstance(cook._answers.setup.model, ScriptedModel)
    assert [request.system for request in cook._answers.setup.model.requests] == ["", "Be polite."]


async def test_asking_again_is_bounded_by_the_budget(store: Store) -> None:
    async def stubborn(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        while True:
            async for event in call_next(request):
                yield event

    cook = agent(store, lambda _: ["No.", ModelUsage(10, 5)], Reasoning(stubborn), budget=Budget(tokens=40, per="turn"))

    with pytest.raises(Exception, match="budget"):
        await cook.call("Hi", ALICE)
    assert isinstance(cook._answers.setup.model, ScriptedModel)
    assert len(cook._answers.setup.model.requests) == 3
    await goes_on(cook, store)


async def test_a_middleware_may_answer_in_place_of_the_model_and_its_calls_run(store: Store) -> None:
    async def scripted(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        if request.messages[-1].role == "user":
            yield AgentEvent("MODEL_CALL_END", message=Message("assistant", [ADD]))
            return
        async for event in call_next(request):
            if event.type == "MODEL_CALL_END":
                event = AgentEvent("MODEL_CALL_END", message=Message("assistant", [{"type": "text", "text": "3!"}]))
            yield event

    cook = agent(store, ["Three."], Reasoning(scripted))

    assert (await cook.call("Add.", ALICE)).text == "3!"
    assert [message.role for message in await cook.session("alice", "s1").get_raw_history()] == [
        "user",
        "assistant",
        "tool",
        "assistant",
    ]


async def test_a_round_without_a_whole_reply_is_an_error(store: Store) -> None:
    async def nothing(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        for event in ():
            yield event

    async def half(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        async for event in call_next(request):
            yield event
            if event.type == "TEXT_BLOCK_DELTA":
                return

    async def wrong(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        yield "Hello."

    for around, why in ((nothing, "no whole reply"), (half, "no whole reply"), (wrong, "yielded a str")):
        cook = agent(store, [["Hello ", "world."]], Reasoning(around))
        with pytest.raises(ConfigurationError, match=why):
            await cook.call("Hi", ALICE)
        await goes_on(cook, store)


# on_model_call.


async def test_each_attempt_passes_the_point_and_a_retry_of_a_middleware_stores_nothing_twice(store: Store) -> None:
    attempts: list[str] = []

    async def retrying(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[ModelEvent]:
        attempts.append("attempt")
        try:
            async for event in call_next(request):
                yield event
        except ModelError as error:
            if error.temporary:
                raise
            async for event in call_next(request):
                yield event

    script = [ModelError("busy", temporary=True, retry_after=0), ModelError("odd"), "Hello."]
    cook = agent(store, script, Model(retrying))

    assert (await cook.call("Hi", ALICE)).text == "Hello."
    assert attempts == ["attempt", "attempt"]
    assert await texts(cook) == ["Hi", "Hello."]


async def test_what_a_middleware_does_with_a_request_changes_nothing_of_the_conversation(store: Store) -> None:
    async def secretive(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[ModelEvent]:
        request.messages[0].parts[0]["text"] = "***"
        async for event in call_next(replace(request, options={"temperature": 0})):
            yield TextDelta(event.text.upper()) if isinstance(event, TextDelta) else event

    cook = agent(store, ["Hello."], Model(secretive))

    assert (await cook.call("My secret", ALICE)).text == "HELLO."
    assert await texts(cook) == ["My secret", "HELLO."]
    assert isinstance(cook._answers.setup.model, ScriptedModel)
    (asked,) = cook._answers.setup.model.requests
    assert (asked.messages[0].text, asked.options) == ("***", {"temperature": 0})


async def test_what_is_not_an_event_of_a_model_is_an_error(store: Store) -> None:
    async def wrong(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        yield AgentEvent("TEXT_BLOCK_DELTA", text="Hello.")

    cook = agent(store, ["Hello."], Model(wrong))

    with pytest.raises(ModelError, match="yielded a AgentEvent"):
        await cook.call("Hi", ALICE)
    await goes_on(cook, store)


# on_acting.


async def test_a_middleware_sees_changes_and_replaces_calls_of_tools(store: Store) -> None:
    seen: list[Any] = []

    async def doubling(ctx: Any, request: ToolRequest, call_next: Any) -> AsyncGenerator[Outcome]:
        async for outcome in call_next(replace(request, arguments={**request.arguments, "b": 40})):
            seen.append((request.call_id, request.name, dict(request.arguments), outcome.text, outcome.state))
            yield Outcome([{"type": "text", "text": f"about {outcome.text}"}])

    cook = agent(store, [[ADD], "Done."], Acting(doubling))

    await cook.call("Add.", ALICE)

    assert seen == [("c1", "add", {"a": 1, "b": 2}, "41", "success")]
    assert isinstance(cook._answers.setup.model, ScriptedModel)
    (result,) = cook._answers.setup.model.requests[1].messages[-1].parts
    assert result["output"][0]["text"] == "about 41"


async def test_a_middleware_may_run_a_tool_again_or_not_at_all(store: Store) -> None:
    runs = 0

    @tool
    async def flaky() -> str:
        """Fail at first."""
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ValueError("not yet")
        return "fine"

    async def again(ctx: Any, request: ToolRequest, call_next: Any) -> AsyncGenerator[Outcome]:
        async for outcome in call_next(request):
            if outcome.state == "error":
                async for second in call_next(request):
                    outcome = second
            yield outcome

    async def not_add(ctx: Any, request: ToolRequest, call_next: Any) -> AsyncGenerator[Outcome]:
        if request.name == "add":
            yield Outcome([{"type": "text", "text": "out of numbers"}], "error")
            return
        async for outcome in call_next(request):
            yield outcome

    script = [[call("flaky", {}, id="c1"), call("add", {"a": 1, "b": 1}, id="c2")], "Done."]
    cook = agent(store, script, Acting(again), Acting(not_add), tools=[flaky, add])

    await cook.call("Go.", ALICE)

    assert isinstance(cook._answers.setup.model, ScriptedModel)
    results = [message.parts[0] for message in cook._answers.setup.model.requests[1].messages if message.role == "tool"]
    shown = [(part["id"], part["state"], part["output"][0]["text"]) for part in results]
    assert shown == [("c1", "success", "fine"), ("c2", "error", "out of numbers")]
    assert runs == 2


async def test_a_call_stays_one_of_the_tool_that_was_allowed(store: Store) -> None:
    def other(ctx: Any, request: ToolRequest, call_next: Any) -> Any:
        return call_next(replace(request, name="rm"))

    ran: list[str] = []

    @tool
    def rm() -> None:
        """Remove everything."""
        ran.append("rm")

    cook = agent(store, [[ADD], "Done."], Acting(other), tools=[add, rm])

    with pytest.raises(ConfigurationError, match="was changed into 'c1' of 'rm'"):
        await cook.call("Add.", ALICE)
    assert ran == []
    await goes_on(cook, store)


async def test_a_denied_call_never_reaches_a_middleware(store: Store) -> None:
    seen: list[str] = []

    def look(ctx: Any, request: ToolRequest, call_next: Any) -> Any:
        seen.append(request.call_id)
        return call_next(request)

    @tool(check=lambda arguments, ctx: "deny" if arguments["dish"] == "poison" else "ask")
    async def serve(dish: str) -> str:
        """Serve a dish."""
        return f"{dish} is served"

    script = [[call("serve", {"dish": "soup"}, id="c1"), call("serve", {"dish": "poison"}, id="c2")], "Done."]
    cook = agent(store, script, Acting(look), tools=[serve])

    assert reason(await cook.call("Serve.", ALICE)) == "PERMISSION_ASKING"
    assert seen == []
    assert (await cook.answer("alice", "s1", {"c1": True})).text == "Done."
    assert seen == ["c1"]


async def test_a_tool_without_an_outcome_is_an_error(store: Store) -> None:
    async def nothing(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Outcome]:
        for outcome in ():
            yield outcome

    async def wrong(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        yield "three"

    for around, why in ((nothing, "no Outcome came out of"), (wrong, "yielded a str, not an Outcome")):
        cook = agent(store, [[ADD], "Three."], Acting(around))
        with pytest.raises(ConfigurationError, match=why):
            await cook.call("Add.", ALICE)
        await goes_on(cook, store)


async def test_arguments_that_are_not_json_are_answered_with_the_mistake(store: Store) -> None:
    from leafward.engine import BlockEnd, CallDelta

    broken = [CallDelta("", "add", "c1", 0), CallDelta('{"a": 1,', index=0), BlockEnd(0)]
    cook = agent(store, [broken, "Sorry."], Noted("a", []))

    assert (await cook.call("Add.", ALICE)).text == "Sorry."
    assert isinstance(cook._answers.setup.model, ScriptedModel)
    (result,) = cook._answers.setup.model.requests[1].messages[-1].parts
    assert result["state"] == "error"
    assert "JSON" in result["output"][0]["text"]


@pytest.mark.parametrize("others", [False, True])
async def test_the_question_for_a_summary_passes_the_middlewares_as_well(store: Store, others: bool) -> None:
    seen: list[str] = []

    async def hide(ctx: RuntimeContext, request: ModelRequest, call_next: Any) -> Any:
        seen.append(request.messages[0].text)
        async for event in call_next(replace(request, messages=[user("hidden")])):
            yield event

    model, writer = ScriptedModel(lambda _: "Reply."), ScriptedModel(lambda _: "Summary.")
    config = CompactionConfig(trigger_messages=4, keep_messages=1, model=writer if others else None)
    cook = ReActAgent("cook", model, store=store, middlewares=[Model(hide)], compaction=config)
    for text in ("One", "Two", "Three"):
        await cook.call(text, ALICE)

    asked = [*model.requests, *writer.requests]
    assert len(seen) == len(asked) == 4
    assert sum("CONVERSATION TO SUMMARIZE" in text for text in seen) == 1
    assert {request.messages[0].text for request in asked} == {"hidden"}
    assert len(writer.requests) == int(others)
