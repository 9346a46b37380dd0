"""Values that others wrote, read as the types we expect: an error names the place and says what is wrong there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import EllipsisType, UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

Failure = Callable[[str], Exception]
"""Makes the error to raise from its sentence: an error class, as a rule."""
Hook = Callable[[type[Any], Any], Any]
"""Makes an object of a type that msgspec does not know, or raises `ValueError`."""

WHOLE = "the document"
"""The place of the whole value."""
_SHOWN = 80

_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
}
_PATH = re.compile(r" - at (`key` in )?`\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_KIND = re.compile(r"`([^`]+)`")
_Step = str | int | EllipsisType


def read(value: object, shape: type[T], where: str = "", *, error: Failure = ValueError, hook: Hook | None = None) -> T:
    """Return a value as one of `shape`: a type that msgspec knows, or with `hook` any class.

    `where` is the place of the value in its document, such as `messages[3]`. Keys of an object that its shape does not
    name are passed over.

    Raises:
        error: the value is of another shape.
    """
    try:
        return msgspec.convert(value, shape, str_keys=True, dec_hook=hook)
    except msgspec.ValidationError as problem:
        raise error(_sentence(str(problem), value, shape, where)) from problem
    except RecursionError:
        raise error(f"{where or WHOLE} is nested too deeply") from None


def is_of(value: object, shape: object) -> bool:
    """Tell whether `read` would return a value, in far less time than it takes to say why not."""
    try:
        msgspec.convert(value, cast(type[object], shape), str_keys=True)
    except (msgspec.ValidationError, RecursionError):
        return False
    return True


def place(where: str, key: str) -> str:
    """Return the place of a field of the object at `where`."""
    return f"{where}.{key}" if where else key


def _sentence(problem: str, value: object, shape: object, where: str) -> str:
    """Say in our words what msgspec says: the place, what was found there, and what belongs there."""
    at = _PATH.search(problem)
    if at:
        problem = problem[: at.start()]
        where, value, shape = _follow(at[2], value, shape, where)
    there = where or WHOLE
    missing = _MISSING.fullmatch(problem)
    if missing:
        return f"{place(where, missing[1])} is missing"
    if problem.startswith("Invalid"):
        choices = ", ".join(map(str, _choices(shape)))
        return f"{there} is {_shown(value)}, " + (f"not one of {choices}" if choices else "which is not known here")
    if not problem.startswith("Expected"):
        return f"{there}: {problem}"
    wanted, got, found = _KIND.sub(_kind, problem.removeprefix("Expected ")).partition(", got ")
    if at and at[1]:
        return f"a key of {there} must be {wanted}"
    return f"{there} must be {wanted}, not {found}" if got else f"{there} is {_shown(value)}, not {wanted}"


def _kind(named: re.Match[str]) -> str:
    """Name JSON's kinds in words; that null is allowed as well is of no help."""
    kinds = [kind for kind in named[1].split(" | ") if kind != "null"] or ["null"]
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"


def _follow(path: str, value: object, shape: object, where: str) -> tuple[str, object, object]:
    """Return the place at the end of a path, and the value and the shape there."""
    for name, index in _STEP.findall(path):
        step: _Step = name or (int(index) if index else ...)
        shape = _inside(shape, value, step)
        match value, step:
            case Mapping(), str():
                where, value = place(where, step), cast(Mapping[str, object], value).get(step)
            case Mapping(), EllipsisType():
                key = _wrong_key(cast(Mapping[str, object], value), shape)
                where, value = f"{where}[{key!r}]", cast(Mapping[str, object], value)[key]
            case ((list() | tuple()), int()):
                where, value = f"{where}[{step}]", cast(Sequence[object], value)[step]
            case _:
                where, value = f"{where}[…]", None
    return where, value, shape


def _inside(shape: object, value: object, step: _Step) -> object:
    """Return the shape of what is one step inside a value."""
    for member in members(shape):
        origin, arguments = get_origin(member), get_args(member)
        if origin in (list, dict):
            return arguments[-1]
        if isinstance(member, type) and isinstance(step, str):
            tag_field, tag = tag_of(member)
            if step == tag_field:
                return Literal[tuple(tag_of(one)[1] for one in members(shape))]
            if tag_field is None or cast(Mapping[str, object], value).get(tag_field) == tag:
                return fields_of(member).get(step)
    return None


@lru_cache(maxsize=256)
def fields_of(shape: type[Any]) -> dict[str, Any]:
    """Return the shapes of the fields of an object by their keys."""
    if issubclass(shape, msgspec.Struct):
        return {one.encode_name: one.type for one in msgspec.structs.fields(shape)}
    return get_type_hints(shape, include_extras=True)


def members(shape: object) -> Iterator[object]:
    """Yield the shapes that a value may have, without null."""
    if get_origin(shape) in (Union, UnionType):
        yield from (member for member in get_args(shape) if member is not type(None))
    else:
        yield shape


def tag_of(shape: object) -> tuple[str | None, object]:
    """Return the key that says which of several shapes an object has, and what it says for this one."""
    config = getattr(shape, "__struct_config__", None)
    return (None, None) if config is None else (config.tag_field, config.tag)


def _choices(shape: object) -> Iterator[object]:
    for member in members(shape):
        if get_origin(member) is Literal:
            yield from get_args(member)


def _wrong_key(value: Mapping[str, object], shape: Any) -> str:
    """Find the key of the first value that is of another shape, which msgspec does not say."""
    for key, item in value.items():
        try:
            msgspec.convert(item, shape)
        except msgspec.ValidationError:
            return key
    return next(iter(value))
