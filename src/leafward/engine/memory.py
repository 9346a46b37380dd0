"""The memory of AgentScope 1.x: a list of messages that a component keeps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Protocol

from leafward.core.agent_state import AgentState
from leafward.core.errors import ConfigurationError
from leafward.core.message import Message, as_message
from leafward.engine.per_task import PerTask
from leafward.engine.state_module import StateModule
from leafward.sessions.message_writer import MessageLike
from leafward.stores.states.table import check_name


class Memory(Protocol):
    """Where a conversation is remembered."""

    def add_message(self, message: MessageLike) -> None: ...

    def get_messages(self) -> list[Message]: ...

    def clear(self) -> None: ...


class Shown:
    """What the memory of an agent shows: the context of a running call, and afterwards what there was at its end."""

    def __init__(self, state: AgentState) -> None:
        self.state: AgentState | None = state
        """The state of the call; `None` once it has ended."""
        self._left: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        return self._left if self.state is None else self.state.context

    def end(self) -> None:
        """Show from now on what there is now."""
        self._left, self.state = list(self.messages), None


class InMemoryMemory(StateModule):
    """Messages in a list, saved as AgentScope's `memory_messages`.

    As the `memory` of an agent it has no messages itself. In a call, in tools say, it shows and changes the context of
    that call. Outside, it shows the messages of the session that this task has called or loaded last, as of then.
    """

    state_type = list[Message]

    def __init__(self, state_name: str = "memory_messages") -> None:
        self.state_name = check_name(state_name)
        self._messages: list[Message] = []
        self._is_view = False

    def add_message(self, message: MessageLike) -> None:
        """Add a message at the end.

        Raises:
            ConfigurationError: it is the memory of an agent, and this is not a call of it.
        """
        self._changeable().append(as_message(message))

    def get_messages(self) -> list[Message]:
        """Return the messages, oldest first."""
        return list(self.get_state())

    def clear(self) -> None:
        """Remove all messages.

        Raises:
            ConfigurationError: it is the memory of an agent, and this is not a call of it.
        """
        self._changeable().clear()

    def get_state(self) -> list[Message]:
        if not self._is_view:
            return self._messages
        shown = _shown.get(self)
        return [] if shown is None else shown.messages

    def set_state(self, state: list[Message]) -> None:
        self._changeable()[:] = state

    def _changeable(self) -> list[Message]:
        if not self._is_view:
            return self._messages
        shown = _shown.get(self)
        if shown is None or shown.state is None:
            raise ConfigurationError(
                "the memory of an agent is changed in its calls only: outside, load the agent with load_from(store, "
                "key), or change the conversation with agent.save_agent_state(user_id, session_id, state)"
            )
        return shown.state.context

    def _become_view(self) -> None:
        if self._messages:
            raise ConfigurationError(
                f"the memory has {len(self._messages)} messages, and an agent keeps its messages in sessions: save "
                "them with memory.save_to(store, key), give the agent an empty memory, and load it with "
                "agent.load_from(store, key)"
            )
        self._is_view = True

    def __len__(self) -> int:
        return len(self.get_state())

    def __repr__(self) -> str:
        return f"<InMemoryMemory of {len(self)} messages>"


_shown: PerTask[Shown] = PerTask("leafward memories")


class MemoryOfAgent:
    """The memory that an agent was given, as a view of its calls; without one, nothing is shown.

    Raises:
        ConfigurationError: it is not an `InMemoryMemory`, or not an empty one.
    """

    def __init__(self, memory: object) -> None:
        if memory is not None and not isinstance(memory, InMemoryMemory):
            raise ConfigurationError(f"memory is an InMemoryMemory(), or None, not {memory!r}")
        if memory is not None:
            memory._become_view()  # pyright: ignore[reportPrivateUsage]
        self._memory = memory

    @contextmanager
    def showing(self, state: AgentState) -> Generator[Callable[[], None]]:
        """Show the state of a call for the length of the block; what is yielded shows it in the context of a tool."""
        shown = Shown(state)
        self._show(shown)
        try:
            yield lambda: self._show(shown)
        finally:
            shown.end()

    def show_loaded(self, state: AgentState) -> None:
        """Show what a task has loaded."""
        shown = Shown(state)
        shown.end()
        self._show(shown)

    def _show(self, shown: Shown) -> None:
        if self._memory is not None:
            _shown.set(self._memory, shown)
