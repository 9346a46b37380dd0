"""Reads JSON values from outside, and names the place of what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from leafward.core.ids import check_id
from leafward.core.json import Plain
from leafward.core.message import Message
from leafward.core.times import parse_micros

_LARGEST = 2**53 - 1
"""Beyond this, JSON of other languages does not hold every whole number, and sums could leave 64 bits."""

T = TypeVar("T")


class Field:
    """A value and where in the document it stands; what it is not, it refuses with `ValueError`."""

    def __init__(self, value: object, place: str = "") -> None:
        self._value = value
        self._place = place

    def __getitem__(self, key: str) -> Field:
        if not isinstance(self._value, Mapping):
            raise self._wrong("an object")
        found = cast(Mapping[str, object], self._value)
        if key not in found:
            raise ValueError(f"{self._shown} has no {key!r}")
        return Field(found[key], f"{self._place}.{key}" if self._place else key)

    def items(self) -> Iterator[Field]:
        """Return the values of a list."""
        if not isinstance(self._value, list):
            raise self._wrong("a list")
        for index, item in enumerate(cast(list[object], self._value)):
            yield Field(item, f"{self._place}[{index}]")

    def names(self) -> dict[str, str]:
        """Return an object whose values are texts that are not empty."""
        if not isinstance(self._value, Mapping):
            raise self._wrong("an object")
        named = dict[str, str]()
        for key, item in cast(Mapping[object, object], self._value).items():
            name = Field(item, f"{self._place}[{key!r}]")
            named[Field(key, self._place).text()] = name.text()
            if not item:
                raise name._wrong("a text of at least one character")
        return named

    def text(self) -> str:
        if not isinstance(self._value, str):
            raise self._wrong("text")
        return Plain().text(self._value)

    def written(self) -> str:
        """Return a text that is not blank."""
        if not self.text().strip():
            raise ValueError(f"{self._shown} is a blank text")
        return self.text()

    def id(self) -> str:
        return self._read(lambda value: check_id("id", value))

    def whole(self) -> int:
        number = self._value
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _LARGEST:
            raise self._wrong(f"a whole number from 0 to {_LARGEST}")
        return number

    def cost(self) -> float:
        number = self._value
        if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 <= number <= _LARGEST:
            raise self._wrong(f"a number from 0 to {_LARGEST}")
        return float(number)

    def flag(self) -> bool:
        if not isinstance(self._value, bool):
            raise self._wrong("true or false")
        return self._value

    def moment(self) -> int:
        """Return a time as microseconds since 1970."""
        text = self.text()
        return self._read(lambda _: parse_micros(text))

    def message(self) -> Message:
        if not isinstance(self._value, Mapping):
            raise self._wrong("a message")
        return self._read(lambda value: Message.from_dict(cast(Mapping[str, Any], value)))

    def optional(self, read: Callable[[Field], T]) -> T | None:
        return None if self._value is None else read(self)

    @property
    def _shown(self) -> str:
        return self._place or "it"

    def _read(self, read: Callable[[object], T]) -> T:
        try:
            return read(self._value)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self._shown} is refused: {error}") from error

    def _wrong(self, wanted: str) -> ValueError:
        shown = repr(self._value)
        return ValueError(f"{self._shown} is {shown if len(shown) <= 80 else shown[:77] + '…'}, not {wanted}")
