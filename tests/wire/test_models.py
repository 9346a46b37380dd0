"""Models on the real SDKs against a server of ours: whole turns, what is sent and read, and how they are set up."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import weakref
from pathlib import Path
from typing import Any, cast

import anthropic
import openai
import pytest

from leafward import ConfigurationError, ReActAgent, RuntimeContext, open_store, tool, user
from leafward.engine import (
    AnthropicModel,
    CallDelta,
    ModelRequest,
    ModelUsage,
    OpenAIChatModel,
    Reply,
    Stop,
    TextDelta,
    ThinkingDelta,
    WholePart,
)
from leafward.stores import Store
from tests.wire.providers import ANTHROPIC, OPENAI, OURS, Provider, events_of
from tests.wire.server import Raw, WireServer, says, wire_server
from tests.wire.streams import Thought, call, text

ALICE = RuntimeContext("alice", "s1")
ASK = ModelRequest([user("How is Kyoto?")])


@pytest.fixture(params=OURS, ids=lambda one: one.name)
def provider(request: pytest.FixtureRequest) -> Provider:
    return request.param


@tool(read_only=True)
async def forecast(city: str) -> str:
    """Tell the weather of a city."""
    return f"{city}: sunny"


async def reply_of(model: Any, request: ModelRequest = ASK) -> Reply:
    reply = Reply()
    async for event in model.stream(request):
        reply.add(event)
    return reply


# ── a turn ───────────────────────────────────────────────────────────────────


async def test_a_turn_with_tools_is_stored_and_goes_on_in_another_process(
    provider: Provider, wire: WireServer, tmp_path: Path
) -> None:
    first = call("c1", "forecast", '{"city":', ' "Kyoto"}')
    second = call("c2", "forecast", '{"city": "Nara"}')
    wire.script += [
        says(Thought("Two cities."), text("Let me ", "look."), first, second),
        says(text("Sunny", " in both.")),
        says("Still sunny."),
    ]
    for question in ("How are Kyoto and Nara?", "And now?"):
        async with (
            open_store(f"sqlite:///{tmp_path}/agent.db") as store,
            provider.on(wire, price=(2.0, 8.0)) as model,
            ReActAgent("helper", model, store=store, tools=[forecast], system_prompt="Be brief.") as agent,
        ):
            await agent.call(question, ALICE)
            stored = await agent.session("alice", "s1").get_history()

    assert [message.role for message in stored] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    assert [part["type"] for part in stored[1].parts] == ["thinking", "text", "tool_use", "tool_use"]
    assert [part["input"] for part in stored[1].parts[2:]] == [{"city": "Kyoto"}, {"city": "Nara"}]
    assert [message.text for message in (stored[1], stored[4], stored[6])] == [
        "Let me look.",
        "Sunny in both.",
        "Still sunny.",
    ]
    cost = pytest.approx((90 * 2 + 20 * 8) / 1e6)
    counted = {"inputTokens": 90, "outputTokens": 20, "cachedTokens": 64, "totalTokens": 110, "cost": cost}
    assert [stored[place].extra["usage"] for place in (1, 4, 6)] == [counted] * 3
    # Each request grows at its end only, so that a provider's cache helps.
    assert len(wire.asked) == 3
    requests = [asked.body["messages"] for asked in wire.asked]
    assert requests[2][: len(requests[1])] == requests[1]
    assert requests[1][: len(requests[0])] == requests[0]
    assert "Be brief." in str(wire.asked[2].body)


async def test_thinking_goes_back_with_its_signature(wire: WireServer, store: Store) -> None:
    wire.script += [says(Thought("Hm.", "c2ln"), call("c1", "forecast", '{"city": "Kyoto"}')), says("Sunny.")]
    async with ANTHROPIC.on(wire) as model:
        await ReActAgent("helper", model, store=store, tools=[forecast]).call("How is Kyoto?", ALICE)

    sent = wire.asked[1].body["messages"][1]["content"]
    assert sent[0] == {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    assert sent[1]["name"] == "forecast"


async def test_reasoning_goes_back_in_the_field_that_it_came_in(wire: WireServer, store: Store) -> None:
    wire.script += [says(Thought("Hm."), call("c1", "forecast", '{"city": "Kyoto"}')), says("Sunny.")]
    async with OPENAI.on(wire) as model:
        await ReActAgent("helper", model, store=store, tools=[forecast]).call("How is Kyoto?", ALICE)

    assert wire.asked[1].body["messages"][1]["reasoning_content"] == "Hm."


async def test_a_turn_that_used_all_its_steps_sums_up_without_tools(
    provider: Provider, wire: WireServer, store: Store
) -> None:
    wire.script += [says(call("c1", "forecast", '{"city": "Kyoto"}')), says("I have seen Kyoto.")]
    choice: Any = "auto" if provider is OPENAI else {"type": "auto"}
    async with provider.on(wire, tool_choice=choice) as model:
        agent = ReActAgent("helper", model, store=store, tools=[forecast], max_iterations=1)
        assert (await agent.call("How is Kyoto?", ALICE)).text == "I have seen Kyoto."

    last = wire.asked[1].body
    if provider is OPENAI:
        assert not {"tools", "tool_choice"} & last.keys()
    else:
        assert (last["tools"][0]["name"], last["tool_choice"]) == ("forecast", {"type": "none"})


# ── what is sent ─────────────────────────────────────────────────────────────


async def test_options_are_passed_on_and_those_of_a_request_win(provider: Provider, wire: WireServer) -> None:
    wire.script += [says("Hi.")]
    async with provider.on(wire, max_tokens=100, metadata={"user_id": "u1"}) as model:
        await reply_of(model, ModelRequest([user("Hi")], options={"max_tokens": 50}))

    body = wire.asked[0].body
    assert (body["max_tokens"], body["metadata"], body["model"]) == (50, {"user_id": "u1"}, "m")


async def test_a_server_that_refuses_to_count_is_not_asked_to(wire: WireServer) -> None:
    wire.script += [says("Hi.")]
    async with OPENAI.on(wire, stream_options=None) as model:
        await reply_of(model)

    assert "stream_options" not in wire.asked[0].body


async def test_a_model_without_a_price_has_no_cost(provider: Provider, wire: WireServer) -> None:
    wire.script += [says("Hi.")]
    async with provider.on(wire) as model:
        reply = await reply_of(model)

    assert reply.usage == ModelUsage(90, 20, 64, None)


# ── what is read ─────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("provider", "theirs", "ours"),
    [
        *((OPENAI, *pair) for pair in (("length", "length"), ("content_filter", "filtered"), ("odd", "odd"))),
        # The old form of a call is not read, so it is not reported as a call.
        (OPENAI, "function_call", "function_call"),
        (ANTHROPIC, "max_tokens", "length"),
        (ANTHROPIC, "stop_sequence", "stop"),
        (ANTHROPIC, "refusal", "filtered"),
        (ANTHROPIC, "pause_turn", "paused"),
        (ANTHROPIC, "odd", "odd"),
    ],
)
async def test_the_reason_to_stop_has_our_word(provider: Provider, theirs: str, ours: str, wire: WireServer) -> None:
    wire.script += [says("Hm.", stop=theirs)]
    async with provider.on(wire) as model:
        assert (await events_of(model, ASK)).count(Stop(ours)) == 1


async def test_a_refusal_is_a_part(wire: WireServer) -> None:
    body = (
        b'data: {"choices":[{"index":0,"delta":{"refusal":"I ca"}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{"refusal":"nnot."}}]}\n\n'
        b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    wire.script += [Raw(body)]
    async with OPENAI.on(wire) as model:
        (part,) = (await reply_of(model)).message().parts

    assert (part["type"], part["refusal"]) == ("refusal", "I cannot.")


async def test_a_piece_that_is_null_does_not_end_the_stream(wire: WireServer) -> None:
    body = (
        b'data: {"choices":[{"index":0,"delta":{"content":"Sun"}}]}\n\n'
        b"data: null\n\n"
        b'data: {"choices":[{"index":0,"delta":{"content":"ny."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    wire.script += [Raw(body)]
    async with OPENAI.on(wire) as model:
        assert (await reply_of(model)).message().text == "Sunny."


async def test_a_signature_on_a_call_is_kept_with_it(wire: WireServer) -> None:
    signed = b'{"index":0,"id":"c1","function":{"name":"f","arguments":"{}"},"extra_content":{"g":{"s":"x"}}}'
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\ndata: [DONE]\n\n'
    wire.script += [Raw(b'data: {"choices":[{"index":0,"delta":{"tool_calls":[' + signed + b"]}}]}\n\n" + end)]
    wire.script += [says("Done.")]
    async with OPENAI.on(wire) as model:
        said = (await reply_of(model)).message()
        await reply_of(model, ModelRequest([user("Hi"), said]))

    assert wire.asked[1].body["messages"][1]["tool_calls"][0]["extra_content"] == {"g": {"s": "x"}}


async def test_blocks_that_only_anthropic_reads_are_whole_parts(wire: WireServer) -> None:
    def event(kind: str, fields: str) -> bytes:
        return f'event: {kind}\ndata: {{"type":"{kind}",{fields}}}\n\n'.encode()

    usage = '"usage":{"input_tokens":1,"output_tokens":1}'
    citation = '{"type":"char_location","cited_text":"tea","document_index":0}'
    body = [
        event("message_start", f'"message":{{"id":"m","role":"assistant","content":[],{usage}}}'),
        event("content_block_start", '"index":0,"content_block":{"type":"redacted_thinking","data":"aGlk"}'),
        event("content_block_stop", '"index":0'),
        event(
            "content_block_start",
            '"index":1,"content_block":{"type":"server_tool_use","id":"s1","name":"web_search","input":{}}',
        ),
        event("content_block_delta", '"index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"query\\":"}'),
        event("content_block_delta", '"index":1,"delta":{"type":"input_json_delta","partial_json":"\\"tea\\"}"}'),
        event("content_block_stop", '"index":1'),
        event("content_block_start", '"index":2,"content_block":{"type":"text","text":""}'),
        event("content_block_delta", '"index":2,"delta":{"type":"text_delta","text":"Tea."}'),
        event("content_block_delta", f'"index":2,"delta":{{"type":"citations_delta","citation":{citation}}}'),
        event("content_block_stop", '"index":2'),
        event("message_delta", '"delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}'),
        event("message_stop", '"x":1'),
    ]
    wire.script += [Raw(b"".join(body))]
    async with ANTHROPIC.on(wire) as model:
        events = await events_of(model, ASK)

    searched = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "tea"}}
    assert [event.part for event in events if isinstance(event, WholePart)] == [
        {"type": "redacted_thinking", "data": "aGlk"},
        searched,
    ]
    cited = [event.fields for event in events if isinstance(event, TextDelta) and event.fields]
    assert cited == [{"citations": [{"type": "char_location", "cited_text": "tea", "document_index": 0}]}]
    assert not [event for event in events if isinstance(event, (CallDelta, ThinkingDelta))]


# ── how a model is set up ────────────────────────────────────────────────────


@pytest.mark.parametrize("provider_name", ["openai", "anthropic"])
def test_a_missing_sdk_names_what_to_install(provider_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, provider_name, None)
    model = OpenAIChatModel if provider_name == "openai" else AnthropicModel

    with pytest.raises(ConfigurationError, match=rf"pip install 'leafward\[{provider_name}\]'"):
        model("m")


def test_a_missing_key_is_found_where_the_model_is_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    with pytest.raises(ConfigurationError, match=r"no key for 'gpt-4\.1': set OPENAI_API_KEY"):
        OpenAIChatModel("gpt-4.1")


@pytest.fixture
def no_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take away every key of Anthropic's that this machine may have."""
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.usefixtures("no_key")
def test_a_missing_key_of_anthropic_is_found_where_the_model_is_set_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="no key for 'claude': set ANTHROPIC_API_KEY, or give api_key="):
        AnthropicModel("claude")

    # A directory of profiles without one.
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"no key for 'claude': .*default\.json"):
        AnthropicModel("claude")


