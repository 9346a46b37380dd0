"""Components that save and restore themselves, several under one key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import MemberDescriptorType
from typing import Any

from leafward.core.errors import ConfigurationError, SessionNotFound
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.engine.foreign_states import states_of
from leafward.stores.contracts import Store
from leafward.stores.states.contracts import AgentStateStore


class StateModule:
    """A component whose state outlives the process.

    A class of your own overrides `save_state` and `load_state`. One that does not saves and loads those of its
    attributes that are such components themselves.
    """

    async def save_to(self, store: Store | AgentStateStore, key: AnyKey) -> None:
        """Save this component in a store, an open one or one of states, under a session's key.

        Raises:
            ConfigurationError: two components save under one name, the second in vain.
        """
        await self.save_state(_Once(states_of(store), self), key_of(key))

    async def load_from(self, store: Store | AgentStateStore, key: AnyKey) -> None:
        """Restore what was saved.

        Raises:
            SessionNotFound: nothing is saved under this key.
            StateDecodeError: what is saved cannot be read; the component may be restored in part.
        """
        found = key_of(key)
        if not await self.load_if_exists(store, found):
            raise SessionNotFound(found.session_id)

    async def load_if_exists(self, store: Store | AgentStateStore, key: AnyKey) -> bool:
        """Restore what was saved, and tell whether anything was."""
        states, found = states_of(store), key_of(key)
        if not await states.exists(found):
            return False
        await self.load_state(_Once(states, self), found)
        return True

    async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
        """Save what this component consists of, under names of its own."""
        for module in self._modules(states):
            await module.save_state(states, key)

    async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
        """Restore it; what was never saved is as in a new component."""
        for module in self._modules(states):
            await module.load_state(states, key)

    def _modules(self, states: AgentStateStore) -> Iterator[StateModule]:
        """Yield the attributes that are components, each once, also if others refer to it."""
        for value in _attributes(self).values():
            if isinstance(value, StateModule) and (not isinstance(states, _Once) or states.is_new(value)):
                yield value


def _attributes(of: object) -> dict[str, object]:
    """Return an object's attributes, in slots or not, and those it shares with all of its class."""
    found = dict(getattr(of, "__dict__", {}))
    for kind in type(of).__mro__:
        for name, value in vars(kind).items():
            if name not in found:
                # Properties are nobody's to call.
                found[name] = getattr(of, name, None) if isinstance(value, MemberDescriptorType) else value
    return found


class _Once(AgentStateStore):
    """Lets each name be saved once: a second component under it would undo the first. Knows who was seen to."""

    def __init__(self, states: AgentStateStore, module: StateModule) -> None:
        self._states = states
        self._saved: set[str] = set()
        self._seen = {id(module): module}

    def is_new(self, module: StateModule) -> bool:
        """Tell whether a component is met for the first time."""
        known = id(module) in self._seen
        self._seen[id(module)] = module
        return not known

    def _note(self, name: str) -> None:
        if name in self._saved:
            raise ConfigurationError(f"two components save under the name {name!r}: give one of them another")
        self._saved.add(name)

    async def save(self, key: AnyKey, name: str, value: Any) -> None:
        self._note(name)
        await self._states.save(key, name, value)

    async def save_list(self, key: AnyKey, name: str, values: Sequence[Any]) -> None:
        self._note(name)
        await self._states.save_list(key, name, values)

    async def get(self, key: AnyKey, name: str, type: type[Any] = dict) -> Any:
        return await self._states.get(key, name, type)

    async def get_list(self, key: AnyKey, name: str, type: type[Any] = dict) -> list[Any]:
        return await self._states.get_list(key, name, type)

    async def exists(self, key: AnyKey) -> bool:
        return await self._states.exists(key)

    async def delete(self, key: AnyKey, name: str | None = None) -> None:
        await self._states.delete(key, name)
        self._saved -= self._saved if name is None else {name}

    async def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        return await self._states.list_session_keys(user_id)

    async def close(self) -> None:
        """Do nothing: the store is whose that opened it."""
