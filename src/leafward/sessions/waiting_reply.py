"""The reply of a model that waits for the results of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from leafward.core.calls import Call, Result, called_ids, is_question, pair
from leafward.core.message import Message

NEWEST = 16
"""How many messages back a reply is looked for first."""
RECENT = 200
"""How many messages back it is looked for next; an answer to an older reply counts as no longer seen."""
ALL = 2**31 - 1


async def find_waiting_reply(read_newest: Callable[[int], Awaitable[list[Message]]]) -> Message | None:
    """Return the last reply if one of its calls has no result and no question follows it.

    `read_newest` returns the last messages of a branch, as many as it is asked for.
    """
    for limit in (NEWEST, RECENT, ALL):
        messages = await read_newest(limit)
        said = [row for row, message in enumerate(messages) if message.role == "assistant" or is_question(message)]
        if said:
            reply = messages[said[-1]]
            is_waiting = reply.role == "assistant" and find_results(messages, said[-1:]) is None
            return reply if is_waiting else None
        if len(messages) < limit:
            break
    return None


def find_results(messages: Sequence[Message], rows: Sequence[int], parts: int | None = None) -> list[Result] | None:
    """Return the results of the calls in some messages, and of the first of these in its first parts only.

    `None` as long as one of the calls has no final result.
    """
    pairs = pair(messages)
    first = called_ids(messages[rows[0]], parts)
    calls = {
        item
        for row in rows
        for item in pairs.items[row]
        if isinstance(item, Call) and (row != rows[0] or item.id in first)
    }
    if any(pairs.is_waiting(call) for call in calls):
        return None
    return [result for call, result in pairs.belonging() if call in calls]
