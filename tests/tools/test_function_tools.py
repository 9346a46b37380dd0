"""Functions as tools: what the model sees of them, and what the function gets."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from datetime import datetime
from enum import Enum
from functools import partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional

import msgspec
import pydantic
import pytest

import leafward
from leafward import ConfigurationError, Tool, ToolError, ToolSet, tool
from leafward.tools import FunctionTool, as_tool, run

if TYPE_CHECKING:
    from leafward import RuntimeContext


@dataclass
class Place:
    city: str
    zip: int = 0


class Tree(msgspec.Struct):
    """A tree of words."""

    word: str
    below: list[Tree] = []


class Order(pydantic.BaseModel):
    amount: int
    to: list[Order] = []


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


@tool
def weather(city: str, days: int = 1, unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather.

    Args:
        city: The city, without
            its country.
        days (int, optional): How many days.

    Returns:
        A sentence.
    """
    return f"{city} {days} {unit}"


def properties(function: Callable[..., Any]) -> dict[str, Any]:
    return as_tool(function).input_schema["properties"]


async def answer(function: Callable[..., Any], **arguments: Any) -> str:
    return (await run(as_tool(function), arguments)).text


# ── what the model sees ──────────────────────────────────────────────────────


def test_a_function_is_offered_with_its_signature_and_docstring() -> None:
    assert (weather.name, weather.description) == ("weather", "Tell the weather.")
    assert weather.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "The city, without its country."},
            "days": {"type": "integer", "description": "How many days.", "default": 1},
            "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert ToolSet([weather]).to_openai()[0]["function"]["parameters"] == weather.input_schema


def test_without_a_docstring_the_description_is_the_name() -> None:
    def ping() -> None: ...

    assert as_tool(ping).description == "ping"


def test_name_and_description_can_be_given() -> None:
    made = tool(name="find-it", description="Find it.")(lambda query: query)

    assert (made.name, made.description) == ("find-it", "Find it.")


def test_options_are_kept() -> None:
    def ask(arguments: dict[str, Any], key: str) -> None: ...
    def allow(arguments: dict[str, Any]) -> bool: ...

    @tool(timeout=5, read_only=True, retry_safe=True, probe=ask, group="web", external=True, check=allow)
    def search(query: str) -> str: ...

    flags = (search.timeout, search.read_only, search.retry_safe, search.probe, search.group, search.external)
    assert (*flags, search.check) == (5, True, True, ask, "web", True, allow)
    plain = Tool("t", "", {}, search.execute, read_only=True, timeout=1)
    assert (plain.read_only, plain.timeout, plain.external) == (True, 1, False)


def test_an_annotation_describes_its_parameter() -> None:
    def search(
        a: Annotated[int, "In words."],
        b: Annotated[int, msgspec.Meta(description="As meta.", ge=1)],
        c: Annotated[Place, pydantic.Field(description="As a field.")],
        d: Tree,
    ) -> None:
        """Search.

        :param a: Not this.
        :param d: The tree.
        """

    found = properties(search)
    assert [found[name]["description"] for name in "abcd"] == ["In words.", "As meta.", "As a field.", "The tree."]
    assert found["b"]["minimum"] == 1


def test_types_are_written_where_they_are_used() -> None:
    def go(there: Place, via: list[Place], maybe: Optional[Place] = None) -> None: ...  # noqa: UP045

    place = {
        "title": "Place",
        "type": "object",
        "properties": {"city": {"type": "string"}, "zip": {"type": "integer", "default": 0}},
        "required": ["city"],
    }
    assert properties(go) == {
        "there": place,
        "via": {"type": "array", "items": place},
        "maybe": {"anyOf": [place, {"type": "null"}]},
    }


@pytest.mark.parametrize("first", ["city", "country"])
def test_one_name_may_be_another_type_in_another_module(first: str) -> None:
    names = [first, *({"city", "country"} - {first})]
    schemas = [ToolSet([_of_module(name)])["go"].input_schema for name in names]

    assert [list(schema["properties"]["place"]["properties"]) for schema in schemas] == [[name] for name in names]


def _of_module(field: str) -> Any:
    """Return a function of a module of its own, which has a `Place` with this field."""

    def go(place: Any) -> None: ...

    made = FunctionType(go.__code__, {"Place": make_dataclass("Place", [(field, str)])}, "go")
    made.__annotations__ = {"place": "Place"}
    return made


def test_only_a_type_that_contains_itself_is_referred_to() -> None:
    def grow(tree: Tree, order: Order, size: Size) -> None: ...

    schema = as_tool(grow).input_schema

    assert schema["properties"]["tree"]["properties"]["below"]["items"] == {"$ref": "#/$defs/Tree"}
    assert schema["properties"]["order"]["properties"]["to"]["items"] == {"$ref": "#/$defs/Order"}
    assert schema["properties"]["size"] == {"type": "string", "title": "Size", "enum": ["l", "s"]}
    assert sorted(schema["$defs"]) == ["Order", "Tree"]


