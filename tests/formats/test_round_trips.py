"""A payload that was read is written again exactly, and what we write is what the provider's own types accept."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from anthropic.types import MessageParam, TextBlockParam
from hypothesis import given
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputItemParam
from pydantic import TypeAdapter

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
from tests.formats.conversations import Conversation, conversations
from tests.formats.payloads import (
    agentscope_payloads,
    anthropic_payloads,
    chat_payloads,
    responses_payloads,
    ui_payloads,
)

CHAT: TypeAdapter[Any] = TypeAdapter(list[ChatCompletionMessageParam])
RESPONSES: TypeAdapter[Any] = TypeAdapter(list[ResponseInputItemParam])
CLAUDE: TypeAdapter[Any] = TypeAdapter(list[MessageParam])
CLAUDE_SYSTEM: TypeAdapter[Any] = TypeAdapter(str | list[TextBlockParam])


def accept(types: TypeAdapter[Any], payload: Any) -> None:
    """Check a payload against a provider's types, to the last block: pydantic checks an iterable as it is read."""
    waiting = [types.validate_python(payload)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
            waiting += value


def stored(messages: Iterable[Message]) -> list[Message]:
    """Return messages as a store gives them back."""
    return [Message.from_dict(json.loads(json.dumps(message.to_dict()))) for message in messages]


@given(chat_payloads())
def test_a_chat_request_is_written_as_it_was_read(payload: Any) -> None:
    assert to_openai_chat(stored(from_openai_chat(payload))) == payload


@given(responses_payloads())
def test_the_input_of_responses_is_written_as_it_was_read(payload: Any) -> None:
    assert to_openai_responses(stored(from_openai_responses(payload))) == payload


@given(anthropic_payloads().filter(lambda payload: json.dumps(payload).count('"cache_control": ') <= 4))
def test_a_request_to_anthropic_is_written_as_it_was_read(payload: Any) -> None:
    assert to_anthropic(stored(from_anthropic(payload))) == payload


@given(ui_payloads())
def test_ui_messages_are_written_as_they_were_read(payload: Any) -> None:
    assert to_ui_messages(stored(from_ui_messages(payload))) == payload


@given(agentscope_payloads())
def test_agentscope_messages_are_written_as_they_were_read(payload: Any) -> None:
    assert to_agentscope(stored(from_agentscope(payload))) == payload


@given(conversations())
def test_openai_accepts_every_conversation_as_chat(made: Conversation) -> None:
    accept(CHAT, to_openai_chat(made.messages))


@given(conversations())
def test_openai_accepts_every_conversation_as_responses(made: Conversation) -> None:
    accept(RESPONSES, to_openai_responses(made.messages))


@given(conversations())
def test_anthropic_accepts_every_conversation(made: Conversation) -> None:
    payload = to_anthropic(made.messages)

    accept(CLAUDE, payload["messages"])
    accept(CLAUDE_SYSTEM, payload["system"])


@given(chat_payloads(strict=True))
def test_a_chat_moves_to_anthropic_and_responses(payload: Any) -> None:
    messages = from_openai_chat(payload)

    accept(CLAUDE, to_anthropic(messages)["messages"])
    accept(RESPONSES, to_openai_responses(messages))


@given(responses_payloads())
def test_responses_move_to_anthropic_and_chat(payload: Any) -> None:
    messages = from_openai_responses(payload)

    accept(CLAUDE, to_anthropic(messages)["messages"])
    accept(CHAT, to_openai_chat(messages))


@given(anthropic_payloads())
def test_a_conversation_with_anthropic_moves_to_openai(payload: Any) -> None:
    messages = from_anthropic(payload)

    accept(CHAT, to_openai_chat(messages))
    accept(RESPONSES, to_openai_responses(messages))


@given(ui_payloads())
def test_ui_messages_are_accepted_by_every_provider(payload: Any) -> None:
    messages = from_ui_messages(payload)

    accept(CHAT, to_openai_chat(messages))
    accept(RESPONSES, to_openai_responses(messages))
    accept(CLAUDE, to_anthropic(messages)["messages"])


@given(agentscope_payloads())
def test_agentscope_messages_are_accepted_by_every_provider(payload: Any) -> None:
    messages = from_agentscope(payload)

    accept(CHAT, to_openai_chat(messages))
    accept(RESPONSES, to_openai_responses(messages))
    accept(CLAUDE, to_anthropic(messages)["messages"])


@pytest.mark.parametrize(
    ("types", "wrong"),
    [
        (CHAT, [{"role": "tool", "content": "x"}]),
        (RESPONSES, [{"type": "function_call_output", "call_id": "c"}]),
        (CLAUDE, [{"role": "user", "content": [{"type": "tool_result"}]}]),
    ],
)
def test_the_providers_types_refuse_what_is_wrong(types: TypeAdapter[Any], wrong: Any) -> None:
    with pytest.raises(ValueError):
        accept(types, wrong)
