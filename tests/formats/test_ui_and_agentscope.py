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
    answer = tool_result("c1", "18C", "weather", id="t")
    messages = [assistant([CALL], id="a", created_at=MOMENT), answer]

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
                "callProviderMetadata": {
                    "leafward": {"message": {"id": "t", "role": "tool", "createdAt": answer.to_dict()["createdAt"]}}
                },
            }
        ],
    }


@pytest.mark.parametrize("state", ["input-streaming", "input-available", "approval-requested", "approval-responded"])
def test_a_part_that_waits_for_a_click_still_waits_after_a_reload(state: str) -> None:
    part = {"type": "tool-weather", "toolCallId": "c1", "state": state, "input": {"city": "Paris"}}

    assert to_ui_messages([assistant([part])])[0]["parts"] == [part]


def test_a_model_learns_that_a_call_waits_for_approval() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "approval-requested", "input": {}}

    assert "waits for the user's approval and has not run" in to_openai_chat([assistant([part])])[1]["content"]


def test_an_error_with_an_image_is_shown_in_words() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA" * 100}}
    blocks = [{"type": "text", "text": "It broke."}, image]

    [part] = to_ui_messages([assistant([CALL]), tool_result("c1", blocks, "weather", state="error")])[0]["parts"]

    assert part["state"] == "output-error"
    assert part["errorText"] == "It broke.\n[image image/png 300 bytes]"
    assert part["callProviderMetadata"]["leafward"]["output"] == blocks


def test_what_a_tool_part_has_no_field_for_is_kept_beside_it() -> None:
    call = {**CALL, "content": '{"city":  "Paris"}', "metadata": {"k": 1}, "state": "allowed"}
    message = tool_result("c1", "Stopped.", "weather", state="interrupted")

    [part] = to_ui_messages([assistant([call]), message])[0]["parts"]

    kept = part["callProviderMetadata"]["leafward"]
    assert kept.pop("message")["id"] == message.id
    assert kept == {
        "call": {"content": '{"city":  "Paris"}', "metadata": {"k": 1}, "state": "allowed"},
        "state": "interrupted",
    }


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


def test_a_line_of_agentscope_is_written_as_it_stood() -> None:
    line = json.loads(LINE)

    assert to_agentscope(from_agentscope([line])) == [line]


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
        ("SYSTEM", ["text", "text", "text"]),
    ]
    assert from_agentscope(payload) == messages


def test_a_message_that_becomes_several_is_one_again_when_it_is_read() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "18C"}
    message = assistant([part, {"type": "text", "text": "So."}], id="a", metadata={"k": 1})

    payload = to_agentscope([message])

    assert [(each["role"], each["id"] == "a", each["metadata"]) for each in payload] == [
        ("ASSISTANT", True, {"k": 1}),
        ("TOOL", False, {}),
        ("ASSISTANT", False, {}),
    ]
    assert to_agentscope([message]) == payload
    assert from_agentscope(payload) == [message]


def test_what_is_left_of_a_message_that_became_several_is_read_by_itself() -> None:
    part = {"type": "tool-f", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "18C"}

    _, result = to_agentscope([assistant([part])])

    assert from_agentscope([result])[0].parts[0]["type"] == "tool_result"


def test_arguments_that_are_not_json_survive_agentscope() -> None:
    message = assistant([{**CALL, "input": '{"cut'}])

    payload = to_agentscope([message])

    assert payload[0]["content"][0] == {**CALL, "input": {}, "content": '{"cut'}
    assert from_agentscope(payload) == [message]


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ([{"role": "USER"}], r"messages\[0\]\.content is missing"),
        ([{"role": "USER", "content": [{"text": "x"}]}], r"messages\[0\]\.content\[0\]\.type is missing"),
        ([{"role": "USER", "content": [], "timestamp": "today"}], r"messages\[0\]: "),
    ],
)
def test_a_wrong_msg_is_refused_with_its_place(payload: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_agentscope(payload)


def test_a_ui_message_without_parts_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"messages\[1\]\.parts must be a list, not null"):
        from_ui_messages([{"id": "a", "role": "user", "parts": []}, {"id": "b", "role": "user"}])


def test_a_message_of_ai_sdk_4_is_refused_with_what_reads_it() -> None:
    with pytest.raises(ValueError, match=r"messages\[0\] .*not a UIMessage of AI SDK 5: from_openai_chat reads it"):
        from_ui_messages([{"id": "b", "role": "user", "content": "x"}])
