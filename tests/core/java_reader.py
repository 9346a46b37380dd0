"""What AgentScope for Java makes of a document: a stand-in for Jackson and AgentScope's classes.

It refuses what they refuse, converts scalars as they do, and writes what they know of it, without unknown keys.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

LARGEST = 20_000_000


class RefusedByJava(Exception):
    """Java could not read this."""


def resaved(document: dict[str, Any]) -> dict[str, Any]:
    """Return an `AgentState` as Java 2.x writes it after it has read it."""
    found = _object(document)
    return {
        **found,
        "session_id": _text(found.get("session_id")),
        "user_id": _text(found.get("user_id")),
        "summary": _text(found.get("summary")) or "",
        "context": [None if item is None else resaved_message(item) for item in _list(found.get("context"))],
        "reply_id": _text(found.get("reply_id")),
        "cur_iter": _int(found.get("cur_iter")) or 0,
        "shutdown_interrupted": _bool(found.get("shutdown_interrupted")) or False,
    }


def resaved_message(item: Any, *, of_1x: bool = False) -> dict[str, Any]:
    """Return a `Msg` as Java writes it after it has read it."""
    found = _object(item, null=False)
    _check_limits(found)
    role = _word(found.get("role"), ["USER", "ASSISTANT", "SYSTEM", "TOOL"])
    content = [_block(block, of_1x) for block in _list(found.get("content")) if block is not None]
    allowed = {"USER": {"text", "data", "image", "audio", "video"}, "SYSTEM": {"text"}}.get(role or "")
    if allowed and not of_1x and any(block["type"] not in allowed for block in content):
        raise RefusedByJava(role)
    made = {
        "id": _text(found.get("id")),
        "name": _text(found.get("name")),
        "role": role,
        "content": content,
        "metadata": {key: value for key, value in _object(found.get("metadata")).items() if value is not None},
        "timestamp": _text(found.get("timestamp")),
    }
    return made if of_1x else {**made, "usage": _usage(found.get("usage"))}


def _usage(value: Any) -> dict[str, Any] | None:
    if value is None:
        return None
    found = _object(value)
    counts = {key: _int(found.get(key)) or 0 for key in ("inputTokens", "outputTokens", "cachedTokens")}
    time = _float(found.get("time")) or 0.0
    return {**counts, "time": time, "totalTokens": counts["inputTokens"] + counts["outputTokens"]}


def _block(value: Any, of_1x: bool) -> dict[str, Any]:
    found = _object(value, null=False)
    kind = found.get("type")
    makers: dict[str, Callable[[], dict[str, Any]]] = {
        "text": lambda: {"text": _text(found.get("text")) or ""},
        "thinking": lambda: {
            "thinking": _text(found.get("thinking")) or "",
            "metadata": None if found.get("metadata") is None else _object(found["metadata"]),
        },
        "tool_use": lambda: {
            "id": _text(found.get("id")),
            "name": _text(found.get("name")),
            "input": _object(found.get("input")),
            "content": _text(found.get("content")),
            "metadata": _object(found.get("metadata")),
            "state": _word(found.get("state"), ["pending", "asking", "allowed", "submitted", "finished"]) or "pending",
        },
        "tool_result": lambda: _result(found, of_1x),
        "image": lambda: {"source": _source(found.get("source")), **_sizes(found, "minPixels", "maxPixels")},
        "audio": lambda: {"source": _source(found.get("source"))},
        "video": lambda: {
            **({} if found.get("source") is None else {"source": _source(found["source"])}),
            **({} if found.get("fps") is None else {"fps": _float(found["fps"])}),
            **_sizes(found, "maxFrames", "minPixels", "maxPixels", "totalPixels"),
        },
    }
    if not of_1x:
        makers["data"] = lambda: {
            "source": _source(found.get("source")),
            "id": _text(found.get("id")),
            **({} if found.get("name") is None else {"name": _text(found["name"])}),
        }
        makers["hint"] = lambda: {key: _text(found.get(key)) for key in ("id", "hint", "source")}
    if not isinstance(kind, str) or kind not in makers:
        raise RefusedByJava(f"Could not resolve type id {kind!r}")
    made = {"type": kind, **makers[kind]()}
    return {key: value for key, value in made.items() if key != "state"} if of_1x else made


def _result(found: dict[str, Any], of_1x: bool) -> dict[str, Any]:
    metadata = _object(found.get("metadata"))
    if any(value is None for value in metadata.values()):
        raise RefusedByJava("metadata")
    return {
        "id": _text(found.get("id")),
        "name": _text(found.get("name")),
        "output": [_block(block, of_1x) for block in _list(found.get("output"))],
        "metadata": metadata,
        "state": _word(found.get("state"), ["success", "error", "interrupted", "denied", "running"]) or "running",
    }


def _source(value: Any) -> dict[str, Any]:
    found = _object(value, null=False)
    needed = {"url": ["url"], "base64": ["media_type", "data"]}.get(str(found.get("type")))
    if needed is None or any(found.get(key) is None for key in needed):
        raise RefusedByJava("source")
    more = {"mime_type": _text(found["mime_type"])} if needed == ["url"] and found.get("mime_type") is not None else {}
    return {"type": found["type"], **{key: _text(found[key]) for key in needed}, **more}


def _sizes(found: dict[str, Any], *names: str) -> dict[str, Any]:
    snake = {name: "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name) for name in names}
    given = {name: found.get(name, found.get(snake[name])) for name in names}
    return {name: _int(value) for name, value in given.items() if _int(value) is not None}


# ── scalars ──────────────────────────────────────────────────────────────────


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return json.dumps(value)
    if value is not None and not isinstance(value, str):
        raise RefusedByJava(value)
    return value


def _int(value: Any) -> int | None:
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            value = int(value)
        except ValueError:
            raise RefusedByJava(value) from None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -(2**31) <= value < 2**31:
        raise RefusedByJava(value)
    return int(value)


def _float(value: Any) -> float | None:
    if isinstance(value, str):
        if not value.strip():
            return None
        try:
            return float(value)
        except ValueError:
            raise RefusedByJava(value) from None
    if isinstance(value, bool) or not isinstance(value, (int, float, type(None))):
        raise RefusedByJava(value)
    try:
        return None if value is None else float(value)
    except OverflowError:
        return math.inf


def _bool(value: Any) -> bool | None:
    if isinstance(value, str) and value.strip() in ("true", "false", ""):
        return {"true": True, "false": False, "": None}[value.strip()]
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value != 0
    raise RefusedByJava(value)


def _word(value: Any, words: Sequence[str]) -> str | None:
    if value is None or (isinstance(value, str) and value in words):
        return value
    number = int(value) if isinstance(value, str) and value.isdecimal() else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 <= number < len(words):
        return words[number]
    raise RefusedByJava(value)


def _object(value: Any, *, null: bool = True) -> dict[str, Any]:
    if value is None and null:
        return {}
    if not isinstance(value, dict):
        raise RefusedByJava(value)
    return value


def _list(value: Any) -> list[Any]:
    if value is not None and not isinstance(value, list):
        raise RefusedByJava(value)
    return value or []


def _check_limits(value: Any, depth: int = 1) -> None:
    if isinstance(value, dict):
        for key in value:
            if len(key) > 50_000:
                raise RefusedByJava("a key")
    if isinstance(value, (dict, list)):
        if depth > 1000:
            raise RefusedByJava("nesting")
        for inner in value.values() if isinstance(value, dict) else value:
            _check_limits(inner, depth + 1)
    elif isinstance(value, str) and len(value) > LARGEST:
        raise RefusedByJava("a string")
    elif isinstance(value, int) and abs(value) >= 10**1000:
        raise RefusedByJava("a number")