@pytest.mark.usefixtures("no_key")
@pytest.mark.parametrize("way", ["ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_CUSTOM_HEADERS", "a profile", "extra_headers"])
def test_every_way_to_give_a_key_of_anthropic_is_taken(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if way == "extra_headers":
        AnthropicModel("claude", extra_headers={"X-Api-Key": "k"})
        return
    if way == "a profile":
        monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path))
        (tmp_path / "configs").mkdir()
        profile = {"authentication": {"type": "user_oauth", "client_id": "c"}}
        (tmp_path / "configs" / "default.json").write_text(json.dumps(profile))
    else:
        monkeypatch.setenv(way, "authorization: Bearer t")
    AnthropicModel("claude")


@pytest.mark.parametrize("price", [(1,), (1, 2, 3), (-1, 2), (float("nan"), 1), ("1", "2"), 3, (True, 1)])
def test_a_price_is_two_numbers(price: Any) -> None:
    with pytest.raises(ConfigurationError, match="price= is"):
        OpenAIChatModel("m", api_key="none", price=price)


async def test_a_client_that_was_given_is_used_and_stays_open(provider: Provider, wire: WireServer) -> None:
    wire.script += [says("Hi."), says("Hi again.")]
    clients = {"openai": openai.AsyncOpenAI, "anthropic": anthropic.AsyncAnthropic}
    headers = {"X-Mine": "yes"}
    async with clients[provider.name](
        base_url=wire.url + provider.path, api_key="none", default_headers=headers
    ) as client:
        for _ in range(2):
            async with provider.model("m", client=client) as model:  # pyright: ignore[reportArgumentType]
                await reply_of(model)
        assert client.max_retries == 2
    assert [asked.headers["x-mine"] for asked in wire.asked] == ["yes", "yes"]


