"""OpenAI's two formats, one conversation at a time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from openai.types.chat import ChatCompletionMessage

from leafward import Message, assistant, system, tool_result, user
from leafward.formats import from_openai_chat, from_openai_responses, to_anthropic, to_openai_chat, to_openai_responses

CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
SHOT = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}


def test_a_turn_with_a_tool_is_told_in_order() -> None:
    messages = [system("Be kind."), user("Weather?"), assistant([CALL]), tool_result("c1", "18C"), assistant("18C.")]

    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Paris"}'}}
    assert to_openai_chat(messages) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "18C"},
        {"role": "assistant", "content": "18C."},
    ]
    assert to_openai_responses(messages) == [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": '{"city":"Paris"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "18C"},
        {"role": "assistant", "content": "18C."},
    ]


def test_parallel_results_stand_together_before_what_the_user_said_meanwhile() -> None:
    second = {**CALL, "id": "c2"}
    messages = [user("x"), assistant([CALL, second]), tool_result("c2", "b"), user("hello?"), tool_result("c1", "a")]

    payload = to_openai_chat(messages)

    assert [(each["role"], each.get("tool_call_id")) for each in payload] == [
        ("user", None),
        ("assistant", None),
        ("tool", "c2"),
        ("tool", "c1"),
        ("user", None),
    ]


def test_a_model_that_speaks_on_after_a_result_begins_a_new_message() -> None:
    part = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {}, "output": "18C"}
    message = assistant([{"type": "text", "text": "Let me see."}, part, {"type": "text", "text": "It is 18C."}])

    payload = to_openai_chat([message])

    assert [each["role"] for each in payload] == ["assistant", "tool", "assistant"]
    assert [each["content"] for each in payload] == ["Let me see.", "18C", "It is 18C."]


def test_steps_of_ai_sdk_are_told_one_after_the_other() -> None:
    def part(call_id: str) -> dict[str, Any]:
        return {"type": "tool-f", "toolCallId": call_id, "state": "output-available", "input": {}, "output": call_id}

    step = {"type": "step-start"}

    parallel = to_openai_chat([assistant([step, part("a"), part("b")])])
    one_by_one = to_openai_chat([assistant([step, part("a"), step, part("b")])])

    assert [each["role"] for each in parallel] == ["assistant", "tool", "tool"]
    assert [each["role"] for each in one_by_one] == ["assistant", "tool", "assistant", "tool"]


@pytest.mark.parametrize("written", ['{ "a":1 }', '{"a":1,"a":2}', " {}"])
def test_arguments_come_back_to_the_byte(written: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
    chat = [{"role": "assistant", "content": None, "tool_calls": [call]}]
    item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": written}

    assert to_openai_chat(from_openai_chat(chat))[0]["tool_calls"] == [call]
    assert to_openai_responses(from_openai_responses([item]))[0] == item
    assert to_openai_responses(from_openai_chat(chat))[0] == item


def test_arguments_that_were_changed_later_are_sent_as_changed() -> None:
    call = {**CALL, "content": '{"city": "Rome"}'}

    assert to_openai_chat([assistant([call])])[0]["tool_calls"][0]["function"]["arguments"] == '{"city":"Paris"}'


def test_files_in_a_result_follow_all_results_in_a_message_of_the_user() -> None:
    second = {**CALL, "id": "c2"}
    messages = [assistant([CALL, second]), tool_result("c1", [SHOT]), tool_result("c2", "ok")]

    payload = to_openai_chat(messages)

    assert [each["role"] for each in payload] == ["assistant", "tool", "tool", "user"]
    url = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    assert payload[-1]["content"] == [{"type": "text", "text": "[image image/png 3 bytes] from the call c1"}, url]


def test_a_picture_of_the_assistant_is_shown_by_the_user() -> None:
    for payload in (to_openai_chat([assistant([SHOT])]), to_openai_responses([assistant([SHOT])])):
        assert [each["role"] for each in payload] == ["user"]
        assert "data:image/png;base64,AAAA" in json.dumps(payload)


def test_names_are_made_to_fit() -> None:
    payload = to_openai_chat([user("hi", name="Dr. Who <x>"), Message("critic", "meh")])

    assert [(each["role"], each["name"]) for each in payload] == [("user", "Dr._Who_x_"), ("user", "critic")]


def test_an_object_of_the_sdk_is_read_like_its_json() -> None:
    reply = {"role": "assistant", "content": "hi", "refusal": None}

    assert to_openai_chat(from_openai_chat([ChatCompletionMessage.model_validate(reply)])) == [reply]


def test_reasoning_of_one_provider_is_words_to_another_unless_it_is_encrypted() -> None:
    readable = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    sealed = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gAAA"}
    messages = from_openai_responses([readable, sealed, {"role": "assistant", "content": "Yes."}])

    assert [message.role for message in messages] == ["assistant"]
    words = json.dumps([to_openai_chat(messages), to_anthropic(messages)])
    assert words.count("<thinking>\\\\nHm.\\\\n</thinking>".replace("\\\\", "\\")) == 2
    assert "gAAA" not in words
    assert to_openai_chat(from_openai_responses([sealed])) == []


def test_reasoning_that_nothing_of_its_reply_follows_is_not_sent() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    [broken_off] = from_openai_responses([thought])
    [searched] = from_openai_responses([{"type": "web_search_call", "id": "ws_1", "status": "completed"}, thought])
    question = {"role": "user", "content": "?"}

    for after in ([], [user("?")], [tool_result("c", "late")], [assistant("Summary.")]):
        assert "rs_1" not in json.dumps(to_openai_responses([user("?"), broken_off, *after]))
    assert to_openai_responses([user("?"), searched, user("?")]) == [
        question,
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        question,
    ]


def test_reasoning_that_is_stored_before_its_reply_is_sent_with_it() -> None:
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"},
    ]
    messages = [message for item in items for message in from_openai_responses([item])]

    assert to_openai_responses(messages)[:2] == items


def test_ids_of_messages_are_kept_where_responses_has_them() -> None:
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    item["content"] = [{"type": "output_text", "text": "hi", "annotations": []}]

    [message, again] = from_openai_responses([item, {"role": "user", "content": "?"}])

    assert message.id == "msg_1"
    assert message.text == "hi"
    assert again.text == "?"


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ([{"content": "x"}], r"messages\[0\]\.role is missing"),
        ([{"role": "user", "content": [{"text": "x"}]}], r"messages\[0\]\.content\[0\]\.type is missing"),
        ([{"role": "tool", "content": "x"}], r"messages\[0\]\.tool_call_id is missing"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}],
            r"messages\[0\]\.tool_calls\[0\]\.function must be an object, not null",
        ),
        (
            [{"role": "assistant", "tool_calls": [{"id": "c", "type": "shell"}]}],
            r"messages\[0\]\.tool_calls\[0\]\.type is 'function' or 'custom', not 'shell'",
        ),
        ([{"role": "user", "content": "x", "n": float("nan")}], r"messages\[0\]: a message holds nan"),
    ],
)
def test_a_wrong_chat_is_refused_with_its_place(payload: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_openai_chat(payload)


def spoken_reply(expires_at: float) -> dict[str, Any]:
    audio = {"id": "audio_1", "data": "AAAA", "transcript": "Good morning.", "expires_at": expires_at}
    return {"role": "assistant", "content": None, "audio": audio}


def test_a_spoken_reply_goes_back_as_its_recording_as_long_as_the_api_has_it() -> None:
    [message] = from_openai_chat([spoken_reply(time.time() + 3600)])

    assert message.text == "Good morning."
    assert to_openai_chat([message]) == [{"role": "assistant", "content": None, "audio": {"id": "audio_1"}}]
    assert to_anthropic([user("hi"), message])["messages"][1]["content"] == "Good morning."


def test_a_spoken_reply_whose_recording_is_gone_goes_back_in_words() -> None:
    [message] = from_openai_chat([spoken_reply(time.time() - 1)])

    assert to_openai_chat([message]) == [{"role": "assistant", "content": "Good morning."}]


def test_a_spoken_reply_without_words_whose_recording_is_gone_is_empty() -> None:
    silent = spoken_reply(time.time() - 1)
    silent["audio"]["transcript"] = ""

    assert to_openai_chat(from_openai_chat([silent])) == [{"role": "assistant", "content": ""}]


@pytest.mark.parametrize("content", [{"content": None}, {"content": []}, {}])
@pytest.mark.parametrize(
    "head",
    [
        {"role": "user"},
        {"role": "system"},
        {"role": "assistant"},
        {"role": "assistant", "refusal": None},
        {"role": "assistant", "refusal": ""},
        {"role": "assistant", "reasoning_content": "hm"},
    ],
)
def test_a_message_that_says_nothing_has_an_empty_text(head: dict[str, Any], content: dict[str, Any]) -> None:
    assert to_openai_chat(from_openai_chat([{**head, **content}])) == [{**head, "content": ""}]


@pytest.mark.parametrize("content", [{"content": None}, {}])
def test_content_stays_null_or_absent_beside_calls_a_refusal_or_a_recording(content: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for more in ({"tool_calls": [call]}, {"refusal": "no"}, {"audio": {"id": "audio_1"}}):
        message = {"role": "assistant", **content, **more}

        assert to_openai_chat(from_openai_chat([message]))[0] == message


@pytest.mark.parametrize("content", [{"content": None}, {"content": []}, {}])
def test_a_result_that_is_empty_is_sent_as_an_empty_text(content: dict[str, Any]) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}

    payload = to_openai_chat(from_openai_chat([asked, {"role": "tool", "tool_call_id": "c", **content}]))

    assert payload == [asked, {"role": "tool", "tool_call_id": "c", "content": ""}]


@pytest.mark.parametrize("content", [None, []])
def test_calls_beside_an_empty_list_are_sent_beside_a_text(content: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    payload = to_openai_chat(from_openai_chat([{"role": "assistant", "content": content, "tool_calls": [call]}]))

    assert payload[0]["content"] == ("" if content == [] else None)


@pytest.mark.parametrize("wide", ["image/*", "*/*"])
def test_an_image_of_any_type_has_the_type_in_its_address(wide: str) -> None:
    part = {"type": "file", "mediaType": wide, "url": "data:image/jpeg;base64,AAAA"}

    [chat] = to_openai_chat([user([part])])
    [claude] = to_anthropic([user([part])])["messages"]

    assert chat["content"] == [{"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AAAA"}}]
    assert claude["content"][0]["source"] == {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}


def test_an_image_of_any_type_is_sent_as_one() -> None:
    source = {"type": "base64", "media_type": "image/*", "data": "AAAA"}

    [chat] = to_openai_chat([user([{"type": "image", "source": source}])])
    [web] = to_openai_chat([user([{"type": "file", "mediaType": "image/*", "url": "https://x.test/a"}])])

    assert chat["content"] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]
    assert web["content"] == [{"type": "image_url", "image_url": {"url": "https://x.test/a"}}]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "file", "mediaType": "text/csv", "url": "data:text/csv;base64,aGk=", "filename": "a.csv"}, "a.csv"),
        ({"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,", "filename": "a.txt"}, "a.txt"),
        ({"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,aGk="}}, "image/svg+xml"),
        ({"type": "input_image", "image_url": "data:image/svg+xml;base64,aGk="}, "image/svg+xml"),
    ],
)
def test_a_file_that_chat_does_not_take_is_named_in_words(part: dict[str, Any], words: str) -> None:
    [chat] = to_openai_chat([user([part])])

    assert words in chat["content"]


@pytest.mark.parametrize("url", ["data:text/plain;base64,", "data:image/svg+xml;base64,aGk="])
def test_a_file_that_responses_does_not_take_is_named_in_words(url: str) -> None:
    kind, key = ("input_image", "image_url") if "image" in url else ("input_file", "file_data")

    [item] = to_openai_responses([user([{"type": kind, key: url}])])

    assert item["content"].startswith("[")


def test_a_pdf_without_a_name_is_given_one() -> None:
    data = "data:application/pdf;base64,aGk="

    [chat] = to_openai_chat([user([{"type": "file", "file": {"file_data": data}}])])

    assert chat["content"] == [{"type": "file", "file": {"file_data": data, "filename": "file.pdf"}}]


def test_a_detail_that_openai_does_not_know_is_left_out() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "sharp"}}

    [chat] = to_openai_chat([user([image])])

    assert chat["content"] == [{"type": "image_url", "image_url": {"url": "https://x.test/a.png"}}]
