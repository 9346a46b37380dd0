"""Values that others wrote are read as a type, or refused in a sentence that names the place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct, field

from leafward.core.errors import ConfigurationError
from leafward.core.untrusted import read


class Text(Struct, tag_field="type", tag="text"):
    text: str | None = None


class Call(Struct, tag_field="type", tag="call"):
    state: Literal["open", "done"] | None = None
    input: dict[str, Any] | None = None


class Result(Struct, tag_field="type", tag="result"):
    state: Literal["good", "bad"] | None = None
    output: list[Text | Call | Result] | None = None


@dataclass
class Size:
    width: Annotated[int, Meta(ge=1, le=100)]
    height: float = 1.0


class Page(Struct):
    role: Literal["user", "tool"]
    content: list[Text | Call | Result | None] | None = None
    id: Annotated[str, Meta(min_length=2)] | None = None
    labels: dict[str, Annotated[str, Meta(min_length=1)]] = {}
    groups: dict[str, list[Size]] = {}
    pairs: list[tuple[str, str]] = []
    created: str | None = field(default=None, name="createdAt")
    hidden: bool = False
    either: str | list[str] | None = None


class Moment:
    """A class that msgspec does not know."""

    def __init__(self, text: str) -> None:
        self.text = text


class Entry(Struct):
    at: Moment


def page(**fields: object) -> dict[str, object]:
    return {"role": "user", **fields}


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (None, "must be an object, not null"),
        ([], "must be an object, not a list"),
        ("text", "must be an object, not a string"),
        ({}, ".role is missing"),
        ({"role": None}, ".role must be a string, not null"),
        ({"role": "ghost"}, ".role is 'ghost', not one of user, tool"),
        ({"role": "x" * 200}, f".role is '{'x' * 78}…, not one of user, tool"),
        (page(content="hi"), ".content must be a list, not a string"),
        (page(content=[5]), ".content[0] must be an object, not a whole number"),
        (page(content=[{}]), ".content[0].type is missing"),
        (page(content=[None, {"type": "zzz"}]), ".content[1].type is 'zzz', not one of text, call, result"),
        (page(content=[{"type": "text", "text": 1.5}]), ".content[0].text must be a string, not a number"),
        (page(content=[{"type": "call", "state": "good"}]), ".content[0].state is 'good', not one of open, done"),
        (
            page(content=[{"type": "result", "output": [{"type": "text"}, {"type": "result", "state": "open"}]}]),
            ".content[0].output[1].state is 'open', not one of good, bad",
        ),
        (page(id="x"), ".id is 'x', not a string of length >= 2"),
        (page(labels={"a": "A", "b": ""}), ".labels['b'] is '', not a string of length >= 1"),
        (page(labels={"a": "A", "b": None}), ".labels['b'] must be a string, not null"),
        (page(groups={"a": [], "b": [{"width": 1}, {}]}), ".groups['b'][1].width is missing"),
        (page(groups={"a": [{"width": True}]}), ".groups['a'][0].width must be a whole number, not true or false"),
        (page(groups={"a": [{"width": 101}]}), ".groups['a'][0].width is 101, not a whole number <= 100"),
        (page(groups={"a": [{"width": 2**80}]}), f".groups['a'][0].width is {2**80}, not a whole number <= 100"),
        (page(groups={"a": {}}), ".groups['a'] must be a list, not an object"),
        (page(pairs=[["a", "b"], ["a"]]), ".pairs[1] must be a list of length 2, not 1"),
        (page(createdAt=5), ".createdAt must be a string, not a whole number"),
        (page(hidden="no"), ".hidden must be true or false, not a string"),
        (page(either=5), ".either must be a string or a list, not a whole number"),
    ],
)
def test_a_value_of_another_shape_is_refused_in_a_sentence(value: object, sentence: str) -> None:
    inside = sentence if sentence.startswith(".") else f" {sentence}"
    alone = sentence.removeprefix(".") if sentence.startswith(".") else f"the document {sentence}"

    with pytest.raises(ValueError) as caught:
        read(value, Page, "messages[3]")
    assert str(caught.value) == f"messages[3]{inside}"
    with pytest.raises(ValueError) as caught:
        read(value, Page)
    assert str(caught.value) == alone


def test_a_key_that_is_not_a_string_is_refused_with_its_place() -> None:
    with pytest.raises(ValueError, match=r"^a key of page\.labels must be a string$"):
        read(page(labels={1: "x"}), Page, "page")
    with pytest.raises(ValueError, match=r"^a key of the document must be a string$"):
        read({1: "x"}, Page)


def test_the_shape_may_be_a_list_or_a_plain_type() -> None:
    assert read([page(), page(hidden=True)], list[Page])[1].hidden
    assert read({"a": 1}, dict[str, int]) == {"a": 1}
    with pytest.raises(ValueError, match=r"^messages\[1\]\.role is missing$"):
        read([page(), {}], list[Page], "messages")
    with pytest.raises(ValueError, match=r"^content must be a string, not a list$"):
        read([], str, "content")


def test_the_caller_chooses_the_error_and_finds_the_cause() -> None:
    with pytest.raises(ConfigurationError, match="role is missing") as caught:
        read({}, Page, error=ConfigurationError)
    assert caught.value.__cause__ is not None


def test_an_object_of_a_class_of_ours_is_made_by_the_hook() -> None:
    def make(kind: type[Any], value: Any) -> Moment:
        if value == "soon":
            raise ValueError("it is not a time")
        return kind(value)

    assert read({"at": "now"}, Entry, hook=make).at.text == "now"
    with pytest.raises(ValueError, match=r"^entries\[0\]\.at: it is not a time$"):
        read([{"at": "soon"}], list[Entry], "entries", hook=make)


def test_a_value_that_nests_too_deeply_is_refused() -> None:
    value: dict[str, Any] = {"type": "text"}
    for _ in range(100_000):
        value = {"type": "result", "output": [value]}

    with pytest.raises(ValueError, match="page is nested too deeply"):
        read(page(content=[value]), Page, "page")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "user", "text", "call", "open"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "state", "output", "labels", "groups", "width", "x", "pairs"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_is_given_is_read_or_refused(value: object) -> None:
    for given_value in (value, {"role": "user", "content": value}, {"role": "tool", "labels": value, "groups": value}):
        try:
            answer = f"page is of role {read(given_value, Page, 'page').role}"
        except ValueError as error:
            answer = str(error)
        assert answer.startswith(("page", "a key of page"))
