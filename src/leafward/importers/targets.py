"""Where migrated states go, and what is there already."""

from __future__ import annotations

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AsyncExitStack
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from leafward.core.errors import ConfigurationError, StateDecodeError
from leafward.core.session_key import SessionKey
from leafward.core.state_values import read_items, read_value, write_items
from leafward.engine.foreign_states import states_of
from leafward.importers.sources import Named, directory_of, is_redis, scheme_of, text_of
from leafward.stores.contracts import Store
from leafward.stores.leases import Slot
from leafward.stores.opening import open_store
from leafward.stores.sqlite.backup import copy_file
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.embedded import SqliteAgentStateStore
from leafward.stores.states.json_files import JsonFileAgentStateStore
from leafward.stores.states.older import Held, Text, Texts, own_names, save_new_list
from leafward.stores.states.standalone import Standalone
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import Layout

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


class Target(ABC):
    """Where states go."""

    @abstractmethod
    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
        """Return those of the wanted names that are held already, in canonical form; `None` for one of another kind, or
        one that cannot be read."""

    async def put(self, key: SessionKey, name: str, state: State) -> None:
        raise NotImplementedError


class _Ours(Target):
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


class _LookedAt(Target):
    """What is there before anything is opened for writing; nothing, if there is no store yet."""

    def __init__(self, layout: Layout, held: Held | None = None) -> None:
        self._layout: Layout = layout
        self._held = held

    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
        if self._held is None:
            return {}
        try:
            texts = await self._held.held(Slot(key.user_id, key.session_id), self._layout)
        except StateDecodeError:
            return dict.fromkeys(wanted)
        return {name: _canonical(texts, name, state) for name, state in wanted.items() if name in texts}


def _canonical(texts: Texts, name: str, state: State) -> bytes | None:
    try:
        return canonical(read_state(texts[name])) if isinstance(texts[name], list) is isinstance(state, list) else None
    except ValueError:
        return None


async def open_target(
    store: Store | AgentStateStore | Named, layout: Layout, closing: AsyncExitStack, *, dry_run: bool
) -> Target:
    """Return where states go; what is opened for it, but a store that was given, is closed with `closing`.

    For a dry run nothing is made that is not there, nor changed.

    Raises:
        ConfigurationError: it is neither a store, nor a directory or URL of one.
    """
    if not isinstance(store, (str, os.PathLike)):
        return _target(states_of(store))
    named = text_of(store, "target")
    scheme = scheme_of(named)
    if dry_run and not _is_there(named):
        return _LookedAt(layout)
    if dry_run and scheme in ("", "mysql"):
        return await _look_at(named, layout, closing)
    if dry_run and scheme == "file":
        # Where such a store keeps its states.
        kept = os.path.join(directory_of(named) or "", ".states")
        return await _look_at(kept, layout, closing) if _is_there(kept) else _LookedAt(layout)
    if dry_run and scheme == "sqlite":
        # A store brings its tables up to date when it is opened: let it be a copy.
        copy = os.path.join(closing.enter_context(TemporaryDirectory(prefix="leafward-")), "copy.db")
        await asyncio.to_thread(copy_file, _sqlite_path(named), copy)
        named = f"sqlite:///{copy}"
    states = _standalone(named, layout, create=not dry_run)
    if states is None:
        if layout != "2.x":
            raise ConfigurationError(f"{scheme}:// keeps states in layout 2.x only")
        return _target((await closing.enter_async_context(open_store(named))).states)
    await closing.enter_async_context(states)
    if dry_run and scheme == "postgresql":
        opened = await states.opened()
        try:
            await opened.table.exists(Slot(None, "nobody"))
        except ConfigurationError:
            return _LookedAt(layout)
    return _Ours(states)


def _target(states: AgentStateStore) -> Target:
    return _Ours(states) if isinstance(states, StateStore) else _Theirs(states)


def _standalone(named: str, layout: Layout, *, create: bool) -> Standalone | None:
    scheme = scheme_of(named)
    if scheme == "":
        return JsonFileAgentStateStore(named, layout=layout)
    if scheme == "sqlite":
        return SqliteAgentStateStore(_sqlite_path(named), layout=layout, create=create)
    if is_redis(named):
        from leafward.stores.states.redis import RedisAgentStateStore

        return RedisAgentStateStore(named, layout=layout)
    if scheme in ("mysql", "postgresql"):
        from leafward.stores.states.servers import MysqlAgentStateStore, PostgresAgentStateStore

        kind = MysqlAgentStateStore if scheme == "mysql" else PostgresAgentStateStore
        return kind(named, layout=layout, create=create)
    return None


def _sqlite_path(url: str) -> str:
    path = url.removeprefix("sqlite:///")
    if path in (url, "", ":memory:"):
        raise ConfigurationError(
            "this sqlite:// URL names no file: write sqlite:///relative.db or sqlite:////absolute.db"
        )
    return path


def _is_there(named: str) -> bool:
    """Tell whether there is a store that can be looked at; one on a server says so itself."""
    if scheme_of(named) == "sqlite":
        return os.path.exists(_sqlite_path(named))
    directory = directory_of(named)
    return directory is None or os.path.isdir(directory)


async def _look_at(named: str, layout: Layout, closing: AsyncExitStack) -> Target:
    directory = directory_of(named)
    if directory is not None:
        from leafward.stores.files.legacy import open_older_files

        held = await open_older_files(directory)
    else:
        from leafward.stores.servers.legacy import open_older_rows

        held = await open_older_rows(named, rename=False, needed=False)
    closing.push_async_callback(held.close)
    return _LookedAt(layout, held)
