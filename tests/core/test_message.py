from __future__ import annotations

import json
import pickle
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import InvalidId, Message, assistant, system, tool_result, user
from leafward.core.json import MAX_DEPTH, encode
from leafward.core.message import MENDED_MARK, as_message, wire_size
from leafward.core.parts import search_text

MOMENT = datetime(2026, 11, 15, 12, 30, 1, 234567, tzinfo=UTC)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # Surrogates have a test of their own.
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=12,
)
parts = st.fixed_dictionaries({"type": st.sampled_from(["text", "tool-x", "step-start", "odd"])}).flatmap(
    lambda part: st.dictionaries(
        st.text(st.characters(codec="utf-8")).filter(lambda key: key != "type"), json_values, max_size=3
    ).map(lambda more: {**part, **more})
)


def test_a_string_is_one_text_part() -> None:
    assert user("hi").parts == [{"type": "text", "text": "hi"}]
    assert (user("a").role, assistant("a").role, system("a").role) == ("user", "assistant", "system")


def test_text_joins_the_text_parts_with_a_newline() -> None:
    message = Message(
        "assistant",
        [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "b"}, {"type": "text", "text": "c"}],
    )
    assert message.text == "a\nc"


def test_ids_and_times_are_fresh_and_ordered() -> None:
    messages = [user("x") for _ in range(1000)]
    ids = [message.id for message in messages]
    assert ids == sorted(ids)
    assert len(set(ids)) == 1000
    assert abs(messages[0].created_at - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_wire_shape_has_its_keys_and_times_with_microseconds() -> None:
    message = Message("user", "hi", id="m1", name="alice", created_at=MOMENT, metadata={"a": 1}, usage=None)
    assert message.to_dict() == {
        "id": "m1",
        "role": "user",
        "parts": [{"type": "text", "text": "hi"}],
        "createdAt": "2026-11-15T12:30:01.234567Z",
        "name": "alice",
        "metadata": {"a": 1},
        "usage": None,
    }
    assert message.extra == {"usage": None}
    assert message.name == "alice"


@given(st.lists(parts, max_size=4), st.dictionaries(st.text(st.characters(codec="utf-8")), json_values, max_size=3))
def test_a_round_trip_loses_nothing(given_parts: list[dict[str, Any]], extra: dict[str, Any]) -> None:
    extra = {
        key: value
        for key, value in extra.items()
        if key not in ("id", "role", "parts", "createdAt", "name", "metadata", "content")
    }
    data = {"id": "m", "role": "x", "parts": given_parts, "createdAt": "2026-11-15T12:30:01.234567Z", **extra}
    message = Message.from_dict(data)
    assert message.to_dict() == data
    assert Message.from_dict(json.loads(json.dumps(message.to_dict()))) == message


def test_another_time_zone_is_the_same_moment() -> None:
    east = MOMENT.astimezone(timezone(timedelta(hours=8)))
    assert Message("user", "x", id="a", created_at=east) == Message("user", "x", id="a", created_at=MOMENT)


@pytest.mark.parametrize("moment", [datetime(2026, 1, 1), "2026-01-01T00:00:00"])  # noqa: DTZ001
def test_a_time_without_a_zone_is_refused(moment: Any) -> None:
    with pytest.raises(ValueError, match="time zone"):
        Message("user", "x", created_at=moment)


@pytest.mark.parametrize(
    "wrong",
    [
        ["text"],
        [{"text": "no type"}],
        [{"type": 3}],
        [{"type": "text", "text": float("nan")}],
        [{"type": "text", "n": float("inf")}],
        [{"type": "text", "n": 2**64}],
        [{"type": "text", "n": -(2**63) - 1}],
        [{"type": "text", "n": b"bytes"}],
        [{"type": "text", "n": {1: 2}}],
        [{"type": "text", "n": MOMENT}],
        [None],
        None,
        7,
        b"bytes",
        {"type": "text"},
    ],
)
def test_what_is_not_a_list_of_json_objects_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError):
        Message("user", wrong)


def test_values_nested_too_deeply_are_refused() -> None:
    deep: Any = "x"
    for _ in range(MAX_DEPTH + 5):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper"):
        Message("user", [{"type": "data", "value": deep}])


