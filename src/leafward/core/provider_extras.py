"""What only the system that wrote a part can read, kept beside it under one key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from leafward.core.parts import Part

ORIGIN = "leafward_provider"
"""The key of a part or message: `{"name": format, "raw": whole item}` or `{"name": format, "rest": other fields}`."""


def opaque(kind: str, name: str, raw: Mapping[str, Any]) -> Part:
    """Carry an item that no part expresses; only `name` gets it back as it was."""
    return {"type": kind, ORIGIN: {"name": name, "raw": dict(raw)}}


def with_rest(part: Part, name: str, rest: Mapping[str, Any]) -> Part:
    """Keep the fields that only `name` knows beside a part; without any, the part stays as it is."""
    return {**part, ORIGIN: {"name": name, "rest": dict(rest)}} if rest else part


def rest_of(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the fields that `name` keeps beside a part or a message's extra keys."""
    found = rest_if_any(holder, name)
    return {} if found is None else found


def rest_if_any(holder: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Return what `rest_of` does, or `None` when `name` kept nothing here."""
    return _field(holder, name, "rest")


def raw_of(part: Mapping[str, Any], name: str | None = None) -> dict[str, Any] | None:
    """Return the whole item that `name`, or anyone, left in this part."""
    return _field(part, name, "raw")


def without_origin(part: Mapping[str, Any]) -> Part:
    return {key: value for key, value in part.items() if key != ORIGIN}


def _field(holder: Mapping[str, Any], name: str | None, field: str) -> dict[str, Any] | None:
    origin: object = holder.get(ORIGIN)
    if not isinstance(origin, dict):
        return None
    kept = cast(dict[str, object], origin)
    found = kept.get(field)
    if not isinstance(found, dict) or (name is not None and kept.get("name") != name):
        return None
    return cast(dict[str, Any], found)
