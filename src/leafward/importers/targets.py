"""Where migrated states go, and what is there already."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

import msgspec

from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.core.session_key import SessionKey
from leafward.core.state_values import read_items, read_value, write_items
from leafward.engine.custom_states import states_of
from leafward.importers.sources import Named, is_redis, scheme_of, text_of
from leafward.stores.contracts import Store
from leafward.stores.files.own_states import JsonFileAgentStateStore
from leafward.stores.opening import open_store
from leafward.stores.sqlite.own_states import SqliteAgentStateStore
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.older import Text, own_names, save_new_list
from leafward.stores.states.standalone import Standalone
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import Layout
from leafward.stores.urls import without_secrets

State = dict[str, Any] | list[dict[str, Any]]
"""A value or a list."""

_LONGEST_TOLD = 240
"""A longer name may be kept hashed, and is not among those that a slot tells."""

_encode = msgspec.json.Encoder(order="sorted").encode


def canonical(state: State) -> bytes:
    """Return what is the same for the same content, in whatever order its keys are."""
    return _encode(state)


def read_state(text: Text | list[Text]) -> State:
    """Return a stored value or list.

    Raises:
        ValueError: it is not JSON, or something else than objects; the text says where.
    """
    return read_items(text, dict[str, Any]) if isinstance(text, list) else read_value(text, dict[str, Any])


class Holding(Protocol):
    """What there is already where states would go."""

    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
        """Return those of the wanted names that are held already, in canonical form; `None` for one of another kind, or
        one that cannot be read."""
        ...


class Target(Holding, Protocol):
    """Where states go."""

    async def put(self, key: SessionKey, name: str, state: State) -> None:
        """Store what is not held yet.

        Raises:
            StaleState: somebody else was first.
        """
        ...


class Ours(Target):
    """A store of ours, which knows what a slot holds apart from what an older layout left."""

    def __init__(self, states: StateStore) -> None:
        self._states = states

    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
        names = await own_names(self._states, key)
        found: dict[str, bytes | None] = {}
        for name, state in wanted.items():
            is_list = isinstance(state, list)
            if name in names:
                found[name] = await self._content(key, name, is_list) if names[name] is is_list else None
            elif len(name) > _LONGEST_TOLD:
                content = await self._content(key, name, is_list)
                if content is not None and (content != b"[]" or not state):
                    found[name] = content
        return found

    async def _content(self, key: SessionKey, name: str, is_list: bool) -> bytes | None:
        try:
            if is_list:
                return canonical(await self._states.get_list(key, name))
            value = await self._states.get(key, name)
        except StateDecodeError:
            return None
        return None if value is None else canonical(value)

    async def put(self, key: SessionKey, name: str, state: State) -> None:
        # Whoever saved it since this was looked at is not overwritten.
        if isinstance(state, list):
            await save_new_list(self._states, key, name, write_items(state))
        else:
            await self._states.save_if_version(key, name, state, 0)


class _Theirs(Target):
    """A user's own store, with eight methods."""

    def __init__(self, states: AgentStateStore) -> None:
        self._states = states

    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for name, state in wanted.items() if await self._states.exists(key) else ():
            try:
                if isinstance(state, list):
                    items = await self._states.get_list(key, name)
                    # An empty list cannot be told from none, nor need it be.
                    if items or not state:
                        found[name] = canonical(items)
                elif (value := await self._states.get(key, name)) is not None:
                    found[name] = canonical(value)
            except StateDecodeError:
                found[name] = None
        return found

    async def put(self, key: SessionKey, name: str, state: State) -> None:
        if isinstance(state, list):
            await self._states.save_list(key, name, state)
        else:
            await self._states.save(key, name, state)


async def open_target(store: Store | AgentStateStore | Named, layout: Layout, closing: AsyncExitStack) -> Target:
    """Return where states go; what is opened for it, but a store that was given, is closed with `closing`.

    Raises:
        ConfigurationError: it is neither a store, nor a directory or URL of one.
    """
    if not isinstance(store, (str, os.PathLike)):
        return given_target(store)
    named = text_of(store, "target")
    states = _standalone(named, layout)
    if states is not None:
        return Ours(await closing.enter_async_context(states))
    check_store_layout(named, layout)
    return given_target(await closing.enter_async_context(open_store(named)))


def named_target(store: Store | AgentStateStore | Named) -> str:
    """Return a target as a person knows it, without secrets."""
    return without_secrets(os.fspath(store)) if isinstance(store, (str, os.PathLike)) else type(store).__name__


def check_store_layout(url: str, layout: Layout) -> None:
    """Refuse any layout but the one that a store of sessions has for its states."""
    if layout != "2.x":
        raise ConfigurationError(f"{scheme_of(url)}:// keeps states in layout 2.x only")


def given_target(store: Store | AgentStateStore) -> Target:
    """Return a store that a user has open as a target."""
    states = states_of(store)
    return Ours(states) if isinstance(states, StateStore) else _Theirs(states)


def _standalone(named: str, layout: Layout) -> Standalone | None:
    """Return the store of states, and of nothing else, that is named so, if its kind can be by itself."""
    scheme = scheme_of(named)
    if scheme == "":
        return JsonFileAgentStateStore(named, layout=layout)
    if scheme == "sqlite":
        return SqliteAgentStateStore(os.path.abspath(sqlite_path(named)), layout=layout)
    if is_redis(named):
        from leafward.stores.redis.own_states import RedisAgentStateStore

        return RedisAgentStateStore(named, layout=layout)
    if scheme in ("mysql", "postgresql"):
        from leafward.stores.servers.own_states import MysqlAgentStateStore, PostgresAgentStateStore

        kind = MysqlAgentStateStore if scheme == "mysql" else PostgresAgentStateStore
        return kind(named, layout=layout)
    return None


def sqlite_path(url: str) -> str:
    """Return the file that a URL names."""
    path = url.removeprefix("sqlite:///")
    if path in (url, "", ":memory:"):
        raise ConfigurationError(
            "this sqlite:// URL names no file: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    return path
