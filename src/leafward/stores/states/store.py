"""The typed face of a table of states."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, overload

from leafward.core.errors import StaleState, StateDecodeError
from leafward.core.ids import check_id, refusal
from leafward.core.session_key import AnyKey, SessionKey, key_of
from leafward.stores.leases import Fence, Leases, Slot
from leafward.stores.leases.lease import Lease
from leafward.stores.states.contracts import UNCONDITIONAL, T, Versioned, VersionedStateStore
from leafward.stores.states.table import Layout, StateTable, Stored, check_name, keeps_laid_out, looks_beside

if TYPE_CHECKING:
    from leafward.core.agent_texts import StateText
    from leafward.stores.contracts import Store

_LAST_VERSION = 2**63 - 1
_MANY = 1_000
"""Items that take a few milliseconds to read."""


class Known(NamedTuple):
    """A save that somebody has in memory. Versions alone do not tell: they count from 1 again in a new slot."""

    version: int
    name: str
    """Text that only this save has written."""

    def is_in(self, stored: Stored) -> bool:
        """Tell whether this save is what is stored."""
        text = stored.text
        return stored.version == self.version and (
            self.name in text if isinstance(text, str) else self.name.encode() in text
        )


class StateStore(VersionedStateStore, ABC):
    """What all our stores of states have in common: keys, types and fences; `_table` keeps the texts."""

    distributed: bool
    """Whether processes on several machines can share it."""
    leases: Leases
    _fence: Fence | None = None
    _layout: Layout = "2.x"

    @abstractmethod
    async def _table(self) -> StateTable:
        """Return what keeps the texts, opened when it is first needed."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The store behind these states: its sessions, messages and leases are in the same database.

        Of states with a lease it is the store behind that lease, so that what is written to it is fenced too.

        Raises:
            StoreError: a store of states by itself was not opened yet: `await states.open()`.
        """

    @abstractmethod
    async def open(self) -> Store:
        """Return `store`, opened if it is not yet; what sessions need there is made if it is missing."""

    def with_lease(self, lease: Lease) -> StateStore:
        """Return a store whose every write is refused, with `LeaseLost`, once another holder came."""
        return Fenced(self, lease)

    async def save(self, key: AnyKey, name: str, value: Any) -> None:
        slot = self._writable(_slot(key, name))
        await self._save(slot, name, _values().write_for_store(value, name, of_1x=is_of_1x(self)))

    async def _save(self, slot: Slot, name: str, written: str | list[str] | StateText) -> None:
        table = await self._table()
        if isinstance(written, list):
            await table.put_list(slot, name, written, self._fence)
        else:
            await self._put(table, slot, name, written, None)

    async def _put(
        self, table: StateTable, slot: Slot, name: str, written: str | StateText, expected: int | None
    ) -> int:
        if isinstance(written, str):
            return await table.put(slot, name, written, expected, self._fence)
        if keeps_laid_out(table):
            return await table.put_laid_out(slot, name, written, expected, self._fence)
        return await table.put(slot, name, written.spelled(), expected, self._fence)

    @overload
    async def get(self, key: AnyKey, name: str) -> dict[str, Any] | None: ...
    @overload
    async def get(self, key: AnyKey, name: str, type: type[T]) -> T | None: ...
    async def get(self, key: AnyKey, name: str, type: type[Any] = dict) -> Any:
        return (await self._get(key, name, type, versioned=False)).value

    @overload
    async def get_versioned(self, key: AnyKey, name: str) -> Versioned[dict[str, Any]]: ...
    @overload
    async def get_versioned(self, key: AnyKey, name: str, type: type[T]) -> Versioned[T]: ...
    async def get_versioned(self, key: AnyKey, name: str, type: type[Any] = dict) -> Versioned[Any]:
        return await self._get(key, name, type, versioned=True)

    async def _get(self, key: AnyKey, name: str, type: type[Any], *, versioned: bool) -> Versioned[Any]:
        slot = _slot(key, name)
        return await self._read(slot, name, type, await (await self._table()).get(slot, name, versioned=versioned))

    async def _get_beside(
        self, key: AnyKey, name: str, type: type[Any], known: Known | None, others: Sequence[str]
    ) -> tuple[Versioned[Any], bool]:
        slot, table = _slot(key, name), await self._table()
        if others and looks_beside(table):
            stored, has_others = await table.get_beside(slot, name, others)
        else:
            stored, has_others = await table.get(slot, name, versioned=True), bool(others)
        if stored is not None and known is not None and known.is_in(stored):
            return Versioned(None, stored.version), has_others
        return await self._read(slot, name, type, stored), has_others

    async def _read(self, slot: Slot, name: str, type: type[Any], stored: Stored | None) -> Versioned[Any]:
        if stored is None:
            return Versioned(None, 0)
        values = _values()
        try:
            if values.takes_long(stored.text, type):
                # Others would wait for it.
                value = await asyncio.to_thread(values.read_value, stored.text, type)
            else:
                value = values.read_value(stored.text, type)
            return Versioned(value, stored.version)
        except ValueError as error:
            raise StateDecodeError(*slot, name, str(error)) from error

    async def save_if_version(self, key: AnyKey, name: str, value: Any, expected: int) -> int:
        slot = self._writable(_slot(key, name))
        if isinstance(expected, bool) or not isinstance(expected, int) or expected < UNCONDITIONAL:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"expected is the version that get_versioned() gave, or -1, not {expected!r}")
        if isinstance(value, (list, tuple)):
            raise ValueError("a list has no version: save it with save_list()")
        written = _values().write_for_store(value, name, of_1x=is_of_1x(self))
        if expected > _LAST_VERSION:
            raise StaleState(*slot, name, expected)
        wanted = None if expected == UNCONDITIONAL else expected
        return await self._put(await self._table(), slot, name, written, wanted)

    async def save_list(self, key: AnyKey, name: str, values: Sequence[Any]) -> None:
        slot = self._writable(_slot(key, name))
        if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"save_list() takes a list of states, not a {type(values).__name__}")
        # Before anything is awaited: the caller may change the items meanwhile.
        await self._save(slot, name, _values().write_items(values, name, of_1x=is_of_1x(self)))

    @overload
    async def get_list(self, key: AnyKey, name: str) -> list[dict[str, Any]]: ...
    @overload
    async def get_list(self, key: AnyKey, name: str, type: type[T]) -> list[T]: ...
    async def get_list(self, key: AnyKey, name: str, type: type[Any] = dict) -> list[Any]:
        slot = _slot(key, name)
        texts = await (await self._table()).get_list(slot, name)
        try:
            read = _values().read_items
            # Others would wait for many.
            return await asyncio.to_thread(read, texts, type) if len(texts) > _MANY else read(texts, type)
        except ValueError as error:
            raise StateDecodeError(*slot, name, str(error)) from error

    async def exists(self, key: AnyKey) -> bool:
        return await (await self._table()).exists(Slot(*_ids(key)))

    async def delete(self, key: AnyKey, name: str | None = None) -> None:
        slot = self._writable(Slot(*_ids(key)) if name is None else _slot(key, name))
        await (await self._table()).drop(slot, name, self._fence)

    async def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        if user_id is not None:
            check_id("user id", user_id)
        found = await (await self._table()).sessions(user_id)
        # Java takes ids that are refused here, and that nobody could ask for.
        return {SessionKey(session_id, user_id) for session_id in found if refusal(session_id) is None}

    def _writable(self, slot: Slot) -> Slot:
        if self._fence is not None:
            self._fence.check(slot)
        return slot

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def is_of_1x(states: StateStore) -> bool:
    """Tell whether AgentScope 1.x reads what is saved here, which knows fewer blocks than 2.x."""
    return states._layout == "1.x"  # pyright: ignore[reportPrivateUsage]


async def get_unless_known(
    states: StateStore, key: AnyKey, name: str, type: type[T], known: Known | None, others: Sequence[str] = ()
) -> tuple[Versioned[T], bool]:
    """Return what `get_versioned` does, but without its value if what is stored is the save that is known.

    Beside it, whether any of some other names may hold something.
    """
    return await states._get_beside(key, name, type, known, others)  # pyright: ignore[reportPrivateUsage]


async def save_written(states: StateStore, key: AnyKey, name: str, written: str | list[str]) -> None:
    """Save a state that is JSON already: the text of a value, or the texts of a list's items."""
    await states._save(states._writable(_slot(key, name)), name, written)  # pyright: ignore[reportPrivateUsage]


