"""The contract for typed state: eight methods, and two more for stores that keep versions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, overload

from leafward.core.session_key import AnyKey, SessionKey

T = TypeVar("T")
V = TypeVar("V")

UNCONDITIONAL = -1
"""In place of an expected version: whatever is stored is replaced."""


class Versioned(NamedTuple, Generic[V]):
    """A value and the number of times it was saved; `(None, 0)` where there is none."""

    value: V | None
    version: int


class AgentStateStore(Protocol):
    """Keeps values and lists by name, in a slot for each session of a user.

    A key is a session id, a `SessionKey`, or any object with `to_identifier()`. A name holds a value or a list; the
    later save decides. Each write is one atomic step.
    """

    async def save(self, key: AnyKey, name: str, value: Any) -> None:
        """Store a dict, dataclass, msgspec Struct or pydantic model in place of what the name holds; a list as a list.

        Raises:
            InvalidId: an id or the name is refused.
            ValueError: the value is something else, or holds what JSON, or AgentScope for Java's reader, cannot.
        """
        ...

    @overload
    async def get(self, key: AnyKey, name: str) -> dict[str, Any] | None: ...
    @overload
    async def get(self, key: AnyKey, name: str, type: type[T]) -> T | None: ...
    async def get(self, key: AnyKey, name: str, type: type[Any] = dict) -> Any:
        """Return the value as one of `type`, `None` when there is none.

        Raises:
            StateDecodeError: what is stored is not of this type, or is a list.
        """
        ...

    async def save_list(self, key: AnyKey, name: str, values: Sequence[Any]) -> None:
        """Store these items in place of what the name holds; if they begin with the stored ones, only the rest is."""
        ...

    @overload
    async def get_list(self, key: AnyKey, name: str) -> list[dict[str, Any]]: ...
    @overload
    async def get_list(self, key: AnyKey, name: str, type: type[T]) -> list[T]: ...
    async def get_list(self, key: AnyKey, name: str, type: type[Any] = dict) -> list[Any]:
        """Return the items, each as one of `type`; none when there is no such list.

        Raises:
            StateDecodeError: an item is not of this type, or the name holds a value.
        """
        ...

    async def exists(self, key: AnyKey) -> bool:
        """Tell whether the slot holds anything."""
        ...

    async def delete(self, key: AnyKey, name: str | None = None) -> None:
        """Remove what a name holds, or the whole slot; nothing there is fine."""
        ...

    async def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        """Return the keys of all slots of a user that hold anything, with their ids as they were given."""
        ...

    async def close(self) -> None:
        """Let go of the store; a second call does nothing."""
        ...


class VersionedStateStore(AgentStateStore, Protocol):
    """A store that counts the saves of each value, so that who comes too late can be told."""

    @overload
    async def get_versioned(self, key: AnyKey, name: str) -> Versioned[dict[str, Any]]: ...
    @overload
    async def get_versioned(self, key: AnyKey, name: str, type: type[T]) -> Versioned[T]: ...
    async def get_versioned(self, key: AnyKey, name: str, type: type[Any] = dict) -> Versioned[Any]:
        """Return the value and its version, of one moment."""
        ...

    async def save_if_version(self, key: AnyKey, name: str, value: Any, expected: int) -> int:
        """Store a value if the stored one is still at this version, 0 meaning that there is none, and return the next.

        With -1 it is stored whatever is there.

        Raises:
            StaleState: it is at another version; nothing was written.
        """
        ...
