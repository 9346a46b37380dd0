"""What the JSON parser of AgentScope for Java refuses to read, however well-formed it is."""

from __future__ import annotations

from typing import Any, cast

LONGEST_TEXT = 20_000_000
"""Characters of a string, as Java counts them: one that is beyond U+FFFF counts twice."""
LONGEST_KEY = 50_000
MOST_DIGITS = 1_000
DEEPEST = 1_000
SHORTEST = 1_000
"""JSON of no more bytes than this cannot exceed any of them."""
_TOO_LARGE = 10**MOST_DIGITS


def check_limits(value: object, what: str) -> None:
    """Refuse a value whose JSON Java could not read.

    Raises:
        ValueError: it exceeds a limit; the text names `what` and the limit.
    """
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        found, depth = waiting.pop()
        if isinstance(found, str):
            if len(found) * 2 > LONGEST_TEXT and _length(found) > LONGEST_TEXT:
                _refuse(what, f"a text of more than {LONGEST_TEXT:,} characters")
        elif isinstance(found, (dict, list)):
            if depth > DEEPEST:
                _refuse(what, f"values nested deeper than {DEEPEST:,} levels")
            if isinstance(found, dict):
                inner = cast(dict[str, Any], found)
                if any(len(key) * 2 > LONGEST_KEY and _length(key) > LONGEST_KEY for key in inner):
                    _refuse(what, f"a key of more than {LONGEST_KEY:,} characters")
                waiting += [(item, depth + 1) for item in inner.values()]
            else:
                waiting += [(item, depth + 1) for item in cast(list[Any], found)]
        elif isinstance(found, int) and abs(found) >= _TOO_LARGE:
            _refuse(what, f"a number of more than {MOST_DIGITS:,} digits")


def _length(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def _refuse(what: str, problem: str) -> None:
    raise ValueError(f"{what} holds {problem}, which AgentScope for Java cannot read")
