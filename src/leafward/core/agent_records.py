"""Objects as AgentScope for Java writes them: known fields with a type each, and others that are kept unread."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, fields
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Self, TypeVar, Union, cast, get_args, get_origin
from typing import get_type_hints as hints_of

import msgspec

from leafward.core.errors import StateDecodeError
from leafward.core.untrusted import WHOLE, place, read

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
"""A number that fits Java's `int`."""

_Read = Callable[[object, str], object]


def undecodable(reason: str) -> StateDecodeError:
    """Return the error of a document that does not know whose state it is."""
    return StateDecodeError(None, None, None, reason)


def refuse(where: str, problem: str) -> NoReturn:
    """Raise that a document is wrong at `where`."""
    raise undecodable(f"{where or WHOLE} {problem}")


def read_as(shape: type[T], value: object, where: str) -> T:
    """Return a value of a document as one of `shape`.

    Raises:
        StateDecodeError: it is something else.
    """
    return read(value, shape, where, error=undecodable)


def stored(key: str, **missing: Any) -> dict[str, Any]:
    """Return the metadata of a field: its key in the document and, with `missing=`, its value if that is not there;
    otherwise a field that is missing has its default."""
    return {"key": key, **missing}


class Record:
    """The base of dataclasses that stand for such objects; what they do not know is in their field `extra`.

    As in AgentScope's reader `null` counts as missing, and words of which there is a choice may be in any case.
    """

    __slots__ = ()
    extra: dict[str, Any]

    @classmethod
    def read(cls, value: object, where: str = "") -> Self:
        """Read an object that stands at `where` in its document.

        Raises:
            StateDecodeError: it is something else; the reason names the place.
        """
        given = read_as(dict[str, Any], value, where)
        known: dict[str, Any] = {}
        for one in _fields(cls):
            found = given.get(one.key)
            if found is not None:
                known[one.name] = found if one.read is None else one.read(found, place(where, one.key))
            elif one.missing is not MISSING:
                known[one.name] = one.missing
        keys = _keys(cls)
        known["extra"] = {name: found for name, found in given.items() if name not in keys}
        return read_as(cls, known, where)

    def write(self) -> dict[str, Any]:
        """Return the object: its own fields, then those it does not know.

        Raises:
            ValueError: one of those has the name of a field.
        """
        own = {one.key: _written(getattr(self, one.name)) for one in _fields(type(self))}
        clash = own.keys() & self.extra.keys()
        if clash:
            raise ValueError(f"extra holds {sorted(clash)}, which are fields of their own")
        return own | self.extra


class _Field(NamedTuple):
    name: str
    key: str
    missing: object
    read: _Read | None


@cache
def _fields(record: type[Any]) -> list[_Field]:
    hints = hints_of(record, include_extras=True)
    return [
        _Field(
            one.name,
            one.metadata.get("key", one.name),
            one.metadata.get("missing", MISSING),
            _reader(hints[one.name]),
        )
        for one in fields(record)
        if one.name != "extra"
    ]


@cache
def _keys(record: type[Any]) -> frozenset[str]:
    return frozenset(one.key for one in _fields(record))


def _reader(hint: Any) -> _Read | None:
    """Return how values of a type are read; `None` where msgspec does all of it."""
    match get_origin(hint), get_args(hint):
        case _, _ if isinstance(hint, type) and issubclass(hint, Record):
            return hint.read
        case origin, words if origin is Literal:
            return lambda value, where: _in_any_case(value, words)
        case origin, members if origin in (Union, UnionType):
            readers = [_reader(member) for member in members if member is not NoneType]
            return next((read for read in readers if read is not None), None)
        case origin, (item,) if origin is list:
            return _list_reader(_reader(item))
        case origin, (_, item) if origin is dict:
            return _dict_reader(_reader(item))
        case _:
            return None


def _in_any_case(value: object, words: tuple[Any, ...]) -> object:
    if not isinstance(value, str):
        return value
    return next((word for word in words if word.lower() == value.lower()), value)


def _list_reader(item: _Read | None) -> _Read | None:
    if item is None:
        return None
    return lambda value, where: [
        item(each, f"{where}[{index}]") for index, each in enumerate(read_as(list[Any], value, where))
    ]


def _dict_reader(item: _Read | None) -> _Read | None:
    if item is None:
        return None
    return lambda value, where: {
        name: item(each, f"{where}[{name!r}]") for name, each in read_as(dict[str, Any], value, where).items()
    }


def _written(value: object) -> object:
    match value:
        case Record():
            return value.write()
        case list():
            return [_written(item) for item in cast(list[object], value)]
        case dict():
            return {name: _written(item) for name, item in cast(dict[str, object], value).items()}
        case _:
            return value
