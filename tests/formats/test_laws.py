"""What holds for every format: nothing is lost, providers accept it, what was given stays unchanged."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import Message, assistant, tool_result, user
from leafward.core.overlays import summary_message
from tests.formats.conversations import READERS, WRITERS, Conversation, Seen, conversations, seen_in
from tests.formats.payloads import BROKEN_ARGUMENTS

every_format = pytest.mark.parametrize("name", sorted(WRITERS))
MODELS = ("anthropic", "openai_chat", "openai_responses")
SCREENS = ("agentscope", "ui_messages")
every_model = pytest.mark.parametrize("name", MODELS)
every_screen = pytest.mark.parametrize("name", SCREENS)


class Reply:
    """An object of an SDK."""

    def model_dump(self) -> dict[str, Any]:
        return {"role": "assistant", "content": "x"}


def missing(name: str, made: Conversation, payload: str) -> list[str]:
    """Return the words that a payload lacks; models are not sent what is for screens."""
    apart = () if name in SCREENS else (*made.screen_words, *made.own_words)
    wanted = [word for word in made.words if word not in apart]
    return [word for word in wanted if word not in payload]


@every_format
@given(made=conversations())
def test_every_word_is_in_the_payload(name: str, made: Conversation) -> None:
    payload = json.dumps(WRITERS[name](made.messages))

    assert missing(name, made, payload) == []
    if name in MODELS:
        assert [word for word in made.screen_words if word in payload] == []


@every_model
@given(made=conversations())
def test_every_call_is_in_the_payload_with_its_name_and_arguments(name: str, made: Conversation) -> None:
    calls = [seen for seen in seen_in(name, WRITERS[name](made.messages)) if seen.kind == "call"]

    assert sorted((call.name, json.loads(call.arguments)["w"]) for call in calls) == sorted(
        (tool, word) for _, tool, word in made.calls
    )
    # Only an id that is taken may change, and it still begins with what it was.
    ids = {tool: call_id for call_id, tool, _ in made.calls}
    assert all(call.id == ids[call.name] or call.id.startswith(f"{ids[call.name]}_") for call in calls)
    if len(set(ids.values())) == len(ids):
        assert {call.name: call.id for call in calls} == ids


@every_model
@given(made=conversations())
def test_every_call_has_exactly_one_result_directly_after_it(name: str, made: Conversation) -> None:
    waiting: list[Seen] = []
    for seen in seen_in(name, WRITERS[name](made.messages)):
        if waiting and seen.step > waiting[0].step:
            assert seen.kind == "result", f"{waiting} wait while {seen} comes"
        if seen.kind == "call":
            waiting.append(seen)
        else:
            answered = next((call for call in waiting if call.id == seen.id), None)
            assert answered is not None, f"{seen} answers nothing"
            waiting.remove(answered)

    assert waiting == []


@every_format
@given(made=conversations())
def test_the_messages_stay_as_they_were(name: str, made: Conversation) -> None:
    before = [json.dumps(message.to_dict()) for message in made.messages]

    payload = WRITERS[name](made.messages)
    _spoil(payload)

    assert [json.dumps(message.to_dict()) for message in made.messages] == before


@every_format
@given(made=conversations())
def test_a_payload_is_stable_once_written(name: str, made: Conversation) -> None:
    """What was written and read back is written the same: the provider's cache stays warm."""
    payload = WRITERS[name](made.messages)

    assert WRITERS[name](READERS[name](payload)) == payload
    assert WRITERS[name](made.messages) == payload


@every_format
@given(made=conversations())
def test_a_longer_conversation_only_adds_to_the_payload(name: str, made: Conversation) -> None:
    more = [*made.messages, user("one more")]
    short, long = WRITERS[name](made.messages), WRITERS[name](more)
    if isinstance(short, dict):
        assert long["system"] == short["system"]
        short, long = short["messages"], long["messages"]
        # The last message of the user may grow.
        short = short[:-1] if short and short[-1]["role"] == "user" else short

    assert long[: len(short)] == short


@every_format
def test_no_messages_make_an_empty_payload(name: str) -> None:
    payload = WRITERS[name]([])

    assert payload == ({"system": "", "messages": []} if name == "anthropic" else [])
    assert READERS[name](payload) == []


@every_format
def test_dicts_stand_for_messages(name: str) -> None:
    message = user("hi", id="m1")

    assert WRITERS[name]([message.to_dict()]) == WRITERS[name]([message])


@every_format
@pytest.mark.parametrize("wrong", ["text", None, 7, {"role": "user"}, user("hi")])
def test_what_is_no_list_of_messages_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="messages are a list of messages, not"):
        WRITERS[name](wrong)


