"""A scripted model answers what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import Message, assistant, user
from leafward.engine import (
    CallDelta,
    ChatModel,
    ModelError,
    ModelEvent,
    ModelRequest,
    ModelUsage,
    Reply,
    Stop,
    TextDelta,
)
from leafward.sessions import estimate_tokens
from leafward.testing import ScriptedModel, call
from tests.engine.test_reply import PARTS, numbered


def asking(text: str = "Is there tea?") -> ModelRequest:
    return ModelRequest([user(text)])


async def ask(model: ChatModel, request: ModelRequest | None = None) -> Message:
    """Return a model's whole reply."""
    return (await collect(model, request)).message()


async def collect(model: ChatModel, request: ModelRequest | None = None) -> Reply:
    reply = Reply()
    async for event in model.stream(request or asking()):
        reply.add(event)
    reply.end()
    return reply


async def events_of(model: ChatModel) -> list[ModelEvent]:
    return [event async for event in model.stream(asking())]


async def test_replies_come_in_order() -> None:
    model = ScriptedModel(
        ["Yes.", assistant("No."), [{"type": "text", "text": "Perhaps."}], {"type": "text", "text": "Well."}]
    )

    assert [(await ask(model)).text for _ in range(4)] == ["Yes.", "No.", "Perhaps.", "Well."]


async def test_a_reply_may_mix_texts_calls_and_events() -> None:
    model = ScriptedModel([["Let me look.", call("search", {"q": "tea"}, id="c1"), TextDelta("One moment.")]])

    reply = await collect(model)

    assert reply.message().parts == [
        {"type": "text", "text": "Let me look."},
        {"type": "tool_use", "id": "c1", "name": "search", "input": {"q": "tea"}, "content": '{"q":"tea"}'},
        {"type": "text", "text": "One moment."},
    ]
    assert reply.stop_reason == "tool_calls"


@given(parts=PARTS, chunk=st.integers(1, 20))
def test_a_message_comes_back_as_it_was_scripted(parts: list[dict[str, Any]], chunk: int) -> None:
    said = Message("assistant", [{"input": {}, **part} if part["type"] == "tool_use" else part for part in parts])

    reply = asyncio.run(ask(ScriptedModel([said], chunk=chunk)))

    # In one reply each call has an id of its own.
    assert reply.parts == numbered(said.parts)


async def test_text_is_streamed_in_pieces_of_the_size_asked_for() -> None:
    events = await events_of(ScriptedModel(["abcdefgh"], chunk=3))

    assert [event.text for event in events if isinstance(event, TextDelta)] == ["abc", "def", "gh"]


async def test_a_function_is_given_the_request() -> None:
    model = ScriptedModel(lambda request: f"You said: {request.messages[-1].text}")

    assert [(await ask(model, asking(text))).text for text in ("a", "b")] == ["You said: a", "You said: b"]


async def test_a_function_may_be_async_and_stand_in_a_list() -> None:
    async def slow(request: ModelRequest) -> list[object]:
        await asyncio.sleep(0)
        return ["slow ", request.messages[-1].text]

    model = ScriptedModel([slow, ["first ", slow]])

    assert (await ask(model, asking("a"))).text == "slow \na"
    assert (await ask(model, asking("b"))).text == "first \nslow \nb"


async def test_a_reply_can_wait_for_an_event_of_the_test() -> None:
    gate = asyncio.Event()
    stream = ScriptedModel([["before", lambda _: gate.wait(), "after"]]).stream(asking())
    assert await anext(stream) == TextDelta("before", 0)
    await anext(stream)

    waiting = asyncio.ensure_future(anext(stream))  # pyright: ignore[reportArgumentType]
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.set()

    assert await waiting == TextDelta("after", 1)


@pytest.mark.parametrize("error", [ModelError("busy", temporary=True), TimeoutError, ConnectionError("gone")])
async def test_an_error_is_raised(error: Any) -> None:
    with pytest.raises(error if isinstance(error, type) else type(error)) as raised:
        await ask(ScriptedModel([error]))

    assert raised.value is error or raised.type is error


