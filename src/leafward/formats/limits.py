"""What providers accept in the names and ids of tool calls."""

from __future__ import annotations

import re

from leafward.core.ids import derived_id

UNNAMED = "unnamed_tool"

_NOT_IN_NAMES = re.compile("[^a-zA-Z0-9_-]+")


def function_name(name: str, longest: int = 64) -> str:
    """Return the name of a tool as providers accept it; one they would refuse loses the characters in question."""
    return _NOT_IN_NAMES.sub("_", name)[:longest] or UNNAMED


def short_id(call_id: str, longest: int) -> str:
    """Return the id of a call, or another one made of it when it is too long."""
    return call_id if len(call_id) <= longest else derived_id("call", call_id)


def plain_id(call_id: str) -> str:
    """Return the id of a call, or another one made of it when it holds more than letters, digits, `_` and `-`."""
    return derived_id("call", call_id) if _NOT_IN_NAMES.search(call_id) or not call_id else call_id
