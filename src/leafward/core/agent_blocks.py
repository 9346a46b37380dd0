"""The content blocks AgentScope for Java reads, checked as its reader checks them."""

from __future__ import annotations

from typing import Any, Literal, cast

from msgspec import Struct

from leafward.core.agent_records import refuse
from leafward.core.coercion import coerced
from leafward.core.errors import StateDecodeError
from leafward.core.parts import Part
from leafward.core.untrusted import is_of

CallState = Literal["pending", "asking", "allowed", "submitted", "finished"]
ResultState = Literal["success", "error", "interrupted", "denied", "running"]
Object = dict[str, Any]

_MEDIA = frozenset({"data", "image", "audio", "video"})
_ALLOWED = {"USER": _MEDIA | {"text"}, "SYSTEM": frozenset({"text"})}
_SNAKE = {
    "min_pixels": "minPixels",
    "max_pixels": "maxPixels",
    "max_frames": "maxFrames",
    "total_pixels": "totalPixels",
}
_SIZES = frozenset({*_SNAKE.values(), "fps"})
_COUNTS = frozenset({"inputTokens", "outputTokens", "cachedTokens", "time"})
_SINCE_2 = frozenset({"data", "hint"})
_ANTHROPICS = frozenset({"tool_use_id", "content"})
"""Keys of a result that say what is in `id` and `output` in AgentScope."""


# ── reading ──────────────────────────────────────────────────────────────────


class _Block(Struct, tag_field="type"):
    """A block as AgentScope's reader takes it: `null` counts as missing."""


class _Text(_Block, tag="text"):
    text: str | None = None


class _Thinking(_Block, tag="thinking"):
    thinking: str | None = None
    metadata: Object | None = None


class _ToolUse(_Block, tag="tool_use"):
    id: str | None = None
    name: str | None = None
    content: str | None = None
    input: Object | None = None
    metadata: Object | None = None
    state: CallState | None = None


class _ToolResult(_Block, tag="tool_result"):
    id: str | None = None
    name: str | None = None
    output: list[Block] | None = None
    metadata: Object | None = None
    state: ResultState | None = None


class _Hint(_Block, tag="hint"):
    id: str | None = None
    hint: str | None = None
    source: str | None = None


class _Url(Struct, tag_field="type", tag="url"):
    url: str


class _Base64(Struct, tag_field="type", tag="base64"):
    media_type: str
    data: str


class _Image(_Block, tag="image"):
    source: _Url | _Base64


class _Audio(_Block, tag="audio"):
    source: _Url | _Base64


class _Video(_Block, tag="video"):
    source: _Url | _Base64 | None = None


class _Data(_Block, tag="data"):
    source: _Url | _Base64


Block = _Text | _Thinking | _ToolUse | _ToolResult | _Hint | _Image | _Audio | _Video | _Data


def check_block(block: Part, role: str, where: str) -> None:
    """Refuse what the shape of a block cannot say: that a message of this role may not hold it, or that a result's
    metadata holds null."""
    kind: str = block["type"]
    allowed = _ALLOWED.get(role)
    if allowed is not None and kind not in allowed:
        refuse(where, f"is a {kind!r} block, which a {role} message may not hold")
    if kind == "tool_result":
        metadata: Object = block.get("metadata") or {}
        for key, value in metadata.items():
            if value is None:
                refuse(f"{where}.metadata.{key}", "is null, which a result's metadata may not hold")
        for index, inner in enumerate(block.get("output") or ()):
            check_block(inner, "", f"{where}.output[{index}]")


def fits(part: Part, role: str, *, of_1x: bool = False) -> bool:
    """Tell whether AgentScope's reader takes a part in a message of this role; with `of_1x`, also that of 1.x."""
    if not is_of(part, Block):
        return False
    try:
        check_block(part, role, "")
    except StateDecodeError:
        return False
    return is_whole(part, of_1x=of_1x)


def is_whole(block: Part, *, of_1x: bool = False) -> bool:
    """Tell whether AgentScope finds in a block that it reads what is there: 1.x does not know all types, and neither
    looks for a result where Anthropic has it."""
    if block["type"] == "tool_result":
        inner: list[Part] = block.get("output") or []
        return _ANTHROPICS.isdisjoint(block) and all(is_whole(one, of_1x=of_1x) for one in inner)
    return not (of_1x and block["type"] in _SINCE_2)


def filled(block: Part) -> Part:
    """Return a block with what AgentScope's reader fills in; one that lacks nothing is returned unchanged."""
    match block["type"]:
        case "text":
            usual: Part = {"text": ""}
        case "tool_use":
            usual = {"input": {}, "metadata": {}, "state": "pending"}
        case "tool_result":
            inner = [filled(one) for one in block.get("output") or ()]
            usual = {"output": inner, "metadata": {}, "state": "running"}
            if inner != block.get("output"):
                block = {**block, "output": inner}
        case _:
            return block
    missing = {key: value for key, value in usual.items() if block.get(key) is None}
    return {**block, **missing} if missing else block


# ── writing ──────────────────────────────────────────────────────────────────


def by_the_rules(part: Part) -> Part:
    """Return a block as Java writes it: sizes in camel case, and only such that fit its types."""
    if part.get("type") == "tool_result" and isinstance(part.get("output"), list):
        items = cast(list[Any], part["output"])
        output = [by_the_rules(cast(Part, one)) if isinstance(one, dict) else one for one in items]
        return part if output == part["output"] else {**part, "output": output}
    if part.get("type") not in ("image", "video"):
        return part
    found: Part = {}
    for key, value in part.items():
        name = _SNAKE.get(key, key)
        if name in _SIZES:
            value = _number(value, float if name == "fps" else int)
        if name not in _SIZES or value is not None:
            found[name] = value
    return found


def usage_by_the_rules(usage: object) -> dict[str, Any] | None:
    """Return a usage as Java writes it: its counts fit its types, and the total is their sum."""
    if not isinstance(usage, dict):
        return None
    given = cast(dict[str, Any], usage)
    if not given.keys() & _COUNTS:
        return given
    counts = {key: _number(given[key], float if key == "time" else int) for key in given.keys() & _COUNTS}
    sound = {key: counts.get(key, value) for key, value in given.items() if counts.get(key, value) is not None}
    return {**sound, "totalTokens": sound.get("inputTokens", 0) + sound.get("outputTokens", 0)}


def sizes_fit(block: Part) -> bool:
    """Tell whether Java takes the sizes of a picture, or of those in a result."""
    if block["type"] == "tool_result":
        return all(map(sizes_fit, cast(list[Part], block.get("output") or [])))
    return block["type"] not in ("image", "video") or _fit(block, _SIZES)


def counts_fit(usage: object) -> bool:
    """Tell whether Java takes a usage."""
    return not isinstance(usage, dict) or _fit(cast(dict[str, Any], usage), _COUNTS)


def _fit(given: dict[str, Any], keys: frozenset[str]) -> bool:
    found = [(key, given[key]) for key in given.keys() & keys if given[key] is not None]
    return all(_number(value, float if key in ("fps", "time") else int) is not None for key, value in found)


def _number(value: object, kind: type[int] | type[float]) -> Any:
    """Return a number as Java's `int` or `double` takes it; `None` where it does not."""
    found: Any = coerced(value, kind)
    if isinstance(found, bool) or not isinstance(found, (int, kind)):
        return None
    return found if kind is float or -(2**31) <= found < 2**31 else None
