"""What a model is asked, how it fails, and what a stream of events looks like on the wire."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, get_args

import msgspec
import pytest

from leafward import LeafwardError, Message, Tool, ToolSet, user
from leafward.core import errors
from leafward.engine import (
    AgentEvent,
    ChatModel,
    EventType,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelUsage,
    TextDelta,
)
from leafward.engine.models.model import open_stream


async def look(arguments: dict[str, Any]) -> str:
    return "nothing"


LOOK = Tool("look", "Look around.", {"type": "object", "properties": {}}, look)


class Echo:
    """A model that repeats the last message, and knows whether its stream was closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        try:
            for word in request.messages[-1].text.split():
                yield TextDelta(word)
        finally:
            self.closed += 1


# ── requests ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("tools", [[LOOK], (LOOK,), ToolSet([LOOK]), iter([LOOK])])
def test_the_tools_of_a_request_are_a_tool_set_whatever_was_given(tools: Any) -> None:
    request = ModelRequest([user("hi")], tools)

    assert isinstance(request.tools, ToolSet)
    assert request.tools["look"] is LOOK
    assert [one["name"] for one in request.tools.to_anthropic()] == ["look"]


def test_a_request_needs_only_messages() -> None:
    request = ModelRequest([user("hi")])

    assert (len(request.tools), request.system, request.options) == (0, "", {})


def test_a_request_is_changed_by_making_another() -> None:
    first = ModelRequest([user("hi")], [LOOK], "Be brief.", {"temperature": 0})

    second = dataclasses.replace(first, system="Be kind.")

    assert (second.messages, second.tools, second.options) == (first.messages, first.tools, first.options)
    assert (first.system, second.system) == ("Be brief.", "Be kind.")
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(first, "system", "Be rude.")  # noqa: B010  (the type checker forbids the other form)


# ── streams ──────────────────────────────────────────────────────────────────


async def test_an_async_generator_is_a_model() -> None:
    model: ChatModel = Echo()

    async with open_stream(model, ModelRequest([user("good morning")])) as stream:
        assert [event async for event in stream] == [TextDelta("good"), TextDelta("morning")]


async def test_a_stream_is_closed_when_its_reader_leaves() -> None:
    model = Echo()
    request = ModelRequest([user("good morning")])

    async with open_stream(model, request) as stream:
        assert await anext(stream) == TextDelta("good")
        assert model.closed == 0
    assert model.closed == 1

    async def leave_by_error() -> None:
        async with open_stream(model, request) as stream:
            await anext(stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await leave_by_error()
    assert model.closed == 2


async def test_a_model_may_await_before_it_returns_its_stream() -> None:
    class Connecting:
        async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            return Echo().stream(request)

    model: Any = Connecting()
    async with open_stream(model, ModelRequest([user("hello")])) as stream:
        assert [event async for event in stream] == [TextDelta("hello")]


async def test_an_iterator_that_cannot_be_closed_is_a_stream() -> None:
    class Once:
        def __init__(self) -> None:
            self.left = [TextDelta("a")]

        def __aiter__(self) -> Once:
            return self

        async def __anext__(self) -> ModelEvent:
            if not self.left:
                raise StopAsyncIteration
            return self.left.pop()

    class Model:
        def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
            return Once()

    async with open_stream(Model(), ModelRequest([])) as stream:
        assert [event async for event in stream] == [TextDelta("a")]


async def test_a_model_that_returns_its_answer_is_an_error_that_says_what_to_write() -> None:
    class Model:
        async def stream(self, request: ModelRequest) -> str:
            return "hello"

    model: Any = Model()
    with pytest.raises(ModelError, match="stream returned a str, not an async iterator"):
        async with open_stream(model, ModelRequest([])):
            pass


# ── errors ───────────────────────────────────────────────────────────────────


def test_a_model_says_whether_asking_again_may_help() -> None:
    error = ModelError("too many requests", temporary=True, status=429, retry_after=2.5)

    assert isinstance(error, LeafwardError)
    assert str(error) == "the model failed with status 429: too many requests"
    assert (error.temporary, error.status, error.retry_after) == (True, 429, 2.5)
    assert ModelError("no such model").temporary is False


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda error: pickle.loads(pickle.dumps(error))])
def test_a_models_error_can_be_sent_to_another_process(copied: Any) -> None:
    error = ModelError("the stream broke off", temporary=True, status=502)

    other = copied(error)

    assert (type(other), str(other), vars(other)) == (ModelError, str(error), vars(error))


def test_a_models_error_is_the_engines() -> None:
    assert not hasattr(errors, "ModelError")


# ── events ───────────────────────────────────────────────────────────────────


def test_an_event_says_only_what_it_has() -> None:
    assert AgentEvent("AGENT_START").to_dict() == {"type": "AGENT_START"}


def test_an_event_has_agentscopes_names_on_the_wire() -> None:
    message = Message("assistant", "Hi.", id="m1")
    usage = ModelUsage(3, 2, cached_tokens=1, cost=0.5)
    counts = {"inputTokens": 3, "outputTokens": 2, "cachedTokens": 1, "totalTokens": 5, "cost": 0.5}

    assert AgentEvent("TEXT_BLOCK_DELTA", "m1", "0", "Hi.").to_dict() == {
        "type": "TEXT_BLOCK_DELTA",
        "replyId": "m1",
        "blockId": "0",
        "delta": "Hi.",
    }
    assert AgentEvent("TOOL_RESULT_END", "m1", call_id="c1", name="look", state="error", committed=True).to_dict() == {
        "type": "TOOL_RESULT_END",
        "replyId": "m1",
        "toolCallId": "c1",
        "toolCallName": "look",
        "state": "error",
        "committed": True,
    }
    assert AgentEvent("MODEL_CALL_END", "m1", usage=usage, stop_reason="stop", discarded=True).to_dict() == {
        "type": "MODEL_CALL_END",
        "replyId": "m1",
        "finishReason": "stop",
        "discarded": True,
        "usage": counts,
    }
    assert AgentEvent("AGENT_RESULT", "m1", name="helper", message=message, data=0).to_dict() == {
        "type": "AGENT_RESULT",
        "replyId": "m1",
        "name": "helper",
        "message": message.to_dict(),
        "data": 0,
    }


def test_an_event_is_provisional_until_what_it_shows_is_stored() -> None:
    assert AgentEvent("TEXT_BLOCK_DELTA").provisional
    assert not AgentEvent("AGENT_RESULT", committed=True).provisional


def test_an_event_does_not_change() -> None:
    with pytest.raises(AttributeError):
        setattr(AgentEvent("AGENT_START"), "text", "a")  # noqa: B010  (the type checker forbids the other form)
    with pytest.raises(AttributeError):
        setattr(TextDelta("a"), "text", "b")  # noqa: B010


def test_events_can_be_sent_to_another_process_and_compared() -> None:
    event = AgentEvent("MODEL_CALL_END", "m1", usage=ModelUsage(1, 2))

    assert pickle.loads(pickle.dumps(event)) == event
    assert msgspec.structs.replace(event, discarded=True) != event


def test_the_types_of_events_are_agentscopes() -> None:
    types = get_args(EventType)

    assert len(set(types)) == len(types) == 31
    for kind in ("TEXT_BLOCK", "THINKING_BLOCK", "DATA_BLOCK", "TOOL_CALL"):
        assert {f"{kind}_START", f"{kind}_DELTA", f"{kind}_END"} <= set(types)
    assert {"TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA", "TOOL_RESULT_DATA_DELTA", "TOOL_RESULT_END"} <= set(types)
