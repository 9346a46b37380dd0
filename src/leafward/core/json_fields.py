"""Fields of payloads that a caller hands in: `leafward.core.untrusted` for dicts and objects of SDKs alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from leafward.core.untrusted import place, read


def object_list(value: object, where: str) -> list[dict[str, Any]]:
    """Return `value` as a list of JSON objects."""
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        items = list(cast(Sequence[object], value))
    else:
        items = read(value, list[Any], where)
    return [json_object(item, f"{where}[{index}]") for index, item in enumerate(items)]


def message_list(value: object, where: str = "messages") -> list[dict[str, Any]]:
    """Return a payload as a list of messages; one message, or the object around a list, is refused with the remedy."""
    if isinstance(value, Mapping) and "messages" in value:
        raise ValueError(f'{where} must be a list, not an object: give the list in its "messages"')
    if isinstance(value, Mapping) or callable(getattr(value, "model_dump", None)):
        raise ValueError(f"{where} must be a list, not an object: put one message in a list, [message]")
    return object_list(value, where)


def json_object(value: object, where: str) -> dict[str, Any]:
    """Return `value`, or what its `model_dump()` gives, as a dict."""
    if isinstance(value, Mapping):
        return dict(cast(Mapping[str, Any], value))
    dump = getattr(value, "model_dump", None)
    if not callable(dump):
        return read(value, dict[str, Any], where)
    try:
        # What a provider's object did not set is not sent to it as null.
        return cast(dict[str, Any], dump(mode="json", exclude_unset=True))
    except TypeError as error:
        raise ValueError(f"{where} has a model_dump() that is not pydantic's: {error}") from error


def string(item: Mapping[str, Any], key: str, where: str) -> str:
    """Return a field that must be a string."""
    if key not in item:
        raise ValueError(f"{place(where, key)} is missing")
    return read(item[key], str, place(where, key))


def typed_blocks(value: object, where: str) -> list[dict[str, Any]]:
    """Return `value` as a list of objects that each have a type."""
    blocks = object_list(value, where)
    for index, block in enumerate(blocks):
        string(block, "type", f"{where}[{index}]")
    return blocks
