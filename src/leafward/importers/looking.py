"""What a target holds, for a run that only tells what it would do: nothing is made, and nothing changed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from tempfile import TemporaryDirectory

from leafward.core.errors import StateDecodeError
from leafward.core.session_key import SessionKey
from leafward.importers.sources import Named, directory_of, scheme_of, text_of
from leafward.importers.targets import (
    Holding,
    Ours,
    State,
    canonical,
    check_store_layout,
    given_target,
    open_target,
    read_state,
    sqlite_path,
)
from leafward.stores.contracts import Store
from leafward.stores.files.names import STATES
from leafward.stores.leases import Slot
from leafward.stores.sqlite.backup import copy_file
from leafward.stores.sqlite.own_states import SqliteAgentStateStore
from leafward.stores.states.contracts import AgentStateStore
from leafward.stores.states.older import Held, Texts
from leafward.stores.states.table import Layout


class _Nothing(Holding):
    """There is no store yet."""

    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
        return {}


class _LookedAt(Holding):
    """What is found without opening a store, which would make or change something."""

    def __init__(self, layout: Layout, held: Held) -> None:
        self._layout: Layout = layout
        self._held = held

    async def held(self, key: SessionKey, wanted: Mapping[str, State]) -> dict[str, bytes | None]:
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


async def look_at_target(store: Store | AgentStateStore | Named, layout: Layout, closing: AsyncExitStack) -> Holding:
    """Return what there is where states would go; what is opened for it is closed with `closing`.

    Raises:
        ConfigurationError: it is neither a store, nor a directory or URL of one.
    """
    if not isinstance(store, (str, os.PathLike)):
        return given_target(store)
    named = text_of(store, "target")
    directory = directory_of(named)
    if directory is not None and scheme_of(named) == "file":
        check_store_layout(named, layout)
        directory = os.path.join(directory, STATES)
    if directory is not None:
        return await _in_files(directory, layout, closing)
    if scheme_of(named) == "sqlite":
        return await _in_copy(sqlite_path(named), layout, closing)
    if scheme_of(named) == "mysql":
        return await _in_rows(named, layout, closing)
    if scheme_of(named) == "postgresql":
        return await _in_schema(named, layout, closing)
    # Opening these makes nothing.
    return await open_target(named, layout, closing)


async def _in_files(directory: str, layout: Layout, closing: AsyncExitStack) -> Holding:
    from leafward.stores.files.legacy import open_older_files

    if not await asyncio.to_thread(os.path.isdir, directory):
        return _Nothing()
    held = await open_older_files(directory)
    closing.push_async_callback(held.close)
    return _LookedAt(layout, held)


async def _in_rows(url: str, layout: Layout, closing: AsyncExitStack) -> Holding:
    from leafward.stores.servers.legacy import open_older_rows
    from leafward.stores.servers.own_states import MysqlAgentStateStore

    older = await open_older_rows(url, rename=False, needed=False)
    await older.close()
    if not older.has_rows:
        return _Nothing()
    return Ours(await closing.enter_async_context(MysqlAgentStateStore(url, layout=layout, create=False)))


async def _in_copy(path: str, layout: Layout, closing: AsyncExitStack) -> Holding:
    """Look at a copy: a store brings its tables up to date when it is opened."""
    if not await asyncio.to_thread(os.path.exists, path):
        return _Nothing()
    copy = os.path.join(closing.enter_context(TemporaryDirectory(prefix="leafward-")), "copy.db")
    await asyncio.to_thread(copy_file, path, copy)
    return Ours(await closing.enter_async_context(SqliteAgentStateStore(copy, layout=layout)))


async def _in_schema(url: str, layout: Layout, closing: AsyncExitStack) -> Holding:
    from leafward.stores.servers.own_states import PostgresAgentStateStore, has_table

    states = await closing.enter_async_context(PostgresAgentStateStore(url, layout=layout, create=False))
    return Ours(states) if await has_table(states) else _Nothing()
