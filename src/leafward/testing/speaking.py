"""Short conversations for contracts, and what they say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from leafward import Message, Session, user

if TYPE_CHECKING:
    from leafward.stores import Store


def said(count: int, *, start: int = 0) -> list[Message]:
    """Return messages "m0", "m1", … whose ids are their numbers."""
    return [user(f"m{n}", id=f"{n}") for n in range(start, start + count)]


async def spoken(store: Store, count: int, name: str = "s") -> Session:
    """Return a session that holds so many messages, one below the other."""
    session = Session(store, name)
    await session.append_messages(said(count))
    return session


def texts(messages: Iterable[Message]) -> list[str]:
    """Return what messages say."""
    return [message.text for message in messages]


def calling(call_id: str) -> Message:
    """Return a message "call" that calls a tool."""
    call: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": "look", "input": {}}
    return Message("assistant", [call], id="call")
