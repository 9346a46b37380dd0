"""Components that save and restore themselves, several under one key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import lru_cache
from inspect import iscoroutinefunction
from types import MemberDescriptorType
from typing import Any, Protocol, Self, TypeGuard, cast

from leafward.core.errors import ConfigurationError, SessionNotFound
from leafward.core.json import decode
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.core.state_values import write_items, write_value
from leafward.engine.foreign_states import states_of
from leafward.stores.contracts import Store
from leafward.stores.finishing import to_its_end
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.table import check_name

Stored = Store | AgentStateStore


class _Component(Protocol):
    """What saves and restores itself, in whatever way; `_is_component` tells."""

    async def save_to(self, store: Stored, key: AnyKey) -> None: ...

    async def load_from(self, store: Stored, key: AnyKey) -> None: ...

    async def load_if_exists(self, store: Stored, key: AnyKey) -> bool: ...


class StateModule:
    """A component whose state outlives the process.

    A class of your own overrides `save_state` and `load_state`. One that does not saves and loads those of its
    attributes that are components themselves, also in lists, tuples and dicts: anything with the three coroutine
    methods is. One that has its own way to save is given a store that stands for all of them.
    """

    async def save_to(self, store: Stored, key: AnyKey) -> None:
        """Save this component in a store, an open one or one of states, under a session's key.

        All that its parts save is checked first, unless one of them reads meanwhile: then what the others saved before
        is written. Once the first of several is written all are, also for one who is cancelled.

        Raises:
            ConfigurationError: two components save under one name; nothing is written.
            ValueError: one of them saves what cannot be kept; nothing is written.
        """
        states = _together(store, self)
        await self.save_state(states, key_of(key))
        if states is not store:
            await states.write()

    async def load_from(self, store: Stored, key: AnyKey) -> None:
        """Restore what was saved.

        Raises:
            SessionNotFound: nothing is saved under this key.
            StateDecodeError: what is saved cannot be read; all attributes are as they were.
        """
        found = key_of(key)
        if not await self.load_if_exists(store, found):
            raise SessionNotFound(found.session_id)

    async def load_if_exists(self, store: Stored, key: AnyKey) -> bool:
        """Restore what was saved, and tell whether anything was."""
        states, found = _together(store, self), key_of(key)
        if not await states.exists(found):
            return False
        try:
            await self.load_state(states, found)
        except BaseException:
            states.put_back()
            raise
        if states is not store:
            await states.write()
        return True

    async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
        """Save what this component consists of, under names of its own."""
        for module in self._modules(states):
            await module.save_to(states, key)

    async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
        """Restore it; what was never saved is as in a new component.

        Raises:
            SessionNotFound: a component with a `load_from` of its own does not find what it saved.
        """
        for module in self._modules(states):
            if not _has_usual(module, "load_if_exists"):
                await module.load_if_exists(states, key)
            elif _has_usual(module, "load_from"):
                await module.load_state(states, key)
            else:
                await module.load_from(states, key)

    def _modules(self, states: AgentStateStore) -> Iterator[_Component]:
        """Yield the attributes that are components, each once, also if others refer to it."""
        for value in _attributes(self).values():
            for one in _in(value):
                if _is_component(one) and (not isinstance(states, _Together) or states.is_new(one)):
                    yield one


def _is_component(one: object) -> TypeGuard[_Component]:
    return _saves_itself(type(one))


@lru_cache(maxsize=1024)
def _saves_itself(kind: type) -> bool:
    """Tell whether objects of a class are components; what they say of themselves may be made up as it is asked for."""
    methods = ("save_to", "load_from", "load_if_exists")
    return all(iscoroutinefunction(getattr(kind, method, None)) for method in methods)


def _has_usual(module: _Component, method: str) -> TypeGuard[StateModule]:
    """Tell whether a component has left a method as it is here."""
    return isinstance(module, StateModule) and getattr(type(module), method) is getattr(StateModule, method)


def _attributes(of: object) -> dict[str, object]:
    """Return an object's attributes, in slots or not, and those it shares with all of its class."""
    found = dict(getattr(of, "__dict__", {}))
    for kind in type(of).__mro__:
        for name, value in vars(kind).items():
            if name not in found:
                # Properties are nobody's to call.
                found[name] = getattr(of, name, None) if isinstance(value, MemberDescriptorType) else value
    return found


