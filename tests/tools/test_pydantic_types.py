"""Arguments that only pydantic reads: unions of models, fields with limits, defaults and discriminators."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from leafward import ToolSet, tool
from leafward.tools import Tool


class Cash(BaseModel):
    kind: Literal["cash"] = "cash"
    amount: int


class Card(BaseModel):
    kind: Literal["card"] = "card"
    number: str


Payment = Annotated[Cash | Card, Field(discriminator="kind")]


@tool
def pay(how: Cash | Card) -> str:
    """Pay."""
    return f"{type(how).__name__} {how.model_dump()}"


@tool
def pay_all(ways: list[Payment], note: Cash | Card | None = None) -> str:
    """Pay in several ways."""
    return ", ".join(type(way).__name__ for way in ways) + ("" if note is None else f" and {type(note).__name__}")


@tool
def rate(
    stars: Annotated[int, Field(ge=1, le=5, description="How good it was.")],
    weight: int = Field(3, gt=0),
    words: list[str] = Field(default_factory=list),  # noqa: B008  (as programs for FastAPI write it)
) -> str:
    """Rate."""
    return f"{stars} {weight} {words}"


@pytest.mark.parametrize(
    ("called", "arguments", "answer"),
    [
        (pay, {"how": {"kind": "card", "number": "42"}}, "Card {'kind': 'card', 'number': '42'}"),
        (pay, {"how": {"amount": 5}}, "Cash {'kind': 'cash', 'amount': 5}"),
        (pay_all, {"ways": [{"kind": "cash", "amount": 1}, {"kind": "card", "number": "7"}]}, "Cash, Card"),
        (pay_all, {"ways": [], "note": {"amount": 1}}, " and Cash"),
        (pay_all, {"ways": [], "note": None}, ""),
        (rate, {"stars": 5}, "5 3 []"),
        (rate, {"stars": 1, "weight": 9, "words": ["fine"]}, "1 9 ['fine']"),
    ],
)
async def test_a_model_sends_them_as_json(called: Tool, arguments: dict[str, Any], answer: str) -> None:
    assert await ToolSet([called]).call(called.name, arguments, raise_errors=True) == answer


@pytest.mark.parametrize(
    ("called", "arguments"),
    [
        (pay, {"how": {"kind": "coins"}}),
        (pay, {"how": 5}),
        (pay, {}),
        (pay_all, {"ways": [{"kind": "coins"}]}),
        (rate, {"stars": 6}),
        (rate, {"stars": 3, "weight": 0}),
        (rate, {"stars": "many"}),
    ],
)
async def test_what_does_not_fit_is_answered(called: Tool, arguments: dict[str, Any]) -> None:
    assert (await ToolSet([called]).call(called.name, arguments)).startswith("Error: ")


def test_their_schemas_say_what_fits() -> None:
    properties = rate.input_schema["properties"]

    assert properties["stars"] == {"type": "integer", "minimum": 1, "maximum": 5, "description": "How good it was."}
    assert (properties["weight"]["exclusiveMinimum"], properties["weight"]["default"]) == (0, 3)
    assert rate.input_schema["required"] == ["stars"]
    assert [one["properties"]["kind"]["const"] for one in pay.input_schema["properties"]["how"]["anyOf"]] == [
        "cash",
        "card",
    ]
