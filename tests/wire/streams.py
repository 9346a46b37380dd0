"""What a model says, as each provider streams it: server-sent events of chat completions, Responses and Messages."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Data = dict[str, Any]


@dataclass(frozen=True)
class Text:
    """A text, in the pieces in which it comes."""

    pieces: tuple[str, ...]


@dataclass(frozen=True)
class Thought:
    """Thinking, and the signature without which the provider does not take it back."""

    text: str
    signature: str = "c2lnbmVk"


@dataclass(frozen=True)
class Call:
    """A call, with the pieces of its arguments."""

    id: str
    name: str
    pieces: tuple[str, ...]


Said = Text | Thought | Call


@dataclass(frozen=True)
class Used:
    """The tokens of a reply; `fresh` are those of the request that did not come from the cache."""

    fresh: int = 26
    cached: int = 64
    output: int = 20


USUAL = Used()


def text(*pieces: str) -> Text:
    return Text(pieces)


def call(id: str, name: str, *pieces: str) -> Call:
    return Call(id, name, pieces)


def _event(data: Data, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n".encode()


# ── chat completions ─────────────────────────────────────────────────────────


def chat(said: Sequence[Said], used: Used, stop: str | None) -> Iterator[bytes]:
    """Stream a reply as `/v1/chat/completions` does, thinking as servers for open models do."""

    def chunk(delta: Data | None, finish: str | None = None, usage: Data | None = None) -> bytes:
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        counted = {} if usage is None else {"usage": usage}
        return _event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": choices, **counted})

    yield chunk({"role": "assistant", "content": ""})
    calls = 0
    for one in said:
        if isinstance(one, Text):
            yield from (chunk({"content": piece}) for piece in one.pieces)
        elif isinstance(one, Thought):
            yield chunk({"reasoning_content": one.text})
        else:
            first = {"name": one.name, "arguments": ""}
            yield chunk({"tool_calls": [{"index": calls, "id": one.id, "type": "function", "function": first}]})
            for piece in one.pieces:
                yield chunk({"tool_calls": [{"index": calls, "function": {"arguments": piece}}]})
            calls += 1
    yield chunk({}, stop or ("tool_calls" if calls else "stop"))
    details = {"cached_tokens": used.cached}
    asked = used.fresh + used.cached
    yield chunk(
        None,
        usage={
            "prompt_tokens": asked,
            "completion_tokens": used.output,
            "total_tokens": asked + used.output,
            "prompt_tokens_details": details,
        },
    )
    yield b"data: [DONE]\n\n"


# ── Responses ────────────────────────────────────────────────────────────────


def responses(said: Sequence[Said], used: Used, stop: str | None) -> Iterator[bytes]:
    """Stream a reply as `/v1/responses` does."""
    number = iter(range(1_000_000))

    def event(name: str, **fields: Any) -> bytes:
        return _event({"type": name, "sequence_number": next(number), **fields}, name)

    fixed = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "tools": []}
    yield event("response.created", response={**fixed, "status": "in_progress"})
    output: list[Data] = []
    for index, one in enumerate(said):
        item, added, deltas = _item(one, index)
        yield event("response.output_item.added", output_index=index, item=added)
        for name, piece in deltas:
            beside = {} if "function" in name else {"content_index": 0, "logprobs": []}
            if "summary" in name:
                beside = {"summary_index": 0}
            yield event(name, item_id=item["id"], output_index=index, delta=piece, **beside)
        yield event("response.output_item.done", output_index=index, item=item)
        output.append(item)
    asked = used.fresh + used.cached
    usage = {
        "input_tokens": asked,
        "output_tokens": used.output,
        "total_tokens": asked + used.output,
        "input_tokens_details": {"cached_tokens": used.cached},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    status = "incomplete" if stop else "completed"
    last = {**fixed, "output": output, "status": status, "usage": usage}
    if stop:
        last["incomplete_details"] = {"reason": stop}
    yield event(f"response.{status}", response=last)


def _item(one: Said, index: int) -> tuple[Data, Data, list[tuple[str, str]]]:
    """Return an item of the output when it is whole, when it begins, and its pieces."""
    if isinstance(one, Text):
        block = {"type": "output_text", "text": "".join(one.pieces), "annotations": [], "logprobs": []}
        item: Data = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed"}
        deltas = [("response.output_text.delta", piece) for piece in one.pieces]
        return {**item, "content": [block]}, {**item, "status": "in_progress", "content": []}, deltas
    if isinstance(one, Thought):
        item = {"type": "reasoning", "id": f"rs_{index}", "summary": [], "encrypted_content": one.signature}
        summary = [{"type": "summary_text", "text": one.text}]
        return {**item, "summary": summary}, item, [("response.reasoning_summary_text.delta", one.text)]
    item = {"type": "function_call", "id": f"fc_{index}", "call_id": one.id, "name": one.name, "status": "completed"}
    deltas = [("response.function_call_arguments.delta", piece) for piece in one.pieces]
    return {**item, "arguments": "".join(one.pieces)}, {**item, "arguments": "", "status": "in_progress"}, deltas


# ── Messages ─────────────────────────────────────────────────────────────────


def messages(said: Sequence[Said], used: Used, stop: str | None) -> Iterator[bytes]:
    """Stream a reply as Anthropic's `/v1/messages` does."""

    def event(name: str, **fields: Any) -> bytes:
        return _event({"type": name, **fields}, name)

    usage = {"input_tokens": used.fresh, "cache_read_input_tokens": used.cached, "output_tokens": 1}
    fixed = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None}
    yield event("message_start", message={**fixed, "stop_sequence": None, "usage": usage})
    yield event("ping")
    for index, one in enumerate(said):
        block, deltas = _block(one)
        yield event("content_block_start", index=index, content_block=block)
        yield from (event("content_block_delta", index=index, delta=delta) for delta in deltas)
        yield event("content_block_stop", index=index)
    called = any(isinstance(one, Call) for one in said)
    reason = stop or ("tool_use" if called else "end_turn")
    yield event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage={"output_tokens": 20})
    yield event("message_stop")


def _block(one: Said) -> tuple[Data, list[Data]]:
    if isinstance(one, Text):
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in one.pieces]
    if isinstance(one, Thought):
        deltas = [
            {"type": "thinking_delta", "thinking": one.text},
            {"type": "signature_delta", "signature": one.signature},
        ]
        return {"type": "thinking", "thinking": "", "signature": ""}, deltas
    block = {"type": "tool_use", "id": one.id, "name": one.name, "input": {}}
    return block, [{"type": "input_json_delta", "partial_json": piece} for piece in one.pieces]
