"""AI SDK's and AgentScope's messages, one conversation at a time."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from leafward import Message, Session, assistant, open_store, tool_result, user
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
                    "leafward": {
                        "call": {"part": {**CALL, "input": None}, "place": ["input"]},
                        "result": {
                            "part": {**answer.parts[0], "output": [{"type": "text", "text": None}]},
                            "place": ["output", 0, "text"],
                        },
                        "index": 0,
                        "message": {"id": "t", "role": "tool", "createdAt": answer.to_dict()["createdAt"]},
                        "after": "a",
                    }
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
    assert part["callProviderMetadata"]["leafward"]["result"]["part"]["output"] == blocks


def test_what_a_tool_part_has_no_field_for_is_kept_beside_it() -> None:
    call = {**CALL, "content": '{"city":  "Paris"}', "metadata": {"k": 1}, "state": "allowed"}
    message = tool_result("c1", "Stopped.", "weather", state="interrupted")

    [part] = to_ui_messages([assistant([call]), message])[0]["parts"]

    kept = part["callProviderMetadata"]["leafward"]
    assert kept["message"]["id"] == message.id
    assert kept["call"]["part"] == {**call, "input": None}
    assert kept["result"]["part"]["state"] == "interrupted"


def asked_and_answered() -> list[Message]:
    """Return a turn as an agent stores it: two calls, their results in one message, and what was made of them."""
    calls = [{**CALL, "id": call_id, "content": '{"city":  "Paris"}'} for call_id in ("c1", "c2")]
    results = [part for call_id in ("c2", "c1") for part in tool_result(call_id, f"of {call_id}").parts]
    return [assistant(calls, id="a"), Message("tool", results, id="t"), assistant("18 degrees.", id="b")]


async def test_a_history_that_went_through_a_screen_and_was_stored_again_is_unchanged() -> None:
    async with open_store("memory://") as store:
        session = Session(store, "chat")
        await session.append_messages(asked_and_answered())
        before = await session.get_history()

        for message in from_ui_messages(to_ui_messages(before)):
            await session.upsert_message(message)

        assert await session.get_history() == before


def test_a_part_that_the_page_settled_stays_one_part() -> None:
    [message] = to_ui_messages([assistant([CALL], id="a")])
    message["parts"][0] |= {"state": "output-available", "output": "clicked"}

    [back] = from_ui_messages([message])

    assert back.parts == message["parts"]
    assert to_openai_chat([back])[1]["content"] == "clicked"


def test_a_part_that_the_page_settled_while_its_tool_was_running_stays_one_part() -> None:
    running = tool_result("c1", "half", state="running")
    [message] = to_ui_messages([assistant([CALL], id="a"), running])
    message["parts"][0] |= {"state": "output-available", "output": "clicked"}

    [back] = from_ui_messages([message])

    assert back.parts == message["parts"]
    # Where the result that was running is still stored below it, a model is sent the page's.
    assert [one["content"] for one in to_openai_chat([back, running])[1:]] == ["clicked"]


def test_an_output_that_the_page_changed_is_that_of_the_result() -> None:
    [message] = to_ui_messages([assistant([CALL], id="a"), tool_result("c1", "18C", id="t")])
    message["parts"][0]["output"] = "19C"

    assert [part["output"] for part in from_ui_messages([message])[1].parts] == [[{"type": "text", "text": "19C"}]]


def test_a_result_follows_its_call_where_the_message_before_it_was_left_out() -> None:
    late = tool_result("c1", "18C", id="t")
    [call, shown, after] = to_ui_messages([assistant([CALL], id="a"), user("well?", id="u"), late, user("x")])

    assert [one.id for one in from_ui_messages([call, shown, after])][:3] == ["a", "u", "t"]
    assert [one.id for one in from_ui_messages([call, after])][:2] == ["a", "t"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"call": 7},
        {"call": {"part": {"no": "type"}}},
        {"call": {"part": CALL, "place": ["x", "y"]}},
        {"index": "first"},
        {"message": {"role": "tool"}},
        {"after": 7},
        {"repeats": [7]},
        {"repeats": "none"},
    ],
    ids=str,
)
def test_a_part_whose_record_was_spoiled_stays_one_part(wrong: dict[str, Any]) -> None:
    [message] = to_ui_messages([assistant([CALL], id="a"), tool_result("c1", "18C", id="t")])
    message["parts"][0]["callProviderMetadata"]["leafward"] |= wrong

    [back] = from_ui_messages([message])

    assert back.parts == message["parts"]


def test_messages_that_claim_to_follow_each_other_are_all_read() -> None:
    calls = [{**CALL, "id": call_id} for call_id in ("c1", "c2")]
    results = [tool_result(call["id"], "x", id=call["id"]) for call in calls]
    [message] = to_ui_messages([assistant(calls, id="a"), *results])
    message["parts"][0]["callProviderMetadata"]["leafward"]["after"] = "c2"

    assert {one.id for one in from_ui_messages([message])} == {"a", "c1", "c2"}


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
        ([{"role": "USER", "content": [], "id": []}], r"messages\[0\]: "),
    ],
)
def test_a_wrong_msg_is_refused_with_its_place(payload: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_agentscope(payload)


def test_a_msg_that_only_java_takes_is_read_and_written_as_it_was() -> None:
    odd = {"type": "tool_use", "id": "c", "name": "pay", "input": {"wei": 10**30}, "content": None, "metadata": {}}
    payload: list[dict[str, Any]] = [
        {"id": "a\n", "name": None, "role": "USER", "content": [], "metadata": {}, "timestamp": "now", "usage": None},
        {"id": "b", "name": None, "role": None, "content": [odd], "metadata": {}, "timestamp": None, "usage": None},
    ]

    read = from_agentscope(payload)
    written = to_agentscope(read)

    assert read[1].parts[0]["input"] == {"wei": str(10**30)}
    shown = [{key: value for key, value in each.items() if not key.startswith("leafward_")} for each in written]
    assert [each["id"] for each in shown] == ["a\n", "b"]
    assert [each["role"] for each in shown] == ["USER", None]
    assert shown[1]["content"][0]["input"] == {"wei": 10**30}
    assert from_agentscope(written) == read


@pytest.mark.parametrize("carried", [None, 5, {"id": ""}, {"id": "a", "role": "assistant", "parts": 7}])
def test_a_damaged_carrier_hides_no_message(carried: Any) -> None:
    first = {"id": "a", "role": "ASSISTANT", "content": [], "leafward_message": carried}
    more = {"id": "b", "role": "TOOL", "content": [], "leafward_continues": "a"}

    assert [message.id for message in from_agentscope([first, more])] == ["a", "b"]


@pytest.mark.parametrize("role", ["USER", "user"])
def test_two_msg_objects_that_share_an_id_become_messages_with_two(role: str) -> None:
    one = {"id": "a", "role": role, "content": [{"type": "new"}], "timestamp": "2026-08-22 23:15:57.000"}
    payload = [one, one, one]

    read = from_agentscope(payload)

    assert len({message.id for message in read}) == 3
    assert from_agentscope(payload) == read
    written = to_agentscope(read)
    assert [each["id"] for each in written] == ["a", "a", "a"]
    assert from_agentscope(written) == read


@pytest.mark.parametrize("value", ["a", [], {"id": "x", "role": "user", "parts": []}])
@pytest.mark.parametrize("key", ["leafward_continues", "leafward_message"])
def test_a_message_with_a_key_of_ours_comes_back(key: str, value: Any) -> None:
    messages = [assistant([{"type": "zzz"}], id="a"), assistant("hi", id="b", **{key: value})]

    assert from_agentscope(to_agentscope(messages)) == messages


def test_a_ui_message_without_parts_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"messages\[1\]\.parts must be a list, not null"):
        from_ui_messages([{"id": "a", "role": "user", "parts": []}, {"id": "b", "role": "user"}])


def test_a_message_of_ai_sdk_4_is_refused_with_what_reads_it() -> None:
    with pytest.raises(ValueError, match=r"messages\[0\] .*not a UIMessage of AI SDK 5: from_openai_chat reads it"):
        from_ui_messages([{"id": "b", "role": "user", "content": "x"}])


def test_a_part_that_a_page_settled_comes_back_as_it_is_however_often_it_is_shown() -> None:
    history = [assistant([CALL], id="a"), tool_result("c1", "50%", "weather", state="running", id="b")]
    [shown] = to_ui_messages(history)
    settled = {**shown["parts"][0], "state": "output-available", "output": "18C"}
    stored = [*from_ui_messages([{**shown, "parts": [settled]}]), history[1]]

    for _ in range(3):
        back = from_ui_messages(to_ui_messages(stored))
        assert [message.to_dict() for message in back] == [message.to_dict() for message in stored]
        stored = back
