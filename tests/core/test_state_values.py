"""Values of a user's own types come back from their JSON as they were."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field, Json, PrivateAttr, SecretStr, computed_field, field_serializer

from leafward.core.agent_state import AgentState
from leafward.core.message import Message
from leafward.core.state_values import read_items, read_value, write_items, write_value

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=5)


class Color(Enum):
    RED = "red"


class Trip(BaseModel):
    city: str
    days: int = 1


class Aliased(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    count: int = Field(alias="theCount")
    when: datetime
    colors: tuple[Color, ...] = ()
    settings: Json[dict[str, int]] = Field(default_factory=dict)

    @computed_field
    def double(self) -> int:
        return 2 * self.count


class OneWay(BaseModel):
    x: int = Field(serialization_alias="out", validation_alias="into")


class Secret(BaseModel):
    password: SecretStr


class Struct(msgspec.Struct):
    color: Color


@dataclass
class Inner:
    n: int


@dataclass
class Numbered:
    names: dict[int, str]


@dataclass
class Outer:
    inner: Inner
    items: list[Inner]


class Row(msgspec.Struct, array_like=True):
    n: int


def same(one: object, other: object) -> bool:
    """Tell whether two values are the same JSON: to Python, 1 is True and 1.0."""
    return json.dumps(one) == json.dumps(other)


@given(OBJECTS)
def test_a_plain_value_comes_back(value: dict[str, Any]) -> None:
    assert same(read_value(write_value(value), dict), value)


@given(st.lists(OBJECTS, max_size=4))
def test_a_list_of_plain_values_comes_back(values: list[dict[str, Any]]) -> None:
    assert same(read_items(write_items(values), dict), values)


NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "value",
    [
        Trip(city="Paris"),
        Struct(Color.RED),
        Outer(Inner(1), [Inner(2)]),
        Numbered({1: "a"}),
        Aliased(theCount=2, when=NOON, colors=(Color.RED,), settings='{"a": 1}'),  # pyright: ignore[reportArgumentType]
    ],
)
def test_a_value_of_a_type_comes_back_as_that_type(value: object) -> None:
    assert read_value(write_value(value), type(value)) == value


def test_control_characters_are_written_as_java_writes_them() -> None:
    escaped = '"\\u001F \\u000B \\n"'
    value = {"a": "\x1f \x0b \n"}

    assert write_value(value) == f'{{"a":{escaped}}}'
    assert write_items([value, {"n": 1}]) == [f'{{"a":{escaped}}}', '{"n":1}']
    assert escaped in write_value(Message("user", [{"type": "text", "text": value["a"]}]))
    assert escaped in write_items([Message("user", [{"type": "text", "text": value["a"]}])])[0]


def test_an_agents_state_and_a_message_come_back() -> None:
    message, state = Message("user", "hi"), AgentState(session_id="s")
    assert read_value(write_value(message), Message) == message
    assert read_value(write_value(state), AgentState) == state
    assert read_items(write_items([message, message]), Message) == [message, message]


def test_what_is_nearly_plain_is_made_plain() -> None:
    assert json.loads(write_value({"t": (1, 2), "m": {"n": (3,)}})) == {"t": [1, 2], "m": {"n": [3]}}
    assert write_value({"t": "a\ud800b"}) == '{"t":"a\ufffdb"}'


@pytest.mark.parametrize(
    "value",
    [
        *("text", 7, None, [], (), {1}, object(), Trip, Row(1)),
        *({"a": bad} for bad in (float("nan"), float("-inf"), {1: 2}, {1}, b"x", object(), Inner(1))),
        {1: "a"},
    ],
)
def test_what_is_no_state_is_refused(value: object) -> None:
    with pytest.raises(ValueError):
        write_value(value)


@pytest.mark.parametrize(
    ("text", "type"),
    [
        ("", dict),
        ("{", dict),
        ("[]", dict),
        ("null", dict),
        ('"x"', Trip),
        ('{"city": 7}', Trip),
        ('{"color": "blue"}', Struct),
        ("{}", Outer),
        ('{"inner": {"n": 1}, "items": [{"n": "1"}]}', Outer),
        ('{"role": "user", "content": []}', Message),
        ('{"cur_iter": "x"}', AgentState),
    ],
)
def test_what_is_not_of_the_type_is_told(text: str, type: type[Any]) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_value(text, type)


def test_an_item_that_is_not_of_the_type_is_told_by_its_number() -> None:
    with pytest.raises(ValueError, match="item 1"):
        read_items(['{"n": 1}', '{"n": "x"}'], Inner)
    with pytest.raises(ValueError, match="item 1"):
        read_items(['{"role": "USER", "content": []}', '{"role": "nobody"}'], Message)


@pytest.mark.parametrize("model", [OneWay.model_validate({"into": 1}), Secret(password=SecretStr("hunter2"))])
def test_a_model_that_would_not_come_back_is_refused(model: BaseModel) -> None:
    with pytest.raises(ValueError, match=type(model).__name__) as told:
        write_value(model)
    assert "hunter2" not in str(told.value)


def test_what_is_wrong_with_a_model_is_told_in_one_line_without_its_contents() -> None:
    with pytest.raises(ValueError, match="is not a Trip: city: ") as told:
        read_value('{"city": {"secret": "hunter2"}, "days": "x"}', Trip)
    assert "\n" not in str(told.value)
    assert "hunter2" not in str(told.value)


def test_deep_nesting_is_told() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"d": deep}
    with pytest.raises(ValueError):
        write_value(deep)
    with pytest.raises(ValueError):
        read_value('{"d":' * 100_000 + "1" + "}" * 100_000, dict)


class Cached(BaseModel):
    n: int = 1
    api_key: str = Field(default="", exclude=True)
    inner: list[Cached] = []
    _cache: dict[str, int] = PrivateAttr(default_factory=dict[str, int])


def test_what_a_model_says_is_no_part_of_it_is_left_out() -> None:
    model = Cached(n=2, api_key="k", inner=[Cached(n=3, api_key="k")])
    model._cache["x"] = model.inner[0]._cache["x"] = 1
    text = write_value(model)
    assert json.loads(text) == {"n": 2, "inner": [{"n": 3, "inner": []}]}
    assert read_value(text, Cached) == Cached(n=2, inner=[Cached(n=3)])


def test_half_a_surrogate_pair_in_a_model_is_replaced() -> None:
    class Said(BaseModel):
        text: str
        all: list[tuple[str, int]]

    found = read_value(write_value(Said(text="a\ud800b", all=[("\udfff", 2**70)])), Said)
    assert found == Said(text="a\ufffdb", all=[("\ufffd", 2**70)])


def test_what_does_as_models_do_need_not_be_one_of_pydantics() -> None:
    @dataclass
    class Own:
        n: int

        def model_dump(self, **_: object) -> dict[str, Any]:
            return {"n": self.n}

        def model_dump_json(self, **_: object) -> str:
            return json.dumps(self.model_dump())

        @classmethod
        def model_validate_json(cls, json_data: str | bytes) -> Own:
            return cls(**json.loads(json_data))

    assert read_value(write_value(Own(2)), Own) == Own(2)


class Tool(BaseModel):
    name: str


class Search(Tool):
    url: str


class Kit(BaseModel):
    tools: list[Tool] = []
    any: Any = None


@dataclass
class Place:
    name: str


@dataclass
class Town(Place):
    people: int


class Tour(BaseModel):
    place: Place


class Rounded(BaseModel):
    at: datetime

    @field_serializer("at")
    def to_day(self, at: datetime) -> str:
        return at.date().isoformat()


@pytest.mark.parametrize(
    "model",
    [
        Kit(tools=[Search(name="s", url="u")]),
        Kit(any=Tool(name="t")),
        Kit(any={"deep": [Tool(name="t")]}),
        Tour(place=Town("Hangzhou", 12)),
        Rounded(at=datetime(2026, 11, 16, 19, 30, tzinfo=UTC)),
    ],
)
def test_a_model_that_would_lose_something_is_refused(model: BaseModel) -> None:
    with pytest.raises(ValueError, match="comes back"):
        write_value(model)


def test_a_model_that_writes_infinity_in_its_own_way_is_kept() -> None:
    class Bound(BaseModel):
        model_config = ConfigDict(ser_json_inf_nan="strings")
        most: float

    assert read_value(write_value(Bound(most=float("inf"))), Bound) == Bound(most=float("inf"))


@dataclass
class Either:
    place: Place | Trek | None = None


@dataclass
class Trek:
    days: int


def test_a_type_that_cannot_be_read_is_told() -> None:
    text = write_value(Either())
    with pytest.raises(ValueError, match="is not a Either"):
        read_value(text, Either)
    assert read_value(text, dict) == {"place": None}
