"""AI SDK's and AgentScope's messages, one conversation at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from leafward import Message, assistant, tool_result, user
from leafward.formats import from_agentscope, from_ui_messages, to_agentscope, to_openai_chat, to_ui_messages

CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
MOMENT = datetime(2026, 11, 15, 12, 0, 0, 123456, tzinfo=UTC)
LINE = (
    '{"id":"m2","name":"Assistant","role":"ASSISTANT","content":[{"type":"thinking","thinking":"hmm","metadata":null},'
    '{"type":"text","text":"ok"},{"type":"tool_use","id":"call_1","name":"weather","input":{"city":"Paris","n":3},'
    '"content":"{\\"city\\":\\"Paris\\",\\"n\\":3}","metadata":{},"state":"pending"}],'
    '"metadata":{"agentscope_generate_reason":"MODEL_STOP"},"timestamp":"2026-08-22 23:15:57.000","usage":null}'
)


def test_a_result_of_its_own_is_folded_into_its_call() -> None:
    messages = [assistant([CALL], id="a", created_at=MOMENT), tool_result("c1", "18C", "weather")]

    [message] = to_ui_messages(messages)

    assert message == {
        "id": "a",
        "role": "assistant",
        "createdAt": "2026-11-15T12:00:00.123456Z",
        "parts": [
            {
                "type": "dynamic-tool",
                "toolName": "weather",
                "toolCallId": "c1",
                "state": "output-available",
                "input": {"city": "Paris"},
                "output": "18C",
            }
        ],
    }


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested"])
def test_a_part_that_was_never_settled_is_shown_as_interrupted(state: str) -> None:
    part = {"type": "tool-weather", "toolCallId": "c1", "state": state, "input": {"city": "Paris"}}

    [settled] = to_ui_messages([assistant([part])])[0]["parts"]

    assert settled["state"] == "output-error"
    assert "interrupted" in settled["errorText"]
    assert {**settled, "state": state} == {**part, "errorText": settled["errorText"]}


def test_an_approval_that_was_given_is_left_to_ai_sdk() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "approval-responded", "input": {}, "approval": {"id": "a"}}

    assert to_ui_messages([assistant([part])])[0]["parts"] == [part]
    assert "interrupted" in to_openai_chat([assistant([part])])[1]["content"]


def test_a_part_ai_sdk_has_no_type_for_travels_whole() -> None:
    hint = {"type": "hint", "id": "h", "hint": "do it", "source": None}

    payload = to_ui_messages([assistant([hint])])

    assert payload[0]["parts"] == [{"type": "data-leafward", "data": hint}]
    assert from_ui_messages(payload)[0].parts == [hint]


def test_a_denied_call_says_why_to_the_model() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "output-denied", "input": {}, "approval": {"reason": "No."}}

    assert to_openai_chat([assistant([part])])[1] == {"role": "tool", "tool_call_id": "c1", "content": "No."}


def test_a_line_of_agentscope_is_written_as_it_stood_and_the_missing_result_added() -> None:
    line = json.loads(LINE)

    [said, answer] = to_agentscope(from_agentscope([line]))

    assert said == line
    assert answer["role"] == "TOOL"
    assert [(block["type"], block["id"], block["state"]) for block in answer["content"]] == [
        ("tool_result", "call_1", "interrupted")
    ]
    assert list(answer) == ["id", "name", "role", "content", "metadata", "timestamp", "usage"]


def test_each_role_holds_only_the_blocks_agentscope_lets_it_hold() -> None:
    answer = {"type": "tool_result", "tool_use_id": "c1", "content": "18C"}
    odd = [{"type": "thinking", "thinking": "hm"}, {"type": "source-url", "url": "https://x.test"}]
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}
    messages = [assistant([CALL, *odd]), user([answer, *odd, image]), Message("system", [image, *odd])]

    payload = to_agentscope(messages)

    kinds = [(message["role"], [block["type"] for block in message["content"]]) for message in payload]
    assert kinds == [
        ("ASSISTANT", ["tool_use", "thinking", "text"]),
        ("TOOL", ["tool_result"]),
        ("USER", ["text", "text", "image"]),
        ("SYSTEM", ["text", "text"]),
        ("USER", ["text", "image"]),
    ]
    assert [part for message in from_agentscope(payload) for part in message.parts if part in odd] == odd * 3


def test_what_one_message_held_keeps_its_id_and_the_rest_gets_ids_of_its_own() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "18C"}
    message = assistant([part, {"type": "text", "text": "So."}], id="a", metadata={"k": 1})

    payload = to_agentscope([message])

    assert [each["id"] for each in payload][::2] == ["a", "a_2"]
    assert len({each["id"] for each in payload}) == 3
    assert [each["metadata"] for each in payload] == [{"k": 1}, {}, {}]
    assert to_agentscope([message]) == payload


def test_arguments_that_are_no_json_survive_agentscope() -> None:
    payload = to_agentscope([assistant([{**CALL, "input": '{"cut'}])])

    assert payload[0]["content"][0] | {"state": ""} == {**CALL, "input": {}, "content": '{"cut', "state": ""}
    assert to_openai_chat(from_agentscope(payload))[0]["tool_calls"][0]["function"]["arguments"] == '{"cut'


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ([{"role": "USER"}], r"messages\[0\]\.content is missing"),
        ([{"role": "USER", "content": [{"text": "x"}]}], r"messages\[0\]\.content\[0\]\.type is a string, not missing"),
        ([{"role": "USER", "content": [], "timestamp": "today"}], r"messages\[0\]: "),
    ],
)
def test_a_wrong_msg_is_refused_with_its_place(payload: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_agentscope(payload)


def test_a_ui_message_without_parts_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"messages\[1\]\.parts is a list of objects, not NoneType"):
        from_ui_messages([{"id": "a", "role": "user", "parts": []}, {"id": "b", "role": "user", "content": "x"}])
