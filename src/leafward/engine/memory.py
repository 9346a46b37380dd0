"""The memory of AgentScope 1.x: a list of messages that a component keeps."""

from __future__ import annotations

from typing import Protocol

from leafward.core.agent_messages import read_messages, write_messages
from leafward.core.errors import StateDecodeError
from leafward.core.message import Message, as_message
from leafward.core.session_key import SessionKey
from leafward.engine.state_module import StateModule
from leafward.sessions.conversation import MessageLike
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.table import check_name


class Memory(Protocol):
    """Where a conversation is remembered."""

    def add_message(self, message: MessageLike) -> None: ...

    def get_messages(self) -> list[Message]: ...

    def clear(self) -> None: ...


class InMemoryMemory(StateModule):
    """Messages in a list, saved as AgentScope's `memory_messages`."""

    def __init__(self, state_name: str = "memory_messages") -> None:
        self._state_name = check_name(state_name)
        self._messages: list[Message] = []

    def add_message(self, message: MessageLike) -> None:
        """Remember a message."""
        self._messages.append(as_message(message))

    def get_messages(self) -> list[Message]:
        """Return what is remembered, oldest first."""
        return list(self._messages)

    def clear(self) -> None:
        """Forget everything."""
        self._messages.clear()

    async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
        await states.save_list(key, self._state_name, write_messages(self._messages))
        await super().save_state(states, key)

    async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
        saved = await states.get_list(key, self._state_name)
        items: list[tuple[object, str]] = [(item, f"item {index}") for index, item in enumerate(saved)]
        try:
            self._messages = read_messages(items, roles=False)
        except StateDecodeError as error:
            raise StateDecodeError(key.user_id, key.session_id, self._state_name, error.reason) from error
        await super().load_state(states, key)

    def __len__(self) -> int:
        return len(self._messages)

    def __repr__(self) -> str:
        return f"<InMemoryMemory of {len(self._messages)} messages>"
