"""Streams of OpenAI and Anthropic fit the events of a model: the reply is what `leafward.formats` reads of a whole one.

Each function below is a sketch of what an adapter does, without a network and without errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from leafward.core.provider_extras import ORIGIN
from leafward.engine import (
    BlockEnd,
    CallDelta,
    ModelEvent,
    ModelUsage,
    Reply,
    Stop,
    TextDelta,
    ThinkingDelta,
    WholePart,
)
from leafward.formats import (
    from_anthropic,
    from_openai_chat,
    from_openai_responses,
    to_anthropic,
    to_openai_chat,
    to_openai_responses,
)

Data = dict[str, Any]


def reply_of(events: Iterator[ModelEvent]) -> Reply:
    reply = Reply()
    for event in events:
        reply.add(event)
    reply.end()
    return reply


# ── chat completions ─────────────────────────────────────────────────────────


def chat_chunk(delta: Data, finish: str | None = None) -> Data:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def chat_piece(index: int, arguments: str, **first: str) -> Data:
    named = {"id": first["id"], "type": "function"} if first else {}
    function = {"arguments": arguments, **({"name": first["name"]} if first else {})}
    return chat_chunk({"tool_calls": [{"index": index, **named, "function": function}]})


CHAT = [
    chat_chunk({"role": "assistant", "content": ""}),
    chat_chunk({"content": "Let me "}),
    chat_chunk({"content": "look."}),
    chat_piece(0, "", id="call_a", name="search"),
    chat_piece(0, '{"q":'),
    chat_piece(0, ' "tea"}'),
    chat_piece(1, "", id="call_b", name="now"),
    chat_piece(1, "{}"),
    chat_chunk({}, "tool_calls"),
    {
        "choices": [],
        "usage": {"prompt_tokens": 90, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}},
    },
]


def read_chat(chunks: Sequence[Data]) -> Iterator[ModelEvent]:
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            if delta.get("content"):
                yield TextDelta(delta["content"])
            for one in delta.get("tool_calls", ()):
                function = one["function"]
                yield CallDelta(function["arguments"], function.get("name", ""), one.get("id", ""), one["index"])
            if choice["finish_reason"]:
                yield Stop(choice["finish_reason"])
        if chunk.get("usage"):
            used = chunk["usage"]
            cached = used["prompt_tokens_details"]["cached_tokens"]
            yield ModelUsage(used["prompt_tokens"], used["completion_tokens"], cached)


def test_a_stream_of_chat_completions_is_the_whole_reply() -> None:
    calls = [
        {"id": "call_a", "type": "function", "function": {"name": "search", "arguments": '{"q": "tea"}'}},
        {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
    ]
    whole: Data = {"role": "assistant", "content": "Let me look.", "tool_calls": calls}

    reply = reply_of(read_chat(CHAT))

    assert reply.message().parts == from_openai_chat([whole])[0].parts
    assert to_openai_chat([reply.message()])[0] == whole
    assert (reply.usage, reply.stop_reason) == (ModelUsage(90, 20, 64), "tool_calls")


# ── Anthropic ────────────────────────────────────────────────────────────────


def started(index: int, **block: Any) -> Data:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grown(index: int, kind: str, **delta: Any) -> Data:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **delta}}


def stopped(index: int) -> Data:
    return {"type": "content_block_stop", "index": index}


ANTHROPIC = [
    {
        "type": "message_start",
        "message": {"usage": {"input_tokens": 10, "cache_read_input_tokens": 70, "output_tokens": 1}},
    },
    started(0, type="thinking", thinking="", signature=""),
    grown(0, "thinking_delta", thinking="Tea"),
    grown(0, "thinking_delta", thinking=" or not?"),
    grown(0, "signature_delta", signature="c2lnbmVk"),
    stopped(0),
    started(1, type="redacted_thinking", data="aGlkZGVu"),
    stopped(1),
    started(2, type="text", text=""),
    {"type": "ping"},
    grown(2, "text_delta", text="Let me look."),
    stopped(2),
    started(3, type="tool_use", id="toolu_1", name="search", input={}),
    grown(3, "input_json_delta", partial_json=""),
    grown(3, "input_json_delta", partial_json='{"q":'),
    grown(3, "input_json_delta", partial_json='"tea"}'),
    stopped(3),
    started(4, type="tool_use", id="toolu_2", name="now", input={}),
    stopped(4),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 40}},
    {"type": "message_stop"},
]


def read_anthropic(events: Sequence[Data]) -> Iterator[ModelEvent]:
    reasons = {"end_turn": "stop", "tool_use": "tool_calls", "max_tokens": "length", "pause_turn": "paused"}
    asked = cached = 0
    for event in events:
        match event:
            case {"type": "message_start", "message": {"usage": used}}:
                cached = used["cache_read_input_tokens"]
                asked = used["input_tokens"] + cached
                yield ModelUsage(asked, used["output_tokens"], cached)
            case {"type": "content_block_start", "index": index, "content_block": block}:
                if block["type"] == "tool_use":
                    yield CallDelta("", block["name"], block["id"], index)
                elif block["type"] not in ("text", "thinking"):
                    yield WholePart(block)
            case {"delta": {"type": "text_delta", "text": text}, "index": index}:
                yield TextDelta(text, index)
            case {"delta": {"type": "thinking_delta", "thinking": text}, "index": index}:
                yield ThinkingDelta(text, index)
            case {"delta": {"type": "signature_delta", "signature": signature}, "index": index}:
                yield ThinkingDelta("", index, {"signature": signature})
            case {"delta": {"type": "input_json_delta", "partial_json": text}, "index": index}:
                yield CallDelta(text, index=index)
            case {"type": "content_block_stop", "index": index}:
                yield BlockEnd(index)
            case {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": used}:
                yield ModelUsage(asked, used["output_tokens"], cached)
                yield Stop(reasons.get(reason, "other"))
            case _:
                pass


def test_a_stream_of_anthropic_is_the_whole_reply() -> None:
    whole: Data = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "Tea or not?", "signature": "c2lnbmVk"},
            {"type": "redacted_thinking", "data": "aGlkZGVu"},
            {"type": "text", "text": "Let me look."},
            {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"q": "tea"}},
            {"type": "tool_use", "id": "toolu_2", "name": "now", "input": {}},
        ],
    }

    reply = reply_of(read_anthropic(ANTHROPIC))

    found = [{key: value for key, value in part.items() if key != "content"} for part in reply.message().parts]
    assert found == from_anthropic([whole])[0].parts
    assert to_anthropic([reply.message()])["messages"][1]["content"] == whole["content"]
    assert (reply.usage, reply.stop_reason) == (ModelUsage(80, 40, 70), "tool_calls")


# ── Responses ────────────────────────────────────────────────────────────────

REASONING: Data = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Tea or not?"}],
    "encrypted_content": "ZW5j",
}
CALLED: Data = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_a",
    "name": "search",
    "arguments": '{"q":"tea"}',
    "status": "completed",
}
RESPONSES = [
    {"type": "response.created"},
    {"type": "response.output_item.added", "output_index": 0, "item": {"type": "reasoning", "id": "rs_1"}},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "Tea or "},
    {"type": "response.reasoning_summary_text.delta", "output_index": 0, "delta": "not?"},
    {"type": "response.output_item.done", "output_index": 0, "item": REASONING},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "Let me "},
    {"type": "response.output_text.delta", "output_index": 1, "delta": "look."},
    {"type": "response.output_item.done", "output_index": 1, "item": {"type": "message", "role": "assistant"}},
    {"type": "response.output_item.added", "output_index": 2, "item": {**CALLED, "arguments": ""}},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"q":'},
    {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '"tea"}'},
    {"type": "response.output_item.done", "output_index": 2, "item": CALLED},
    {
        "type": "response.completed",
        "response": {
            "id": "resp_1",
            "usage": {"input_tokens": 90, "output_tokens": 20, "input_tokens_details": {"cached_tokens": 0}},
        },
    },
]


def read_responses(events: Sequence[Data]) -> Iterator[ModelEvent]:
    for event in events:
        match event:
            case {"type": "response.output_item.added", "output_index": index, "item": {"type": "function_call"}}:
                item = event["item"]
                yield CallDelta("", item["name"], item["call_id"], index)
            case {"type": "response.function_call_arguments.delta", "output_index": index, "delta": text}:
                yield CallDelta(text, index=index)
            case {"type": "response.output_text.delta", "output_index": index, "delta": text}:
                yield TextDelta(text, index)
            case {"type": "response.reasoning_summary_text.delta", "output_index": index, "delta": text}:
                yield ThinkingDelta(text, index)
            case {"type": "response.output_item.done", "output_index": index, "item": item}:
                if item["type"] == "reasoning":
                    yield ThinkingDelta("", index, {ORIGIN: {"name": "openai.responses", "raw": item}})
                yield BlockEnd(index)
            case {"type": "response.completed", "response": {"id": id, "usage": used}}:
                cached = used["input_tokens_details"]["cached_tokens"]
                yield ModelUsage(used["input_tokens"], used["output_tokens"], cached)
                yield Stop("", {"response_id": id})
            case _:
                pass


def test_a_stream_of_responses_is_the_whole_reply() -> None:
    whole = from_openai_responses([REASONING, {"role": "assistant", "content": "Let me look."}, CALLED])[0]

    reply = reply_of(read_responses(RESPONSES))

    message = reply.message()
    assert [part["type"] for part in message.parts] == ["thinking", "text", "tool_use"]
    assert message.parts[0][ORIGIN] == whole.parts[0][ORIGIN]
    sent = to_openai_responses([message])
    assert sent[0] == REASONING
    assert (sent[1]["role"], sent[2]["call_id"], sent[2]["arguments"]) == ("assistant", "call_a", '{"q":"tea"}')
    assert (message.text, message.extra["response_id"]) == ("Let me look.", "resp_1")
    assert (reply.usage, reply.stop_reason) == (ModelUsage(90, 20), "tool_calls")
