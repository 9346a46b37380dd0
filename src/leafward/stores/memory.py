"""`memory://`: sessions in this process's memory, gone with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self, TypeVar

from leafward.core.errors import ConfigurationError
from leafward.core.ids import Owner, Scope
from leafward.core.message import Message
from leafward.core.parent import ParentId
from leafward.core.parts import search_text
from leafward.core.query import Query
from leafward.core.ranking import Candidate, SearchResult, rank
from leafward.core.tree import Outline
from leafward.stores.contracts import (
    DEFAULT_MAX_MESSAGE_BYTES,
    ChangeRecord,
    Cursor,
    Draft,
    Durability,
    PathPage,
    SearchFilter,
    check_options,
)
from leafward.stores.guard import Guard
from leafward.stores.memory_tree import MemoryTree, Row
from leafward.stores.signals import Signals
from leafward.stores.urls import without_secrets

T = TypeVar("T")


@dataclass(slots=True)
class MemoryData:
    """What the stores opened as one `memory://name` share."""

    trees: dict[Scope, MemoryTree] = field(default_factory=dict[Scope, MemoryTree])
    signals: Signals = field(default_factory=Signals)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryMessages:
    """The messages of all sessions in dicts; each call is one step under one lock."""

    def __init__(self, data: MemoryData, guard: Guard) -> None:
        self._data = data
        self._guard = guard

    def _read(self, scope: Scope, work: Callable[[MemoryTree], T]) -> T:
        self._guard.check()
        with self._data.lock:
            return work(self._data.trees.get(scope) or MemoryTree())

    def _write(self, scope: Scope, work: Callable[[MemoryTree], T]) -> T:
        self._guard.check()
        with self._data.lock:
            tree = self._data.trees.get(scope) or MemoryTree()
            before = tree.version
            result = work(tree)
            if tree.version != before:
                self._data.trees[scope] = tree
        self._data.signals.notify(scope)
        return result

    async def append(self, scope: Scope, drafts: Sequence[Draft], parent: ParentId) -> list[Message]:
        return self._write(scope, lambda tree: tree.append(drafts, parent))

    async def update(self, scope: Scope, draft: Draft) -> Message:
        return self._write(scope, lambda tree: tree.update(draft))

    async def upsert(self, scope: Scope, draft: Draft, parent: ParentId) -> Message:
        return self._write(scope, lambda tree: tree.upsert(draft, parent))

    async def delete(self, scope: Scope, message_ids: Sequence[str]) -> int:
        return self._write(scope, lambda tree: tree.delete(message_ids))

    async def clear(self, scope: Scope) -> None:
        self._write(scope, MemoryTree.clear)

    async def checkout(self, scope: Scope, message_id: str | None) -> None:
        self._write(scope, lambda tree: tree.checkout(message_id))

    async def label(self, scope: Scope, message_id: str, name: str | None) -> None:
        self._write(scope, lambda tree: tree.label(message_id, name))

    async def version(self, scope: Scope) -> int:
        return self._read(scope, lambda tree: tree.version)

    async def get(self, scope: Scope, message_id: str) -> Message | None:
        return self._read(scope, lambda tree: tree.get(message_id))

    async def leaf(self, scope: Scope) -> Message | None:
        return self._read(scope, lambda tree: tree.message_at(tree.leaf))

    async def parent(self, scope: Scope, message_id: str) -> Message | None:
        return self._read(scope, lambda tree: tree.parent(message_id))

    async def children(self, scope: Scope, message_id: str | None) -> list[Message]:
        return self._read(scope, lambda tree: tree.children(message_id))

    async def leaves(self, scope: Scope) -> list[Message]:
        return self._read(scope, MemoryTree.leaves)

    async def path(self, scope: Scope, leaf_id: str | None) -> list[Message]:
        return self._read(scope, lambda tree: tree.path(leaf_id))

    async def path_page(
        self,
        scope: Scope,
        *,
        leaf_id: str | None = None,
        cursor: Cursor | None = None,
        newest_first: bool = False,
        limit: int,
    ) -> PathPage:
        return self._read(scope, lambda tree: tree.path_page(leaf_id, cursor, newest_first, limit))

    async def path_length(self, scope: Scope, leaf_id: str | None) -> int:
        return self._read(scope, lambda tree: tree.path_length(leaf_id))

    async def outline(self, scope: Scope) -> Outline:
        return self._read(scope, MemoryTree.outline)

    async def labels(self, scope: Scope) -> dict[str, str]:
        return self._read(scope, MemoryTree.labels_in_order)

    async def search(self, where: Scope | Owner, query: Query, *, only: SearchFilter, limit: int) -> list[SearchResult]:
        self._guard.check()
        with self._data.lock:
            return rank(query, self._candidates(where, only), limit=limit)

    def _candidates(self, where: Scope | Owner, only: SearchFilter) -> Iterator[Candidate]:
        found: list[tuple[str, Row]] = [
            (scope.session_id, row)
            for scope, tree in self._data.trees.items()
            if where in (scope, scope.owner)
            for row in tree.rows.values()
            if only.role in (None, row.role)
            and (only.since is None or row.at >= only.since)
            and (only.until is None or row.at < only.until)
        ]
        for session_id, row in sorted(found, key=lambda one: (-one[1].at, one[1].id, one[0])):
            message = row.message()
            yield Candidate(session_id, row.id, row.role, message.created_at, search_text(message.parts))

    async def changes(self, scope: Scope, since: int) -> list[ChangeRecord]:
        return self._read(scope, lambda tree: tree.changes(since))

    async def wait(self, scope: Scope, version: int) -> None:
        async with self._data.signals.listening(scope) as changed:
            while await self.version(scope) <= version:
                await changed.wait()
                changed.clear()


_named: dict[str, MemoryData] = {}


class MemoryStore:
    """Sessions in memory."""

    distributed = False

    def __init__(self, data: MemoryData, *, max_message_bytes: int) -> None:
        self._guard = Guard("this memory:// store")
        self._data = data
        self.max_message_bytes = max_message_bytes
        self.messages = MemoryMessages(data, self._guard)

    def durability(self) -> Durability:
        return "none"

    async def close(self) -> None:
        self._guard.check_process()
        self._guard.closed = True
        self._data.signals.notify_all()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def open_memory(
    url: str, *, durability: str = "power", max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> MemoryStore:
    """Open `memory://`, a store of its own, or `memory://name`, which all who name it share until the process ends.

    `durability` is taken so that a program can keep its options when it changes the URL; memory has none.
    """
    check_options(durability, max_message_bytes)
    name = url.removeprefix("memory://")
    if "/" in name:
        raise ConfigurationError(f"{without_secrets(url)!r} names no memory store: write memory:// or memory://name")
    data = _named.setdefault(name, MemoryData()) if name else MemoryData()
    return MemoryStore(data, max_message_bytes=max_message_bytes)
