"""The store of a directory of journals: its parts, from opening to closing."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import threading
import warnings
from concurrent.futures import Future, ThreadPoolExecutor

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Scope
from leafward.stores.contracts import DEFAULT_MAX_MESSAGE_BYTES, Durability, check_options
from leafward.stores.files import names
from leafward.stores.files.folder import Folder
from leafward.stores.files.opening import DirectoryLock, clear_unfinished, index_of, open_index
from leafward.stores.files.repairing import RepairReport
from leafward.stores.files.serving import Serving
from leafward.stores.files.state_table import FileStates, Locked
from leafward.stores.files.state_tree import StateTree
from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.guard import Guard
from leafward.stores.sql.store import SqlStore
from leafward.stores.sqlite import forking
from leafward.stores.sqlite.connection import Database, guarded
from leafward.stores.sqlite.mounts import IN_MEMORY, kind_of, refuse_network
from leafward.stores.urls import without_secrets

_Opened = tuple[Folder, DirectoryLock, Database, sqlite3.Connection]


class FileStore(SqlStore):
    """Sessions in a directory: a journal for each, which is the truth, and an index made from them.

    Any number of processes of one machine share it.
    """

    def __init__(self, opened: _Opened, guard: Guard, durability: str, max_message_bytes: int) -> None:
        self._folder, lock, database, connection = opened
        self._guard = guard
        self._durability = durability
        self._runner = Serving(self._folder, guard, lock, database, connection)
        states = FileStates(Locked(self._runner, _state_files(self._folder)))
        super().__init__(self._runner, states, max_message_bytes)
        self._closing: Future[None] | None = None
        forking.remember(self)

    def durability(self) -> Durability:
        """Tell what a finished write survives; `"process"` when that was asked for, or on a file system in memory."""
        lasting = self._durability == "power" and kind_of(self._folder.path) not in IN_MEMORY
        return "power" if lasting else "process"

    async def settle(self) -> None:
        """Return once the search index holds every message and nothing of a cleared session is left in the tables."""
        self._guard.check()
        await self._runner.engine.parts.writer.settle()

    async def damage(self) -> list[str]:
        """Tell what is damaged in the journals that were read so far: file, line and reason.

        Such a session can be read, without what is lost, but not written to until it is repaired; where all is lost,
        not read either.
        """
        return await self._runner.damage()

    async def repair(self, session_id: str, *, user_id: str | None = None, agent_id: str = "default") -> RepairReport:
        """Write the damaged journal of a session anew without what is lost, and keep the old one beside it.

        The journal that all sessions of the user share is repaired as well when it is damaged.
        """
        return await self._runner.repair(Scope.of(session_id, user_id=user_id, agent_id=agent_id))

    async def close(self) -> None:
        """Finish what was begun and let go of the directory; every call returns when that is done."""
        self._guard.check_process()
        await self.background.close()
        if self._closing is None:
            self._guard.closed = True
            self._runner.signals.notify_all()
            closer = ThreadPoolExecutor(1, thread_name_prefix="leafward closer")
            self._closing = closer.submit(guarded, self._runner.engine.database, self._shut)
            closer.shutdown(wait=False)
        await asyncio.shield(asyncio.wrap_future(self._closing))

    def _shut(self) -> None:
        self._runner.engine.shut()
        self._folder.close()
        forking.forget(self)

    def before_fork(self) -> None:
        """Wait until no thread is inside SQLite, but not for ever: somebody else may hold the file."""
        self._runner.engine.parts.pause()

    def after_fork(self) -> None:
        """Go on, in the parent."""
        self._runner.engine.parts.resume()

    def drop(self) -> None:
        """Close what a forked child inherited."""
        self._runner.engine.drop()
        self._folder.close()

    def __del__(self) -> None:
        if not self._guard.closed:
            self._guard.closed = True
            warnings.warn(f"{self._guard.what} was not closed", ResourceWarning, source=self, stacklevel=1)
            if not sys.is_finalizing():
                threading.Thread(target=self._shut, daemon=True).start()


async def open_files(
    url: str, *, durability: str = "power", max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> FileStore:
    """Open `file:///absolute/dir` or `file://./relative/dir`, making the directory when it is missing."""
    check_options(durability, max_message_bytes)
    guard = Guard(f"the store {url}")
    path = _path(url)
    opening = guard.loop.run_in_executor(None, _prepare, path, durability)
    try:
        opened = await asyncio.shield(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_abandon)
        raise
    return FileStore(opened, guard, durability, max_message_bytes)


def _path(url: str) -> str:
    path = url.removeprefix("file://")
    # As everywhere else three slashes begin an absolute path; a fourth, which sqlite:// wants, does no harm.
    if not path.startswith(("/", "./", "../")) or not path.strip("/") or "\0" in path or not _is_text(path):
        raise ConfigurationError(
            f"{without_secrets(url)!r} names no directory: write file:///absolute/dir or file://./relative/dir"
        )
    # Resolved once: below it no link is followed.
    return os.path.realpath(path)


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _prepare(path: str, durability: str) -> _Opened:
    refuse_network(path)
    with named(path):
        folder = Folder(path, synced=durability == "power")
        try:
            lock = DirectoryLock(folder)
        except BaseException:
            folder.close()
            raise
        try:
            database = index_of(folder)
            with lock:
                clear_unfinished(folder)
                _state_files(folder).clear()
                return folder, lock, database, guarded(database, lambda: open_index(database))
        except BaseException:
            lock.close()
            folder.close()
            raise


def _state_files(folder: Folder) -> StateFiles:
    """Return the typed state in the directory of a store."""
    return StateFiles(StateTree(folder, (names.STATES,)), "2.x")


def _abandon(opening: asyncio.Future[_Opened]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        threading.Thread(target=_let_go, args=opening.result()).start()


def _let_go(folder: Folder, lock: DirectoryLock, database: Database, connection: sqlite3.Connection) -> None:
    with lock:
        connection.close()
    lock.close()
    folder.close()
