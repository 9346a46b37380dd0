"""The texts of loaded skills in a history: which tool results hold them, and what hiding them saves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from leafward.core.calls import Call, Result, pair
from leafward.core.message import Message
from leafward.core.notices import Reclaimed, saved_tokens
from leafward.core.parts import plain_text
from leafward.core.skills import LOAD, UNLOAD, UNLOADED
from leafward.core.tokens import TokenCounter

_FAILED = ("Error:", "Not found:", "[skill unloaded:")


class _Result(NamedTuple):
    tool: str
    label: str
    key: str
    message: Message
    call_id: str
    text: str


def find_loads(messages: Sequence[Message], label: str, key: str, count: TokenCounter) -> list[Reclaimed]:
    """Return the results in a history that hold the text of a skill."""
    loads = (one for one in _results(messages) if (one.tool, one.label, one.key) == (LOAD, label, key))
    return _reclaimed(loads, count)


def find_unloaded(messages: Sequence[Message], count: TokenCounter) -> list[Reclaimed]:
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


def _results(messages: Sequence[Message]) -> list[_Result]:
    """Return the results of calls that load or unload, in their order."""
    pairs = pair(messages)
    found = [
        (pairs.places[result], _loaded_or_unloaded(call, result))
        for call, result in pairs.belonging()
        if call.name in (LOAD, UNLOAD) and result.state != "error"
    ]
    return [one for _, one in sorted(found, key=lambda each: each[0])]


def _loaded_or_unloaded(call: Call, result: Result) -> _Result:
    given, text = call.object_input, plain_text(result.output)
    skill = str(given.get("label")), str(given.get("key"))
    return _Result(call.name, *skill, result.message, result.call_id, text)


def _reclaimed(results: Iterable[_Result], count: TokenCounter) -> list[Reclaimed]:
    found: list[Reclaimed] = []
    for one in results:
        if not one.text.startswith(_FAILED):
            notice = f"[skill unloaded: {one.key}]"
            saved = saved_tokens(one.message, {one.call_id: notice}, count)
            found.append(Reclaimed(one.message.id, one.call_id, notice, saved))
    return found
