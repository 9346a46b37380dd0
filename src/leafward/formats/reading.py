"""Checks on what a caller hands in, with errors that say what is wrong and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, cast

from leafward.core.json import decode_body
from leafward.core.message import Dumpable, Message, as_message

Messages = Iterable[Message | Mapping[str, Any] | Dumpable]


def checked_messages(messages: Messages) -> list[Message]:
    """Return what a caller gave as a list of messages.

    Raises:
        ValueError: it is not a list, or one of its items is not a message.
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


def build(where: str, role: str, parts: list[dict[str, Any]], **fields: Any) -> Message:
    """Make a message of what was read.

    Raises:
        ValueError: the payload holds what a message cannot; the text names the place.
    """
    try:
        return Message(role, parts, **fields)
    except ValueError as error:
        refuse(where, error)
