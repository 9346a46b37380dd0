"""A user's own store of states, its eight methods plain or async, as one to await."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, TypeVar, cast, overload

from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.core.json import decode
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.core.state_values import read_items, read_value, write_items, write_value
from leafward.sessions.calling import Turns, call
from leafward.stores.contracts import Store
from leafward.stores.leases import Slot
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import check_name, holds_list, holds_value

T = TypeVar("T")

METHODS = ("save", "get", "save_list", "get_list", "exists", "delete", "list_session_keys", "close")


def states_of(store: object) -> AgentStateStore:
    """Return where states are kept: those of a `Store`, or a store of states, whosever it is.

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
    return ForeignStates(store)


_turns: dict[int, tuple[object, Turns]] = {}
"""Of each store, by its id, and with it or a finalizer, so that no other is taken for it."""


def _turns_of(store: object) -> Turns:
    """Return the turns that all who use a store share."""
    known = id(store)
    if known not in _turns:
        try:
            _turns[known] = weakref.finalize(store, _turns.pop, known, None), Turns()
        except TypeError:
            # One that cannot be referred to weakly is kept.
            _turns[known] = store, Turns()
    return _turns[known][1]


class ForeignStates(AgentStateStore):
    """Calls each method, plain ones on a thread and one at a time.

    The store is given `SessionKey`s, names that are allowed, and values as plain dicts, and may give these back: types
    are seen to here.
    """

    def __init__(self, store: object) -> None:
        self._store: Any = store
        self._turns = _turns_of(store)

    async def _call(self, method: str, *arguments: object) -> Any:
        return await call(getattr(self._store, method), *arguments, turns=self._turns)

    async def save(self, key: AnyKey, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)):
            await self.save_list(key, name, cast(Sequence[Any], value))
        else:
            await self._call("save", key_of(key), check_name(name), decode(write_value(value)))

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
        await self._call("save_list", key_of(key), check_name(name), [decode(text) for text in write_items(values)])

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
