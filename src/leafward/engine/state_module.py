"""Components that save and restore themselves, several under one key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from leafward.core.errors import ConfigurationError, SessionNotFound
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.core.state_values import Written, write_items, write_value
from leafward.engine.custom_states import CustomStates, states_of
from leafward.stores.contracts import Store
from leafward.stores.finishing import to_its_end
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.store import StateStore, is_of_1x, save_written
from leafward.stores.states.table import check_name

Stored = Store | AgentStateStore
_States = StateStore | CustomStates


class StateModule:
    """A component whose state outlives the process.

    It has a state of its own, other components as parts, or both. A class with a state sets `state_name` and
    overrides `get_state` and `set_state`; a class with parts returns them from `components`.
    """

    state_name: str | None = None
    """The name that the component's own state is saved under; a component without one has parts only."""
    state_type: type[Any] = dict
    """What the state is read as: a dict, dataclass, msgspec Struct or pydantic model, or `list[...]` of such."""

    def components(self) -> Iterable[StateModule]:
        """Return the parts of this component, which are saved and loaded with it. They may have parts themselves, and
        one that is named by several is saved once."""
        return ()

    def get_state(self) -> Any:
        """Return the component's own state, to be saved: a value or a list, as `state_type` says."""
        raise _unfinished(self)

    def set_state(self, state: Any) -> None:
        """Take over a state that was read as `state_type`; `None`, or an empty list, when none is saved.

        Only assign here. What may be wrong with a state belongs into `state_type`, which is read before any component
        is changed.
        """
        raise _unfinished(self)

    async def save_to(self, store: Stored, key: AnyKey) -> None:
        """Save this component and its parts under a session's key, in an open store or in a store of states.

        All states are taken and checked first. A cancelled call has saved all of them or none.

        Raises:
            ConfigurationError: there is nothing to save, or two components have one name; nothing is written.
            ValueError: a state cannot be written as JSON; nothing is written.
        """
        states, slot = states_of(store), key_of(key)
        of_1x = isinstance(states, StateStore) and is_of_1x(states)
        written = {name: _write(name, part, of_1x) for name, part in _with_state(self).items()}
        saving = _save(states, slot, written)
        await (to_its_end(saving) if len(written) > 1 else saving)

    async def load_from(self, store: Stored, key: AnyKey) -> None:
        """Restore what was saved; a component that has nothing saved under this key is reset.

        Raises:
            SessionNotFound: nothing at all is saved under this key.
            StateDecodeError: a state cannot be read; no component is changed.
        """
        found = key_of(key)
        if not await self.load_if_exists(store, found):
            raise SessionNotFound(found.session_id)

    async def load_if_exists(self, store: Stored, key: AnyKey) -> bool:
        """Do as `load_from` does and return True, or return False if nothing is saved under this key."""
        states, slot, parts = states_of(store), key_of(key), _with_state(self)
        if not await states.exists(slot):
            return False
        found = {name: await _read(states, slot, name, part.state_type) for name, part in parts.items()}
        # All is read: from here on nothing is awaited, and nothing that is stored can be wrong.
        for name, part in parts.items():
            part.set_state(found[name])
        return True


def _with_state(root: StateModule) -> dict[str, StateModule]:
    """Return a component and its parts, as far as they have a state, by its name."""
    found: dict[str, StateModule] = {}
    seen: dict[int, StateModule] = {}
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if one.state_name is not None:
            if check_name(one.state_name) in found:
                raise ConfigurationError(
                    f"two components save under the name {one.state_name!r}: give one of them another state_name"
                )
            found[one.state_name] = one
        waiting += reversed([_checked(one, part) for part in one.components()])
    if not found:
        raise ConfigurationError(
            f"{type(root).__name__} has nothing to save: return its parts from components(), or set a state_name"
        )
    return found


def _checked(owner: StateModule, part: object) -> StateModule:
    """Refuse a part that would not be saved, or not with the others: what a component does in its own `save_to` cannot
    be checked first, nor undone."""
    methods = ("save_to", "load_from", "load_if_exists")
    if not isinstance(part, StateModule):
        problem = "is not a StateModule"
    elif any(getattr(type(part), method) is not getattr(StateModule, method) for method in methods):
        problem = f"overrides one of {', '.join(methods)}"
    else:
        return part
    raise ConfigurationError(
        f"components() of {type(owner).__name__} returns a {type(part).__name__}, which {problem}: save it by itself"
    )


def _unfinished(component: StateModule) -> ConfigurationError:
    return ConfigurationError(f"{type(component).__name__} has a state_name: override get_state() and set_state()")


def _is_list(state_type: object) -> bool:
    return state_type is list or get_origin(state_type) is list


def _write(name: str, component: StateModule, of_1x: bool) -> Written:
    state = component.get_state()
    try:
        if _is_list(component.state_type):
            return write_items(state, name, of_1x=of_1x)
        return write_value(state, name, of_1x=of_1x)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the state {name!r} cannot be saved: {error}") from error


async def _save(states: _States, slot: SessionKey, written: Mapping[str, Written]) -> None:
    for name, state in written.items():
        if isinstance(states, CustomStates):
            await states.save_written(slot, name, state)
        else:
            await save_written(states, slot, name, state)


async def _read(states: _States, slot: SessionKey, name: str, state_type: type[Any]) -> Any:
    if _is_list(state_type):
        return await states.get_list(slot, name, *get_args(state_type))
    return await states.get(slot, name, state_type)
