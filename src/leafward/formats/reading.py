"""Checks on what a caller hands in, with errors that say what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from leafward.core.json import decode_body
from leafward.core.message import Dumpable, Message, as_message

Messages = Iterable[Message | Mapping[str, Any] | Dumpable]


def checked_messages(messages: Messages) -> list[Message]:
    """Return what a caller gave as a list of messages.

    Raises:
        ValueError: it is no list, or one of its items is no message.
    """
    given = cast(object, messages)
    if isinstance(given, (str, bytes, Mapping, Message)) or not isinstance(given, Iterable):
        raise ValueError(f"messages are a list of messages, not {type(cast(object, given)).__name__}")
    found: list[Message] = []
    for index, item in enumerate(messages):
        try:
            # A message can be changed in place; sealing it finds what is no longer sound.
            message, body = as_message(item).sealed()
        except ValueError as error:
            refuse(f"messages[{index}]", error)
        # What is written into a payload later must not reach the message.
        found.append(Message.stored(message.id, message.role, message.at, decode_body(body)))
    return found


def refuse(where: str, error: ValueError) -> NoReturn:
    """Raise what is wrong again, with the place in front."""
    raise ValueError(f"{where}: {error}") from error


def object_list(value: object, where: str) -> list[dict[str, Any]]:
    """Return `value` as a list of JSON objects."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise ValueError(f"{where} is a list of objects, not {type(value).__name__}")
    return [json_object(item, f"{where}[{index}]") for index, item in enumerate(cast(Sequence[object], value))]


def json_object(value: object, where: str) -> dict[str, Any]:
    """Return `value`, or what its `model_dump()` gives, as a dict."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, Any], value))
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        raise ValueError(f"{where} is an object, not {type(value).__name__}")
    try:
        # What a provider's object did not set is not sent to it as null.
        return cast(dict[str, Any], dump(mode="json", exclude_unset=True))
    except TypeError as error:
        raise ValueError(f"{where} has a model_dump() that is not pydantic's: {error}") from error


def string(item: Mapping[str, Any], key: str, where: str) -> str:
    """Return a field that must be a string."""
    value = item.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{where}.{key} is a string, not {'missing' if key not in item else type(value).__name__}")
    return value


def typed_blocks(value: object, where: str) -> list[dict[str, Any]]:
    """Return `value` as a list of objects that each have a type."""
    blocks = object_list(value, where)
    for index, block in enumerate(blocks):
        string(block, "type", f"{where}[{index}]")
    return blocks


def build(where: str, role: str, parts: list[dict[str, Any]], **fields: Any) -> Message:
    """Make a message of what was read.

    Raises:
        ValueError: the payload holds what a message cannot; the text names the place.
    """
    try:
        return Message(role, parts, **fields)
    except ValueError as error:
        refuse(where, error)
