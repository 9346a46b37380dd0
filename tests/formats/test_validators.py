"""Every conversation becomes requests that no provider refuses, and the rules see what one would refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from leafward.formats import from_openai_chat
from tests.formats.conversations import WRITERS, Conversation, conversations
from tests.formats.payloads import odd_chats
from tests.formats.validators import CHECKS

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CLAUDE_CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]}
TEXT = {"type": "text", "text": "x"}
THOUGHT = {"type": "thinking", "thinking": "x", "signature": "sig=="}
REASONING: dict[str, Any] = {"type": "reasoning", "id": "rs", "summary": []}
ITEM = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


@pytest.mark.parametrize("name", sorted(CHECKS))
@given(made=conversations())
def test_no_provider_refuses_a_conversation(name: str, made: Conversation) -> None:
    CHECKS[name](WRITERS[name](made.messages))


@pytest.mark.parametrize("name", sorted(CHECKS))
@given(payload=odd_chats())
def test_no_provider_refuses_a_chat_with_empty_messages(name: str, payload: Any) -> None:
    CHECKS[name](WRITERS[name](from_openai_chat(payload)))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("openai_chat", [{"role": "tool", "tool_call_id": "c", "content": "x"}]),
        ("openai_chat", [{"role": "assistant", "content": None, "tool_calls": [CALL]}]),
        ("openai_chat", [{"role": "assistant", "content": None}]),
        ("openai_chat", [{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "https://x"}}]}]),
        ("openai_chat", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///a"}}]}]),
        ("openai_chat", [{"role": "user", "content": [{"type": "text", "text": "x", "state": "done"}]}]),
        ("openai_responses", [ITEM]),
        ("openai_responses", [{"type": "function_call_output", "call_id": "c", "output": "x"}]),
        ("openai_responses", [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}]),
        ("anthropic", {"messages": [{"role": "assistant", "content": "x"}]}),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}, {"role": "user", "content": "x"}]}),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}, CLAUDE_CALL, {"role": "user", "content": "x"}]}),
        ("anthropic", {"messages": [{"role": "user", "content": [{"type": "text", "text": " "}]}]}),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x "}]}),
        ("anthropic", {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [THOUGHT]}]}),
        (
            "anthropic",
            {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": [TEXT, THOUGHT, TEXT]}]},
        ),
        ("openai_responses", [REASONING]),
        ("openai_responses", [REASONING, {"role": "user", "content": "x"}]),
        ("openai_responses", [ITEM, REASONING, {"type": "function_call_output", "call_id": "c", "output": "x"}]),
        ("openai_chat", [{"role": "user", "content": None}]),
        ("openai_chat", [{"role": "assistant", "content": []}]),
        ("openai_chat", [{"role": "assistant"}]),
    ],
)
def test_the_rules_see_what_a_provider_refuses(name: str, wrong: Any) -> None:
    with pytest.raises(AssertionError):
        CHECKS[name](wrong)


@pytest.mark.parametrize("arguments", ['{"a": ', "", "5", '{"a": NaN}'])
def test_the_rules_see_arguments_that_are_not_json(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
    answer = {"role": "tool", "tool_call_id": "c", "content": "x"}

    with pytest.raises(AssertionError):
        CHECKS["openai_chat"]([{"role": "assistant", "content": None, "tool_calls": [call]}, answer])
