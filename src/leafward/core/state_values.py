"""Values of a user's own types, as JSON texts and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from leafward.core.agent_messages import read_messages, write_messages
from leafward.core.agent_state import AgentState
from leafward.core.errors import StateDecodeError
from leafward.core.json import Plain, decode, decode_leniently, encode, encode_text
from leafward.core.message import Message

T = TypeVar("T")


@runtime_checkable
class _Dumps(Protocol):
    """A model of pydantic's, or one that does as those do."""

    def model_dump(self, *, mode: str) -> dict[str, Any]: ...


def write_value(value: object) -> str:
    """Return a dict, dataclass, msgspec Struct, pydantic model, `Message` or `AgentState` as compact JSON.

    Lone surrogates become U+FFFD.

    Raises:
        ValueError: it is something else, or holds what JSON cannot.
    """
    if isinstance(value, AgentState):
        return value.to_json()
    try:
        plain = _plain(value)
        return _exactly(plain) or encode_text(Plain("a state", any_integers=True).copy(plain))
    except TypeError as error:
        raise ValueError(f"a state cannot be written as JSON: {error}") from error


def _exactly(value: object) -> str | None:
    """Return the JSON of a value that comes back from it as it is, as nearly all do, in a tenth of the time."""
    try:
        text = encode(value)
        return text.decode() if decode(text) == value else None
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def write_items(values: Iterable[object]) -> list[str]:
    """Return the items of a list, each as `write_value` does; messages are written as AgentScope's `Msg`."""
    items = list(values)
    if items and all(isinstance(item, Message) for item in items):
        items = cast(list[object], write_messages(cast(list[Message], items)))
    return _each_exactly(items) or [write_value(item) for item in items]


def _each_exactly(items: list[object]) -> list[str] | None:
    """Return what `_exactly` does of each, if all are plain."""
    if not all(isinstance(item, dict) for item in items):
        return None
    try:
        texts = [encode(item) for item in items]
        same = decode(b"[%b]" % b",".join(texts)) == items
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None
    return [text.decode() for text in texts] if same else None


def _plain(value: object) -> object:
    match value:
        case Message():
            return write_messages([value])[0]
        case Mapping():
            return cast(Mapping[object, object], value)
        case msgspec.Struct():
            return _object(msgspec.to_builtins(value))
        case _Dumps() if not isinstance(value, type):
            return _object(value.model_dump(mode="json"))
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _object(msgspec.to_builtins(value))
        case _:
            raise ValueError(
                f"a state is a dict, a dataclass, a msgspec Struct or a pydantic model, not a {type(value).__name__}"
            )


def _object(value: object) -> object:
    # One that is written as an array could not be told from a list.
    if not isinstance(value, dict):
        raise ValueError("a state is written as a JSON object: leave out array_like=True")
    return cast(object, value)


def read_value(text: str | bytes, type: type[T]) -> T:
    """Return what a JSON text says, as a value of `type`.

    Raises:
        ValueError: it is not JSON, or not of this type; the text says where.
    """
    try:
        if type is AgentState:
            return cast(T, AgentState.from_json(text))
        return _read(decode_leniently(text), type)
    except StateDecodeError as error:
        raise ValueError(error.reason) from error


def read_items(texts: Sequence[str | bytes], type: type[T]) -> list[T]:
    """Return the items of a list, each as `read_value` does.

    Raises:
        ValueError: one of them is not of this type; the text says which.
    """
    if type is not Message:
        return [_read_item(index, text, type) for index, text in enumerate(texts)]
    found: list[tuple[object, str]] = [
        (_read_item(index, text, dict[str, Any]), f"item {index}") for index, text in enumerate(texts)
    ]
    try:
        return cast(list[T], read_messages(found, roles=False))
    except StateDecodeError as error:
        raise ValueError(error.reason) from error


def _read_item(index: int, text: str | bytes, type: type[T]) -> T:
    try:
        return read_value(text, type)
    except ValueError as error:
        raise ValueError(f"item {index}: {error}") from error


def _read(value: object, type: Any) -> Any:
    if type is Message:
        return read_messages([(value, "it")], roles=False)[0]
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")
    if type is dict:
        return cast(object, value)
    validate = getattr(type, "model_validate", None)
    if validate is not None:
        return validate(value)
    try:
        return msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        raise ValueError(f"is not a {getattr(type, '__name__', type)}: {error}") from error