def _in(value: object) -> Iterator[object]:
    """Yield a value, or what a list, tuple or dict holds."""
    match value:
        case list() | tuple():
            yield from cast(Sequence[object], value)
        case dict():
            yield from cast(dict[object, object], value).values()
        case _:
            yield value


class _Together(AgentStateStore):
    """What components save together: checked as it comes, written at the end, or before something is read."""

    def __init__(self, store: Stored, module: StateModule) -> None:
        self._store = store
        self._states = states_of(store)
        self._names: set[str] = set()
        self._seen: dict[int, tuple[object, dict[str, object]]] = {}
        """Components, each with the attributes that it had."""
        self._steps: list[Callable[[], Awaitable[None]]] = []
        self.is_new(module)

    @property
    def states(self) -> Self:
        """For a component that expects an open store."""
        return self

    def __getattr__(self, name: str) -> Any:
        # Whatever else the store can do that was given, such as compare versions.
        return getattr(self._states if hasattr(self._states, name) else self._store, name)

    def is_new(self, module: object) -> bool:
        """Tell whether a component is met for the first time."""
        if id(module) in self._seen:
            return False
        self._seen[id(module)] = module, dict(getattr(module, "__dict__", {}))
        return True

    def put_back(self) -> None:
        """Give components the attributes that they had, for some may be loaded and others not."""
        for module, attributes in self._seen.values():
            if attributes:
                vars(module).clear()
                vars(module).update(attributes)

    async def write(self) -> None:
        """Do all that was to be done."""
        steps, self._steps = self._steps, []
        if len(steps) > 1:
            await to_its_end(_do(steps))
        else:
            await _do(steps)

    def _note(self, key: AnyKey, name: str) -> SessionKey:
        if check_name(name) in self._names:
            raise ConfigurationError(f"two components save under the name {name!r}: give one of them another")
        self._names.add(name)
        return key_of(key)

    async def save(self, key: AnyKey, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            await self.save_list(key, name, cast(Sequence[Any], value))
            return
        # As it is now: who has saved something may change it.
        slot, plain = self._note(key, name), decode(write_value(value))
        self._steps.append(lambda: self._states.save(slot, name, plain))

    async def save_list(self, key: AnyKey, name: str, values: Sequence[Any]) -> None:
        slot, plain = self._note(key, name), [decode(text) for text in write_items(values)]
        self._steps.append(lambda: self._states.save_list(slot, name, plain))

    async def delete(self, key: AnyKey, name: str | None = None) -> None:
        self._names -= self._names if name is None else {name}
        self._steps.append(lambda: self._states.delete(key, name))

    async def get(self, key: AnyKey, name: str, type: type[Any] = dict) -> Any:
        await self.write()
        return await self._states.get(key, name, type)

    async def get_list(self, key: AnyKey, name: str, type: type[Any] = dict) -> list[Any]:
        await self.write()
        return await self._states.get_list(key, name, type)

    async def exists(self, key: AnyKey) -> bool:
        await self.write()
        return await self._states.exists(key)

    async def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        await self.write()
        return await self._states.list_session_keys(user_id)

    async def close(self) -> None:
        """Do nothing: the store is whose that opened it."""


def _together(store: Stored, module: StateModule) -> _Together:
    """Return what a component saves in together with its parts, or with those that it is a part of."""
    return store if isinstance(store, _Together) else _Together(store, module)


async def _do(steps: list[Callable[[], Awaitable[None]]]) -> None:
    for step in steps:
        await step()
