"""The pieces of a reply on their way to the reader of a stream: those after the first of a block go a shorter way."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from leafward import AgentShuttingDown, ReActAgent, RuntimeContext, open_store
from leafward.engine import AgentEvent, CallDelta, ModelError, ModelUsage, Stop, TextDelta, ThinkingDelta
from leafward.stores import Store

ALICE = RuntimeContext("alice", "s1")


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as opened:
        yield opened


class Sends:
    """A model that sends what it is given; at an event of asyncio it waits, and raises `instead` if it is cancelled."""

    def __init__(self, *sent: Any, instead: Exception | None = None) -> None:
        self._sent = sent
        self._instead = instead
        self.waits = asyncio.Event()
        self.is_closed = False

    async def stream(self, request: Any) -> AsyncGenerator[Any]:
        try:
            for one in self._sent:
                if isinstance(one, asyncio.Event):
                    self.waits.set()
                    await one.wait()
                else:
                    yield one
        except asyncio.CancelledError:
            if self._instead is not None:
                raise self._instead from None
            raise
        finally:
            self.is_closed = True


def speaker(store: Store, model: Sends) -> ReActAgent:
    return ReActAgent("speaker", model, store=store)


async def said(one: ReActAgent) -> list[str]:
    return [message.text for message in await one.session("alice", "s1").get_raw_history()]


async def read_until(events: AsyncGenerator[AgentEvent], text: str) -> AsyncGenerator[AgentEvent]:
    async for event in events:
        if event.text == text:
            break
    return events


async def test_every_piece_is_shown_in_its_order(store: Store) -> None:
    pieces = [ThinkingDelta("a"), ThinkingDelta("b"), TextDelta("c"), TextDelta(""), TextDelta("d")]
    pieces += [ModelUsage(1, 2), TextDelta("e"), TextDelta("f", 1), TextDelta("g", 2), TextDelta("h", 1)]
    pieces += [TextDelta("i", 1, {"k": 1}), TextDelta("j", 1), Stop("stop")]
    one = speaker(store, Sends(*pieces))

    shown = [event async for event in one.stream("Speak", ALICE)]

    assert "".join(event.text for event in shown if event.type.endswith("DELTA")) == "abcdefghij"
    assert [event.usage for event in shown if event.type == "MODEL_CALL_END"] == [ModelUsage(1, 2)]
    assert shown[-2].message is not None
    assert [part.get("text") for part in shown[-2].message.parts] == [None, "cde", "fhij", "g"]


async def test_arguments_of_a_call_are_shown_piece_by_piece(store: Store) -> None:
    begun = CallDelta("{", "add", "c1", 0)
    one = speaker(store, Sends(begun, CallDelta('"a"', index=0), CallDelta(":1}", index=0), asyncio.Event()))
    async with aclosing(one.stream("Speak", ALICE)) as events:
        shown = [await anext(events) for _ in range(6)]

    assert [(event.type, event.text, event.call_id, event.name) for event in shown[2:]] == [
        ("TOOL_CALL_START", "", "c1", "add"),
        *(("TOOL_CALL_DELTA", text, "c1", "add") for text in ("{", '"a"', ":1}")),
    ]


@pytest.mark.parametrize("how", ["close", "drop", "throw"])
async def test_a_stream_that_is_left_at_a_piece_keeps_what_came_until_then(store: Store, how: str) -> None:
    model = Sends(TextDelta("a"), TextDelta("b"), TextDelta("c"), TextDelta("d"))
    one = speaker(store, model)
    events = await read_until(one.stream("Speak", ALICE), "c")

    if how == "close":
        await events.aclose()
    elif how == "throw":
        with pytest.raises(ZeroDivisionError):
            await events.athrow(ZeroDivisionError())
    else:
        del events
        gc.collect()
        await asyncio.sleep(0)

    assert (await speaker(store, Sends(TextDelta("Yes."))).call("Again", ALICE)).text == "Yes."
    assert await said(one) == ["Speak", "abc", "Again", "Yes."]
    assert model.is_closed


@pytest.mark.parametrize("instead", [None, ConnectionError("closed")])
async def test_an_interrupt_ends_the_wait_for_a_piece_whichever_task_waits(
    store: Store, instead: Exception | None
) -> None:
    model = Sends(TextDelta("a"), TextDelta("b"), TextDelta("c"), asyncio.Event(), instead=instead)
    one = speaker(store, model)
    shown: list[AgentEvent] = []

    async def read() -> None:
        events = one.stream("Speak", ALICE)
        while not shown or shown[-1].type != "AGENT_END":
            # As `asyncio.wait_for` does before Python 3.12.
            shown.append(await asyncio.create_task(anext(events)))

    reading = asyncio.create_task(read())
    await model.waits.wait()

    assert await one.interrupt("alice", "s1", "stop")

    await reading
    assert shown[-2].message is not None
    assert (shown[-2].message.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    assert await said(one) == ["Speak", "abc", "stop"]


async def test_an_interrupt_while_a_piece_is_with_its_reader_stops_before_the_next(store: Store) -> None:
    model = Sends(TextDelta("a"), TextDelta("b"), TextDelta("c"), TextDelta("d"))
    one = speaker(store, model)
    events = await read_until(one.stream("Speak", ALICE), "b")
    assert await one.interrupt("alice", "s1")

    left = [event async for event in events]
    assert [event.type for event in left] == [
        "TEXT_BLOCK_END",
        "MODEL_CALL_END",
        "REQUEST_STOP",
        "AGENT_RESULT",
        "AGENT_END",
    ]
    assert left[1].stop_reason == "interrupted"
    assert await said(one) == ["Speak", "ab"]


async def test_a_stream_that_is_not_read_on_after_a_piece_is_paused(store: Store) -> None:
    one = speaker(store, Sends(TextDelta("a"), TextDelta("b"), TextDelta("c"), TextDelta("d")))
    events = await read_until(one.stream("Speak", ALICE), "c")

    assert await one.shutdown(timeout=5)

    assert await said(one) == ["Speak", "abc"]
    with pytest.raises(AgentShuttingDown):
        await anext(events)
    assert await said(one) == ["Speak", "abc"]


async def test_a_model_that_ignores_its_cancellation_is_stopped_at_its_next_piece(store: Store) -> None:
    waits = asyncio.Event()

    class Stubborn:
        async def stream(self, request: Any) -> AsyncGenerator[Any]:
            yield TextDelta("a")
            yield TextDelta("b")
            try:
                waits.set()
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield TextDelta("c")
            yield TextDelta("d")

    one = ReActAgent("speaker", Stubborn(), store=store)
    task = asyncio.create_task(one.call("Speak", ALICE))
    await waits.wait()

    assert await one.interrupt("alice", "s1")

    assert ((await task).metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
    assert not task.cancelling()
    assert await said(one) == ["Speak", "abc"]


class Response:
    """A stream that makes a new iterator each time it is asked for one, as the SDKs of providers do."""

    def __init__(self, *sent: Any) -> None:
        self._sent = iter(sent)
        self.is_closed = False

    async def __aiter__(self) -> AsyncGenerator[Any]:
        try:
            for one in self._sent:
                if self.is_closed:
                    return
                yield one
        finally:
            self.is_closed = True

    async def __anext__(self) -> Any:
        raise NotImplementedError("it is read by `async for`")


async def test_a_stream_that_makes_new_iterators_is_read_to_its_end(store: Store) -> None:
    class Answers:
        def stream(self, request: Any) -> Any:
            return Response(TextDelta("a"), ThinkingDelta("hm"), TextDelta("b"), TextDelta("c"), Stop("end"))

    agent = ReActAgent("speaker", Answers(), store=store)

    async for _ in agent.stream("Speak", ALICE):
        # What was left is closed by the event loop.
        gc.collect()
        await asyncio.sleep(0.001)

    (reply,) = (await agent.session("alice", "s1").get_raw_history())[1:]
    assert [part.get("text") or part.get("thinking") for part in reply.parts] == ["a", "hm", "bc"]


async def test_nothing_is_kept_of_an_attempt_that_failed_although_its_reader_leaves_then(store: Store) -> None:
    class Fails:
        async def stream(self, request: Any) -> AsyncGenerator[Any]:
            yield TextDelta("half of it")
            raise ModelError("overloaded", temporary=True)

    agent = ReActAgent("speaker", Fails(), store=store)

    async with aclosing(agent.stream("Speak", ALICE)) as events:
        async for event in events:
            if event.discarded:
                break

    assert await said(agent) == ["Speak"]
