"""An object of a stored document, read field by field; what is wrong is said with its place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NoReturn, TypeVar, cast

from leafward.core.errors import StateDecodeError

T = TypeVar("T")

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_KINDS: dict[type[Any], str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
}


def refuse(where: str, problem: str) -> NoReturn:
    """Raise that the document is wrong at `where`; the document itself has no name."""
    raise StateDecodeError(None, None, None, f"{where} {problem}" if where else f"the document {problem}")


def kind(value: object) -> str:
    """Name the JSON kind of a value."""
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


class Fields:
    """One object and where it stands. `null` counts as missing, as AgentScope's reader has it."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            refuse(where, f"must be an object, not {kind(value)}")
        self.values = cast(dict[str, Any], value)
        self.where = where

    def place(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def refuse(self, key: str, problem: str) -> NoReturn:
        refuse(self.place(key), problem)

    def text(self, key: str) -> str | None:
        return self._typed(key, str)

    def required_text(self, key: str) -> str:
        value = self._typed(key, str)
        if value is None:
            self.refuse(key, "is null" if key in self.values else "is missing")
        return value

    def flag(self, key: str) -> bool:
        return self._typed(key, bool) or False

    def integer(self, key: str, default: int) -> int:
        """Return a number that fits Java's `int`."""
        value = self._typed(key, int)
        if value is None:
            return default
        if not _INT_MIN <= value <= _INT_MAX:
            self.refuse(key, f"is {value}, which is beyond 32 bits")
        return value

    def number(self, key: str, default: float) -> float:
        value = self.values.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        found = self._typed(key, float)
        return default if found is None else found

    def choice(self, key: str, known: Collection[str], default: str | None = None) -> str:
        """Return one of the known words, read without regard to case; without a default it is required."""
        value = self.text(key) if default is not None else self.required_text(key)
        if value is None:
            assert default is not None
            return default
        if value.lower() not in known:
            self.refuse(key, f"is {value!r}, not one of {', '.join(known)}")
        return value.lower()

    def object(self, key: str) -> Fields:
        """Return the object under `key`, an empty one when it is missing."""
        value = self.values.get(key)
        return Fields({} if value is None else value, self.place(key))

    def items(self, key: str) -> Iterator[tuple[object, str]]:
        """Yield each item of a list, and where it stands."""
        for index, item in enumerate(cast(list[object], self._typed(key, list) or [])):
            yield item, f"{self.place(key)}[{index}]"

    def texts(self, key: str) -> list[str]:
        found: list[str] = []
        for item, where in self.items(key):
            if not isinstance(item, str):
                refuse(where, f"must be a string, not {kind(item)}")
            found.append(item)
        return found

    def mapping(self, key: str, read: Callable[[object, str], T]) -> dict[str, T]:
        """Return an object whose values are all of one shape."""
        inner = self.object(key)
        return {name: read(value, f"{inner.where}[{name!r}]") for name, value in inner.values.items()}

    def others(self, *known: str) -> dict[str, Any]:
        """Return the fields that are not among the known ones."""
        return {key: value for key, value in self.values.items() if key not in known}

    def _typed(self, key: str, type: type[T]) -> T | None:
        value = self.values.get(key)
        if value is None:
            return None
        # To Python a truth value is a number as well; to JSON it is not.
        if not isinstance(value, type) or (type is int and isinstance(value, bool)):
            self.refuse(key, f"must be {_KINDS[type]}, not {kind(value)}")
        return value
