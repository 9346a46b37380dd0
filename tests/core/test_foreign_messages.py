"""Messages as other libraries write them, given to whatever takes a message."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from leafward import Message, user
from leafward.core.message import as_message
from leafward.core.parts import search_text
from leafward.core.tokens import count_tokens
from leafward.formats import (
    from_agentscope,
    from_openai_chat,
    from_ui_messages,
    to_agentscope,
    to_openai_chat,
    to_ui_messages,
)

OPENAI_CALL: dict[str, Any] = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
}
OPENAI_REPLY = {"role": "assistant", "content": None, "refusal": None, "tool_calls": [OPENAI_CALL]}


def test_calls_of_an_openai_message_become_parts() -> None:
    message = Message.from_dict(OPENAI_REPLY)

    [call] = message.parts
    assert (call["type"], call["id"], call["name"], call["input"]) == ("tool_use", "c1", "weather", {"city": "Paris"})
    assert "tool_calls" not in message.extra


def test_a_result_of_openai_becomes_a_part() -> None:
    message = Message.from_dict({"role": "tool", "tool_call_id": "c1", "content": "18C", "id": "m1"})

    assert message.id == "m1"
    assert message.parts[0]["type"] == "tool_result"
    assert message.parts[0]["id"] == "c1"
    assert message.parts[0]["output"] == [{"type": "text", "text": "18C"}]


def test_an_openai_object_is_read_as_its_dict_is() -> None:
    reply = ChatCompletionMessage.model_validate({"role": "assistant", "content": "Hm.", "tool_calls": [OPENAI_CALL]})

    message = as_message(reply)

    assert [part["type"] for part in message.parts] == ["text", "tool_use"]
    assert message.parts == from_openai_chat([reply])[0].parts


def test_a_message_that_keeps_openais_keys_is_read_as_calls_and_not_rewritten() -> None:
    stored = Message.stored("m1", "assistant", 0, {"parts": [], "tool_calls": [OPENAI_CALL]})
    answer = Message.stored("m2", "tool", 0, {"parts": [{"type": "text", "text": "18C"}], "tool_call_id": "c1"})

    payload = to_openai_chat([stored, answer])

    assert payload[0]["tool_calls"] == [OPENAI_CALL]
    assert payload[1] == {"role": "tool", "tool_call_id": "c1", "content": "18C"}
    assert "Paris" in search_text(stored.body)
    assert count_tokens(stored) > 4
    assert stored.body == {"parts": [], "tool_calls": [OPENAI_CALL]}


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "from_openai_responses"),
        (
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x"}]},
            "from_openai_resp",
        ),
        ({"id": "resp_1", "object": "response", "output": []}, "from_openai_responses"),
        ({"id": "x", "choices": []}, r"completion\.choices\[0\]\.message"),
        ({"system": "", "messages": []}, "from_anthropic"),
        ({"role": "user"}, "leafward.formats"),
        ({"role": "user", "text": "hi"}, "leafward.formats"),
        ({"role": "model", "parts": [{"text": "hi"}]}, "leafward.formats"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "not an OpenAI chat message"),
        ({"index": 0, "message": {"role": "assistant", "content": "x"}}, 'store its "message"'),
        ({"id": "chat", "messages": [{"role": "user", "parts": []}]}, r'from_ui_messages\(body\["messages"\]\)'),
        ({"role": "tool", "tool_call_id": "c", "content": {"deg": 18}}, r"content is text .* tool_result\("),
        ({"role": "tool", "tool_call_id": "c", "content": 18}, r"tool_result\(call_id, value"),
        ({"role": "tool", "content": "x"}, "not an OpenAI chat message: tool_call_id is missing"),
        ({"role": "tool", "content": [{"type": "text", "text": "x"}]}, "tool_call_id is missing"),
        ({"role": "tool", "content": None}, "tool_call_id is missing"),
    ],
)
def test_a_dict_of_another_shape_is_refused_with_what_reads_it(wrong: dict[str, Any], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Message.from_dict(wrong)


def test_a_message_of_the_role_tool_that_is_not_openais_is_read() -> None:
    result = {"type": "tool_result", "id": "c1", "name": None, "output": [], "state": "success"}
    mine = Message("tool", "a note")

    assert Message.from_dict(mine.to_dict()) == mine
    assert Message.from_dict({"role": "tool", "content": [result]}).parts == [result]


def test_changing_what_to_dict_returned_changes_no_message() -> None:
    message = user([{"type": "data-x", "data": {"deep": [1]}}], metadata={"k": [1]})
    before = message.to_dict()

    given = message.to_dict()
    given["parts"][0]["data"]["deep"].append(2)
    given["metadata"]["k"].append(2)

    assert message.to_dict() == before


def test_a_legacy_function_call_and_its_result_belong_together() -> None:
    said = Message.from_dict({"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}})
    answer = Message.from_dict({"role": "function", "name": "f", "content": "42"})

    payload = to_openai_chat([said, answer])

    assert [message["role"] for message in payload] == ["assistant", "function"]
    assert payload[1]["content"] == "42"


def test_what_only_a_reply_has_is_not_sent_back() -> None:
    reply = ChatCompletionMessage(role="assistant", content="hey").model_dump()
    streamed = {**OPENAI_CALL, "index": 0, "function": {**OPENAI_CALL["function"], "parsed_arguments": None}}
    messages = [
        Message.from_dict(reply),
        Message.from_dict({"role": "assistant", "content": "hi", "tool_calls": []}),
        Message.from_dict({"role": "assistant", "content": None, "tool_calls": [streamed], "parsed": None}),
    ]

    payload = to_openai_chat(messages)

    assert payload[0] == {"role": "assistant", "content": "hey", "refusal": None}
    assert payload[1] == {"role": "assistant", "content": "hi"}
    assert payload[2] == {"role": "assistant", "content": None, "tool_calls": [OPENAI_CALL]}


def test_an_object_that_is_not_pydantics_is_read_as_well() -> None:
    class Reply:
        def model_dump(self) -> dict[str, Any]:
            return OPENAI_REPLY

    assert as_message(Reply()).parts[0]["type"] == "tool_use"


def test_blocks_of_another_provider_beside_openais_keys_stay_calls() -> None:
    block = {"type": "tool_use", "id": "z", "name": "f", "input": {}}

    message = Message.from_dict({"role": "assistant", "content": [block], "tool_calls": [OPENAI_CALL], "refusal": None})

    assert [call["id"] for call in to_openai_chat([message])[0]["tool_calls"]] == ["z", "c1"]


@pytest.mark.parametrize("kind", ["function", "custom"])
def test_a_message_that_keeps_openais_keys_can_be_written_for_every_reader(kind: str) -> None:
    inner = {"function": {"name": "f", "arguments": "{}"}, "custom": {"name": "f", "input": "x"}}[kind]
    stored = Message("assistant", "x", tool_calls=[{"id": "c", "type": kind, kind: inner}])
    answer = Message("tool", "done", tool_call_id="c")

    assert from_agentscope(to_agentscope([stored, answer])) == [stored, answer]
    shown = from_ui_messages(to_ui_messages([stored, answer]))
    assert len(to_openai_chat(shown)[0]["tool_calls"]) == 1
    assert len(to_openai_chat([stored, answer])) == 2
