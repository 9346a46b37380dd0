"""Tools as a model is offered them, and the answers it gets."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from leafward.core.errors import LeafwardError, LeaseLost, StoreError
from leafward.core.json import DecodeError, decode
from leafward.core.tool_output import output_text
from leafward.core.transcript import shortened
from leafward.sessions.user_functions import call

Execute = Callable[[dict[str, Any]], Awaitable[Any]]

ANSWER_CHARACTERS = 20_000
"""How much text a tool of ours answers with, about; a skill is given whole."""
FAILURE_CHARACTERS = 2_000
"""How much of the text of an error that a tool raised a model is given."""
SEPARATOR = "\n\n---\n\n"
"""What stands between messages, and between results of a search."""

_log = logging.getLogger("leafward.sessions")

_STORAGE_FAILURES = (StoreError, LeaseLost)
"""What is raised also where a tool's errors are answered: the session could not store the answer either."""

_TYPES: dict[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
    "array": list,
}
_HALF = (
    "the arguments hold {}, which is half of a character (a surrogate without its pair). "
    "Write the character itself, or leave it out."
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB]\w\w\\u[dD][c-fC-F]\w\w|(u[dD][89a-fA-F]\w\w)|.)", re.DOTALL)
"""The escapes in JSON text; the group is half of a surrogate pair without the other half."""


@dataclass(frozen=True, slots=True)
class Tool:
    """Something a model can call: `await execute(arguments)` returns its answer, as text or as what JSON can hold."""

    name: str
    description: str
    input_schema: dict[str, Any]
    execute: Execute
    checks_arguments: bool = field(default=False, repr=False, compare=False)
    """Whether `execute` itself takes anything a model may send, and answers its mistakes in words."""


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
        yield from ()
        return self

    def __repr__(self) -> str:
        return f"ToolSet({', '.join(self._tools)})"

    def __or__(self, other: Mapping[str, Tool] | Iterable[Tool]) -> ToolSet:
        added = cast(Mapping[str, Tool], other).values() if isinstance(other, Mapping) else other
        return ToolSet([*self._tools.values(), *added])

    async def call(
        self, name: str, arguments: Mapping[str, Any] | str | None = None, *, raise_errors: bool = False
    ) -> str:
        """Run a tool and return its answer; what is not text is returned as JSON text.

        `arguments` may be the JSON text that a model wrote. A model's mistake is answered with a sentence that starts
        with `Error:` and says what to do. So is an exception that a tool raises, which is logged as well; with
        `raise_errors` it is raised instead.

        Raises:
            StoreError, LeaseLost: the store failed or the lease was lost. These are always raised: the session could
                not store the answer either.
        """
        tool = self._tools.get(name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            return f"Error: there is no tool {name!r}. Call one of: {known}."
        try:
            given = arguments if tool.checks_arguments else _checked(tool.input_schema, arguments)
            return output_text(await call(tool.execute, given))
        except _STORAGE_FAILURES:
            raise
        except _Mistake as mistake:
            return _error(str(mistake))
        except Exception as error:
            if raise_errors:
                raise
            _log.warning("tool %r failed; the model is answered with the error", name, exc_info=error)
            return _error(_describe(name, error))

    def to_openai(self) -> list[Any]:
        """Return the tools as OpenAI's chat API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": deepcopy(tool.input_schema),
                },
            }
            for tool in self._tools.values()
        ]

    def to_openai_responses(self) -> list[Any]:
        """Return the tools as OpenAI's Responses API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": deepcopy(tool.input_schema),
                # Strict is the default there, and takes no schema with an argument that may be left out.
                "strict": False,
            }
            for tool in self._tools.values()
        ]

    def to_anthropic(self) -> list[Any]:
        """Return the tools as Anthropic's messages API takes them: dicts, typed so that its SDK accepts them."""
        return [
            {"name": tool.name, "description": tool.description, "input_schema": deepcopy(tool.input_schema)}
            for tool in self._tools.values()
        ]