class Fenced(StateStore):
    """A store of states that is written to behind a lease."""

    def __init__(self, states: StateStore, lease: Lease, store: Store | None = None) -> None:
        self._states = states
        self._store = store
        self.distributed = states.distributed
        self.leases = states.leases
        self._fence = lease.fence
        self._layout = states._layout
        # A lease is renewed as long as somebody has it: whoever writes behind it does.
        self._lease = lease

    async def _table(self) -> StateTable:
        return await self._states._table()

    @property
    def store(self) -> Store:
        if self._store is None:
            self._store = self._states.store.fenced(self._lease)
        return self._store

    async def open(self) -> Store:
        await self._states.open()
        return self.store

    def with_lease(self, lease: Lease) -> StateStore:
        return self._states.with_lease(lease)

    async def close(self) -> None:
        """Do nothing: the store that these are of is closed by itself."""


class OpenStates(StateStore):
    """The states of a store that is open."""

    def __init__(self, table: StateTable, store: Store, layout: Layout) -> None:
        self._texts = table
        self._store = store
        self._layout = layout
        self.leases = store.leases
        self.distributed = store.distributed

    async def _table(self) -> StateTable:
        return self._texts

    @property
    def store(self) -> Store:
        return self._store

    async def open(self) -> Store:
        return self._store

    async def close(self) -> None:
        """Do nothing: the store that these are of is closed by itself."""


def _values() -> ModuleType:
    # Imported late: a program that keeps no states does not pay for it.
    return import_module("leafward.core.state_values")


def _ids(key: AnyKey) -> tuple[str | None, str]:
    found = key_of(key)
    return found.user_id, found.session_id


def _slot(key: AnyKey, name: str) -> Slot:
    check_name(name)
    return Slot(*_ids(key))