@every_format
def test_a_wrong_message_is_named_by_its_place(name: str) -> None:
    with pytest.raises(ValueError, match=r"messages\[1\]: .*not int"):
        WRITERS[name]([user("hi"), 7])


@every_format
@pytest.mark.parametrize("wrong", ["text", None, 7])
def test_what_is_no_payload_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match="must be a list, not"):
        READERS[name](wrong)


@pytest.mark.parametrize("name", sorted(set(READERS) - {"openai_responses"}))
@pytest.mark.parametrize("message", [{"role": "user", "content": "x", "parts": []}, Reply()], ids=["dict", "object"])
def test_one_message_is_refused_with_the_advice_to_put_it_in_a_list(name: str, message: Any) -> None:
    with pytest.raises(ValueError, match=r"put (it|one message) in a list"):
        READERS[name](message)


@pytest.mark.parametrize("name", sorted(set(READERS) - {"openai_responses", "anthropic"}))
def test_an_object_around_a_list_of_messages_is_refused_with_where_the_list_is(name: str) -> None:
    with pytest.raises(ValueError, match='give the list in its "messages"'):
        READERS[name]({"id": "chat", "messages": []})


@every_format
@pytest.mark.parametrize(
    "wrong", [[7], [None], [{}], [{"role": 7, "content": "x"}], [{"role": "user", "content": 7, "parts": 7}]]
)
def test_a_wrong_item_is_named_by_its_place(name: str, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"^(messages|input)\[0\]"):
        READERS[name](wrong)


@every_format
@given(
    payload=st.recursive(
        st.none() | st.integers() | st.text(max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "role",
                        "type",
                        "content",
                        "parts",
                        "id",
                        "text",
                        "tool_calls",
                        "output",
                        "call_id",
                        "name",
                        "input",
                    ]
                ),
                inner | st.sampled_from(["user", "assistant", "tool", "text", "message", "function_call", "tool_use"]),
                max_size=5,
            )
        ),
        max_leaves=20,
    )
)
def test_no_payload_breaks_a_reader(name: str, payload: Any) -> None:
    try:
        messages = READERS[name](payload)
    except ValueError:
        return
    json.dumps(WRITERS[name](messages))


@every_format
@pytest.mark.parametrize("other", sorted(WRITERS))
@given(made=conversations())
def test_a_conversation_moves_from_one_provider_to_another(name: str, other: str, made: Conversation) -> None:
    moved = json.dumps(WRITERS[other](READERS[name](WRITERS[name](made.messages))))

    assert missing(name if name in MODELS else other, made, moved) == []


@every_model
def test_a_call_that_was_interrupted_is_answered_in_the_payload(name: str) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "deploy", "input": {"to": "prod"}}
    messages = [user("go"), assistant([call]), user("well?")]

    payload = WRITERS[name](messages)

    assert "The call of deploy was interrupted before a result came" in json.dumps(payload)
    seen = seen_in(name, payload)
    assert [(each.kind, each.id) for each in seen] == [("call", "c1"), ("result", "c1")]
    assert [part for message in messages for part in message.parts if part["type"] == "tool_result"] == []


@every_model
def test_a_result_without_its_call_is_sent_as_text(name: str) -> None:
    payload = WRITERS[name]([user("hi"), tool_result("c9", "18 degrees", "weather"), user("and?")])

    assert seen_in(name, payload) == []
    text = json.dumps(payload)
    assert "Result of weather (c9), whose call is not part of this conversation" in text
    assert "18 degrees" in text


@every_model
def test_a_result_goes_to_the_nearest_call_when_ids_repeat(name: str) -> None:
    """Some servers number calls from nought in each reply; the first of these was never answered."""
    calls = [{"type": "tool_use", "id": "call_0", "name": tool, "input": {}} for tool in ("first", "second")]
    messages = [user("a"), assistant([calls[0]]), user("b"), assistant([calls[1]]), tool_result("call_0", "18C")]

    payload = WRITERS[name](messages)

    words = json.dumps(payload)
    assert words.index("The call of first was interrupted") < words.index("second") < words.index("18C")
    assert [seen.kind for seen in seen_in(name, payload)] == ["call", "result", "call", "result"]


