"""Middleware: what each point sees, changes, replaces, asks again and stops, and what goes wrong there."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from leafward import (
    AgentShuttingDown,
    ConfigurationError,
    Message,
    RuntimeContext,
    SessionManager,
    open_store,
    tool,
    user,
)
from leafward.engine import (
    AgentEvent,
    AgentRequest,
    Budget,
    CallNext,
    Middleware,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelUsage,
    Outcome,
    ReActAgent,
    TextDelta,
    ToolRequest,
)
from leafward.stores import Store
from leafward.testing import ScriptedModel, call

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


ADD = call("add", {"a": 1, "b": 2}, id="c1")


def agent(store: Store, script: Any, *middlewares: Middleware, **options: Any) -> ReActAgent:
    return ReActAgent(
        "cook", ScriptedModel(script), store=store, middlewares=middlewares, **{"tools": [add], **options}
    )


def reason(reply: Message) -> str | None:
    return (reply.metadata or {}).get("agentscope_generate_reason")


async def texts(of: ReActAgent) -> list[str]:
    return [message.text for message in await of.session("alice", "s1").get_raw_history()]


async def goes_on(of: ReActAgent, store: Store) -> None:
    """Check that the session takes another call, of an agent without middleware."""
    reply = await ReActAgent("cook", ScriptedModel(["Still here."]), store=store, tools=[add]).call("And?", ALICE)
    assert reply.text == "Still here."


class Noted(Middleware):
    """Passes everything on at all points, and notes what it was called for."""

    def __init__(self, name: str, notes: list[str]) -> None:
        self.name = name
        self.notes = notes

    async def _around(self, point: str, request: Any, call_next: CallNext[Any, Any]) -> AsyncGenerator[Any]:
        self.notes.append(f"{self.name} {point} in")
        async for event in call_next(request):
            yield event
        self.notes.append(f"{self.name} {point} out")

    def on_agent(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("agent", request, call_next)

    def on_reasoning(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("reasoning", request, call_next)

    def on_model_call(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("model", request, call_next)

    def on_acting(self, ctx: Any, request: Any, call_next: Any) -> Any:
        return self._around("acting", request, call_next)

    def on_system_prompt(self, ctx: Any, prompt: str) -> str:
        return f"{prompt} {self.name}"


class Agent(Middleware):
    """A middleware whose `on_agent` is a function."""

    def __init__(self, around: Any) -> None:
        self.on_agent = around


class Reasoning(Middleware):
    def __init__(self, around: Any) -> None:
        self.on_reasoning = around


class Model(Middleware):
    def __init__(self, around: Any) -> None:
        self.on_model_call = around


class Acting(Middleware):
    def __init__(self, around: Any) -> None:
        self.on_acting = around


async def test_the_first_middleware_is_the_outermost_at_every_point(store: Store) -> None:
    notes: list[str] = []
    cook = agent(store, [[ADD], "Three."], Noted("a", notes), Noted("b", notes), system_prompt="Cook.")

    reply = await cook.call("Add.", ALICE)

    a_round = [f"{n} {p} {d}" for d, ps in (("in", ("reasoning", "model")), ("out", ())) for p in ps for n in "ab"]
    a_round += [f"{n} {p} out" for p in ("model", "reasoning") for n in "ba"]
    acting = ["a acting in", "b acting in", "b acting out", "a acting out"]
    assert notes == ["a agent in", "b agent in", *a_round, *acting, *a_round, "b agent out", "a agent out"]
    assert reply.text == "Three."
    assert isinstance(cook._setup.model, ScriptedModel)
    assert [request.system for request in cook._setup.model.requests] == ["Cook. a b"] * 2


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
    layers = cook._layers
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
    assert isinstance(cook._setup.model, ScriptedModel)
    assert [request.system for request in cook._setup.model.requests] == ["", "Be polite."]


async def test_asking_again_is_bounded_by_the_budget(store: Store) -> None:
    async def stubborn(ctx: Any, request: ModelRequest, call_next: Any) -> AsyncGenerator[AgentEvent]:
        while True:
            async for event in call_next(request):
                yield event

    cook = agent(store, lambda _: ["No.", ModelUsage(10, 5)], Reasoning(stubborn), budget=Budget(tokens=40, per="turn"))

    with pytest.raises(Exception, match="budget"):
        await cook.call("Hi", ALICE)
    assert isinstance(cook._setup.model, ScriptedModel)
    assert len(cook._setup.model.requests) == 3
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
    assert isinstance(cook._setup.model, ScriptedModel)
    (asked,) = cook._setup.model.requests
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
    assert isinstance(cook._setup.model, ScriptedModel)
    (result,) = cook._setup.model.requests[1].messages[-1].parts
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

    assert isinstance(cook._setup.model, ScriptedModel)
    results = [message.parts[0] for message in cook._setup.model.requests[1].messages if message.role == "tool"]
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
    assert isinstance(cook._setup.model, ScriptedModel)
    (result,) = cook._setup.model.requests[1].messages[-1].parts
    assert result["state"] == "error"
    assert "JSON" in result["output"][0]["text"]


# Stops.


class Waits(Middleware):
    """Waits at one place, until the turn is stopped."""

    def __init__(self, point: str, when: str) -> None:
        self.waiting = asyncio.Event()
        self.point = point
        self.when = when
        self.swallows = False
        setattr(self, point, self._around)

    async def _around(self, ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        if self.when == "before":
            await self._wait()
        async for event in call_next(request):
            if self.when == "during":
                self.when = "done"
                await self._wait()
            yield event
        if self.when == "after":
            await self._wait()

    async def _wait(self) -> None:
        self.waiting.set()
        await asyncio.sleep(60)


STREAMS = ("on_agent", "on_reasoning", "on_model_call")


@pytest.mark.parametrize("when", ["before", "during", "after"])
@pytest.mark.parametrize("point", STREAMS)
async def test_an_interrupt_ends_the_wait_of_a_middleware(store: Store, point: str, when: str) -> None:
    waits = Waits(point, when)
    cook = agent(store, [["Half ", "a thought."]], Noted("a", []), waits, Noted("b", []))
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await waits.waiting.wait()

    if point == "on_agent" and when == "after":
        # The reply is stored and passed on: there is no turn any more.
        assert not await cook.interrupt("alice", "s1", "stop")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await texts(cook) == ["Hi", "Half \na thought."]
    else:
        assert await cook.interrupt("alice", "s1", "stop")
        async with asyncio.timeout(5):
            assert reason(await task) == "INTERRUPTED"
        assert (await texts(cook))[-1] == "stop"
    await goes_on(cook, store)


@pytest.mark.parametrize("when", ["before", "during"])
@pytest.mark.parametrize("point", STREAMS)
async def test_a_shutdown_ends_the_wait_of_a_middleware_and_another_agent_goes_on(
    store: Store, point: str, when: str
) -> None:
    waits = Waits(point, when)
    cook = agent(store, [["Half ", "a thought."]], waits)
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await waits.waiting.wait()

    async with asyncio.timeout(5):
        assert await cook.shutdown(timeout=1)
    with pytest.raises(AgentShuttingDown):
        await task
    assert (await agent(store, ["Whole."]).call("Hi", ALICE)).text == "Whole."
    assert (await texts(agent(store, []))).count("Hi") == 1


async def test_an_interrupt_reaches_a_middleware_that_waits_while_the_reader_has_an_event(store: Store) -> None:
    async def lazy(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[AgentEvent]:
        async for event in call_next(request):
            yield event
            if event.type == "TEXT_BLOCK_DELTA":
                await asyncio.sleep(60)

    cook = agent(store, [["Half ", "a thought."]], Agent(lazy))
    reply: Message | None = None

    async with asyncio.timeout(5):
        async for event in cook.stream("Hi", ALICE):
            if event.type == "TEXT_BLOCK_DELTA":
                assert await cook.interrupt("alice", "s1")
            reply = event.message or reply

    assert reply is not None
    assert reason(reply) == "INTERRUPTED"
    await goes_on(cook, store)


async def test_a_middleware_that_catches_every_exception_does_not_hold_up_an_interrupt(store: Store) -> None:
    asked = asyncio.Event()

    async def think(_: ModelRequest) -> str:
        asked.set()
        await asyncio.sleep(60)
        return "late"

    async def stubborn(ctx: Any, request: Any, call_next: Any) -> AsyncGenerator[Any]:
        while True:
            try:
                async for event in call_next(request):
                    yield event
                return
            except Exception:
                continue

    cook = agent(store, think, Reasoning(stubborn), Model(stubborn))
    task = asyncio.create_task(cook.call("Hi", ALICE))
    await asked.wait()

    assert await cook.interrupt("alice", "s1")
    async with asyncio.timeout(5):
        assert reason(await task) == "INTERRUPTED"
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

    assert isinstance(cook._setup.model, ScriptedModel)
    assert cook._setup.model.requests[0].system == "COOK. FOR ALICE."


async def test_a_prompt_that_is_not_a_text_is_an_error(store: Store) -> None:
    class Forgets(Middleware):
        def on_system_prompt(self, ctx: RuntimeContext, prompt: str) -> Any:
            prompt + "!"

    cook = agent(store, ["Hi."], Forgets())

    with pytest.raises(ConfigurationError, match=r"Forgets\.on_system_prompt returned None"):
        await cook.call("Hi", ALICE)
    await goes_on(cook, store)


@pytest.mark.parametrize("wrong", [Middleware, "middleware", None, object()])
async def test_what_is_not_a_middleware_is_refused_when_the_agent_is_made(store: Store, wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="middlewares are objects of subclasses of Middleware"):
        agent(store, [], wrong)
