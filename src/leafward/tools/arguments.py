"""The arguments that a model sends to a tool: read, and checked against the tool's schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from leafward.core.errors import ToolError
from leafward.core.json import DecodeError, decode

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


class Mistake(ToolError):
    """What is wrong with the arguments of a call. The text is for the model."""


def object_schema(properties: dict[str, Any], required: Sequence[str]) -> dict[str, Any]:
    """Return the schema of arguments by name, and of no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def checked(schema: Mapping[str, Any], arguments: object) -> dict[str, Any]:
    """Return the arguments as a dict that fits the schema.

    Raises:
        Mistake: they do not fit.
    """
    given = without_nulls(schema, parsed(arguments))
    mistake = find_mistake(schema, given)
    if mistake is not None:
        raise Mistake(mistake)
    return given


def parsed(arguments: object) -> dict[str, Any]:
    """Return the arguments, which may be JSON text, as a dict; no arguments are an empty one.

    Raises:
        Mistake: they are not one JSON object of whole characters.
    """
    if arguments is None or arguments == "":
        return {}
    try:
        given = decode(arguments) if isinstance(arguments, (str, bytes)) else arguments
        half = _find_half(given)
    except RecursionError:
        deep = "the arguments nest values too deeply. Send one JSON object that is no deeper than the schema."
        raise Mistake(deep) from None
    except (DecodeError, UnicodeError) as error:
        raise Mistake(_why_not_json(cast("str | bytes", arguments), error)) from None
    if not isinstance(given, Mapping):
        raise Mistake(f"the arguments are {_kind(given)}, not an object. Send one JSON object.")
    if half is not None:
        raise Mistake(_HALF.format(half))
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


def without_nulls(schema: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
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
            kept[name] = without_nulls(wanted, cast(Mapping[str, Any], value)) if nested else value
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
        mistake = find_wrong_value(name, properties[name], value)
        if mistake is not None:
            return mistake
    return None


def find_wrong_value(name: str, schema: Mapping[str, Any], value: object) -> str | None:
    """Say the same of the value of one argument."""
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
