"""The content blocks AgentScope for Java reads, checked as its reader checks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from leafward.core.fields import Fields, refuse
from leafward.core.parts import Part, plain_text, tool_output

CALL_STATES = ("pending", "asking", "allowed", "submitted", "finished")
RESULT_STATES = ("success", "error", "interrupted", "denied", "running")

_MEDIA = frozenset({"data", "image", "audio", "video"})
_ALLOWED = {"USER": _MEDIA | {"text"}, "SYSTEM": frozenset({"text"})}
_SOURCES = {"url": ("url",), "base64": ("media_type", "data")}
_SNAKE = {
    "min_pixels": "minPixels",
    "max_pixels": "maxPixels",
    "max_frames": "maxFrames",
    "total_pixels": "totalPixels",
}
_SIZES: dict[str, Any] = {**dict.fromkeys(_SNAKE.values(), int), "fps": (int, float)}
_COUNTS = frozenset({"inputTokens", "outputTokens", "cachedTokens", "time"})


def check_role(kind: str, role: str, where: str) -> None:
    """Refuse a block that a message of this role may not hold."""
    allowed = _ALLOWED.get(role)
    if allowed is not None and kind not in allowed:
        refuse(where, f"is a {kind!r} block, which a {role} message may not hold")


def read_block(value: object, where: str) -> Part:
    """Return a block with what AgentScope's reader fills in; one that lacks nothing is returned as it is.

    Raises:
        StateDecodeError: it would refuse the block.
    """
    fields = Fields(value, where)
    kind = fields.required_text("type")
    if kind not in _CHECKS:
        fields.refuse("type", f"is {kind!r}, not one of {', '.join(_CHECKS)}")
    filled = {key: value for key, value in _CHECKS[kind](fields).items() if fields.values.get(key) is not value}
    return {**fields.values, **filled} if filled else fields.values


def in_words(part: Part, *, results: bool) -> Part:
    """Return a block that Java reads in place of a part it would refuse; with `results`, a result stays one."""
    call_id = part.get("id")
    if results and part["type"] == "tool_result" and isinstance(call_id, str):
        state = part.get("state")
        name = part.get("name")
        return {
            "type": "tool_result",
            "id": call_id,
            "name": name if isinstance(name, str) else None,
            "output": [{"type": "text", "text": plain_text(tool_output(part))}],
            "metadata": {},
            "state": state if state in RESULT_STATES else "success",
        }
    return {"type": "text", "text": plain_text(part)}


def by_the_rules(part: Part) -> Part:
    """Return a block as Java writes it: sizes in camel case, and only such that are numbers."""
    if part.get("type") == "tool_result" and isinstance(part.get("output"), list):
        items = cast(list[Any], part["output"])
        output = [by_the_rules(cast(Part, one)) if isinstance(one, dict) else one for one in items]
        return part if output == part["output"] else {**part, "output": output}
    if part.get("type") not in ("image", "video"):
        return part
    found: Part = {}
    for key, value in part.items():
        name = _SNAKE.get(key, key)
        if name not in _SIZES or (isinstance(value, _SIZES[name]) and not isinstance(value, bool)):
            found[name] = value
    return found


def usage_by_the_rules(usage: object) -> dict[str, Any] | None:
    """Return a usage as Java writes it: its counts are numbers, and the total is their sum."""
    if not isinstance(usage, dict):
        return None
    given = cast(dict[str, Any], usage)
    if not given.keys() & _COUNTS:
        return given
    sound = {key: value for key, value in given.items() if key not in _COUNTS or _is_number(value)}
    return {**sound, "totalTokens": sound.get("inputTokens", 0) + sound.get("outputTokens", 0)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _text(fields: Fields) -> dict[str, Any]:
    return {"text": fields.text("text") or ""}


def _thinking(fields: Fields) -> dict[str, Any]:
    fields.text("thinking")
    fields.object("metadata")
    return {}


def _tool_use(fields: Fields) -> dict[str, Any]:
    for key in ("id", "name", "content"):
        fields.text(key)
    return {
        "input": fields.object("input").values,
        "metadata": fields.object("metadata").values,
        "state": _state(fields, CALL_STATES, "pending"),
    }


def _tool_result(fields: Fields) -> dict[str, Any]:
    for key in ("id", "name"):
        fields.text(key)
    found = [(item, read_block(item, where)) for item, where in fields.items("output")]
    metadata = fields.object("metadata")
    for key, value in metadata.values.items():
        if value is None:
            metadata.refuse(key, "is null, which a result's metadata may not hold")
    same = fields.values.get("output") is not None and all(before is after for before, after in found)
    return {
        "output": fields.values["output"] if same else [block for _, block in found],
        "metadata": metadata.values,
        "state": _state(fields, RESULT_STATES, "running"),
    }


def _state(fields: Fields, known: tuple[str, ...], default: str) -> str:
    value = fields.text("state")
    if value is not None and value not in known:
        fields.refuse("state", f"is {value!r}, not one of {', '.join(known)}")
    return default if value is None else value


def _media(fields: Fields) -> dict[str, Any]:
    if fields.values.get("source") is None:
        fields.refuse("source", "is missing")
    source = fields.object("source")
    kind = source.required_text("type")
    if kind not in _SOURCES:
        source.refuse("type", f"is {kind!r}, not one of {', '.join(_SOURCES)}")
    for key in _SOURCES[kind]:
        source.required_text(key)
    return {}


def _hint(fields: Fields) -> dict[str, Any]:
    for key in ("id", "hint", "source"):
        fields.text(key)
    return {}


_CHECKS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "text": _text,
    "thinking": _thinking,
    "tool_use": _tool_use,
    "tool_result": _tool_result,
    "image": _media,
    "audio": _media,
    "video": _media,
    "data": _media,
    "hint": _hint,
}
