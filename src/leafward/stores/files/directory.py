"""A directory of states, in which nothing is written before something is to be changed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from typing import Literal, NamedTuple, TypeVar

from leafward.stores.files.folder import Folder, FolderAtOnce, Parts
from leafward.stores.files.json_store import JsonFileStore
from leafward.stores.files.read_tree import ReadTree
from leafward.stores.files.state_names import LEASES
from leafward.stores.files.state_table import FileStates, Locked
from leafward.stores.files.state_tree import Memory, StateTree
from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.leases import Fence, LeaseTable
from leafward.stores.leases.forwarding_table import ForwardingLeaseTable
from leafward.stores.sqlite import open_sqlite
from leafward.stores.states.standalone import Later
from leafward.stores.states.table import Layout

T = TypeVar("T")

_log = logging.getLogger("leafward.stores.files")


class _HasLock(Exception):
    """The directory has a lock that this process can take."""


class _Opened(NamedTuple):
    """A directory that is written to."""

    locked: Locked
    store: JsonFileStore


class StateDirectory(ForwardingLeaseTable):
    """Reads without a lock until there is one, made by the first change or lease of any process of ours.

    What keeps the lock and the leases keeps sessions too, once they are asked for.
    """

    def __init__(self, path: str, layout: Layout, *, legacy: bool, to_keep: Mapping[Parts, bytes]) -> None:
        self._path = path
        self._layout: Layout = layout
        self._legacy = legacy
        self._to_keep = to_keep
        """Files that are written with the first change, if they are not there."""
        self.memory = Memory()
        # Leases need not survive a power cut: no holder of one does.
        self._durability: Literal["power", "process"] = "process"
        self._writing = Later(f"the store of states {path}", self._open)

    @property
    def is_untouched(self) -> bool:
        return not self._writing.is_open

    async def read(self, step: Callable[[StateFiles], T]) -> T:
        if self.is_untouched:
            try:
                return await asyncio.to_thread(self._look, step)
            except _HasLock:
                pass
        return await (await self._writing.get()).locked.read(step)

    async def change(self, step: Callable[[StateFiles], T], fence: Fence | None) -> T:
        return await (await self._writing.get()).locked.change(step, fence)

    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        return await call((await self._writing.get()).store.runner)

    async def store(self) -> JsonFileStore:
        """Return the store behind the states, in which a finished write survives a power cut."""
        self._durability = "power"
        store = (await self._writing.get()).store
        # It may have been open for leases, or its log made by a process that has it open for them.
        await store.survive_power_cuts()
        return store

    async def close(self) -> None:
        opened = await self._writing.close()
        if opened is not None:
            await opened.store.close()

    def _look(self, step: Callable[[StateFiles], T]) -> T:
        if _can_write(os.path.join(self._path, LEASES)) and _can_write(self._path):
            raise _HasLock
        with named(self._path), closing(FolderAtOnce(self._path)) as folder:
            tree = ReadTree(folder, (), self.memory)
            try:
                return step(StateFiles(tree, self._layout, legacy=self._legacy))
            finally:
                # Also what it raised may be due to files that do not belong together.
                tree.check()

    async def _open(self) -> _Opened:
        folder = await asyncio.to_thread(self._open_folder)
        try:
            url = f"sqlite:///{os.path.join(self._path, LEASES)}"
            inner = await open_sqlite(url, durability=self._durability, share=folder.share)
        except BaseException:
            folder.close()
            raise
        for ending in ("-wal", "-shm"):
            # SQLite makes them, with the mode of the file itself; only root gives them its group too.
            folder.give_to_group(LEASES + ending)
        files = StateFiles(StateTree(folder, (), self.memory), self._layout, legacy=self._legacy)
        store = JsonFileStore(inner, folder, FileStates(self), self._layout)
        opened = _Opened(Locked(inner.runner, files), store)
        try:
            await opened.locked.change(StateFiles.clear, None)
        except BaseException:
            await store.close()
            raise
        return opened

    def _open_folder(self) -> Folder:
        with named(self._path):
            folder = Folder(self._path, synced=True, shared=True)
            # Before the file that shows that leafward writes here.
            StateTree(folder, (), self.memory).keep(self._to_keep)
        if folder.others is not None:
            _log.warning(
                "the directory %s %s, who can change or delete what is saved there: "
                "if only this user needs it, own it and set its mode to 0700",
                self._path,
                folder.others,
            )
        return folder


def _can_write(path: str) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
