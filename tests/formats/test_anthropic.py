"""Anthropic's format, one conversation at a time."""

from __future__ import annotations

from typing import Any

import pytest
from anthropic.types import TextBlock, ToolUseBlock

from leafward import Message, assistant, system, tool_result, user
from leafward.formats import from_anthropic, from_ui_messages, to_anthropic, to_ui_messages
from tests.formats.validators import check_anthropic

CALL = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Paris"}}
HI = {"type": "text", "text": "hi"}
SEARCH = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}


def test_a_turn_with_a_tool_is_told_in_order() -> None:
    messages = [system("Be kind."), user("Weather?"), assistant([CALL]), tool_result("c1", "18C"), user("Thanks.")]

    assert to_anthropic(messages) == {
        "system": "Be kind.",
        "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [CALL]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "18C"},
                    {"type": "text", "text": "Thanks."},
                ],
            },
        ],
    }


def test_system_text_is_gathered_with_its_cache_marks() -> None:
    marked = {"type": "text", "text": "Long.", "cache_control": {"type": "ephemeral"}}

    payload = to_anthropic([system([marked]), user("hi"), system("And be brief.")])

    assert payload["system"] == [marked, {"type": "text", "text": "And be brief."}]


def test_a_conversation_that_the_assistant_begins_gets_a_first_word_of_the_user() -> None:
    messages = to_anthropic([assistant("Hello!"), user("Hi.")])["messages"]

    assert messages == [
        {"role": "user", "content": "[The conversation begins with the assistant.]"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Hi."},
    ]


def test_what_the_api_refuses_as_empty_is_left_out() -> None:
    messages = to_anthropic([user(""), user([]), user("hi"), assistant(" \n"), user("there")])["messages"]

    assert messages == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "there"}]},
    ]


def test_thinking_keeps_its_signature_through_ai_sdk_and_back() -> None:
    thoughts = [
        {"type": "thinking", "thinking": "Hm.", "signature": "sig=="},
        {"type": "redacted_thinking", "data": "sealed=="},
    ]
    message = assistant([*thoughts, {"type": "text", "text": "Yes."}])

    through = from_ui_messages(to_ui_messages([user("?"), message]))

    assert to_anthropic([user("?"), message])["messages"][1]["content"][:2] == thoughts
    assert to_anthropic(through)["messages"][1]["content"][:2] == thoughts


THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig=="}
SEALED = {"type": "redacted_thinking", "data": "sealed=="}


def test_thinking_below_a_summary_still_begins_its_message() -> None:
    messages = [user("go"), assistant("Summary: weather."), assistant([THOUGHT, CALL]), tool_result("c1", "18C")]

    assert to_anthropic(messages)["messages"] == [
        {"role": "user", "content": "go"},
        {"role": "assistant", "content": "Summary: weather."},
        {"role": "user", "content": "[The assistant continues.]"},
        {"role": "assistant", "content": [THOUGHT, CALL]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "18C"}]},
    ]


@pytest.mark.parametrize("parts", [[HI, THOUGHT, HI], [CALL, THOUGHT, HI], [CALL, HI, THOUGHT, HI], [HI, SEALED, CALL]])
def test_a_message_that_holds_thinking_begins_with_it(parts: list[dict[str, Any]]) -> None:
    check_anthropic(to_anthropic([user("go"), assistant(parts), user("so?")]))


def test_replies_that_begin_with_thinking_are_one_message() -> None:
    payload = to_anthropic([user("go"), assistant([THOUGHT, HI]), assistant([SEALED, HI])])

    assert payload["messages"][1]["content"] == [THOUGHT, HI, SEALED, HI]


def test_thinking_after_a_search_of_the_api_stays_in_its_message() -> None:
    payload = to_anthropic([user("go"), assistant([HI, SEARCH, FOUND, THOUGHT, HI]), user("so?")])

    assert payload["messages"][1]["content"] == [HI, SEARCH, FOUND, THOUGHT, HI]


@pytest.mark.parametrize("thoughts", [[THOUGHT], [SEALED], [THOUGHT, SEALED]])
def test_thinking_that_nothing_follows_is_not_sent(thoughts: list[dict[str, Any]]) -> None:
    asked = user("go")
    alone, last = assistant(thoughts), assistant([HI, *thoughts])

    assert to_anthropic([asked, alone]) == to_anthropic([asked])
    assert to_anthropic([alone, asked]) == to_anthropic([asked])
    assert to_anthropic([asked, alone, user("so?")]) == to_anthropic([asked, user("so?")])
    assert to_anthropic([asked, last, user("so?")]) == to_anthropic([asked, assistant("hi"), user("so?")])


