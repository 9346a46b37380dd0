"""Values of another kind are read as Jackson reads them, and what it refuses stays as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from msgspec import Struct

from leafward.core.agent_records import Int32
from leafward.core.agent_state import AgentState
from leafward.core.coercion import coerced

WORDS = Literal["a", "b"]


class Url(Struct, tag_field="type", tag="url"):
    url: str


class Bytes(Struct, tag_field="type", tag="bytes"):
    size: int


@dataclass
class Trip:
    city: str
    days: Int32 = 0
    stops: list[Url | Bytes | None] = field(default_factory=list[Url | Bytes | None])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    rest: dict[str, Any] = field(default_factory=dict[str, Any])


@pytest.mark.parametrize(
    ("value", "shape", "found"),
    [
        (5, str, "5"),
        (1.5, str, "1.5"),
        (True, str, "true"),
        (False, str | None, "false"),
        (None, str | None, None),
        ([], str, []),
        ("5", int, 5),
        (" 5 ", Int32, 5),
        ("", int, None),
        ("five", int, "five"),
        ("1_000", int, "1_000"),
        ("١٢", int, "١٢"),
        ("1_0.5", float, "1_0.5"),
        (1.9, int, 1),
        (True, int, True),
        ("1.5", float, 1.5),
        ("x", float, "x"),
        (10**30, float, 1e30),
        (10**400, float, 10**400),
        (0, bool, False),
        (7, bool, True),
        ("True", bool, True),
        ("no", bool, "no"),
        ("", bool, None),
        (1, WORDS, "b"),
        ("0", WORDS, "a"),
        ("01", WORDS, "01"),
        ("١", WORDS, "١"),
        (2, WORDS, 2),
        (True, WORDS, True),
        ("b", WORDS, "b"),
        ({"city": 1, "days": "2", "x": 3}, Trip, {"city": "1", "days": 2, "x": 3}),
        (
            {"stops": [{"type": "url", "url": 1}, {"type": "bytes", "size": "2"}, {"type": "x", "url": 1}, None]},
            Trip,
            {"stops": [{"type": "url", "url": "1"}, {"type": "bytes", "size": 2}, {"type": "x", "url": 1}, None]},
        ),
        ({"notes": {"a": 1}, "rest": {"a": 1}}, Trip, {"notes": {"a": "1"}, "rest": {"a": 1}}),
    ],
)
def test_a_value_is_converted_as_jackson_does(value: Any, shape: Any, found: Any) -> None:
    made = coerced(value, shape, ordinals=True)

    assert (type(made), made) == (type(found), found)


def test_a_value_that_needs_nothing_is_the_same() -> None:
    value = {"city": "Rome", "stops": [{"type": "url", "url": "x"}], "rest": {"a": [1]}}

    assert coerced(value, Trip) is value


def test_a_position_stands_for_a_word_only_where_java_takes_it() -> None:
    assert coerced(1, WORDS) == 1


def test_a_state_is_read_as_java_reads_it() -> None:
    text = '{"session_id":7,"summary":true,"cur_iter":"3","shutdown_interrupted":1,"user_id":null,"reply_id":1.5}'

    state = AgentState.from_json(text)

    assert (state.session_id, state.summary, state.reply_id) == ("7", "true", "1.5")
    assert (state.cur_iter, state.shutdown_interrupted, state.user_id) == (3, True, None)
    assert AgentState.from_json('{"cur_iter":"","shutdown_interrupted":""}').cur_iter == 0
    assert AgentState.from_json('{"permission_context":{"ask_rules":{"rm":null}}}').permission_context.ask_rules == {}
