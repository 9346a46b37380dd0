"""Loaded skills in a transcript: where their texts stand, and how a history looks without them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, cast

from leafward.core.json import DecodeError, decode
from leafward.core.message import Message
from leafward.core.notices import Reclaimed, answered_call, saved_tokens
from leafward.core.parts import Part, plain_text, tool_name, tool_output
from leafward.core.tokens import TokenCounter

LOAD = "load_context"
UNLOAD = "unload_context"
UNLOADED = "Unloaded "
"""How the answer of a successful unloading begins."""

_FAILED = ("Error:", "Not found:", "[skill unloaded:")


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
            answered = answered_call(part)
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