@every_model
def test_a_result_that_is_not_final_gives_way_to_the_one_that_is(name: str) -> None:
    messages = [
        user("hi"),
        assistant([{"type": "tool_use", "id": "c1", "name": "slow", "input": {}}]),
        tool_result("c1", "waiting", "slow", state="running"),
        tool_result("c1", "done", "slow"),
    ]

    payload = WRITERS[name](messages)

    assert len([seen for seen in seen_in(name, payload) if seen.kind == "result"]) == 1
    words = json.dumps(payload)
    assert "done" in words
    assert "waiting" not in words
    assert [message["role"] for message in WRITERS["openai_chat"](messages)] == ["user", "assistant", "tool"]


@every_model
def test_the_latest_of_several_results_that_are_not_final_is_sent(name: str) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "slow", "input": {}}
    running = [tool_result("c1", f"{share} percent", "slow", state="running") for share in (10, 90)]

    words = json.dumps(WRITERS[name]([user("hi"), assistant([call]), *running]))

    assert "90 percent" in words
    assert "10 percent" not in words


@every_model
def test_another_result_of_a_call_that_is_there_is_called_that(name: str) -> None:
    call = {"type": "tool_use", "id": "x1", "name": "look", "input": {}}

    results = [tool_result("x1", output) for output in ("one", "two")]

    words = json.dumps(WRITERS[name]([user("x"), assistant([call]), *results]))

    assert "[Another result of look (x1)]\\ntwo" in words
    assert "not part of this conversation" not in words


@every_model
def test_a_result_told_twice_is_sent_once(name: str) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "slow", "input": {}}
    payload = WRITERS[name]([user("x"), assistant([call]), *[tool_result("c1", "eighteen", "slow") for _ in range(2)]])

    assert json.dumps(payload).count("eighteen") == 1


@every_model
def test_a_summary_at_the_end_is_followed_by_a_user(name: str) -> None:
    messages = [user("hi"), summary_message("s1", "They asked for the weather.", 0)]

    payload = WRITERS[name](messages)

    said = payload["messages"] if isinstance(payload, dict) else payload
    assert said[-1]["role"] == "user"
    assert "[The newest message is part of the summary above.]" in json.dumps(said[-1])
    assert "The newest message" not in json.dumps(WRITERS[name]([*messages, user("and now?")]))


@every_screen
def test_a_summary_at_the_end_stays_the_last_on_a_screen(name: str) -> None:
    payload = WRITERS[name]([user("hi"), summary_message("s1", "They asked for the weather.", 0)])

    assert [message["role"].lower() for message in payload] == ["user", "assistant"]


@every_screen
def test_a_pending_call_stays_pending_on_a_screen(name: str) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "deploy", "input": {"to": "prod"}}

    payload = WRITERS[name]([user("go"), assistant([call]), user("well?")])

    assert [(each.kind, each.id) for each in seen_in(name, payload)] == [("call", "c1")]
    assert "interrupted" not in json.dumps(payload)


@every_screen
def test_a_result_without_its_call_stays_a_result_on_a_screen(name: str) -> None:
    messages = [user("hi"), tool_result("c9", "18 degrees", "weather"), user("and?")]

    payload = WRITERS[name](messages)

    assert ("result", "c9") in [(each.kind, each.id) for each in seen_in(name, payload)]
    assert READERS[name](payload)[1].parts == messages[1].parts


@given(made=conversations())
def test_agentscope_gives_back_the_same_messages(made: Conversation) -> None:
    assert READERS["agentscope"](WRITERS["agentscope"](made.messages)) == made.messages


@given(made=conversations())
def test_a_screen_gives_back_the_same_messages(made: Conversation) -> None:
    payload = json.loads(json.dumps(WRITERS["ui_messages"](made.messages)))

    assert READERS["ui_messages"](payload) == made.messages


