"""Runs commands on journals and the index made from them."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from leafward.core.errors import CorruptStore, StoreError
from leafward.core.ids import Owner, Scope
from leafward.core.parent import LATEST_LEAF
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.core.times import now_micros
from leafward.stores.contracts import SearchFilter
from leafward.stores.files import positions
from leafward.stores.files.folder import Folder
from leafward.stores.files.following import Following
from leafward.stores.files.journal_places import JournalPlaces
from leafward.stores.files.listing import Listing
from leafward.stores.files.positions import Position
from leafward.stores.files.repairing import Repairing, RepairReport
from leafward.stores.files.writing import Journals
from leafward.stores.journal.records import neighbour, record, record_shared
from leafward.stores.leases import Fence
from leafward.stores.registry import ErasureReport
from leafward.stores.signals import Signals
from leafward.stores.sql import commands as c
from leafward.stores.sql import copying, leases, reads
from leafward.stores.sql.operations import Operation
from leafward.stores.sql.scanning import NO_INDEX
from leafward.stores.sqlite import erase, searching
from leafward.stores.sqlite.parts import Parts
from leafward.stores.sqlite.running import SqliteRunner
from leafward.stores.sqlite.scrub import Pass

T = TypeVar("T")
_log = logging.getLogger("leafward.stores.files")

AT_ONCE = 64
"""Journals that are read in one transaction when all of an owner's are."""
ELSEWHERE = (
    "backups and other copies of the directory",
    "what the file system and the disk keep of overwritten and deleted blocks, such as snapshots",
)


