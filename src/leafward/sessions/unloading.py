"""Takes the texts of unloaded skills out of what the histories of a session show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing, suppress

from leafward.core.errors import LeaseLost, MessageNotFound
from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.core.skills import find_unloaded, holds_unloading
from leafward.core.tokens import TokenCounter
from leafward.sessions.conversation import Conversation
from leafward.stores.contracts import MessageStore


async def reclaim_unloaded(
    storage: MessageStore, scope: Scope, messages: Sequence[Message], count: TokenCounter
) -> None:
    """Hide the texts of skills that a stored call unloaded: such a call is often stored after it ran."""
    if not any(holds_unloading(message) for message in messages):
        return
    # Stored all the same: deleted since by somebody else, or the lease was lost since, and the write is not to be told
    # that nothing was written.
    with suppress(MessageNotFound, LeaseLost):
        found = find_unloaded(await storage.path(scope, messages[-1].id), count)
        if found:
            await storage.reclaim(scope, found)


async def shown_anywhere(conversation: Conversation) -> list[Message]:
    """Return what the histories of all branches show, each message once and after those above it."""
    found: dict[str, Message] = {}
    for leaf in await conversation.get_leaves():
        branch: list[Message] = []
        async with aclosing(conversation.iter_history(leaf.id, newest_first=True)) as path:
            async for message in path:
                if message.id in found:
                    break
                branch.append(message)
        found |= {message.id: message for message in reversed(branch)}
    return list(found.values())
