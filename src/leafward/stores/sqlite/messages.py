"""The messages of all sessions in one SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from leafward.core.ids import Owner, Scope
from leafward.core.message import Message
from leafward.core.parent import ParentId
from leafward.core.query import Query
from leafward.core.ranking import SearchResult
from leafward.core.tree import Outline
from leafward.stores.contracts import ChangeRecord, Cursor, Draft, PathPage, SearchFilter
from leafward.stores.signals import Signals
from leafward.stores.sql import operations, reads
from leafward.stores.sql.operations import Operation
from leafward.stores.sqlite import index, searching
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.readers import Readers
from leafward.stores.sqlite.watcher import Watcher
from leafward.stores.sqlite.writer import Writer

T = TypeVar("T")
P = ParamSpec("P")


class SqliteMessages:
    """Runs each call as one operation: writes on the writer's thread, reads beside it in a snapshot of their own."""

    def __init__(self, database: Database, writer: Writer, readers: Readers, signals: Signals) -> None:
        self._database = database
        self._writer = writer
        self._readers = readers
        self._signals = signals
        self._watcher = Watcher(database, readers, signals)
        self._indexing = index.FtsIndexing()

    async def _write(
        self, scope: Scope, size: int, operation: Callable[P, Operation[T]], *args: P.args, **options: P.kwargs
    ) -> T:
        # Made anew for each try: a write that shared a transaction with one that ended it is run again by itself.
        try:
            return await self._writer.run(
                lambda connection: self._database.run(connection, operation(*args, **options)), size=size
            )
        finally:
            self._signals.notify(scope)

    async def _read(self, operation: Operation[T]) -> T:
        return await self._readers.run(lambda connection: self._database.run(connection, operation))

    async def append(self, scope: Scope, drafts: Sequence[Draft], parent: ParentId) -> list[Message]:
        return await self._write(
            scope, sum(len(draft.body) for draft in drafts), operations.append, self._indexing, scope, drafts, parent
        )

    async def update(self, scope: Scope, draft: Draft) -> Message:
        return await self._write(scope, len(draft.body), operations.update, self._indexing, scope, draft)

    async def upsert(self, scope: Scope, draft: Draft, parent: ParentId) -> Message:
        return await self._write(scope, len(draft.body), operations.upsert, self._indexing, scope, draft, parent)

    async def delete(self, scope: Scope, message_ids: Sequence[str]) -> int:
        return await self._write(scope, 0, operations.delete, self._indexing, scope, message_ids)

    async def clear(self, scope: Scope) -> None:
        await self._write(scope, 0, operations.clear, scope)

    async def checkout(self, scope: Scope, message_id: str | None) -> None:
        await self._write(scope, 0, operations.checkout, scope, message_id)

    async def label(self, scope: Scope, message_id: str, name: str | None) -> None:
        await self._write(scope, 0, operations.label, scope, message_id, name)

    async def version(self, scope: Scope) -> int:
        return await self._read(reads.version(scope))

    async def get(self, scope: Scope, message_id: str) -> Message | None:
        return await self._read(reads.get(scope, message_id))

    async def leaf(self, scope: Scope) -> Message | None:
        return await self._read(reads.leaf(scope))

    async def parent(self, scope: Scope, message_id: str) -> Message | None:
        return await self._read(reads.parent(scope, message_id))

    async def children(self, scope: Scope, message_id: str | None) -> list[Message]:
        return await self._read(reads.children(scope, message_id))

    async def leaves(self, scope: Scope) -> list[Message]:
        return await self._read(reads.leaves(scope))

    async def path(self, scope: Scope, leaf_id: str | None) -> list[Message]:
        return await self._read(reads.path(scope, leaf_id))

    async def path_page(
        self,
        scope: Scope,
        *,
        leaf_id: str | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> PathPage:
        return await self._read(reads.path_page(scope, leaf_id, cursor, newest_first, limit))

    async def path_length(self, scope: Scope, leaf_id: str | None) -> int:
        return await self._read(reads.path_length(scope, leaf_id))

    async def outline(self, scope: Scope) -> Outline:
        return await self._read(reads.outline(scope))

    async def labels(self, scope: Scope) -> dict[str, str]:
        return await self._read(reads.labels(scope))

    async def search(self, where: Scope | Owner, query: Query, *, only: SearchFilter, limit: int) -> list[SearchResult]:
        found, sound = await self._readers.run(
            lambda connection: searching.search(self._database, connection, where, query, only, limit)
        )
        if not sound:
            self._writer.report_damage()
        return found

    async def changes(self, scope: Scope, since: int) -> list[ChangeRecord]:
        return await self._read(reads.changes(scope, since))

    async def wait(self, scope: Scope, version: int) -> None:
        async with self._signals.listening(scope) as changed, self._watcher.watching():
            while await self.version(scope) <= version:
                await changed.wait()
                changed.clear()