def test_a_parameter_without_annotation_takes_any_json() -> None:
    def keep(value, other=None): ...

    assert as_tool(keep).input_schema["properties"] == {"value": {}, "other": {}}
    assert as_tool(keep).input_schema["required"] == ["value"]


def test_defaults_that_json_cannot_hold_are_not_shown() -> None:
    def keep(a: Any = object, b: float = float("inf"), c: list[int] = [1, 2]) -> None: ...  # noqa: B006

    assert properties(keep) == {
        "a": {},
        "b": {"type": "number"},
        "c": {"type": "array", "items": {"type": "integer"}, "default": [1, 2]},
    }


# ── what the function gets ───────────────────────────────────────────────────


async def test_arguments_arrive_as_their_annotated_types() -> None:
    got: list[Any] = []

    def order(place: Place, tree: Tree, model: Order, size: Size, when: datetime, by_id: dict[int, Place]) -> None:
        got.extend((place, tree, model, size, when.year, by_id))

    given = {
        "place": {"city": "Kyoto"},
        "tree": {"word": "a", "below": [{"word": "b"}]},
        "model": {"amount": 1, "to": [{"amount": 2}]},
        "size": "l",
        "when": "2026-01-02T03:04:05Z",
        "by_id": {"7": {"city": "Nara", "zip": 1}},
    }
    outcome = await run(as_tool(order), given)

    assert outcome.state == "success"
    assert got == [
        *(Place("Kyoto"), Tree("a", [Tree("b")]), Order(amount=1, to=[Order(amount=2)]), Size.LARGE, 2026),
        {7: Place("Nara", 1)},
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "the argument 'city' is missing. Send 'city', 'days', 'unit'."),
        ({"city": 1}, "the argument 'city' is an integer, not a string."),
        ({"city": None}, "the argument 'city' is null, not a string."),
        ({"city": "a", "unit": "K"}, "the argument 'unit' cannot be 'K'. Use one of: C, F."),
        ({"city": "a", "days": 1.5}, "the argument 'days' is a number, not an integer."),
        ({"city": "a", "day": 1}, "there is no argument 'day'. Send 'city', 'days', 'unit'."),
        ("[]", "the arguments are an array, not an object. Send one JSON object."),
        ("{", "the arguments are not valid JSON (Input data was truncated). Send one JSON object."),
    ],
)
async def test_a_models_mistake_is_a_sentence(arguments: Any, said: str) -> None:
    outcome = await run(weather, arguments)

    assert (outcome.state, outcome.text, outcome.error) == ("error", f"Error: {said}", None)
    with pytest.raises(ToolError) as caught:
        await weather.execute(arguments)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([{"city": 1}], "the argument 'via' does not fit at [0].city: expected `str`, got `int`."),
        ([{"zip": 1}], "the argument 'via' does not fit at [0]: object missing required field `city`."),
    ],
)
async def test_a_mistake_inside_a_value_names_its_place(given: Any, said: str) -> None:
    def go(via: list[Place]) -> None: ...

    assert await answer(go, via=given) == f"Error: {said}"


async def test_nulls_whole_numbers_and_json_text_are_understood() -> None:
    def go(a: int, b: int = 2, c: int | str = 3, d: int | None = 4) -> list[Any]:
        return [a, b, c, d]

    outcome = await run(as_tool(go), '{"a": 1.0, "b": null, "c": null, "d": null}')

    assert outcome.text == "[1,2,3,null]"


async def test_half_of_a_character_is_refused() -> None:
    assert (await run(weather, r'{"city": "\ud83d"}')).text.startswith(
        r"Error: the arguments hold \ud83d, which is half"
    )


async def test_other_arguments_are_taken_by_name() -> None:
    def go(a: int, **more: int) -> dict[str, int]:
        return {"a": a, **more}

    assert as_tool(go).input_schema["additionalProperties"] == {"type": "integer"}
    assert await answer(go, a=1, b=2) == '{"a":1,"b":2}'
    assert (await answer(go, a=1, b="x")).startswith("Error: the argument 'b' does not fit: expected `int`, got `str`")


async def test_parameters_by_position_get_their_values() -> None:
    def go(a: int, b: int = 2, c: int = 3, /, d: int = 4) -> list[int]:
        return [a, b, c, d]

    assert await answer(go, a=1, c=5) == "[1,2,5,4]"


async def test_what_partial_has_given_no_model_changes() -> None:
    def delete(user: str, name: str) -> str:
        """Delete a file."""
        return f"{user} {name}"

    mine = partial(delete, user="alice")

    assert (as_tool(mine).name, as_tool(mine).description) == ("delete", "Delete a file.")
    assert list(properties(mine)) == ["name"]
    assert await answer(mine, name="x") == "alice x"
    assert await answer(mine, name="x", user="bob") == "Error: there is no argument 'user'. Send 'name'."


