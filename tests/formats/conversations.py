"""Conversations as people store them: every shape of call and result, in orders that a crash can leave behind."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from leafward import Message
from leafward.formats import (
    from_agentscope,
    from_anthropic,
    from_openai_chat,
    from_openai_responses,
    from_ui_messages,
    to_agentscope,
    to_anthropic,
    to_openai_chat,
    to_openai_responses,
    to_ui_messages,
)

Payload = Any
WRITERS: dict[str, Callable[[Any], Payload]] = {
    "openai_chat": to_openai_chat,
    "openai_responses": to_openai_responses,
    "anthropic": to_anthropic,
    "ui_messages": to_ui_messages,
    "agentscope": to_agentscope,
}
READERS: dict[str, Callable[[Any], list[Message]]] = {
    "openai_chat": from_openai_chat,
    "openai_responses": from_openai_responses,
    "anthropic": from_anthropic,
    "ui_messages": from_ui_messages,
    "agentscope": from_agentscope,
}


@dataclass
class Conversation:
    """Messages, and what was said in them: every word is unique, so that it can be looked for."""

    messages: list[Message] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    screen_words: list[str] = field(default_factory=list)
    """Those of them that are for a screen and not for a model."""
    own_words: list[str] = field(default_factory=list)
    """Those that go back to the provider who wrote them, or to none: signed thinking and reasoning items."""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """Id, name, and the word in the arguments."""


@st.composite
def conversations(draw: st.DrawFn, shapes: tuple[str, ...] = ("agentscope", "anthropic", "ui")) -> Conversation:
    made = Conversation()
    numbers = itertools.count()
    for index in range(draw(st.integers(0, 6))):
        role = draw(st.sampled_from(["user", "assistant", "assistant", "tool", "system", "developer", "critic"]))
        parts = [draw(_part(made, role, numbers, shapes)) for _ in range(draw(st.integers(0, 4)))]
        made.messages.append(Message(role, parts, id=f"m{index}"))
    return made


@st.composite
def _part(
    draw: st.DrawFn, made: Conversation, role: str, numbers: Iterator[int], shapes: tuple[str, ...]
) -> dict[str, Any]:
    number = next(numbers)
    word = f"word{number}!"
    made.words.append(word)
    spoken = ["text", "thinking", "signed", "reasoning", "call", "call", "result", "odd"]
    kinds = {"assistant": spoken, "tool": ["result", "result", "text"]}
    kind = draw(st.sampled_from(kinds.get(role, ["text", "text", "result", "odd"])))
    if kind == "text":
        return {"type": "text", "text": word}
    if kind == "thinking":
        return {"type": "thinking", "thinking": word}
    if kind in ("signed", "reasoning"):
        made.own_words.append(word)
        return draw(_own_thinking(kind, number, word))
    if kind == "odd":
        if draw(st.booleans()):
            return {"type": "hint", "hint": word}
        made.screen_words.append(word)
        return draw(st.sampled_from([{"type": "data-odd", "data": {"w": word}}, {"type": "odd", "odd": word}]))
    call_id = f"c{draw(st.integers(0, 3))}"
    shape = draw(st.sampled_from(shapes))
    if kind == "result":
        return _result(shape, call_id, word)
    made.calls.append((call_id, f"tool{number}", word))
    return draw(_call(made, shape, call_id, f"tool{number}", word))


@st.composite
def _own_thinking(draw: st.DrawFn, kind: str, number: int, word: str) -> dict[str, Any]:
    """Return what only its provider reads: thinking that Anthropic signed, or a reasoning item of Responses."""
    if kind == "signed":
        signed = {"type": "thinking", "thinking": word, "signature": "sig=="}
        return draw(st.sampled_from([signed, {"type": "redacted_thinking", "data": word}]))
    summary = [{"type": "summary_text", "text": word}]
    [message] = from_openai_responses([{"type": "reasoning", "id": f"rs_{number}", "summary": summary}])
    return message.parts[0]


@st.composite
def _call(draw: st.DrawFn, made: Conversation, shape: str, call_id: str, name: str, word: str) -> dict[str, Any]:
    if shape != "ui":
        more = {"content": json.dumps({"w": word}), "state": "pending", "metadata": {}} if shape == "agentscope" else {}
        return {"type": "tool_use", "id": call_id, "name": name, "input": {"w": word}, **more}
    part = {"type": f"tool-{name}", "toolCallId": call_id, "input": {"w": word}}
    answer = f"answer-{word}"
    state = draw(st.sampled_from(["input-available", "output-available", "output-error", "input-streaming"]))
    if state.startswith("output"):
        made.words.append(answer)
        part |= {"output": {"got": answer}} if state == "output-available" else {"errorText": answer}
    return {**part, "state": state}


def _result(shape: str, call_id: str, word: str) -> dict[str, Any]:
    blocks = [{"type": "text", "text": word}]
    if shape == "anthropic":
        return {"type": "tool_result", "tool_use_id": call_id, "content": blocks}
    return {"type": "tool_result", "id": call_id, "name": None, "output": blocks, "state": "success"}


# ── what stands in a payload ─────────────────────────────────────────────────


@dataclass(frozen=True)
class Seen:
    """A call or a result in a payload, in the order a provider reads them."""

    kind: str
    id: str
    step: int
    """Counts the messages, or in Responses the runs of calls and results, up to here."""
    name: str = ""
    arguments: str = ""


def seen_in(name: str, payload: Payload) -> list[Seen]:
    """Return the calls and results of a payload, read as its provider reads it, not as we write it."""
    return list({"ui_messages": _seen_ui, "openai_responses": _seen_items}.get(name, _seen_blocks)(payload))


def _seen_blocks(payload: Payload) -> Iterator[Seen]:
    for step, message in enumerate(payload["messages"] if isinstance(payload, dict) else payload):
        if message["role"] == "tool":
            yield Seen("result", message["tool_call_id"], step)
        for call in message.get("tool_calls", []):
            yield Seen("call", call["id"], step, call["function"]["name"], call["function"]["arguments"])
        content = message["content"] if isinstance(message["content"], list) else []
        for block in content:
            if block["type"] == "tool_use":
                yield Seen("call", block["id"], step, block["name"], json.dumps(block["input"]))
            if block["type"] == "tool_result":
                yield Seen("result", block.get("tool_use_id") or block["id"], step)


def _seen_items(payload: Payload) -> Iterator[Seen]:
    step = 0
    before = ""
    for item in payload:
        kind = item.get("type", "message")
        side = "result" if kind.endswith("_output") else "other"
        step += side != before
        before = side
        if kind == "function_call":
            yield Seen("call", item["call_id"], step, item["name"], item["arguments"])
        if kind == "function_call_output":
            yield Seen("result", item["call_id"], step)


def _seen_ui(payload: Payload) -> Iterator[Seen]:
    for message in payload:
        for place, part in enumerate(message["parts"]):
            if "toolCallId" in part:
                name = part.get("toolName") or part["type"].removeprefix("tool-")
                yield Seen("call", part["toolCallId"], place, name, json.dumps(part["input"]))
                if part["state"] in ("output-available", "output-error"):
                    yield Seen("result", part["toolCallId"], place + 1)
