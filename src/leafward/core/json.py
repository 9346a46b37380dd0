"""JSON as we store it: compact, UTF-8, plain values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NoReturn, cast

import msgspec

MAX_DEPTH = 100
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1

DecodeError = msgspec.DecodeError
decode = msgspec.json.Decoder().decode
decode_body = msgspec.json.Decoder(dict[str, Any]).decode
"""Decodes what a store keeps of a message, and refuses what is not an object."""
encode = msgspec.json.Encoder().encode
encode_sorted = msgspec.json.Encoder(order="sorted").encode
"""Encodes with keys in order: equal JSON values, and no others, have equal bytes."""


def encode_text(value: object) -> str:
    """Return `value` as compact JSON text."""
    return encode(value).decode()


def copy_plain(value: Any) -> Any:
    """Return a copy of a plain JSON value, which shares no dict or list with it."""
    if isinstance(value, dict):
        return {key: copy_plain(item) for key, item in cast(dict[str, Any], value).items()}
    return [copy_plain(item) for item in cast(list[Any], value)] if isinstance(value, list) else value


class Plain:
    """Copies values as plain JSON, and remembers whether it had to mend text; `what` is what errors call the whole."""

    def __init__(self, what: str = "a message", *, any_integers: bool = False) -> None:
        self.mended = False
        self._what = what
        self._any_integers = any_integers

    def copy(self, value: object, depth: int = 0) -> Any:
        """Return a deep copy of `value` as dicts, lists, strings, numbers, booleans and None.

        Lone surrogates, which no UTF-8 file can hold, become U+FFFD.

        Raises:
            ValueError: a value that JSON cannot hold exactly, or nesting beyond `MAX_DEPTH`.
        """
        if isinstance(value, str):
            return self.text(value)
        if value is None or isinstance(value, bool):
            return value
        if depth > MAX_DEPTH:
            raise ValueError(f"{self._what} nests values deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            items = cast(Mapping[object, object], value).items()
            return {self.key(key): self.copy(item, depth + 1) for key, item in items}
        if isinstance(value, (list, tuple)):
            return [self.copy(item, depth + 1) for item in cast(list[object], value)]
        if isinstance(value, int):
            if not self._any_integers and not _LOWEST <= value <= _HIGHEST:
                raise ValueError(f"{self._what} holds an integer beyond 64 bits: send it as a string")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"{self._what} holds {value}, which JSON cannot: send null or a string")
            return float(value)
        raise ValueError(f"{self._what} holds a {type(value).__name__}, which is not a JSON value")

    def key(self, key: object) -> str:
        if not isinstance(key, str):
            raise ValueError(f"{self._what} holds an object with the key {key!r}, which is not a string")
        return self.text(key)

    def text(self, text: str) -> str:
        text = str.__str__(text)
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            self.mended = True
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text


def try_parse(text: str) -> tuple[Any] | None:
    """Return the JSON value of a text in a tuple, or `None` when it has none that a message could hold."""
    try:
        value = decode(text)
        # A part nests its input a few levels deep, and a message nests no deeper than it can store.
        return (Plain().copy(value, 8),)
    except (DecodeError, ValueError, RecursionError):
        return None


def decode_leniently(text: str | bytes) -> Any:
    """Decode JSON that others wrote; halves of surrogate pairs, escaped or not, become U+FFFD.

    Raises:
        ValueError: it is not JSON, or nested too deeply; the text says where.
    """
    try:
        return decode(Plain().text(text) if isinstance(text, str) else text)
    except DecodeError as error:
        return _decode_halves(text, error)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _decode_halves(text: str | bytes, error: DecodeError) -> Any:
    # Imported late: hardly anybody needs it.
    import json

    problem = ValueError(f"is not JSON: {error}")
    try:
        plain = text if isinstance(text, str) else text.decode()
        if "\\ud" not in plain.lower():
            raise problem from error
        return Plain().copy(json.loads(plain, parse_constant=_no_constant))
    except (ValueError, RecursionError):
        raise problem from error


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
