"""The memory of AgentScope 1.x: a list of messages that a component keeps."""

from __future__ import annotations

from typing import Protocol

from leafward.core.message import Message, as_message
from leafward.engine.state_module import StateModule
from leafward.sessions.message_writer import MessageLike
from leafward.stores.states.table import check_name


class Memory(Protocol):
    """Where a conversation is remembered."""

    def add_message(self, message: MessageLike) -> None: ...

    def get_messages(self) -> list[Message]: ...

    def clear(self) -> None: ...


class InMemoryMemory(StateModule):
    """Messages in a list, saved as AgentScope's `memory_messages`."""

    state_type = list[Message]

    def __init__(self, state_name: str = "memory_messages") -> None:
        self.state_name = check_name(state_name)
        self._messages: list[Message] = []

    def add_message(self, message: MessageLike) -> None:
        """Add a message at the end."""
        self._messages.append(as_message(message))

    def get_messages(self) -> list[Message]:
        """Return the messages, oldest first."""
        return list(self._messages)

    def clear(self) -> None:
        """Remove all messages."""
        self._messages.clear()

    def get_state(self) -> list[Message]:
        return self._messages

    def set_state(self, state: list[Message]) -> None:
        self._messages = state

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<InMemoryMemory of {len(self._messages)} messages>"
