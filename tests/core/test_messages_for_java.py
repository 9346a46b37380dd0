"""Java reads whatever is written here, and after it has saved that again, calls are still calls and results results."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward.core.agent_message_writer import write_messages
from leafward.core.agent_messages import read_messages
from leafward.core.agent_state import AgentState
from leafward.core.calls import Call, Result, pair
from leafward.core.java_limits import check_limits
from leafward.core.message import Message, assistant, tool_result, user
from leafward.core.state_values import read_items, read_value, write_items, write_value
from leafward.formats import from_anthropic, from_openai_chat, to_openai_chat
from tests.core.agent_states import MESSAGES
from tests.core.java_reader import resaved_message
from tests.formats.conversations import Conversation, conversations
from tests.formats.sample_parts import PARTS

layouts = pytest.mark.parametrize("of_1x", [False, True], ids=["2.x", "1.x"])


def read(items: Sequence[dict[str, Any]]) -> list[Message]:
    return read_messages([(item, f"item {index}") for index, item in enumerate(items)], roles=False)


def saved_by_java(messages: Sequence[Message], *, of_1x: bool = False) -> list[Message]:
    """Return messages as they are read after Java has read the list and saved it again."""
    written = write_messages(messages, of_1x=of_1x)
    assert read(written) == list(messages)
    return read([resaved_message(item, of_1x=of_1x) for item in written])


def calls_in(messages: Sequence[Message], unclear: Collection[str] = ()) -> list[tuple[object, ...]]:
    """Return the calls and results of a conversation in order, and which belong together, unless that is unclear."""
    pairs = pair(messages)
    both = [item for row in pairs.items for item in row if isinstance(item, (Call, Result))]
    found: list[tuple[object, ...]] = []
    for item in both:
        if isinstance(item, Call):
            answer = pairs.answers.get(item) if item.id not in unclear else None
            found.append((item.id, item.name, item.object_input, both.index(answer) if answer else None))
        else:
            found.append((item.call_id, item.call_id not in unclear and item.failed))
    return found


def unclear_after_java(messages: Sequence[Message], *, of_1x: bool) -> set[str]:
    """Return the ids for which Java does not keep which call has which result.

    In 1.x results have no states. In 2.x it is unclear for calls that share an id, and for a result above its call:
    what stood in one part, or in one message, may stand in several.
    """
    items = [item for row in pair(messages).items for item in row]
    calls = Counter(item.id for item in items if isinstance(item, Call))
    unclear = {id for id in calls if calls[id] > 1}
    called: set[str] = set()
    for item in items:
        if isinstance(item, Call):
            called.add(item.id)
        elif isinstance(item, Result) and (of_1x or item.call_id not in called):
            unclear.add(item.call_id)
    return unclear


@layouts
@given(made=st.lists(MESSAGES, max_size=3))
def test_any_message_is_read_by_java_and_comes_back(of_1x: bool, made: list[Message]) -> None:
    assert len(saved_by_java(made, of_1x=of_1x)) >= len(made)


@layouts
@given(made=conversations())
def test_calls_are_calls_and_results_results_after_java_has_saved_them(of_1x: bool, made: Conversation) -> None:
    after = saved_by_java(made.messages, of_1x=of_1x)

    unclear = unclear_after_java(made.messages, of_1x=of_1x)
    assert calls_in(after, unclear) == calls_in(made.messages, unclear)
    assert saved_by_java(after, of_1x=of_1x) == after


@layouts
@pytest.mark.parametrize("role", ["user", "assistant", "system", "developer", "tool", "critic"])
@pytest.mark.parametrize("part", PARTS, ids=lambda part: part["type"])
def test_every_kind_of_part_is_read_by_java_and_comes_back(part: dict[str, Any], role: str, of_1x: bool) -> None:
    inside = {"type": "tool_result", "id": "c", "name": "n", "output": [part], "state": "success"}
    messages = [Message(role, [part], id="m1"), Message(role, [inside], id="m2")]

    unclear = unclear_after_java(messages, of_1x=of_1x)
    assert calls_in(saved_by_java(messages, of_1x=of_1x), unclear) == calls_in(messages, unclear)


# ── tool parts of other shapes ───────────────────────────────────────────────

WEATHER = {"type": "tool-weather", "toolCallId": "c1", "input": {"city": "Paris"}}
SETTLED = {**WEATHER, "state": "output-available", "output": {"degrees": 18}}


def test_a_tool_part_of_ai_sdk_is_stored_as_a_call_and_a_result() -> None:
    message = assistant([SETTLED, {"type": "text", "text": "It is warm."}], id="a")

    written = write_messages([message])

    assert [(one["role"], [block["type"] for block in one["content"]]) for one in written] == [
        ("ASSISTANT", ["tool_use"]),
        ("TOOL", ["tool_result"]),
        ("ASSISTANT", ["text"]),
    ]
    call, result = written[0]["content"][0], written[1]["content"][0]
    assert (call["id"], call["name"], call["input"], call["state"]) == ("c1", "weather", {"city": "Paris"}, "finished")
    assert (result["id"], result["output"]) == ("c1", [{"type": "text", "text": '{"degrees":18}'}])
    assert read(written) == [message]
    payload = to_openai_chat(saved_by_java([message]))
    assert [one["role"] for one in payload] == ["assistant", "tool", "assistant"]


@pytest.mark.parametrize(
    ("state", "stored"),
    [("input-available", "pending"), ("approval-requested", "asking"), ("output-error", "finished")],
)
def test_a_call_of_ai_sdk_that_is_open_stays_open(state: str, stored: str) -> None:
    more = {"errorText": "no"} if stored == "finished" else {}
    part = {"type": "dynamic-tool", "toolName": "f", "toolCallId": "c1", "state": state, "input": {}, **more}

    assert write_messages([assistant([part])])[0]["content"][0]["state"] == stored


def test_a_result_of_anthropic_is_stored_as_a_result_of_role_tool() -> None:
    blocks = [{"type": "tool_result", "tool_use_id": "c1", "content": "18C"}, {"type": "text", "text": "and now?"}]
    messages = from_anthropic(
        [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "weather", "input": {}}]},
            {"role": "user", "content": blocks},
        ]
    )

    roles = [(one["role"], [block["type"] for block in one["content"]]) for one in write_messages(messages)]

    assert roles == [("ASSISTANT", ["tool_use"]), ("TOOL", ["tool_result"]), ("USER", ["text"])]
    assert calls_in(saved_by_java(messages)) == calls_in(messages)


def test_calls_of_openai_are_stored_as_calls() -> None:
    function = {"name": "weather", "arguments": '{"city":"Paris"}'}
    messages = from_openai_chat(
        [
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "18C"},
        ]
    )

    assert calls_in(saved_by_java(messages)) == calls_in(messages)
    older = Message.stored("m", "assistant", 0, {"parts": [], "tool_calls": [{"id": "c", "function": function}]})
    assert [block["type"] for block in write_messages([older])[0]["content"]] == ["tool_use"]


def test_reasoning_is_stored_as_thinking() -> None:
    written = write_messages([assistant([{"type": "reasoning", "text": "hm"}])])

    assert written[0]["content"] == [{"type": "thinking", "thinking": "hm", "metadata": None}]


def test_a_message_alone_is_one_msg() -> None:
    message = assistant([SETTLED], id="a")

    written = json.loads(write_value(message))

    assert (written["role"], [block["type"] for block in written["content"]]) == (
        "ASSISTANT",
        ["tool_use", "tool_result"],
    )
    assert read_value(write_value(message), Message) == message


def test_a_list_that_grows_begins_with_what_was_written() -> None:
    messages = [assistant([WEATHER], id="a"), user("well?", id="u"), assistant([SETTLED], id="b")]

    for count in range(len(messages)):
        assert write_items(messages)[: len(write_items(messages[:count]))] == write_items(messages[:count])


# ── what Java refuses ────────────────────────────────────────────────────────

URL = {"type": "url", "url": "https://x/v.mp4"}
HUGE = 2**31


def test_a_number_beyond_javas_int_is_kept_beside() -> None:
    sizes = dict.fromkeys(("minPixels", "maxPixels", "maxFrames", "totalPixels"), HUGE)
    message = user(
        [{"type": "video", "source": URL, "fps": 2.0, **sizes}, {"type": "image", "source": URL, "max_pixels": HUGE}],
        usage={"inputTokens": HUGE, "outputTokens": 1, "cachedTokens": -HUGE - 1, "time": 1e300},
    )

    [written] = write_messages([message])

    assert written["content"] == [{"type": "video", "source": URL, "fps": 2.0}, {"type": "image", "source": URL}]
    assert written["usage"] == {"outputTokens": 1, "time": 1e300, "totalTokens": 1}
    assert len(saved_by_java([message])) == 1


PDF = {"type": "base64", "media_type": "application/pdf", "data": "AAAA"}
PNG = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
HINT = {"type": "hint", "id": "h", "hint": "do it", "source": None}


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (HINT, {"type": "text", "text": "do it"}),
        (
            {"type": "data", "id": "d", "source": PDF, "name": "f.pdf"},
            {"type": "text", "text": "[file f.pdf application/pdf 3 bytes]"},
        ),
        ({"type": "data", "id": "d", "source": PNG}, {"type": "image", "source": PNG}),
    ],
)
def test_a_block_that_1x_does_not_know_is_written_as_one_it_knows(part: dict[str, Any], shown: dict[str, Any]) -> None:
    messages = [assistant([part], id="a"), tool_result("c", [{"type": "text", "text": "x"}], "n", id="t")]
    messages[1].parts[0]["output"].append(part)

    first, second = write_messages(messages, of_1x=True)

    assert first["content"] == [shown]
    assert second["content"][0]["output"] == [{"type": "text", "text": "x"}, shown]
    assert read([first, second]) == messages
    assert [one["content"][0]["type"] for one in write_messages(messages)] == [part["type"], "tool_result"]


def nested(levels: int) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for _ in range(levels - 1):
        made = {"d": made}
    return made


LONG = "x" * 20_000_001
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a text": ({"t": LONG}, "a text of more than 20,000,000 characters"),
    "a key": ({"k" * 50_001: 1}, "a key of more than 50,000 characters"),
    "a number": ({"n": 10**1000}, "a number of more than 1,000 digits"),
}


@pytest.mark.parametrize(("value", "problem"), WRONG.values(), ids=WRONG)
def test_what_javas_parser_refuses_is_not_written(value: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        write_value(value)
    with pytest.raises(ValueError, match=problem):
        write_items([{"n": 1}, value])
    with pytest.raises(ValueError, match=problem):
        AgentState(extra=value).to_json()


@pytest.mark.parametrize("metadata", [{"t": LONG}, {"k" * 50_001: 1}])
def test_a_message_that_javas_parser_refuses_is_not_written(metadata: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"context\[1\]: the Msg of this message holds a .* of more than"):
        write_items([user("hi"), user("hi", metadata=metadata)])


def test_a_message_whose_blocks_javas_parser_refuses_is_not_written() -> None:
    given = dict.fromkeys("abc", "x" * 7_000_000)

    with pytest.raises(ValueError, match=r"context\[0\]: the Msg of this message holds a text of more than 20,000,000"):
        write_messages([assistant([{**WEATHER, "state": "input-available", "input": given}])])
    assert write_messages([assistant([{"type": "tool_use", "id": "c", "name": "n", "input": given}])])


def test_a_text_is_as_long_as_java_counts_it() -> None:
    with pytest.raises(ValueError, match="a text of more than 20,000,000 characters"):
        write_value({"t": "😀" * 10_000_001})
    assert write_value({"t": "é" * 20_000_000, "n": 10**999, "k" * 50_000: 1})


def test_nesting_that_javas_parser_refuses_is_not_written() -> None:
    assert write_value(nested(100))
    for levels in (1_001, 5_000):
        with pytest.raises(ValueError, match="nest"):
            write_value(nested(levels))
        with pytest.raises(ValueError, match="nested deeper than 1,000 levels"):
            check_limits(nested(levels), "a state")
    check_limits(nested(1_000), "a state")


# ── dicts, and times ─────────────────────────────────────────────────────────


def test_a_message_as_its_dict_is_stored_as_a_message_in_a_list_of_messages() -> None:
    messages = [user("hi", id="u"), assistant([SETTLED], id="a")]
    dicts = [message.to_dict() for message in messages]

    assert read_items(write_items(dicts, "memory_messages"), Message) == messages
    assert write_items(dicts, "memory_messages") == write_items(messages)
    # Under any other name it is a dict like others.
    assert read_items(write_items(dicts, "steps"), dict) == dicts


def test_what_is_a_msg_already_is_stored_unchanged() -> None:
    msg = {"id": "m", "role": "USER", "content": []}

    assert [json.loads(text) for text in write_items([msg, {**msg, "n": 1}], "memory_messages")] == [
        msg,
        {**msg, "n": 1},
    ]


@pytest.mark.parametrize("year", [1, 90, 999, 1969, 9999])
def test_a_time_of_any_year_is_written_with_four_digits(year: int) -> None:
    message = user("hi", created_at=datetime(year, 7, 1, 12, 30, 15, 123456, UTC))

    [written] = write_messages([message])

    assert written["timestamp"].startswith(f"{year:04}-0")
    assert written["timestamp"].endswith(":15.123")
    assert abs(saved_by_java([message])[0].at - message.at) < 1_000


MSG: dict[str, Any] = {
    "id": "m1",
    "name": "user",
    "role": "USER",
    "content": [{"type": "text", "text": "hi"}],
    "metadata": {},
    "timestamp": "2026-08-22 23:15:56.123",
}
PDF = {"type": "data", "source": {"type": "base64", "media_type": "application/pdf", "data": "QQ=="}, "name": "a.pdf"}
PICTURE = {"type": "image", "source": {"type": "url", "url": "https://x.example/y.png"}}


def in_lists(items: list[dict[str, Any]], *, of_1x: bool) -> list[dict[str, Any]]:
    return [json.loads(text) for text in write_items(items, "memory_messages", of_1x=of_1x)]


@layouts
def test_a_dict_without_anything_of_a_message_is_written_unchanged(of_1x: bool) -> None:
    # Java reads it as an empty message of the user.
    assert in_lists([MSG, {"n": 1}], of_1x=of_1x) == [MSG, {"n": 1}]


@layouts
def test_a_dict_in_javas_form_is_written_unchanged(of_1x: bool) -> None:
    items = [MSG, {**MSG, "id": None, "role": "ASSISTANT", "content": [None, {"type": "text"}], "other": 1}]

    assert in_lists(items, of_1x=of_1x) == items


@layouts
@pytest.mark.parametrize(
    ("wrong", "place"),
    [
        ({"role": "user", "content": "hi"}, "item 1.role"),
        ({**MSG, "content": "hi"}, "item 1.content"),
        ({**MSG, "content": [{"type": "odd"}]}, "item 1.content[0].type"),
    ],
    ids=["role", "content", "block"],
)
def test_a_dict_that_is_not_a_message_is_refused_in_a_list_of_messages(
    of_1x: bool, wrong: dict[str, Any], place: str
) -> None:
    with pytest.raises(ValueError, match="Msg") as refused:
        write_items([MSG, wrong], "memory_messages", of_1x=of_1x)

    assert str(refused.value).startswith(f"{place} ")
    # Any other list holds what one likes.
    assert write_items([wrong], "mine", of_1x=of_1x)


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"context": [MSG, {"role": "user", "content": "hi"}]}, "context[1].role"),
        ({"context": [{**MSG, "content": [{"type": "hint", "hint": "h"}]}]}, "context[0].content[0]"),
        ({"cur_iter": 2**40}, "cur_iter"),
    ],
    ids=["role", "block", "number"],
)
def test_an_agent_state_given_as_a_dict_is_one_that_java_reads(state: dict[str, Any], place: str) -> None:
    with pytest.raises(ValueError, match=r"is|has|must") as refused:
        write_value(state, "agent_state")

    assert str(refused.value).startswith(place)
    assert json.loads(write_value(state, "mine")) == state


def test_an_agent_state_given_as_a_dict_is_written_unchanged() -> None:
    state = {"session_id": "s1", "context": [MSG, {**MSG, "id": "m2"}], "cur_iter": 3, "own": {"x": 2**70}}

    assert json.loads(write_value(state, "agent_state")) == state


@layouts
@pytest.mark.parametrize(
    "odd",
    [
        {**MSG, "content": [PDF]},
        {**MSG, "role": "ASSISTANT", "content": [{"type": "hint", "hint": "h"}]},
        {**MSG, "role": "TOOL", "content": [{"type": "tool_result", "id": "c", "name": "f", "output": [PDF]}]},
        {**MSG, "content": [{**PICTURE, "minPixels": 2**40}]},
        {**MSG, "usage": {"inputTokens": 2**40, "outputTokens": 1, "time": 1.0}},
        {**MSG, "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
    ],
    ids=["data", "hint", "data in a result", "size", "usage", "call of a user"],
)
def test_java_reads_what_a_dict_holds_that_it_would_refuse(of_1x: bool, odd: dict[str, Any]) -> None:
    items = [MSG, {**odd, "id": "m2"}, {**MSG, "id": "m3"}]
    written = in_lists(items, of_1x=of_1x)

    assert [resaved_message(item, of_1x=of_1x)["id"] for item in written] == ["m1", "m2", "m3"]
    assert (written[0], written[2]) == (items[0], items[2])
    # Nothing is lost, and what was written is written the same again.
    assert read(written) == read(items)
    assert in_lists(written, of_1x=of_1x) == written


def test_a_message_in_pieces_is_written_for_1x_without_the_old_pieces() -> None:
    part = {"type": "tool-f", "toolCallId": "c", "state": "output-available", "input": {}, "output": "x"}
    written = write_messages([Message.from_dict({"id": "m1", "role": "user", "parts": [part, PDF]})])
    assert len(written) > 1
    again = in_lists(written, of_1x=True)

    assert all(resaved_message(item, of_1x=True) for item in again)
    assert read(again) == read(written)
    assert len({item["id"] for item in again}) == len(again)