@pytest.mark.parametrize("fields", [{"role": ""}, {"role": None}, {"name": 3}, {"metadata": [1]}, {"createdAt": "x"}])
def test_a_wrong_envelope_is_refused(fields: dict[str, Any]) -> None:
    role = fields.pop("role", "user")
    with pytest.raises(ValueError):
        Message(role, "x", **fields)


def test_a_refused_id_is_refused_when_the_message_is_made() -> None:
    with pytest.raises(InvalidId):
        user("x", id="")


def test_lone_surrogates_are_replaced_and_marked_and_nul_is_kept() -> None:
    message = user("a\ud800b\0", metadata={"mine": 1})
    assert message.text == "a\ufffdb\0"
    assert message.metadata == {"mine": 1, MENDED_MARK: True}
    assert user("fine 🦊").metadata is None


def test_what_the_caller_gave_can_change_without_changing_the_message() -> None:
    mine = [{"type": "text", "text": "a"}]
    message = Message("user", mine)
    mine[0]["text"] = "b"
    assert message.text == "a"


def test_a_message_is_equal_by_value_and_not_hashable() -> None:
    assert user("a", id="1", created_at=MOMENT) == user("a", id="1", created_at=MOMENT)
    assert user("a", id="1", created_at=MOMENT) != user("b", id="1", created_at=MOMENT)
    assert user("a") != "a"
    with pytest.raises(TypeError):
        hash(user("a"))


def test_a_message_survives_pickling() -> None:
    message = user("a", extra_key=1)
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_repr_is_short() -> None:
    assert len(repr(user("long " * 1000))) < 150


def test_a_tool_result_is_agentscopes_part() -> None:
    message = tool_result("call_1", "18C", name="weather")
    assert message.role == "tool"
    assert message.parts == [
        {
            "type": "tool_result",
            "id": "call_1",
            "name": "weather",
            "output": [{"type": "text", "text": "18C"}],
            "state": "success",
        }
    ]
    assert tool_result("c", [{"type": "image", "source": {}}]).parts[0]["output"] == [{"type": "image", "source": {}}]
    assert tool_result("c", "boom", state="error", id="m").id == "m"


@pytest.mark.parametrize("state", ["failed", "SUCCESS", "", None])
def test_a_result_in_an_unknown_state_is_refused_with_the_known_ones(state: Any) -> None:
    with pytest.raises(ValueError, match="one of success, error, denied, interrupted, running, not"):
        tool_result("c1", "x", state=state)


def test_a_stored_result_in_an_unknown_state_is_read() -> None:
    part = {"type": "tool_result", "id": "c1", "name": None, "output": [], "state": "failed"}

    assert Message.from_dict({"role": "tool", "parts": [part]}).parts == [part]


def test_an_agentscope_message_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        message = Message.from_dict(
            {
                "id": "m1",
                "name": "user",
                "role": "USER",
                "content": [{"type": "text", "text": "Hello 你好"}, None],
                "metadata": {},
                "timestamp": "2026-08-22 23:15:56.123",
                "usage": None,
            }
        )
    finally:
        monkeypatch.undo()
        time.tzset()
    assert (message.role, message.text, message.name, message.metadata) == ("user", "Hello 你好", "user", {})
    assert message.created_at == datetime(2026, 8, 22, 15, 15, 56, 123000, tzinfo=UTC)
    assert message.extra == {"timestamp": "2026-08-22 23:15:56.123", "usage": None}


@pytest.mark.parametrize(("content", "expected"), [(None, []), ("hi", [{"type": "text", "text": "hi"}]), ([], [])])
def test_content_stands_for_parts(content: Any, expected: list[Any]) -> None:
    message = Message.from_dict({"id": None, "role": "assistant", "content": content})
    assert message.parts == expected
    assert message.id


def test_content_beside_parts_is_kept_as_it_is() -> None:
    data = {"id": "m", "role": "user", "parts": [], "content": "old field", "createdAt": "2026-01-01T00:00:00.000000Z"}
    assert Message.from_dict(data).to_dict() == data