async def test_a_stream_can_break_off_in_the_middle() -> None:
    model = ScriptedModel([["Hel", ModelError("the stream broke off", temporary=True)], "Hello."])
    reply = Reply()

    async def read() -> None:
        async for event in model.stream(asking()):
            reply.add(event)

    with pytest.raises(ModelError, match="broke off"):
        await read()
    partial = reply.partial()
    assert partial is not None
    assert partial.text == "Hel"
    assert (await ask(model)).text == "Hello."


async def test_the_requests_are_kept_as_they_were_when_they_were_made() -> None:
    model = ScriptedModel(["a", "b"])
    messages = [user("one")]
    request = ModelRequest(messages, system="Be brief.")

    await ask(model, request)
    messages.append(user("two"))
    await ask(model, request)

    assert [[message.text for message in asked.messages] for asked in model.requests] == [["one"], ["one", "two"]]
    assert [asked.system for asked in model.requests] == ["Be brief.", "Be brief."]


async def test_a_script_that_is_used_up_says_so() -> None:
    model = ScriptedModel(["Yes."])
    await ask(model)

    with pytest.raises(AssertionError, match="the script has 1 replies, and the model was asked 2 times") as raised:
        await ask(model, asking("And coffee?"))

    assert "And coffee?" in str(raised.value)


async def test_usage_is_estimated_where_none_is_given() -> None:
    request = ModelRequest([user("Is there tea?")], system="Be brief.")

    reply = await collect(ScriptedModel(["Yes, there is."]), request)

    asked = estimate_tokens("Is there tea?") + 4 + estimate_tokens("Be brief.")
    assert reply.usage == ModelUsage(asked, estimate_tokens("Yes, there is."))


async def test_usage_can_be_given() -> None:
    usage = {"inputTokens": 7, "outputTokens": 8, "cachedTokens": 1, "totalTokens": 15}
    model = ScriptedModel(
        ["a", ["b", ModelUsage(3, 4)], Message("assistant", "c", usage=usage)], usage=ModelUsage(1, 2)
    )

    assert [(await collect(model)).usage for _ in range(3)] == [ModelUsage(1, 2), ModelUsage(3, 4), ModelUsage(7, 8, 1)]


async def test_the_stop_reason_can_be_given() -> None:
    model = ScriptedModel(["a", ["a", Stop("length")]])

    assert [(await collect(model)).stop_reason for _ in range(2)] == ["stop", "length"]


async def test_an_empty_reply_is_empty() -> None:
    model = ScriptedModel([None, [], ""])

    assert [(await collect(model)).is_empty for _ in range(3)] == [True, True, True]


async def test_a_call_may_have_arguments_that_are_not_json() -> None:
    message = await ask(ScriptedModel([[call("search", '{"q": "te', id="c1")]]))

    assert message.parts == [
        {"type": "tool_use", "id": "c1", "name": "search", "input": '{"q": "te', "content": '{"q": "te'}
    ]


async def test_a_call_without_an_id_gets_one() -> None:
    events = await events_of(ScriptedModel([[call("search"), call("search")]]))

    ids = {event.id for event in events if isinstance(event, CallDelta) and event.name}
    assert len(ids) == 2
    assert "" not in ids


@pytest.mark.parametrize(
    ("wrong", "what"),
    [(lambda: ScriptedModel("Hi"), "a list of replies"), (lambda: ScriptedModel([], chunk=0), "chunk")],
)
def test_a_wrong_script_is_refused_when_it_is_made(wrong: Any, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        wrong()


async def test_a_reply_that_is_none_of_these_is_refused() -> None:
    bad: Any = [5]
    with pytest.raises(AssertionError, match="a scripted reply is a text, a message, parts, events or an error, not 5"):
        await ask(ScriptedModel(bad))


def test_a_scripted_model_does_not_need_pytest() -> None:
    program = "from leafward.testing import ScriptedModel, call\nimport sys\nsys.exit('pytest' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
