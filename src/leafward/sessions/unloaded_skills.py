"""Takes the texts of unloaded skills out of what the histories of a session show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from leafward.core.errors import LeaseLost, MessageNotFound
from leafward.core.ids import Scope
from leafward.core.message import Message
from leafward.core.skills import holds_unloading
from leafward.core.tokens import TokenCounter
from leafward.stores.contracts import MessageStore


async def reclaim_unloaded(
    storage: MessageStore, scope: Scope, messages: Sequence[Message], count: TokenCounter
) -> None:
    """Hide the texts of skills that a stored call unloaded: such a call is often stored after it ran."""
    if not any(holds_unloading(message) for message in messages):
        return
    # Loaded when it is first needed: few sessions have skills.
    from leafward.core.skill_texts import find_unloaded

    # Stored all the same: deleted since by somebody else, or the lease was lost since, and the write is not to be told
    # that nothing was written.
    with suppress(MessageNotFound, LeaseLost):
        found = find_unloaded(await storage.path(scope, messages[-1].id), count)
        if found:
            await storage.reclaim(scope, found)