def test_thinking_that_is_stored_before_its_reply_is_sent_with_it() -> None:
    payload = to_anthropic([user("go"), assistant([THOUGHT]), assistant([CALL])])

    assert payload["messages"][1]["content"] == [THOUGHT, CALL]


def test_an_id_the_api_refuses_is_replaced_in_call_and_result() -> None:
    messages = [
        user("x"),
        assistant([{**CALL, "id": "functions.weather:0"}]),
        tool_result("functions.weather:0", "18C"),
    ]

    said = to_anthropic(messages)["messages"]

    assert said[1]["content"][0]["id"] == said[2]["content"][0]["tool_use_id"]
    assert said[1]["content"][0]["id"].replace("_", "").isalnum()
    assert to_anthropic(messages) == to_anthropic(messages)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ("plain words", {"arguments": "plain words"}),
        ([1], {"arguments": [1]}),
        (None, {}),
        ("", {}),
    ],
)
def test_arguments_are_always_an_object(given: Any, sent: dict[str, Any]) -> None:
    assert (
        to_anthropic([user("x"), assistant([{**CALL, "input": given}])])["messages"][1]["content"][0]["input"] == sent
    )


def test_a_failed_tool_is_marked_as_an_error() -> None:
    messages = [user("x"), assistant([CALL]), tool_result("c1", "boom", state="error")]

    [result] = to_anthropic(messages)["messages"][2]["content"]

    assert result == {"type": "tool_result", "tool_use_id": "c1", "content": "boom", "is_error": True}


def test_a_file_the_api_cannot_take_is_named() -> None:
    video = {"type": "video", "source": {"type": "url", "url": "https://x.test/v.mp4"}}

    assert to_anthropic([user([video])])["messages"][0]["content"] == "[video https://x.test/v.mp4]"


def test_blocks_of_the_sdk_are_read_like_their_json() -> None:
    reply = [TextBlock(type="text", text="Let me see."), ToolUseBlock(type="tool_use", id="c1", name="f", input={})]

    [message] = from_anthropic([{"role": "assistant", "content": reply}])

    assert message.parts == [
        {"type": "text", "text": "Let me see."},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {}},
    ]


def test_a_bare_list_is_read_like_the_messages_of_a_request() -> None:
    listed = [{"role": "user", "content": "hi"}]

    assert [m.text for m in from_anthropic(listed)] == ["hi"]
    assert [m.text for m in from_anthropic({"messages": listed, "model": "m"})] == ["hi"]


@pytest.mark.parametrize(
    ("payload", "complaint"),
    [
        ({"system": "x"}, r'the payload has "messages" and perhaps "system", not \[\'system\'\]'),
        ({"messages": [], "system": 7}, r"system must be a list, not a whole number"),
        ([{"role": "user"}], r"messages\[0\]\.content must be a list, not null"),
        (
            [{"role": "user", "content": [{"type": "tool_result"}]}],
            r"content\[0\]\.tool_use_id is missing",
        ),
    ],
)
def test_a_wrong_request_is_refused_with_its_place(payload: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        from_anthropic(payload)


def test_an_id_given_to_a_repeated_call_is_not_one_that_another_call_has() -> None:
    calls = [{**CALL, "id": call_id} for call_id in ("c1", "c1", "c1_2")]

    said = to_anthropic([user("x"), assistant(calls)])["messages"]

    assert [block["id"] for block in said[1]["content"]] == ["c1", "c1_3", "c1_2"]
    assert [block["tool_use_id"] for block in said[2]["content"]] == ["c1", "c1_3", "c1_2"]


def test_a_search_of_the_api_that_broke_off_is_left_out() -> None:
    other = {**FOUND, "tool_use_id": "srv_2"}
    broken = [user("look it up"), Message("assistant", [SEARCH]), user("well?"), Message("assistant", [other, HI])]

    payload = to_anthropic([*broken, user("so?")])

    assert [message["content"] for message in payload["messages"]] == [
        [{"type": "text", "text": "look it up"}, {"type": "text", "text": "well?"}],
        "hi",
        "so?",
    ]


def test_a_search_of_the_api_goes_back_with_what_it_found() -> None:
    payload = to_anthropic([user("look it up"), Message("assistant", [SEARCH, FOUND, HI]), user("so?")])

    assert payload["messages"][1]["content"] == [SEARCH, FOUND, HI]


def test_a_search_on_which_the_api_paused_goes_back_alone() -> None:
    payload = to_anthropic([user("look it up"), Message("assistant", [SEARCH])])

    assert payload["messages"][1]["content"] == [SEARCH]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/svg+xml", "data": "aGk="},
        {"type": "base64", "media_type": "image/png", "data": "not base64"},
        {"type": "url", "url": "/home/me/cat.png"},
        {"type": "url", "url": "data:image/png,raw"},
    ],
)
def test_an_image_that_the_api_refuses_is_named_in_words(source: dict[str, Any]) -> None:
    payload = to_anthropic([Message("user", [{"type": "image", "source": source}])])

    assert payload["messages"][0]["content"].startswith("[image")