@every_model
@pytest.mark.parametrize("written", BROKEN_ARGUMENTS)
def test_arguments_that_are_not_a_json_object_are_sent_as_one(name: str, written: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": written}}
    [message] = READERS["openai_chat"]([{"role": "assistant", "content": None, "tool_calls": [call]}])

    [sent] = [seen for seen in seen_in(name, WRITERS[name]([message])) if seen.kind == "call"]

    assert isinstance(json.loads(sent.arguments), dict)
    assert message.parts[0]["content"] == written


@every_model
@pytest.mark.parametrize("tool", ["", "get weather!", "天気", "x" * 300])
def test_the_name_of_a_tool_is_one_the_provider_accepts(name: str, tool: str) -> None:
    call = {"type": "tool_use", "id": "call/1 " * 30, "name": tool, "input": {}}

    seen = seen_in(name, WRITERS[name]([assistant([call])]))

    assert all(re.fullmatch("[a-zA-Z0-9_-]{1,128}", each.name) for each in seen if each.kind == "call")
    assert seen[0].id == seen[1].id
    assert len(seen[0].id) <= 64


@every_model
def test_parts_for_a_screen_and_unknown_parts_go_to_no_model(name: str) -> None:
    parts = [
        {"type": "data-chart", "data": {"points": "SECRET" * 1000}},
        {"type": "source-url", "sourceId": "s", "url": "https://SECRET.test"},
        {"type": "step-start"},
        {"type": "hologram", "text": "SECRET"},
        {"type": "text", "text": "seen"},
    ]

    for message in (assistant(parts), user(parts)):
        payload = json.dumps(WRITERS[name]([message]))
        assert "SECRET" not in payload
        assert "seen" in payload


@every_model
def test_a_message_with_nothing_for_a_model_is_left_out(name: str) -> None:
    chart = assistant([{"type": "data-chart", "data": {}}])

    assert WRITERS[name]([user("hi"), chart, user("there")]) == WRITERS[name]([user("hi"), user("there")])


@every_model
def test_data_of_a_tool_is_sent_also_when_its_type_is_unknown(name: str) -> None:
    call = {"type": "tool_use", "id": "c", "name": "ls", "input": {}}
    answer = {"type": "tool_result", "id": "c", "output": [{"type": "row", "name": "a.txt"}], "state": "success"}

    assert "a.txt" in json.dumps(WRITERS[name]([assistant([call]), Message("tool", [answer])]))


FILE_IDS = {
    "openai": [
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "input_image", "file_id": "file-1"},
        {"type": "input_file", "file_id": "file-1"},
    ],
    "anthropic": [
        {"type": "image", "source": {"type": "file", "file_id": "file-1"}},
        {"type": "document", "source": {"type": "file", "file_id": "file-1"}},
    ],
}


@every_model
@pytest.mark.parametrize(("keeper", "part"), [(keeper, part) for keeper, parts in FILE_IDS.items() for part in parts])
def test_a_file_id_of_another_provider_is_sent_as_text(name: str, keeper: str, part: dict[str, Any]) -> None:
    payload = WRITERS[name]([user([part])])

    sent_as_id = '"file_id": "file-1"' in json.dumps(payload)
    assert sent_as_id == name.startswith(keeper)
    assert "file-1" in json.dumps(payload)


@every_model
def test_a_path_on_some_machine_is_not_sent_as_an_address(name: str) -> None:
    part = {"type": "image", "source": {"type": "url", "url": "file:///home/alice/cat.png"}}

    payload = json.dumps(WRITERS[name]([user([part])]))

    assert '"url": "file:' not in payload
    assert '"image_url": "file:' not in payload
    assert "cat.png" in payload


def test_the_laws_see_a_call_without_a_result() -> None:
    payload = [
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
            "content": None,
        }
    ]

    assert [seen.kind for seen in seen_in("openai_chat", payload)] == ["call"]


def _spoil(value: Any) -> None:
    """Change everything in a payload that can be changed."""
    if isinstance(value, dict):
        for item in value.values():
            _spoil(item)
        value["spoiled"] = True
    elif isinstance(value, list):
        for item in value:
            _spoil(item)
        value.append("spoiled")


def roles(payload: list[dict[str, Any]]) -> list[str]:
    return [message["role"] for message in payload]


@given(made=conversations())
def test_anthropic_is_sent_what_its_api_accepts(made: Conversation) -> None:
    messages = WRITERS["anthropic"](made.messages)["messages"]

    assert roles(messages)[:1] in ([], ["user"])
    assert all(first != second for first, second in pairwise(roles(messages)))
    for message in messages:
        blocks = message["content"]
        assert blocks
        if isinstance(blocks, list):
            kinds = [block["type"] == "tool_result" for block in blocks]
            assert kinds == sorted(kinds, reverse=True), "results stand first"
            assert all(block["text"].strip() for block in blocks if block["type"] == "text")
    ids = [seen.id for seen in seen_in("anthropic", {"messages": messages}) if seen.kind == "call"]
    assert len(ids) == len(set(ids))


@given(made=conversations())
def test_roles_of_foreign_speakers_are_ones_the_provider_knows(made: Conversation) -> None:
    known = {"system", "developer", "user", "assistant", "tool"}

    assert set(roles(WRITERS["openai_chat"](made.messages))) <= known
    assert {item["role"] for item in WRITERS["openai_responses"](made.messages) if "role" in item} <= known - {"tool"}
    assert {Message.from_dict(item).role for item in WRITERS["ui_messages"](made.messages)} <= {
        "system",
        "user",
        "assistant",
    }