class FileRunner(SqliteRunner):
    """Writes to a journal and to the index in one step; reads from the index, after it was brought up to date."""

    def __init__(
        self, parts: Parts, signals: Signals, folder: Folder, places: JournalPlaces, journals: Journals
    ) -> None:
        super().__init__(parts, signals)
        self._folder = folder
        self._places = places
        self._journals = journals
        self._following = Following(parts.database, folder, places, journals)
        self._listing = Listing(parts.database, folder, places)

    async def write(self, command: c.Command[T], fence: Fence | None = None) -> T:
        if fence is not None:
            fence.check(command.scope)
        try:
            return await self._writer.run(lambda connection: self._work(connection, command, fence), size=command.size)
        finally:
            self._signals.notify(command.scope)

    async def read(self, where: Scope | Owner, operation: Callable[[], Operation[T]]) -> T:
        found = await self._readers.run(lambda connection: self._read_if_current(connection, where, operation))
        if found is None:
            await self.be_current(where)
            return await super().read(where, operation)
        return found[0]

    def _read_if_current(
        self, connection: sqlite3.Connection, where: Scope | Owner, operation: Callable[[], Operation[T]]
    ) -> tuple[T] | None:
        """Run an operation if the index holds all that it may look at."""
        try:
            current = self._is_current(connection, where)
        except sqlite3.Error:
            # Whoever brings it up to date will meet the same, and can do something about it.
            return None
        return (self._database.run(connection, operation()),) if current else None

    async def search(self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int) -> list[SearchResult]:
        work = partial(self._search_if_current, where, query, only, limit)
        found = await self._readers.run(work)
        if found is None:
            await self.be_current(where)
            return await super().search(where, query, only, limit)
        if not found[1]:
            self._writer.report_damage()
        return found[0]

    def _search_if_current(
        self, where: Scope | Owner, query: Query, only: SearchFilter, limit: int, connection: sqlite3.Connection
    ) -> tuple[list[SearchResult], bool] | None:
        if not self._is_current(connection, where):
            return None
        return searching.search(self._database, connection, where, query, only, limit)

    async def be_current(self, where: Scope | Owner) -> None:
        """See to it that the index holds all that the journals of a session, or of an owner's sessions, hold now.

        Only the writer sees whether the index is still the one of its name: a reader may look at one that was removed.

        Raises:
            CorruptStore: nothing of the session's journal can be read.
        """
        if isinstance(where, Scope):
            position = await self._writer.run(lambda connection: self._follow(connection, where))
            # Not on the writer's thread: what was found is to stay noted.
            _refuse_unreadable(position, where)
            return
        await self._writer.run(lambda connection: self._step(connection, where))
        behind = await self._readers.run(lambda connection: self._listing.behind(connection, where))
        for place in range(0, len(behind), AT_ONCE):
            if place:
                _log.info("the index has %d of %d journals of one user", place, len(behind))
            some = behind[place : place + AT_ONCE]
            await self._writer.run(lambda connection, some=some: self._follow_some(connection, some))

    def _is_current(self, connection: sqlite3.Connection, where: Scope | Owner) -> bool:
        owner = where.owner if isinstance(where, Scope) else where
        if not self._following.is_current(connection, owner):
            return False
        if isinstance(where, Scope):
            return self._following.is_current(connection, where)
        return not self._listing.behind(connection, where)

    def _follow(self, connection: sqlite3.Connection, scope: Scope) -> Position | None:
        self._step(connection, scope.owner)
        return self._step(connection, scope)

    def _follow_some(self, connection: sqlite3.Connection, scopes: list[Scope]) -> None:
        for scope in scopes:
            try:
                self._step(connection, scope)
            except StoreError as error:
                # The others are not to be kept from their reader; this one's reader is told the same.
                _log.error("a session is left out of what was asked for: %s", error)

    def _step(self, connection: sqlite3.Connection, key: Scope | Owner) -> Position | None:
        """Bring the index up to a journal, all or nothing."""
        mark = self._journals.mark()
        connection.execute("SAVEPOINT follow")
        try:
            return self._following.follow(connection, key)
        except BaseException:
            self._journals.go_back(mark)
            connection.execute("ROLLBACK TO follow")
            raise
        finally:
            connection.execute("RELEASE follow")

    def _work(self, connection: sqlite3.Connection, command: c.Command[T], fence: Fence | None) -> T:
        mark = self._journals.mark()
        try:
            return self._carry_out(connection, command, fence)
        except BaseException:
            self._journals.go_back(mark)
            raise

    def _carry_out(self, connection: sqlite3.Connection, command: c.Command[T], fence: Fence | None) -> T:
        run = self._database.run
        position = self._follow(connection, command.scope)
        if isinstance(command, c.Remove):
            self._let_exist(connection, command.scope, position)
        else:
            _refuse_damaged(position, command.scope)
        at, source = now_micros(), None
        does: c.Command[Any] = command
        if isinstance(command, (c.Fork, c.Split)):
            source = self._step(connection, command.source)
            _refuse_unreadable(source, command.source)
            does = self._as_restore(connection, command, at)
        before = connection.total_changes
        beside = run(connection, neighbour(does))
        result: Any = run(connection, leases.fenced(does, self._indexing, fence), at)
        if isinstance(does, c.Remove):
            self._remove(connection, does.scope)
        elif connection.total_changes > before:
            self._write_down(connection, does, result, at, position, beside, command)
        if isinstance(command, c.Split):
            # Its own lines were added before: what continues a session comes before its end.
            _refuse_damaged(source, command.source)
            ending = c.End(command.source, copying.SPLIT)
            run(connection, ending.operation(self._indexing), at)
            self._journals.add(command.source, source, record(ending, None, at))
        return result

    def _write_down(
        self,
        connection: sqlite3.Connection,
        does: c.Command[Any],
        result: Any,
        at: int,
        position: Position | None,
        beside: Any,
        asked: c.Command[Any],
    ) -> None:
        scope = does.scope
        if isinstance(does, c.EditEntry) and does.shelf.shared:
            # All that the session did before must be in its journal when the shared one tells its next version,
            # and a new session's journal must be there: one without was deleted.
            self._journals.add(scope, position, [])
            self._journals.write()
            version = self._database.run(connection, reads.revision(scope)).version
            shared = self._database.run(connection, positions.get(scope.owner))
            _refuse_damaged(shared, scope)
            self._journals.add(scope.owner, shared, record_shared(does, result, at, version))
        ends = asked.source.session_id if isinstance(asked, c.Split) else None
        self._journals.add(scope, position, record(does, result, at, beside, ends=ends))

    def _as_restore(self, connection: sqlite3.Connection, command: c.Fork | c.Split, at: int) -> c.Restore:
        """Return what a fork or split makes as a session of its own; its source is not in its journal."""
        connection.execute("SAVEPOINT trial")
        try:
            self._database.run(connection, command.operation(NO_INDEX), at)
            return c.Restore(command.scope, self._database.run(connection, copying.dump(command.scope)))
        finally:
            connection.execute("ROLLBACK TO trial")
            connection.execute("RELEASE trial")

    def _let_exist(self, connection: sqlite3.Connection, scope: Scope, position: Position | None) -> None:
        """Give the index a session whose journal cannot be read, so that it is removed like any other."""
        if position is not None and position.is_unreadable:
            self._database.run(connection, c.Append(scope, [], LATEST_LEAF).operation(self._indexing))

    def _remove(self, connection: sqlite3.Connection, scope: Scope, *, erased: bool = False) -> None:
        self._database.run(connection, positions.drop(scope))
        self._journals.remove(scope, erased=erased)

    async def is_shared(self, scope: Scope) -> bool:
        # The index need not have the journals of other agents.
        return await self._readers.run(lambda _: self._listing.is_shared(scope))

    def _begin_erasure(self, connection: sqlite3.Connection, scope: Scope) -> tuple[list[str] | None, Pass | None]:
        mark = self._journals.mark()
        try:
            position = self._follow(connection, scope)
            self._let_exist(connection, scope, position)
            begun = super()._begin_erasure(connection, scope)
            if position is not None:
                self._remove(connection, scope, erased=True)
            # Another process may have been killed while it removed this session.
            self._journals.remove_unfinished()
        except BaseException:
            self._journals.go_back(mark)
            raise
        return begun

    def watching(self) -> AbstractAsyncContextManager[None]:
        """Wake those who listen whenever another process has committed."""
        return self._watcher.watching()

    async def scrub(self) -> list[str]:
        # Nothing but sessions is in the index.
        return []

    async def erase(self, scope: Scope) -> ErasureReport:
        report = await super().erase(scope)
        left = [one for one in report.not_reached if one not in erase.ELSEWHERE]
        return ErasureReport(report.session_id, report.erased, [*left, *ELSEWHERE] if report.erased else left)

    async def repair(self, scope: Scope) -> RepairReport:
        """Write a damaged journal anew without what is lost."""
        try:
            return await self._writer.run(lambda connection: self._repair(connection, scope))
        finally:
            self._signals.notify(scope)

    def _repair(self, connection: sqlite3.Connection, scope: Scope) -> RepairReport:
        repairing = Repairing(self._database, connection, self._folder, self._places, self._following)
        lost: list[str] = []
        kept: list[str] = []
        for key in (scope.owner, scope):
            missing, file = repairing.repair(key, self._step(connection, key))
            self._journals.seen.pop(key, None)
            lost += missing
            kept += [] if file is None else [file]
        return RepairReport(scope.session_id, bool(kept), lost, kept)

    async def damage(self) -> list[str]:
        """Tell what is damaged in the journals that were looked at so far."""
        return await self._readers.run(lambda connection: self._database.run(connection, positions.damage()))


def _refuse_damaged(position: Position | None, scope: Scope) -> None:
    if position is not None and position.damage:
        where, _, reason = position.damage[0].partition(": ")
        left = "nothing of it" if position.is_unreadable else "what is whole"
        raise CorruptStore(
            where,
            f"{reason}; {left} can be read. To write to session {scope.session_id!r} again, "
            "have what is lost left out with `await store.repair(session_id, user_id=…, agent_id=…)`",
        )


def _refuse_unreadable(position: Position | None, scope: Scope) -> None:
    if position is not None and position.is_unreadable:
        _refuse_damaged(position, scope)