def object_schema(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return the schema of arguments by name, and of no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def count_fitting(texts: Iterable[str]) -> int:
    """Return how many of the texts, from the first on, fit into one answer."""
    count, size = 0, 0
    for text in texts:
        size += len(text) + len(SEPARATOR)
        if size > ANSWER_CHARACTERS:
            break
        count += 1
    return count


def make_tool(
    name: str, description: str, input_schema: dict[str, Any], work: Execute, *, chosen: Sequence[str] = ()
) -> Tool:
    """Return a tool of ours, whose `execute` checks its arguments and answers mistakes in words.

    Of the arguments in `chosen`, `work` itself checks whether they are among those offered.
    """
    properties: dict[str, dict[str, Any]] = dict(input_schema["properties"])
    for argument in chosen:
        properties[argument] = {key: value for key, value in properties[argument].items() if key != "enum"}
    execute = partial(answer, {**input_schema, "properties": properties}, work)
    return Tool(name, description, input_schema, execute, checks_arguments=True)


async def answer(schema: Mapping[str, Any], work: Execute, arguments: object) -> str:
    """Run `work` on arguments that fit the schema; otherwise, or when it refuses them, say so to the model."""
    try:
        return await work(_checked(schema, arguments))
    except _STORAGE_FAILURES:
        raise
    except (_Mistake, LeafwardError) as error:
        return _error(str(error))


class _Mistake(Exception):
    """What is wrong with the arguments of a call; its text is for the model."""


def _error(text: str) -> str:
    """Return what a model is answered instead of a result."""
    return f"Error: {shortened(text, ANSWER_CHARACTERS)}"


def _describe(name: str, error: BaseException) -> str:
    """Say to a model what a tool raised, and what to do."""
    if isinstance(error, LeafwardError):
        return str(error)
    text = shortened(" ".join(str(error).split()), FAILURE_CHARACTERS)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"the tool {name!r} failed ({what}). Try it with other arguments, or go on without it."


def _checked(schema: Mapping[str, Any], arguments: object) -> dict[str, Any]:
    """Return the arguments as a dict that fits the schema, or raise a `_Mistake`."""
    given = _without_nulls(schema, _parsed(arguments))
    mistake = find_mistake(schema, given)
    if mistake is not None:
        raise _Mistake(mistake)
    return given


def _parsed(arguments: object) -> dict[str, Any]:
    """Return the arguments as a dict, or raise a `_Mistake`."""
    if arguments is None or arguments == "":
        return {}
    try:
        given = decode(arguments) if isinstance(arguments, (str, bytes)) else arguments
        half = _find_half(given)
    except RecursionError:
        deep = "the arguments nest values too deeply. Send one JSON object that is no deeper than the schema."
        raise _Mistake(deep) from None
    except (DecodeError, UnicodeError) as error:
        raise _Mistake(_why_not_json(cast("str | bytes", arguments), error)) from None
    if not isinstance(given, Mapping):
        raise _Mistake(f"the arguments are {_kind(given)}, not an object. Send one JSON object.")
    if half is not None:
        raise _Mistake(_HALF.format(half))
    return dict(cast(Mapping[str, Any], given))


def _why_not_json(text: str | bytes, error: Exception) -> str:
    half = _find_escaped_half(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
    return _HALF.format(half) if half else f"the arguments are not valid JSON ({error}). Send one JSON object."


def _find_half(value: object) -> str | None:
    """Return a surrogate that has lost its pair as a model can find it, if there is one in the arguments."""
    if isinstance(value, str):
        found = None if value.isascii() else _SURROGATE.search(value)
        return None if found is None else f"\\u{ord(found.group()):04x}"
    inner: Iterable[object] = ()
    if isinstance(value, Mapping):
        inner = (one for pair in cast(Mapping[object, object], value).items() for one in pair)
    elif isinstance(value, list):
        inner = cast(list[object], value)
    return next((half for one in inner if (half := _find_half(one))), None)


def _find_escaped_half(text: str) -> str | None:
    """Return the same for the JSON text of arguments, where it may be written as an escape."""
    half = _find_half(text)
    if half is not None:
        return half
    halves = (found.group(1) for found in _ESCAPES.finditer(text))
    return next((f"\\{half}" for half in halves if half), None)


def _without_nulls(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out each optional argument that is null and may not be: so models write what they leave out."""
    properties: dict[str, dict[str, Any]] = schema.get("properties", {})
    required = schema.get("required", ())
    kept: dict[str, Any] = {}
    for name, value in given.items():
        wanted = properties.get(name)
        if wanted is None:
            kept[name] = value
        elif value is not None or name in required or _may_be_null(wanted):
            nested = isinstance(value, Mapping) and "properties" in wanted
            kept[name] = _without_nulls(wanted, cast(Mapping[str, Any], value)) if nested else value
    return kept


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    wanted = schema.get("type")
    if isinstance(wanted, str) and wanted in _TYPES:
        return False
    return None in schema.get("enum", (None,))


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
        return f"the argument {name!r} cannot be {value!r}. Use one of: {', '.join(map(str, schema['enum']))}."
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
