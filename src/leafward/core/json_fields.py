"""Fields of JSON that a caller hands in, read with errors that say what is wrong and where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast


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
