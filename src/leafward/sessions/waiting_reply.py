"""The reply of a model that waits for the results of its calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from leafward.core.calls import Call, called_ids, is_question, pair
from leafward.core.message import Message

NEWEST = 16
"""How many messages back the last reply of the model is looked for first."""
RECENT = 200
"""How many messages back an answer, or a reply above many results, is looked for; an older answer is shown again."""
_ALL = 2**31 - 1


async def find_waiting_reply(read_newest: Callable[[int], Awaitable[list[Message]]]) -> Message | None:
    """Return the last reply if one of its calls has no result and no question follows it.

    `read_newest` returns the last messages of a branch, as many as it is asked for.
    """
    for limit in (NEWEST, RECENT, _ALL):
        messages = await read_newest(limit)
        said = [message for message in messages if message.role == "assistant" or is_question(message)]
        if said:
            return said[-1] if said[-1].role == "assistant" and is_waiting(said[-1], messages) else None
        if len(messages) < limit:
            break
    return None


def is_waiting(reply: Message, messages: Sequence[Message], parts: int | None = None) -> bool:
    """Tell whether a call in a reply, or in its first parts, has no result yet."""
    pairs = pair(messages)
    ids = called_ids(reply, parts)
    calls = (item for row in pairs.items for item in row if isinstance(item, Call) and item.message is reply)
    return any(call.id in ids and pairs.is_waiting(call) for call in calls)
