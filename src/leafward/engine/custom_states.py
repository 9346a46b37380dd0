"""Custom stores of states: eight methods, sync or async, as one to await."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, TypeVar, cast, overload

from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.core.json import decode
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.core.state_values import Written, read_items, read_value, write_items, write_state, write_value
from leafward.sessions.user_functions import Turns, call
from leafward.stores.contracts import Store
from leafward.stores.leases import Slot
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import check_name, holds_list, holds_value

T = TypeVar("T")

METHODS = ("save", "get", "save_list", "get_list", "exists", "delete", "list_session_keys", "close")


def states_of(store: object) -> StateStore | CustomStates:
    """Return where a store keeps states: `store.states`, or the store itself if it is a store of states.

    Raises:
        ConfigurationError: it is neither.
    """
    if isinstance(store, StateStore):
        return store
    if isinstance(store, Store):
        return store.states
    missing = [name for name in METHODS if not callable(getattr(store, name, None))]
    if missing or isinstance(store, type):
        raise ConfigurationError(
            f"states are kept in an open store or in one with the eight methods of AgentStateStore: "
            f"{type(store).__name__} lacks {', '.join(missing) or 'an instance'}"
        )
    return CustomStates(store)


_turns: dict[int, tuple[object, Turns]] = {}
"""The turns of each custom store, by its id. The store or its finalizer is kept with them, so no other gets its id."""


def _turns_of(store: object) -> Turns:
    """Return the turns that all users of a store share."""
    known = id(store)
    if known not in _turns:
        try:
            _turns[known] = weakref.finalize(store, _turns.pop, known, None), Turns()
        except TypeError:
            # A store without weak references is kept.
            _turns[known] = store, Turns()
    return _turns[known][1]


class CustomStates(AgentStateStore):
    """Calls each method, sync ones on a thread and one at a time.

    The store is given `SessionKey`s, checked names and plain dicts, and returns plain dicts: types are handled here.
    """

    def __init__(self, store: object) -> None:
        self.source = store
        """The user's own store."""
        self._store: Any = store
        self.turns = _turns_of(store)
        """What all users of the store share; it lasts as long as the store."""

    async def _call(self, method: str, *arguments: object) -> Any:
        return await call(getattr(self._store, method), *arguments, turns=self.turns)

    async def save(self, key: AnyKey, name: str, value: Any) -> None:
        await self.save_written(key, name, write_state(value, name))

    async def save_written(self, key: AnyKey, name: str, written: Written) -> None:
        """Save a state that is JSON already."""
        slot, checked = key_of(key), check_name(name)
        if isinstance(written, str):
            await self._call("save", slot, checked, decode(written))
        else:
            await self._call("save_list", slot, checked, [decode(text) for text in written])

    @overload
    async def get(self, key: AnyKey, name: str) -> dict[str, Any] | None: ...
    @overload
    async def get(self, key: AnyKey, name: str, type: type[T]) -> T | None: ...
    async def get(self, key: AnyKey, name: str, type: type[Any] = dict) -> Any:
        slot = Slot(key_of(key).user_id, key_of(key).session_id)
        found = await self._call("get", key_of(key), check_name(name), dict)
        if isinstance(found, list):
            raise holds_list(slot, name)
        try:
            return None if found is None else read_value(write_value(found), type)
        except ValueError as error:
            raise StateDecodeError(*slot, name, str(error)) from error

    async def save_list(self, key: AnyKey, name: str, values: Sequence[Any]) -> None:
        await self.save_written(key, name, write_items(values, name))

    @overload
    async def get_list(self, key: AnyKey, name: str) -> list[dict[str, Any]]: ...
    @overload
    async def get_list(self, key: AnyKey, name: str, type: type[T]) -> list[T]: ...
    async def get_list(self, key: AnyKey, name: str, type: type[Any] = dict) -> list[Any]:
        slot = Slot(key_of(key).user_id, key_of(key).session_id)
        found = await self._call("get_list", key_of(key), check_name(name), dict)
        if isinstance(found, dict):
            raise holds_value(slot, name)
        try:
            return read_items(write_items(found or ()), type)
        except ValueError as error:
            raise StateDecodeError(*slot, name, str(error)) from error

    async def exists(self, key: AnyKey) -> bool:
        return bool(await self._call("exists", key_of(key)))

    async def delete(self, key: AnyKey, name: str | None = None) -> None:
        await self._call("delete", key_of(key), *(() if name is None else (check_name(name),)))

    async def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        found = cast(set[AnyKey], await self._call("list_session_keys", *(() if user_id is None else (user_id,))))
        return {key_of(key) for key in found}

    async def close(self) -> None:
        await self._call("close")
