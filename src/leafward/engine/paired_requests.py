"""The conversation as a model is asked: every call has one result directly below its reply, and every result a call.

A turn leaves no call without a result. Another writer may: it edits a context, or cuts its front off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from leafward.core.calls import Call, Item, Pairs, Result, answered_id, pair
from leafward.core.fallback_text import orphan_parts
from leafward.core.ids import derived_id
from leafward.core.message import Message, body_to_read, message_sharing
from leafward.core.parts import CALLS, Part, is_ui_tool, parts_of
from leafward.core.provider_extras import raw_of
from leafward.engine.call_results import closing_result

_OF_OPENAI = ("tool_calls", "tool_call_id")
"""Keys of a body that stand for parts."""


def paired(context: Sequence[Message]) -> list[Message]:
    """Return the messages of a request; what is made for it is not stored.

    Results stand in the order of their calls. A call without a result gets one that says so. A result without its call,
    and a second one that says something else, become text of the user; one that says the same, or was not final, is
    left out. Messages of a context that is in order are the very same objects.
    """
    if _is_paired(context):
        return list(context)
    pairs = pair([message_sharing(one.id, one.role, one.at, body_to_read(one)) for one in context])
    found: list[Message] = []
    for row, message in enumerate(context):
        words = [part for item in pairs.items[row] for part in _in_words(item, pairs)]
        if words:
            found.append(Message("user", words, id=derived_id("result", message.id), created_at=message.created_at))
        if (kept := _without_results(message, pairs.items[row])) is not None:
            found.append(kept)
        found += _results(context, row, pairs)
    return found


def _is_paired(context: Sequence[Message]) -> bool:
    """Tell whether below each reply stand first the results of its calls, in their order; any doubt is a no."""
    waiting: list[object] = []
    for message in context:
        parts = parts_of(body_to_read(message))
        if waiting and not parts:
            return False
        calls: list[object] = []
        for part in parts:
            kind = part["type"]
            is_plain = kind == "text" or raw_of(part) is not None
            if kind == "tool_result" and not is_plain:
                if not waiting or answered_id(part) != waiting.pop(0):
                    return False
            elif waiting or (not is_plain and is_ui_tool(part)):
                return False
            elif kind in CALLS and not is_plain:
                calls.append(part.get("id"))
        if calls:
            waiting = calls
    return not waiting


def _moves(item: Item) -> bool:
    """Tell a result that can stand in a message of its own: not one in the same part as its call."""
    return isinstance(item, Result) and item.part["type"] == "tool_result"


def _in_words(item: Item, pairs: Pairs) -> list[Part]:
    """Return a result that answers no call as text, if it says what no other does."""
    if not isinstance(item, Result) or not _moves(item) or item not in pairs.orphans:
        return []
    return orphan_parts(item, pairs.repeats.get(item))


def _without_results(message: Message, items: Sequence[Item]) -> Message | None:
    """Return what else a message holds; `None` if that is nothing."""
    if not any(map(_moves, items)):
        return message
    parts: list[Part] = []
    for item in items:
        part = item if isinstance(item, dict) else item.part
        # A call and its result may stand in one part.
        if not _moves(item) and not any(part is one for one in parts):
            parts.append(part)
    return _with_parts(message, parts, id=message.id, role=message.role) if parts else None


def _results(context: Sequence[Message], row: int, pairs: Pairs) -> Iterator[Message]:
    """Yield the results of the calls in a message, in their order; a message that holds only such stays as it is."""
    calls = [item for item in pairs.items[row] if isinstance(item, Call)]
    answers = [(call, pairs.answers.get(call)) for call in calls]
    own = [(call, result) for call, result in answers if result is None or _moves(result)]
    for source, group in groupby(own, key=lambda one: None if one[1] is None else one[1].row):
        pairs_of_source = list(group)
        results = [result for _, result in pairs_of_source if result is not None]
        if source is None:
            yield from (closing_result(None, call, "elsewhere") for call, _ in pairs_of_source)
        elif results == pairs.items[source]:
            yield context[source]
        else:
            message, parts = context[source], [result.part for result in results]
            id = derived_id("result", message.id, context[row].id, results[0].call_id)
            yield _with_parts(message, parts, id=id, role="tool")


def _with_parts(message: Message, parts: list[Part], *, id: str, role: str) -> Message:
    body = {key: value for key, value in body_to_read(message).items() if key not in _OF_OPENAI}
    return message_sharing(id, role, message.at, {**body, "parts": parts})
