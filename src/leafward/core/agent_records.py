"""Objects as AgentScope for Java writes them: fields that we know, each with a type, and others, which are kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import MISSING, Field, fields
from functools import cache, partial
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    NoReturn,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from leafward.core.coercion import coerced
from leafward.core.errors import StateDecodeError
from leafward.core.untrusted import WHOLE, place, read

T = TypeVar("T")
R = TypeVar("R", bound="Record")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A number that fits Java's `int`."""

_Read = Callable[[Any, str], object]


class Record:
    """The base of dataclasses that stand for such objects.

    What they do not know is kept in their field `extra`, and written after their own fields, where Java reads past it.
    A field that is not compared is not stored.
    """

    __slots__ = ()
    extra: dict[str, Any]


def stored(
    key: str | None = None, *, read: _Read | None = None, missing: Any = MISSING, after: str | None = None
) -> Mapping[str, Any]:
    """Return the metadata of a field of a record: its key in the document, how it is read, the value it has if it is
    missing there (otherwise its default), and the field that it is written after (otherwise the one before it)."""
    return {"key": key, "read": read, "missing": missing, "after": after}


# ── reading ──────────────────────────────────────────────────────────────────


def undecodable(reason: str) -> StateDecodeError:
    """Return the error of a document that does not say whose state it is."""
    return StateDecodeError(None, None, None, reason)


def refuse(where: str, problem: str) -> NoReturn:
    """Raise that a document is wrong at `where`."""
    raise undecodable(f"{where or WHOLE} {problem}")


def read_as(shape: type[T], value: object, where: str) -> T:
    """Return a value of a document as one of `shape`.

    Raises:
        StateDecodeError: it is something else; the reason names the place.
    """
    return read(value, shape, where, error=undecodable)


def read_object(value: object, where: str) -> dict[str, Any]:
    """Return a value that must be an object."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else read_as(dict[str, Any], value, where)


def read_record(kind: type[R], value: object, where: str = "") -> R:
    """Return the object at `where` in a document as a record.

    As for AgentScope's reader `null` counts as missing, words of which there is a choice may be in any case, and a
    number may stand for a text or a text for a number.

    Raises:
        StateDecodeError: it is something else; the reason names the place.
    """
    given = read_object(value, where)
    known_fields = _fields(kind)
    known: dict[str, Any] = {"extra": {key: found for key, found in given.items() if key not in known_fields}}
    for key, one in known_fields.items():
        found = given.get(key)
        if found is not None:
            known[one.name] = found if one.read is None else one.read(found, place(where, key))
        elif one.missing is not MISSING:
            known[one.name] = one.missing
    try:
        return read_as(kind, known, where)
    except StateDecodeError:
        converted = {name: found for name, found in coerced(known, kind).items() if found is not None}
        return read_as(kind, converted, where)


class _Known(NamedTuple):
    """A field of a record."""

    name: str
    read: _Read | None
    missing: object
    is_float: bool


@cache
def _fields(record: type[Record]) -> dict[str, _Known]:
    """Return the fields of a record by their keys, in the order in which they are written."""
    hints = get_type_hints(record, include_extras=True)
    known = [one for one in fields(cast(Any, record)) if one.compare and one.name != "extra"]
    names = [one.name for one in known]
    after = {one.name: one.metadata.get("after") for one in known}
    known.sort(key=lambda one: (names.index(after[one.name] or one.name), after[one.name] is not None))
    return {one.metadata.get("key") or one.name: _known(one, hints[one.name]) for one in known}


def _known(one: Field[Any], hint: Any) -> _Known:
    reads = one.metadata.get("read") or _reader(hint)
    if reads is None and one.metadata.get("key"):
        # Read by itself, so that an error names the key.
        reads = partial(_read_by_itself, hint)
    missing = one.metadata.get("missing", MISSING)
    if missing is MISSING and one.default is one.default_factory is MISSING and NoneType in get_args(hint):
        missing = None
    return _Known(one.name, reads, missing, is_float=float in (hint, *get_args(hint)))


def _read_by_itself(hint: Any, value: object, where: str) -> object:
    return read_as(hint, coerced(value, hint), where)


def _reader(hint: Any) -> _Read | None:
    """Return how values of a type are read before msgspec reads the record; `None` where it needs no help."""
    origin, arguments = get_origin(hint), get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Record):
        return partial(read_record, hint)
    if origin is Literal:
        return lambda value, where: _in_any_case(value, arguments)
    if origin in (Union, UnionType):
        readers = (_reader(member) for member in arguments if member is not NoneType)
        return next((reader for reader in readers if reader is not None), None)
    inner = _reader(arguments[-1]) if origin in (list, dict) else None
    if inner is None:
        return None
    if origin is list:
        return partial(_read_list, inner)
    return partial(_read_dict, inner, of_lists=get_origin(arguments[-1]) is list)


def _in_any_case(value: object, words: tuple[str, ...]) -> object:
    if not isinstance(value, str):
        return value
    return next((word for word in words if word.lower() == value.lower()), value)


def _read_list(read: _Read, value: object, where: str) -> list[object]:
    return [read(item, f"{where}[{index}]") for index, item in enumerate(read_as(list[Any], value, where))]


def _read_dict(read: _Read, value: object, where: str, *, of_lists: bool) -> dict[str, object]:
    # AgentScope leaves out a list that is null, and refuses an object that is.
    found = {name: item for name, item in read_object(value, where).items() if not of_lists or item is not None}
    return {name: read(item, f"{where}[{name!r}]") for name, item in found.items()}


# ── copying ──────────────────────────────────────────────────────────────────


def copy_record(record: R) -> R:
    """Return a copy of what is stored of a record, which shares with it nothing that can be changed."""
    kind = type(record)
    return kind(**{name: _copied(getattr(record, name)) for name in _names(kind)})


@cache
def _names(kind: type[Record]) -> list[str]:
    return [one.name for one in fields(cast(Any, kind)) if one.compare]


def _copied(value: object) -> object:
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Record):
        return copy_record(value)
    if type(value) is dict:
        return {name: _copied(item) for name, item in cast(dict[str, object], value).items()}
    if type(value) is list:
        return [_copied(item) for item in cast(list[object], value)]
    return deepcopy(value)


# ── writing ──────────────────────────────────────────────────────────────────


def write_record(record: Record) -> dict[str, Any]:
    """Return the object that a record stands for.

    Raises:
        ValueError: `extra` holds a key of a field.
    """
    own = {key: _written(getattr(record, one.name), one.is_float) for key, one in _fields(type(record)).items()}
    clash = own.keys() & record.extra.keys()
    if clash:
        raise ValueError(f"extra holds {sorted(clash)}, which are fields of their own")
    return own | record.extra


def _written(value: object, is_float: bool = False) -> object:
    match value:
        case str() | None:
            return value
        case Record():
            return write_record(value)
        case list():
            return [_written(item) for item in cast(list[object], value)]
        case dict():
            return {name: _written(item) for name, item in cast(dict[str, object], value).items()}
        case int() if is_float and not isinstance(value, bool):
            # Java writes a double, so a whole number is written with its point.
            return float(value)
        case _:
            return value
