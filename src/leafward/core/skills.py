"""Loaded skills in a transcript: where their texts stand, and how a history looks without them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from leafward.core.json import DecodeError, decode
from leafward.core.message import Message
from leafward.core.parts import Part, is_ui_tool, plain_text, tool_name, tool_output
from leafward.core.tokens import TokenCounter, count_tokens

LOAD = "load_context"
UNLOAD = "unload_context"
UNLOADED = "Unloaded "
"""How the answer of a successful unloading begins."""

_FAILED = ("Error:", "Not found:", "[skill unloaded:")


class Reclaimed(NamedTuple):
    """A tool's result that a history shows as a notice from now on, and the tokens that saves."""

    message_id: str
    call_id: str
    notice: str
    tokens: int


class _Result(NamedTuple):
    tool: str
    label: str
    key: str
    message: Message
    call_id: str
    text: str


def find_loads(messages: Iterable[Message], label: str, key: str, count: TokenCounter) -> list[Reclaimed]:
    """Return the results in a history that hold the text of a skill."""
    loads = (one for one in _results(messages) if (one.tool, one.label, one.key) == (LOAD, label, key))
    return _reclaimed(loads, count)


def find_unloaded(messages: Iterable[Message], count: TokenCounter) -> list[Reclaimed]:
    """Return the results that hold the text of a skill which a later call in the same history unloaded."""
    loaded: dict[tuple[str, str], list[_Result]] = {}
    unloaded: list[_Result] = []
    for one in _results(messages):
        skill = one.label, one.key
        if one.tool == LOAD:
            loaded.setdefault(skill, []).append(one)
        elif one.text.startswith(UNLOADED):
            unloaded += loaded.pop(skill, [])
    return _reclaimed(unloaded, count)


def holds_unloading(message: Message) -> bool:
    """Tell whether a message calls for a skill to be unloaded, or says that one was."""
    return any(tool_name(part) == UNLOAD or _may_tell_unloading(part) for part in message.parts)


def _may_tell_unloading(part: Part) -> bool:
    # Anthropic's results do not name their tool.
    nameless = part["type"] == "tool_result" and not tool_name(part)
    return nameless and plain_text(tool_output(part)).startswith(UNLOADED)


def saved_tokens(message: Message, notices: Mapping[str, str], count: TokenCounter = count_tokens) -> int:
    """Return how many tokens a message costs less when its results for these calls are replaced by a notice."""
    return max(0, count(message) - count(with_notices(message, notices)))


def with_notices(message: Message, notices: Mapping[str, str]) -> Message:
    """Return a message whose results for these calls are replaced by a notice."""
    parts = [_with_notice(part, notices) for part in message.parts]
    return Message.stored(message.id, message.role, message.at, {**message.body, "parts": parts})


def _with_notice(part: Part, notices: Mapping[str, str]) -> Part:
    notice = notices.get(_answers(part) or "")
    if notice is None:
        return part
    if part["type"] == "tool_result":
        return {**part, "output" if "output" in part else "content": [{"type": "text", "text": notice}]}
    return {**part, "result" if part.get("output") is None and "result" in part else "output": notice}


def _answers(part: Part) -> str | None:
    """Return the id of the call whose result a part holds."""
    if part["type"] == "tool_result":
        found = part.get("tool_use_id", part.get("id"))
    else:
        found = part["toolCallId"] if is_ui_tool(part) and tool_output(part) is not None else None
    return found if isinstance(found, str) else None


def _results(messages: Iterable[Message]) -> Iterable[_Result]:
    asked: dict[str, tuple[str, str, str]] = {}
    for message in messages:
        for part in message.parts:
            call_id = part.get("id") if part["type"] == "tool_use" else part.get("toolCallId")
            given = part.get("input")
            if isinstance(call_id, str):
                # Some models count their calls anew each turn: an id means the last call that had it.
                asked.pop(call_id, None)
            if isinstance(call_id, str) and tool_name(part) in (LOAD, UNLOAD):
                arguments = _arguments(given)
                asked[call_id] = tool_name(part), str(arguments.get("label")), str(arguments.get("key"))
            answered = _answers(part)
            if answered in asked and part.get("state") != "output-error":
                yield _Result(*asked[answered], message, answered, plain_text(tool_output(part)))


def _arguments(given: object) -> dict[str, Any]:
    """Return what a call was given, also where it stands as the text a model wrote."""
    if isinstance(given, str):
        try:
            given = decode(given)
        except DecodeError:
            return {}
    return cast(dict[str, Any], given) if isinstance(given, dict) else {}


def _reclaimed(results: Iterable[_Result], count: TokenCounter) -> list[Reclaimed]:
    found: list[Reclaimed] = []
    for one in results:
        if not one.text.startswith(_FAILED):
            notice = f"[skill unloaded: {one.key}]"
            saved = saved_tokens(one.message, {one.call_id: notice}, count)
            found.append(Reclaimed(one.message.id, one.call_id, notice, saved))
    return found
