"""The conversation as a model is asked: every call has a result, and every result a call.

A turn leaves no call without a result. Another writer may: it edits a context, or cuts its front off.
"""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.calls import Call, Pairs, Result, open_ends, pair
from leafward.core.fallback_text import orphan_parts
from leafward.core.ids import derived_id
from leafward.core.message import Message, body_to_read, message_sharing
from leafward.core.parts import Part
from leafward.engine.call_results import closing_result


def paired(context: Sequence[Message]) -> list[Message]:
    """Return the messages of a request; what is made for it is not stored.

    A call without a result gets one that says so. A result without its call becomes text of the user.
    """
    if open_ends(context) == (set(), False):
        return list(context)
    pairs = pair([message_sharing(one.id, one.role, one.at, body_to_read(one)) for one in context])
    found: list[Message] = []
    for row, message in enumerate(context):
        items = pairs.items[row]
        found += _without_orphans(message, [item for item in items if isinstance(item, Result)], pairs)
        open = [item for item in items if isinstance(item, Call) and item not in pairs.answers]
        found += (closing_result(None, call, "elsewhere") for call in open)
    return found


def _without_orphans(message: Message, results: Sequence[Result], pairs: Pairs) -> list[Message]:
    """Return a message without results that have no call, and these in words."""
    alone = [result for result in results if result in pairs.orphans and result not in pairs.repeats]
    if not alone:
        return [message]
    parts: list[Part] = body_to_read(message)["parts"]
    kept = [part for part in parts if not any(part == result.part for result in alone)]
    words = [part for result in alone for part in orphan_parts(result, None)]
    made = [Message("user", words, id=derived_id("result", message.id), created_at=message.created_at)]
    if kept:
        made.append(message_sharing(message.id, message.role, message.at, {**body_to_read(message), "parts": kept}))
    return made