# ── still a function ─────────────────────────────────────────────────────────


async def test_a_tool_is_still_called_as_the_function() -> None:
    @tool(read_only=True)
    async def double(n: int) -> int:
        """Double it."""
        return 2 * n

    assert weather("Kyoto", unit="F") == "Kyoto 1 F"
    assert await double(4) == 8
    assert await double.execute({"n": 4}) == 8
    assert (getattr(double, "__name__", None), inspect.getdoc(double)) == ("double", "Double it.")
    assert list(inspect.signature(weather).parameters) == ["city", "days", "unit"]


class Shop:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool(group="shop")
    def order(self, what: str) -> str:
        """Order it."""
        return f"{what} from {self.name}"

    @tool
    @staticmethod
    def double(n: int) -> int:
        return 2 * n

    @classmethod
    @tool
    def kind(cls, n: int) -> str:
        return cls.__name__ * n

    def plain(self, n: int) -> str:
        return self.name * n


async def test_methods_are_tools_of_their_object() -> None:
    one, two = Shop("one"), Shop("two")

    assert one.order("tea") == "tea from one"
    assert list(one.order.input_schema["properties"]) == ["what"]
    assert one.order.group == "shop"
    assert one.order == one.order
    assert len({one.order, one.order, two.order}) == 2
    tools = ToolSet([two.order, one.double, one.kind, one.plain])
    assert await tools.call("order", {"what": "tea"}) == "tea from two"
    assert await tools.call("double", {"n": 2}) == "4"
    assert await tools.call("kind", {"n": 2}) == "ShopShop"
    assert await tools.call("plain", {"n": 2}) == "oneone"
    with pytest.raises(ConfigurationError, match="'order' is a method: give that of an object"):
        ToolSet([Shop.order])


async def test_objects_and_wrapped_functions_are_tools() -> None:
    class Adder:
        def __call__(self, n: int) -> int:
            return n + 1

    @wraps(weather.function)
    def wrapped(*args: Any, **kwargs: Any) -> str:
        return "wrapped " + weather.function(*args, **kwargs)

    assert await answer(Adder(), n=1) == "2"
    assert properties(wrapped) == weather.input_schema["properties"]
    assert await answer(wrapped, city="a") == "wrapped a 1 C"


async def test_sets_take_functions_and_tools() -> None:
    def ping() -> str:
        return "pong"

    tools = ToolSet([weather]) | [ping]

    assert list(tools) == ["weather", "ping"]
    assert isinstance(tools["ping"], FunctionTool)
    assert await tools.call("ping") == "pong"
    assert as_tool(weather) is weather


# ── refused ──────────────────────────────────────────────────────────────────


def _many(*args: int) -> None: ...
def _complex(n: complex) -> None: ...
def _unknown(n: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821  # pyright: ignore[reportUndefinedVariable]
def _ambiguous(n: Place | Tree) -> None: ...
def _context_of_many(**ctx: RuntimeContext) -> None: ...
def _yields(n: int) -> Any:
    yield n


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (_many, "_many cannot be a tool: its parameter 'args' takes any number of values by position"),
        (_complex, "_complex cannot be a tool: its parameter 'n' has the type complex, which JSON cannot hold"),
        (_unknown, "_unknown cannot be a tool: its parameter 'n' is annotated with 'Nowhere', which cannot be read"),
        (_ambiguous, "_ambiguous cannot be a tool: its parameter 'n' has the type"),
        (_context_of_many, "_context_of_many cannot be a tool: its parameter 'ctx' collects arguments"),
        (_yields, "_yields cannot be a tool: it yields"),
        (lambda n: n, "'<lambda>' cannot be the name of a tool"),
        ("weather", "'weather' cannot be a tool: give a function"),
    ],
)
def test_what_cannot_be_a_tool_is_refused_at_once(function: Any, why: str) -> None:
    for make in (tool, as_tool, lambda one: ToolSet([one])):
        with pytest.raises(ConfigurationError) as caught:
            make(function)
        assert str(caught.value).startswith(why)


@pytest.mark.parametrize(
    "option", [{"timeout": 0}, {"timeout": "5"}, {"timeout": float("nan")}, {"probe": 1}, {"check": 1}]
)
def test_options_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="of the tool"):
        tool(name="t", **option)(lambda: None)


def test_a_tool_is_not_made_twice() -> None:
    with pytest.raises(ConfigurationError, match="'weather' is a tool already"):
        tool(weather)


def test_functions_are_tools_without_await_too() -> None:
    def ping(n: int) -> str:
        return "pong" * n

    with leafward.blocking("memory://") as store:
        tools = store.session("s").with_context("memory").tools() | [ping, weather]

        assert tools.call("ping", {"n": 2}) == "pongpong"
        outcome = tools.run("weather", {"city": "Kyoto"})
        assert (outcome.state, outcome.text) == ("success", "Kyoto 1 C")
