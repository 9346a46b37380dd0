"""Tools as a model is offered them, and the answers it gets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from leafward.core.errors import LeafwardError, StoreError
from leafward.core.json import DecodeError, decode

Execute = Callable[[dict[str, Any]], Awaitable[str]]

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call: `await execute(arguments)` gives the text of its answer."""

    name: str
    description: str
    input_schema: dict[str, Any]
    execute: Execute


class ToolSet(Mapping[str, Tool]):
    """Tools by name; two sets merge with `|`, the right one's tools winning."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = {tool.name: tool for tool in tools}

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __await__(self) -> Generator[Any, Any, ToolSet]:
        """Give itself, so that `await manager.tools()` reads like `await session.tools()`."""
        return self
        yield

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._tools)})"

    def __or__(self, other: Mapping[str, Tool] | Iterable[Tool]) -> ToolSet:
        added = cast(Mapping[str, Tool], other).values() if isinstance(other, Mapping) else other
        return ToolSet([*self._tools.values(), *added])

    async def call(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> str:
        """Run a tool and return its answer; a model's mistake is answered with what to do about it.

        `arguments` may be the JSON text that a model wrote. Such an answer starts with `Error:`. A failure that is not
        the model's, such as a full disk, is raised.
        """
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return f"Error: there is no tool {name!r}. Call one of: {known}."
        return await answer(tool.input_schema, tool.execute, arguments)

    def to_openai(self) -> list[Any]:
        """Return the tools as OpenAI's chat API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.input_schema},
            }
            for tool in self._tools.values()
        ]

    def to_anthropic(self) -> list[Any]:
        """Return the tools as Anthropic's messages API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
            for tool in self._tools.values()
        ]


def make_tool(name: str, description: str, input_schema: dict[str, Any], work: Execute) -> Tool:
    """Return a tool of ours, whose `execute` checks its arguments and answers mistakes in words."""

    async def execute(arguments: dict[str, Any]) -> str:
        return await answer(input_schema, work, arguments)

    return Tool(name, description, input_schema, execute)


async def answer(schema: Mapping[str, Any], work: Execute, arguments: object) -> str:
    """Run `work` on arguments that fit the schema; otherwise, or when it refuses them, say so to the model."""
    given = _parsed(arguments)
    mistake = given if isinstance(given, str) else find_mistake(schema, given)
    if mistake is not None:
        return f"Error: {mistake}"
    try:
        return await work(cast(dict[str, Any], given))
    except StoreError:
        raise
    except LeafwardError as error:
        return f"Error: {error}"


def _parsed(arguments: object) -> dict[str, Any] | str:
    """Return the arguments as a dict, or what is wrong with them."""
    if arguments is None or arguments == "":
        return {}
    if isinstance(arguments, (str, bytes)):
        try:
            arguments = decode(arguments)
        except DecodeError as error:
            return f"the arguments are not valid JSON ({error}). Send one JSON object."
    if not isinstance(arguments, Mapping):
        return f"the arguments are {_kind(arguments)}, not an object. Send one JSON object."
    return dict(cast(Mapping[str, Any], arguments))


def find_mistake(schema: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
    """Say what is wrong with arguments, as far as types, choices and missing ones go."""
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in given:
            return f"the argument {name!r} is missing. Send {', '.join(repr(one) for one in properties)}."
    for name, value in given.items():
        if name not in properties:
            if schema.get("additionalProperties", True):
                continue
            return f"there is no argument {name!r}. Send {', '.join(repr(one) for one in properties) or 'none'}."
        mistake = _find_wrong_value(name, properties[name], value)
        if mistake is not None:
            return mistake
    return None


def _find_wrong_value(name: str, schema: Mapping[str, Any], value: object) -> str | None:
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in _TYPES:
        fits = isinstance(value, _TYPES[wanted]) and (wanted == "boolean" or not isinstance(value, bool))
        if not fits:
            return f"the argument {name!r} is {_kind(value)}, not {_with_article(wanted)}."
    if "enum" in schema and value not in schema["enum"]:
        return f"{value!r} is no {name!r}. Use one of: {', '.join(map(str, schema['enum']))}."
    if "minimum" in schema and isinstance(value, (int, float)) and value < schema["minimum"]:
        return f"the argument {name!r} is {value}, less than {schema['minimum']}."
    if isinstance(value, Mapping) and "properties" in schema:
        inner = find_mistake(schema, cast(Mapping[str, Any], value))
        return None if inner is None else f"in {name!r}, {inner}"
    return None


def _kind(value: object) -> str:
    """Return what JSON calls a value."""
    if value is None:
        return "null"
    kinds = [kind for kind, types in _TYPES.items() if isinstance(value, types)]
    return _with_article("boolean" if isinstance(value, bool) else kinds[0] if kinds else type(value).__name__)


def _with_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