def test_an_image_in_lines_is_sent_in_one() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGVs\nbG8=\n"}

    payload = to_anthropic([Message("user", [{"type": "image", "source": source}])])

    assert payload["messages"][0]["content"][0]["source"]["data"] == "aGVsbG8="


def test_the_last_four_cache_marks_are_sent() -> None:
    mark = {"type": "ephemeral"}
    blocks = [{"type": "text", "text": str(number), "cache_control": mark} for number in range(5)]

    payload = to_anthropic([Message("system", blocks[:2]), Message("user", blocks[2:])])

    assert ["cache_control" in block for block in payload["system"]] == [False, True]
    assert all(block["cache_control"] == mark for block in payload["messages"][0]["content"])
    assert all("cache_control" in block for block in blocks)


@pytest.mark.parametrize(
    "part",
    [
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": " "}},
        {"type": "tool_reference", "tool_name": "look"},
        {"type": "container_upload", "file_id": "file_1"},
    ],
)
def test_what_says_nothing_or_is_not_the_assistants_to_say_is_not_sent(part: dict[str, Any]) -> None:
    [read] = from_anthropic([{"role": "assistant", "content": [HI, part]}])

    assert to_anthropic([user("x"), read])["messages"][1]["content"] in ("hi", [HI])


def test_fields_with_values_that_the_api_refuses_are_left_out() -> None:
    source = {"type": "text", "media_type": "text/plain", "data": "hi"}
    document = {"type": "document", "source": source, "title": "", "cache_control": "yes"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "x", "is_error": None}

    payload = to_anthropic([Message("user", [document]), assistant([CALL]), Message("user", [result])])

    assert payload["messages"][0]["content"] == [{"type": "document", "source": source}]
    assert payload["messages"][2]["content"] == [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}]


def test_a_search_result_that_does_not_say_its_source_is_sent_as_text() -> None:
    payload = to_anthropic([Message("user", [{"type": "search_result", "title": "t", "content": [HI]}])])

    assert payload["messages"][0]["content"] == "[t]\nhi"


def test_a_text_file_is_sent_as_a_document_of_its_text() -> None:
    file = {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,aGVsbG8K", "filename": "a.txt"}
    binary = {**file, "url": "data:text/plain;base64,//79"}

    [message] = to_anthropic([Message("user", [file, binary])])["messages"]

    source = {"type": "text", "media_type": "text/plain", "data": "hello\n"}
    assert message["content"][0] == {"type": "document", "source": source, "title": "a.txt"}
    assert message["content"][1] == {"type": "text", "text": "[file a.txt text/plain 3 bytes]"}


def carried(raw: Any) -> dict[str, Any]:
    """Return a part that a page may have made: it claims to carry a block of the API."""
    return {"type": "x", "leafward_provider": {"name": "anthropic", "raw": raw}}


@pytest.mark.parametrize("raw", [{"a": 1}, {"type": ["x"]}, {"type": "text"}, {"type": "text", "text": 5}], ids=str)
def test_items_of_the_api_without_a_type_or_text_are_not_sent(raw: dict[str, Any]) -> None:
    odd, said = carried(raw), [user("hi"), assistant([CALL]), tool_result("c1", "18C")]

    payload = to_anthropic([Message("user", [odd]), said[0], assistant([odd, CALL]), said[2], assistant([odd])])

    assert payload == to_anthropic(said)
    check_anthropic(to_anthropic([*said[:2], tool_result("c1", [odd])]))


def test_items_of_the_api_that_hold_anything_do_no_harm() -> None:
    listed = carried({"type": "tool_result", "content": ["x"]})

    assert to_anthropic([Message("user", [listed])])["messages"][0]["content"] == [
        {"type": "tool_result", "content": ["x"]}
    ]


def test_fields_that_only_the_api_knows_do_not_replace_those_of_a_part() -> None:
    rest = {"name": "anthropic", "rest": {"type": "image", "text": "other words", "new": 1}}
    part = {"type": "text", "text": "hi", "leafward_provider": rest}

    assert to_anthropic([Message("user", [part])])["messages"][0]["content"] == [
        {"type": "text", "text": "hi", "new": 1}
    ]
