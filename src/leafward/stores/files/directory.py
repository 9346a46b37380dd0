"""A directory of states, in which nothing is written before something is to be changed."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import NamedTuple, TypeVar

from leafward.stores.files.folder import Folder, FolderAtOnce, Parts
from leafward.stores.files.read_tree import ReadTree
from leafward.stores.files.state_names import LEASES
from leafward.stores.files.state_table import Locked
from leafward.stores.files.state_tree import Memory, StateTree
from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.leases import Fence, LeaseTable, Slot
from leafward.stores.sqlite import SqliteStore, open_sqlite
from leafward.stores.states.standalone import Later
from leafward.stores.states.table import Layout

T = TypeVar("T")

_log = logging.getLogger("leafward.stores.files")


class _HasLock(Exception):
    """The directory has a lock that this process can take."""


class _Opened(NamedTuple):
    """A directory that is written to."""

    locked: Locked
    folder: Folder
    store: SqliteStore


class StateDirectory(LeaseTable):
    """Reads without a lock until there is one, made by the first change or lease of any process of ours."""

    def __init__(self, path: str, layout: Layout, *, legacy: bool, to_keep: Mapping[Parts, bytes]) -> None:
        self._path = path
        self._layout: Layout = layout
        self._legacy = legacy
        self._to_keep = to_keep
        """Files that are written with the first change, if they are not there."""
        self.memory = Memory()
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

    async def take(self, slot: Slot, holder: str, ttl: float) -> int | None:
        return await (await self._writing.get()).store.runner.take(slot, holder, ttl)

    async def renew(self, slot: Slot, holder: str, ttl: float) -> bool:
        return await (await self._writing.get()).store.runner.renew(slot, holder, ttl)

    async def leave(self, slot: Slot, holder: str) -> None:
        await (await self._writing.get()).store.runner.leave(slot, holder)

    async def close(self) -> None:
        opened = await self._writing.close()
        if opened is not None:
            await opened.store.close()
            opened.folder.close()

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
            # It need not survive a power cut: no holder of a lease does.
            url = f"sqlite:///{os.path.join(self._path, LEASES)}"
            store = await open_sqlite(url, durability="process", share=folder.share)
        except BaseException:
            folder.close()
            raise
        for ending in ("-wal", "-shm"):
            # SQLite makes them, with the mode of the file itself; only root gives them its group too.
            folder.give_to_group(LEASES + ending)
        files = StateFiles(StateTree(folder, (), self.memory), self._layout, legacy=self._legacy)
        opened = _Opened(Locked(store.runner, files), folder, store)
        try:
            await opened.locked.change(StateFiles.clear, None)
        except BaseException:
            await store.close()
            folder.close()
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
