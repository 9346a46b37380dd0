"""Values of another kind than is expected, as Jackson takes them: a number for a text, a text for a number."""

from __future__ import annotations

import re
from types import NoneType
from typing import Annotated, Any, Literal, cast, get_args, get_origin

from leafward.core.json import encode_text
from leafward.core.untrusted import fields_of, members, tag_of

_LARGEST = 10**308
_POSITION = re.compile("0|[1-9][0-9]?")
_TRUTHS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False, "": None}


def coerced(value: Any, shape: Any, *, ordinals: bool = False) -> Any:
    """Return a value with what Jackson would convert converted, wherever it stands; a value of `shape` is unchanged.

    What it would refuse is returned as it is. With `ordinals`, a number stands for the word at that position among
    those that may stand there.
    """
    for member in members(shape):
        kind = get_args(member)[0] if get_origin(member) is Annotated else member
        found = _coerced(value, kind, ordinals)
        if found is not value:
            return found
    return value


def _coerced(value: object, kind: Any, ordinals: bool) -> object:
    if get_origin(kind) is Literal:
        return _word(value, get_args(kind)) if ordinals else value
    if isinstance(value, list):
        return _items(cast(list[Any], value), kind, ordinals)
    if isinstance(value, dict):
        return _values(cast(dict[str, Any], value), kind, ordinals)
    return _scalar(value, kind)


def _items(value: list[Any], kind: Any, ordinals: bool) -> list[Any]:
    if get_origin(kind) is not list:
        return value
    made = [coerced(item, get_args(kind)[0], ordinals=ordinals) for item in value]
    return value if all(new is old for new, old in zip(made, value, strict=True)) else made


def _values(value: dict[str, Any], kind: Any, ordinals: bool) -> dict[str, Any]:
    origin, arguments = get_origin(kind), get_args(kind)
    shapes: dict[str, Any] = dict.fromkeys(value, arguments[1]) if origin is dict else _fields(value, kind)
    changed = {
        key: new
        for key, shape in shapes.items()
        if key in value and (new := coerced(value[key], shape, ordinals=ordinals)) is not value[key]
    }
    return {**value, **changed} if changed else value


def _fields(value: dict[str, Any], kind: Any) -> dict[str, Any]:
    """Return the shapes of the fields of an object, if it is one of this kind."""
    if not isinstance(kind, type) or kind is NoneType or kind in (str, int, float, bool):
        return {}
    tag_field, tag = tag_of(kind)
    return fields_of(kind) if tag_field is None or value.get(tag_field) == tag else {}


def _word(value: object, words: tuple[Any, ...]) -> object:
    if isinstance(value, str) and value not in words and _POSITION.fullmatch(value):
        value = int(value)
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(words)
    return words[cast(int, value)] if known else value


def _scalar(value: object, kind: object) -> object:
    match value:
        case bool():
            return ("true" if value else "false") if kind is str else value
        case int() | float() if kind is str:
            return encode_text(value)
        case int() if kind is bool:
            return value != 0
        case float() if kind is int:
            return int(value)
        case int() if kind is float and 2**63 <= abs(value) < _LARGEST:
            # Only smaller ones are taken for one.
            return float(value)
        case str() if kind is bool:
            return _TRUTHS.get(value.strip(), value)
        case str() if kind in (int, float):
            return _number(value.strip(), kind)
        case _:
            return value


def _number(text: str, kind: Any) -> object:
    if not text:
        return None
    if "_" in text or not text.isascii():
        # Python takes these for numbers.
        return text
    try:
        return kind(text)
    except ValueError:
        return text
