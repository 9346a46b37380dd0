"""Values that others wrote, read into the types we expect: an error names the place and says what is wrong there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

T = TypeVar("T")

Failure = Callable[[str], Exception]
"""Makes the error that is raised, from its sentence: an error class, as a rule."""

WHOLE = "the document"
"""What the place of the whole value is called."""
_SHOWN = 80

_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
}
_PATH = re.compile(r" - at (?:`key` in )?`\$([^`]*)`$")
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]|\[\.\.\.\]")
_MISSING = re.compile(r"Object missing required field `(.+)`")
_KIND = re.compile(r"`([^`]+)`")


def read(value: object, shape: type[T], where: str = "", *, error: Failure = ValueError) -> T:
    """Return a value as one of `shape`, a type that msgspec knows, or `list[...]` or `dict[str, ...]` of such.

    `where` is the place of the value in its document, such as `messages[3]`. A value that is of the shape already is
    returned unchanged; keys of an object that its shape does not name are passed over.

    Raises:
        error: the value is of another shape.
    """
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as problem:
        raise error(_sentence(str(problem), value, shape, where)) from problem
    except RecursionError:
        raise error(f"{where or WHOLE} is nested too deeply") from None


def place(where: str, key: str) -> str:
    """Return the place of a field in the object at `where`."""
    return f"{where}.{key}" if where else key


def _sentence(problem: str, value: object, shape: object, where: str) -> str:
    """Say what msgspec says in our words: the place first, then what was found there and what belongs there."""
    at = _PATH.search(problem)
    path, problem = (at[1], problem[: at.start()]) if at else ("", problem)
    there = (where + path if where else path.removeprefix(".")) or WHOLE
    missing = _MISSING.fullmatch(problem)
    if missing:
        return f"{place('' if there == WHOLE else there, missing[1])} is missing"
    steps = [name or (int(index) if index else ...) for name, index in _STEP.findall(path)]
    if problem.startswith(("Invalid enum value", "Invalid value")):
        choices = ", ".join(map(str, _choices(shape, steps)))
        return f"{there} is {_shown(value, steps)}, {f'not one of {choices}' if choices else 'which is not known'}"
    if not problem.startswith("Expected "):
        return f"{there}: {problem}"
    wanted, got, found = _KIND.sub(_kind, problem.removeprefix("Expected ")).partition(", got ")
    return f"{there} must be {wanted}, not {found}" if got else f"{there} is {_shown(value, steps)}, not {wanted}"


def _kind(named: re.Match[str]) -> str:
    """Name JSON's kinds in words; that null would do as well is of no help to the reader."""
    kinds = [kind for kind in named[1].split(" | ") if kind != "null"] or ["null"]
    return " or ".join(_KINDS.get(kind, kind) for kind in kinds)


def _shown(value: object, steps: Sequence[object]) -> str:
    for step in steps:
        match value, step:
            case Mapping(), str():
                value = cast(Mapping[str, object], value)[step]
            case ((list() | tuple()), int()):
                value = cast(Sequence[object], value)[step]
            case _:
                return "something else"
    shown = repr(value)
    return shown if len(shown) <= _SHOWN else shown[: _SHOWN - 1] + "…"


def _choices(shape: object, steps: Sequence[object]) -> Iterator[object]:
    """Yield the values that a shape allows at the end of a path."""
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in (Union, UnionType):
        for member in arguments:
            yield from _choices(member, steps)
    elif origin is Literal and not steps:
        yield from arguments
    elif origin in (list, dict) and steps:
        yield from _choices(arguments[-1], steps[1:])
    elif isinstance(shape, type) and steps:
        yield from _choices(get_type_hints(shape).get(cast(Any, steps[0])), steps[1:])