def test_a_client_of_another_kind_and_options_of_a_client_are_refused() -> None:
    wrong: dict[str, Any] = {
        "a sync one": openai.OpenAI(api_key="none"),
        "of another SDK": anthropic.AsyncAnthropic(api_key="none"),
        "the class": openai.AsyncOpenAI,
        "a text": "https://example.org",
    }
    for client in wrong.values():
        with pytest.raises(ConfigurationError, match=r"client= is an AsyncOpenAI\(…\), not "):
            OpenAIChatModel("m", client=client)
    with pytest.raises(ConfigurationError, match=r"client= is an AsyncAnthropic\(…\), not "):
        AnthropicModel("m", client=cast(Any, openai.AsyncOpenAI(api_key="none")))
    with pytest.raises(ConfigurationError, match="base_url and api_key belong to the client"):
        OpenAIChatModel("m", client=openai.AsyncOpenAI(api_key="none"), base_url="http://x", api_key="k")


def test_clients_of_anthropics_models_in_a_cloud_are_taken() -> None:
    sdk: Any = anthropic

    AnthropicModel("m", client=sdk.AsyncAnthropicVertex(region="global", project_id="p", access_token="t"))


def test_a_model_serves_one_event_loop_after_another(provider: Provider) -> None:
    model = provider.model("m", base_url="http://unused", api_key="none")

    async def ask() -> str:
        async with wire_server() as wire:
            wire.script += [says("Hi.")]
            client = model._client()
            client.base_url = wire.url + provider.path
            async with model:
                return (await reply_of(model)).message().text

    assert [asyncio.run(ask()) for _ in range(3)] == ["Hi."] * 3


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_event_loops_that_have_ended_are_freed_with_their_connections(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    model = provider.model("m", base_url="http://unused", api_key="none")
    loops: list[weakref.ref[asyncio.AbstractEventLoop]] = []

    async def ask(*, closes: bool) -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with wire_server() as wire:
            wire.script += [says("Hi.")]
            model._client().base_url = wire.url + provider.path
            await reply_of(model)
            gc.collect()
            if closes:
                await model.close()

    for number in range(4):
        asyncio.run(ask(closes=number == 3))
    gc.collect()

    assert [loop() for loop in loops] == [None] * 4
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


async def test_anthropic_goes_on_with_a_search_on_which_it_paused(wire: WireServer, store: Store) -> None:
    paused = [
        {
            "type": "message_start",
            "message": {
                "id": "m1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 10, "output_tokens": 1},
            },
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"query": "tea"}'},
        },
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "pause_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]
    body = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in paused)
    wire.script = [Raw(body.encode()), says("There is tea.")]
    async with ANTHROPIC.on(wire) as model:
        agent = ReActAgent("helper", model, store=store)
        assert (await agent.call("Is there tea?", ALICE)).text == "There is tea."

    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
    assert wire.asked[1].body["messages"][1:] == [{"role": "assistant", "content": [search]}]
