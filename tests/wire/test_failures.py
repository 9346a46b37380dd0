"""Providers that fail, against the real SDKs: nothing is stored twice, nothing half, and the session goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from email.utils import formatdate
from typing import Any

import pytest

from leafward import Message, ReActAgent, RuntimeContext, SessionManager, tool, user
from leafward.engine import ModelError, ModelRequest
from leafward.stores import Store
from tests.wire.providers import ANTHROPIC, OPENAI, OURS, Provider, events_of
from tests.wire.server import Answer, Failure, Raw, Scripted, WireServer, says
from tests.wire.streams import Thought, call, text

ALICE = RuntimeContext("alice", "s1")
ASK = ModelRequest([user("How is Kyoto?")])
CALL = says(text("Ök."), call("c1", "forecast", '{"city":', '"Kyoto"}'))


class Weather:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.runs = 0

    def tool(self) -> Any:
        @tool
        async def forecast(city: str) -> str:
            """Tell the weather of a city."""
            self.runs += 1
            return f"{city}: sunny"

        return forecast


async def failed(provider: Provider, wire: WireServer, answer: Scripted, **options: Any) -> ModelError:
    wire.script[:] = [answer]
    async with provider.on(wire, **options) as model:
        with pytest.raises(ModelError) as caught:
            await events_of(model, ASK)
    assert len(wire.asked) == 1, "the SDK asked again"
    assert caught.value.__cause__ is not None
    return caught.value


def shown(messages: Sequence[Message]) -> list[Any]:
    return [(message.role, message.parts) for message in messages]


# ── streams that are cut ─────────────────────────────────────────────────────


@pytest.mark.usefixtures("no_pause")
async def test_a_stream_cut_at_any_byte_is_asked_again_and_stored_once(
    provider: Provider, wire: WireServer, store: Store
) -> None:
    weather = Weather()
    body = provider.body(CALL.said)
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[weather.tool()], retries=2)
        wire.script += [CALL, says("Sunny.")]
        await agent.call(user("How is Kyoto?"), RuntimeContext("alice", "whole"))
        expected = shown(await agent.session("alice", "whole").get_raw_history())

        # The model on Responses is one of the tests, and its streams are long.
        for cut in range(0, len(body), 1 if provider in OURS else 7):
            weather.runs = 0
            broken = (
                Answer(CALL.said, bytes_sent=cut, ending="reset"),
                Answer(CALL.said, bytes_sent=cut, ending="closed"),
            )
            # A cut after the model said why it stopped leaves a whole reply: then the next answer is another call.
            wire.script[:] = [*broken, CALL, says("Sunny.")]
            first = len(wire.asked)
            reply = await agent.call("How is Kyoto?", RuntimeContext("alice", f"cut {cut}"))
            stored = await agent.session("alice", f"cut {cut}").get_raw_history()
            assert reply.text == "Sunny.", cut
            assert wire.script == [], cut
            assert weather.runs == sum(part["type"] == "tool_use" for one in stored for part in one.parts), cut
            assert len(wire.asked) - first >= 3, cut
            assert shown(stored)[:3] == expected[:3], cut
            assert shown(stored)[-1] == expected[-1], cut


@pytest.mark.usefixtures("no_pause")
async def test_a_stream_that_is_cut_for_good_raises_and_keeps_what_was_stored_before(
    provider: Provider, wire: WireServer, store: Store
) -> None:
    weather = Weather()
    last = says("Sunny in Kyoto.")
    length = len(provider.body(last.said))
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[weather.tool()], retries=1)
        for cut in range(0, length - 60, 23):
            ctx = RuntimeContext("alice", f"cut {cut}")
            question = user("How is Kyoto?", id="q1")
            wire.script[:] = [CALL, *[Answer(last.said, bytes_sent=cut)] * 2]
            with pytest.raises(ModelError) as caught:
                await agent.call(question, ctx)
            assert caught.value.temporary
            stored = await agent.session("alice", f"cut {cut}").get_raw_history()
            assert [message.role for message in stored] == ["user", "assistant", "tool"], cut

            wire.script[:] = [last]
            assert (await agent.call(question, ctx)).text == "Sunny in Kyoto."
            stored = await agent.session("alice", f"cut {cut}").get_raw_history()
            assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"], cut
        assert weather.runs == len(range(0, length - 60, 23))


@pytest.mark.usefixtures("no_pause")
async def test_what_a_broken_attempt_used_is_not_counted(provider: Provider, wire: WireServer, store: Store) -> None:
    wire.script += [Answer(CALL.said, bytes_sent=len(provider.body(CALL.said)) - 30), says("Sunny.")]
    async with provider.on(wire) as model:
        await ReActAgent("helper", model, store=store).call("How is Kyoto?", ALICE)

    info = await SessionManager(store, user_id="alice", agent_id="helper").get("s1")
    assert info is not None
    assert (info.input_tokens, info.output_tokens) == (90, 20)


# ── errors ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_errors_that_may_pass_are_temporary(provider: Provider, wire: WireServer, status: int) -> None:
    error = await failed(provider, wire, Failure(status))

    assert (error.temporary, error.status, error.retry_after) == (True, status, None)
    assert str(error) == f"the model failed with status {status}: it failed"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
async def test_other_errors_are_not(provider: Provider, wire: WireServer, status: int) -> None:
    error = await failed(provider, wire, Failure(status))

    assert (error.temporary, error.status) == (False, status)


@pytest.mark.parametrize(
    ("headers", "wait", "temporary"),
    [
        ({"Retry-After": "2"}, 2.0, True),
        ({"Retry-After-Ms": "250", "Retry-After": "1"}, 0.25, True),
        ({"Retry-After": "soon"}, None, True),
        ({"Retry-After": "-1"}, None, True),
        ({"Retry-After": "nan"}, None, True),
        ({"Retry-After": "Thu, 01 Jan 1970 00:00:10 GMT"}, 0.0, True),
        ({"Retry-After": "3600"}, 3_600.0, False),
        ({"X-Should-Retry": "false"}, None, False),
    ],
)
async def test_a_server_says_when_to_ask_again(
    provider: Provider, wire: WireServer, headers: dict[str, str], wait: float | None, temporary: bool
) -> None:
    error = await failed(provider, wire, Failure(429, headers))

    assert (error.retry_after, error.temporary) == (wait, temporary)


async def test_a_date_is_the_time_until_then(wire: WireServer) -> None:
    error = await failed(OPENAI, wire, Failure(429, {"Retry-After": formatdate(time.time() + 30, usegmt=True)}))

    assert error.retry_after is not None
    assert 20 < error.retry_after <= 30


async def test_a_quota_that_is_used_up_does_not_pass(wire: WireServer) -> None:
    error = await failed(OPENAI, wire, Failure(429, code="insufficient_quota"))

    assert (error.temporary, error.status) == (False, 429)


@pytest.mark.usefixtures("no_pause")
async def test_a_turn_goes_on_after_temporary_errors(provider: Provider, wire: WireServer, store: Store) -> None:
    wire.script += [Failure(429, {"Retry-After": "0"}), Failure(500), CALL, Failure(503), says("Sunny.")]
    weather = Weather()
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[weather.tool()])
        assert (await agent.call("How is Kyoto?", ALICE)).text == "Sunny."

    stored = await agent.session("alice", "s1").get_raw_history()
    assert [message.role for message in stored] == ["user", "assistant", "tool", "assistant"]
    assert weather.runs == 1


@pytest.mark.parametrize(
    ("provider", "sent", "temporary", "status"),
    [
        (OPENAI, '{"error":{"message":"no","type":"server_error"}}', True, None),
        (OPENAI, '{"error":{"message":"no","code":502}}', True, 502),
        (OPENAI, '{"error":{"message":"no","type":"invalid_request_error"}}', False, 400),
        (ANTHROPIC, '{"type":"error","error":{"type":"overloaded_error","message":"no"}}', True, 529),
        (ANTHROPIC, '{"type":"error","error":{"type":"invalid_request_error","message":"no"}}', False, 400),
        (ANTHROPIC, '{"type":"error","error":{"type":"new_error","message":"no"}}', True, None),
    ],
)
async def test_an_error_within_a_stream_says_what_it_is(
    provider: Provider, sent: str, temporary: bool, status: int | None, wire: WireServer
) -> None:
    error = await failed(provider, wire, Raw(f"event: error\ndata: {sent}\n\n".encode()))

    assert (error.reason, error.temporary, error.status) == ("no", temporary, status)


@pytest.mark.parametrize("body", [b"", b"data: {\n\n", b"event: x\ndata: \xff\n\n", b"<html>busy</html>", b"\0\0"])
async def test_a_body_that_is_no_stream_of_a_model_is_a_temporary_error(
    provider: Provider, wire: WireServer, body: bytes
) -> None:
    wire.script += [Raw(body)]
    async with provider.on(wire) as model:
        with pytest.raises(ModelError) as caught:
            await events_of(model, ASK)

    assert caught.value.temporary


async def test_a_server_that_is_not_there_is_a_temporary_error(provider: Provider) -> None:
    model = provider.model("m", base_url="http://127.0.0.1:1", api_key="none")
    async with model:
        with pytest.raises(ModelError) as caught:
            await events_of(model, ASK)

    assert caught.value.temporary


async def test_a_server_that_falls_silent_is_a_temporary_error(provider: Provider, wire: WireServer) -> None:
    said = CALL.said
    error = await failed(provider, wire, Answer(said, bytes_sent=100, ending="hang"), timeout=0.2)

    assert error.temporary


async def test_an_option_that_the_sdk_does_not_know_is_its_own_error(provider: Provider, wire: WireServer) -> None:
    async with provider.on(wire, temprature=0) as model:
        with pytest.raises(TypeError, match="temprature"):
            await events_of(model, ASK)


# ── replies that are wrong ───────────────────────────────────────────────────


@pytest.mark.parametrize("arguments", ['{"city": "Ky', "[1]", "not JSON", '{"city": 5}'])
async def test_arguments_that_do_not_fit_are_answered_and_the_model_can_correct_them(
    provider: Provider, wire: WireServer, store: Store, arguments: str
) -> None:
    weather = Weather()
    wire.script += [says(call("c1", "forecast", arguments)), CALL, says("Sunny.")]
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[weather.tool()])
        assert (await agent.call("How is Kyoto?", ALICE)).text == "Sunny."

    stored = await agent.session("alice", "s1").get_raw_history()
    assert (stored[1].parts[0]["content"], stored[2].parts[0]["state"]) == (arguments, "error")
    assert weather.runs == 1


async def test_a_call_id_twice_has_two_results(provider: Provider, wire: WireServer, store: Store) -> None:
    weather = Weather()
    twice = [call("c1", "forecast", f'{{"city": "{city}"}}') for city in ("Kyoto", "Nara")]
    wire.script += [says(*twice), says("Sunny.")]
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[weather.tool()])
        assert (await agent.call("How are they?", ALICE)).text == "Sunny."

    assert weather.runs == 2
    assert "Kyoto: sunny" in str(wire.asked[1].body)
    assert "Nara: sunny" in str(wire.asked[1].body)


@pytest.mark.parametrize("arguments", [(), ('{"city":',)])
async def test_a_reply_that_stops_in_the_middle_of_a_call_runs_nothing(
    provider: Provider, wire: WireServer, store: Store, arguments: tuple[str, ...]
) -> None:
    ran: list[str] = []

    @tool
    async def forecast(city: str = "everywhere") -> None:
        """Tell the weather of a city."""
        ran.append(city)

    wire.script += [says(call("c1", "forecast", *arguments), stop=provider.cut_off), says("Once more?")]
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[forecast])
        assert (await agent.call("How is Kyoto?", ALICE)).text == "Once more?"

    assert ran == []
    assert len(wire.asked) == 2


async def test_an_interrupt_in_the_middle_of_a_call_leaves_the_connection_and_stores_no_half(
    provider: Provider, wire: WireServer, store: Store
) -> None:
    whole = provider.body(CALL.said)
    half = whole.index(b"city") + 4
    wire.script += [Answer(CALL.said, bytes_sent=half, ending="hang"), says("Good.")]
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[Weather().tool()])
        running = asyncio.create_task(agent.call("How is Kyoto?", ALICE))
        await wire.hanging.wait()
        # The text has arrived when it is shown; the interrupt may come before, and then stores less.
        assert await agent.interrupt("alice", "s1", "Stop.")
        reply = await running
        async with asyncio.timeout(10):
            await wire.left.wait()
        assert (reply.metadata or {})["agentscope_generate_reason"] == "INTERRUPTED"
        stored = await agent.session("alice", "s1").get_raw_history()
        assert not [part for message in stored for part in message.parts if part["type"] == "tool_use"]
        assert (await agent.call("Thanks.", ALICE)).text == "Good."


async def test_ten_megabytes_of_arguments_fail_the_call_and_the_session_goes_on(
    provider: Provider, wire: WireServer, store: Store
) -> None:
    piece = "x" * 1_000_000
    huge = call("c1", "forecast", '{"city": "', *[piece] * 10, '"}')
    wire.script += [says(huge), says("Sunny.")]
    async with provider.on(wire) as model:
        agent = ReActAgent("helper", model, store=store, tools=[Weather().tool()])
        with pytest.raises(ValueError, match="bytes of JSON"):
            await agent.call("How is Kyoto?", ALICE)
        assert (await agent.call("How is Nara?", ALICE)).text == "Sunny."

    stored = await agent.session("alice", "s1").get_raw_history()
    assert [message.text for message in stored] == ["How is Kyoto?", "How is Nara?", "Sunny."]


async def test_thinking_that_was_cut_off_is_not_sent_back(wire: WireServer, store: Store) -> None:
    wire.script += [says(Thought("Hm."), stop="max_tokens"), says("Sunny.")]
    async with ANTHROPIC.on(wire) as model:
        agent = ReActAgent("helper", model, store=store)
        assert (await agent.call("How is Kyoto?", ALICE)).text == "Sunny."
