"""The law of a function's schema: what it accepts, the function gets; what it refuses, the function never sees."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import jsonschema
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from leafward import tool
from leafward.tools import Tool, run


@dataclass
class Place:
    city: str
    floors: list[int] = field(default_factory=list)


class Word(msgspec.Struct):
    text: str
    below: list[Word] = []


KINDS: list[Any] = [
    *(Any, str, int, float, bool, None, int | None, str | int, list[int], list[str | None], dict[str, int]),
    *(Literal["a", "b"], Literal[1, 2, None], tuple[int, str], Place, list[Place], Place | None, Word),
    *(Annotated[int, msgspec.Meta(ge=0, lt=5)], Annotated[str, msgspec.Meta(min_length=1)], object, dict[str, object]),
]
"""Types whose schema says all about them; a time or bytes are texts of a certain form, which no schema can say."""

texts = st.sampled_from(["", "a", "b", "city", "京都"])
numbers = st.one_of(st.integers(-3, 7), st.floats(-3, 7).map(lambda n: round(n, 1)))
objects = st.fixed_dictionaries(
    {},
    optional={
        "city": st.one_of(texts, st.none()),
        "floors": st.lists(numbers, max_size=2),
        "text": texts,
        "below": st.lists(st.fixed_dictionaries({"text": st.one_of(texts, st.integers())}), max_size=2),
    },
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts, objects),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=2)),
    max_leaves=5,
)


def made(first: Any, second: Any) -> Tool:
    def take(a: Any, b: Any = 1) -> str:
        return "taken"

    take.__annotations__ = {"a": first, "b": second}
    return tool(take)


@given(st.sampled_from(KINDS), st.sampled_from(KINDS), st.dictionaries(st.sampled_from("abc"), values))
def test_the_schema_accepts_what_the_function_gets(first: Any, second: Any, arguments: dict[str, Any]) -> None:
    taking = made(first, second)
    jsonschema.Draft202012Validator.check_schema(taking.input_schema)
    # An optional argument that is null counts as left out where it cannot be null, also inside an object.
    fits = jsonschema.Draft202012Validator(taking.input_schema).is_valid(arguments)

    outcome = asyncio.run(run(taking, arguments))

    if fits:
        assert outcome.text == "taken"
    elif not _has_null(arguments):
        assert outcome.state == "error"
        assert outcome.error is None
        assert outcome.text.startswith("Error: ")
        assert outcome.text.endswith(".")


def _has_null(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_null, value.values()))
    return any(map(_has_null, value)) if isinstance(value, list) else value is None
