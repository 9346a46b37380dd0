"""JSON as we store it: compact, UTF-8, plain values only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import msgspec

MAX_DEPTH = 100
_LOWEST, _HIGHEST = -(2**63), 2**64 - 1

DecodeError = msgspec.DecodeError
decode = msgspec.json.Decoder().decode
decode_body = msgspec.json.Decoder(dict[str, Any]).decode
"""Decodes what a store keeps of a message, and refuses what is not an object."""
encode = msgspec.json.Encoder().encode


def encode_text(value: object) -> str:
    """Return `value` as compact JSON text."""
    return encode(value).decode()


class Plain:
    """Copies values as plain JSON, and remembers whether it had to mend text."""

    def __init__(self) -> None:
        self.mended = False

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
            raise ValueError(f"a message nests values deeper than {MAX_DEPTH} levels")
        if isinstance(value, Mapping):
            items = cast(Mapping[object, object], value).items()
            return {self.key(key): self.copy(item, depth + 1) for key, item in items}
        if isinstance(value, (list, tuple)):
            return [self.copy(item, depth + 1) for item in cast(list[object], value)]
        if isinstance(value, int):
            if not _LOWEST <= value <= _HIGHEST:
                raise ValueError("a message holds an integer beyond 64 bits: send it as a string")
            return int(value)
        if isinstance(value, float):
            if not math.isfinite(value):
                raise ValueError(f"a message holds {value}, which JSON cannot: send null or a string")
            return float(value)
        raise ValueError(f"a message holds a {type(value).__name__}, which is not a JSON value")

    def key(self, key: object) -> str:
        if not isinstance(key, str):
            raise ValueError(f"a message holds an object with the key {key!r}, which is not a string")
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
