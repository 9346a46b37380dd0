"""Which strings may name a skill: keys come from a model, and a key is never a way out."""

from __future__ import annotations

import re

from leafward.core.errors import ContextError

MAX_KEY_LENGTH = 512

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_DRIVE = re.compile("[A-Za-z]:")


def refusal(key: object) -> str | None:
    """Say why `key` cannot name a skill or one of its resources, or nothing when it can."""
    if not isinstance(key, str):
        return "a key is a string"
    if not key.strip():
        return "it is empty or blank"
    if len(key) > MAX_KEY_LENGTH:
        return f"it is longer than {MAX_KEY_LENGTH} characters"
    if _UNPRINTABLE.search(key):
        return "it holds a control character, a line break or a lone surrogate"
    if key.startswith("/") or "\\" in key or _DRIVE.match(key):
        return "it is a path, not a key"
    if any(name in ("", ".", "..") for name in key.split("/")):
        return "it is a path, not a key"
    return None


def split_key(key: object) -> list[str]:
    """Return the names a key is made of: a skill, or a skill and where in it a resource is.

    Raises:
        ContextError: the key could lead elsewhere, or to what is hidden.
    """
    reason = refusal(key)
    names = str(key).split("/")
    if reason is None and is_hidden(names):
        reason = "names that start with a dot are not part of a skill"
    if reason is not None:
        raise ContextError(f"skill key {shown(key)} is refused: {reason}; use a key from the list of skills")
    return names


def is_hidden(names: list[str]) -> bool:
    """Tell whether one of the names starts with a dot."""
    return any(name.startswith(".") for name in names)


def shown(value: object) -> str:
    """Return a value as an error may quote it: escaped, and short."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