def test_a_dict_without_parts_is_refused() -> None:
    with pytest.raises(ValueError):
        Message.from_dict({"role": "user"})


def test_foreign_objects_are_taken_as_messages() -> None:
    class Foreign:
        def model_dump(self) -> dict[str, Any]:
            return {"id": "f", "role": "user", "parts": [{"type": "text", "text": "x"}]}

    assert as_message(Foreign()).id == "f"
    assert as_message({"id": "d", "role": "user", "content": "x"}).id == "d"
    message = user("x")
    assert as_message(message) is message
    with pytest.raises(ValueError, match=r"model_dump.*not int$"):
        as_message(7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r'model_dump.*not str: user\("hello"\)'):
        as_message("text")  # type: ignore[arg-type]


def test_the_size_on_the_wire_is_told_without_encoding_it_again() -> None:
    message = user("héllo", id="m-1")
    assert wire_size(message.id, message.role, len(encode(message.body))) == len(encode(message.to_dict()))


def test_search_looks_at_text_calls_and_results_but_not_at_thinking_and_media() -> None:
    message = Message(
        "assistant",
        [
            {"type": "thinking", "thinking": "secret"},
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "1", "name": "weather", "input": {"city": "Paris", "days": [1, 2]}},
            {
                "type": "tool_result",
                "id": "1",
                "output": [{"type": "text", "text": "sun"}, {"type": "image", "data": "AAAA"}],
            },
            {"type": "tool_result", "tool_use_id": "2", "content": "anthropic result"},
            {"type": "tool-lookup", "toolCallId": "3", "input": {"q": "term"}, "output": {"hits": None}},
            {"type": "dynamic-tool", "toolName": "dyn", "toolCallId": "4", "errorText": "broken"},
            {"type": "image", "url": "data:AAAA"},
            {"type": "reasoning", "text": "hidden"},
            {"type": "text"},
        ],
    )
    text = search_text(message.body)
    for word in (
        "hello",
        "weather",
        "Paris",
        "city",
        "1\n2",
        "sun",
        "anthropic result",
        "lookup",
        "term",
        "dyn",
        "broken",
    ):
        assert word in text
    for word in ("secret", "AAAA", "hidden", "None"):
        assert word not in text


def test_a_message_that_was_made_unsound_is_refused_when_it_is_used() -> None:
    message = user("fine")
    message.parts.append({"type": "data", "value": float("nan")})
    with pytest.raises(ValueError, match="nan"):
        message.sealed()
    message.parts[1] = {"no": "type"}
    with pytest.raises(ValueError, match="type"):
        message.sealed()
    message.parts[1] = {"type": "text", "text": "\ud800"}
    assert message.sealed()[0].text == "fine\n\ufffd"
    message.parts[1] = {"type": "text", "text": "more"}
    assert message.sealed()[0] == message
    assert user("fine").sealed()[1] == b'{"parts":[{"type":"text","text":"fine"}]}'


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-01:00", "0001-01-01T00:00:00+01:00"])
def test_a_time_that_could_not_be_given_back_is_refused(moment: str) -> None:
    with pytest.raises(ValueError, match="years 1 to 9999"):
        Message.from_dict({"role": "user", "parts": [], "createdAt": moment})


@pytest.mark.parametrize("data", [[1], "text", None, {"role": "user", "parts": [], "createdAt": 123}])
def test_what_is_no_message_dict_is_refused_as_a_value(data: Any) -> None:
    with pytest.raises(ValueError):
        Message.from_dict(data)


def test_a_body_that_was_given_an_envelope_is_refused() -> None:
    message = user("x")
    message.body["id"] = "another"
    with pytest.raises(ValueError, match="second 'id'"):
        message.sealed()


def test_a_schema_may_stand_anywhere_in_a_part() -> None:
    schema = {"schema": {"type": ["string", "null"]}}
    for part in (
        {"type": "tool_use", "id": "1", "name": "n", "input": schema},
        {"type": "tool_result", "id": "1", "name": "n", "output": [schema, {"type": {}}]},
    ):
        message = Message("assistant", [part])
        assert "string" in search_text(message.body)
