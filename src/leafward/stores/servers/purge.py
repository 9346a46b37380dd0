"""Removes, in slices, what sessions let go of; and what an erasure cannot reach on a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from leafward.core.ids import Owner, Scope
from leafward.stores.sql import registry, remains
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import Many, Operation, now, owner_ids

T = TypeVar("T")

SLICE = 500
REMEMBERED_S = 3600
"""How long the names of writes are kept, by which a repeated one knows itself."""
ELSEWHERE = "the server's own files: free space in its tables, its logs, its replicas and its backups"

NEXT_TREE = "SELECT tree_no FROM {p}tree WHERE discarded = 1 ORDER BY tree_no LIMIT 1 FOR UPDATE SKIP LOCKED"
NEXT_SHELF = "SELECT shelf_no FROM {p}shelf WHERE session_no < 0 ORDER BY session_no LIMIT 1 FOR UPDATE SKIP LOCKED"
LIST_TREES = f"SELECT tree_no FROM {{p}}tree WHERE owner_no = ({sql.GET_OWNER}) AND discarded = 1 ORDER BY tree_no"
HOLD_TREE = "SELECT tree_no FROM {p}tree WHERE tree_no = ? FOR UPDATE"
LIST_SHELVES = (
    f"SELECT shelf_no FROM {{p}}shelf WHERE owner_no = ({sql.GET_OWNER}) AND session_no < 0 ORDER BY shelf_no"
)
HOLD_SHELF = "SELECT shelf_no FROM {p}shelf WHERE shelf_no = ? FOR UPDATE"
SOME_MESSAGES = "SELECT place FROM {p}message WHERE tree_no = ? ORDER BY seq, place LIMIT ?"
DROP_MESSAGES = "DELETE FROM {p}message WHERE tree_no = ? AND place BETWEEN ? AND ?"
DROP_WORDS = "DELETE FROM {p}words WHERE place BETWEEN ? AND ?"
DROP_UNINDEXED = "DELETE FROM {p}unindexed WHERE tree_no = ?"
SOME_ENTRIES = "SELECT entry_no FROM {p}entry WHERE shelf_no = ? ORDER BY entry_no LIMIT ?"
DROP_SHELF_WORDS = "DELETE FROM {p}entry_word WHERE shelf_no = ?"
FORGET_DONE = "DELETE FROM {p}done WHERE at < ?"

Transact = Callable[[Callable[[], Operation[bool]]], Coroutine[Any, Any, bool]]


class Purge:
    """Takes one discarded tree or shelf after the other, each held by one process at a time."""

    def __init__(self, transact: Transact) -> None:
        self._transact = transact
        self._running = asyncio.Lock()

    async def run(self) -> None:
        """Remove all that is discarded."""
        async with self._running:
            while await self._transact(_purge_tree) or await self._transact(_purge_shelf):
                continue
            await self._transact(_forget_done)


def _purge_tree() -> Operation[bool]:
    for (tree_no,) in (yield NEXT_TREE, ()):
        yield from _drop_from_tree(tree_no)
        return True
    return False


def _purge_shelf() -> Operation[bool]:
    for (shelf_no,) in (yield NEXT_SHELF, ()):
        yield from _drop_from_shelf(shelf_no)
        return True
    return False


def _drop_from_tree(tree_no: int) -> Operation[bool]:
    """Remove a slice of a tree, the tree itself with the last one; tell whether there is more."""
    places = yield SOME_MESSAGES, (tree_no, SLICE)
    for first, last in _runs(sorted(place for (place,) in places)):
        yield DROP_WORDS, (first, last)
        yield DROP_MESSAGES, (tree_no, first, last)
    if len(places) == SLICE:
        return True
    for statement in (DROP_UNINDEXED, *sql.DROP_TREE):
        yield statement, (tree_no,)
    return False


def _runs(places: list[int]) -> list[tuple[int, int]]:
    """Gather neighbouring places."""
    found: list[tuple[int, int]] = []
    for place in places:
        if found and found[-1][1] == place - 1:
            found[-1] = found[-1][0], place
        else:
            found.append((place, place))
    return found


def _drop_from_shelf(shelf_no: int) -> Operation[bool]:
    """Remove a slice of a shelf, the shelf itself with the last one; tell whether there is more."""
    yield DROP_SHELF_WORDS, (shelf_no,)
    entries = yield SOME_ENTRIES, (shelf_no, SLICE)
    yield sql.DROP_ENTRY, Many(entries)
    if len(entries) == SLICE:
        return True
    yield sql.DROP_SHELF, (shelf_no,)
    return False


def _forget_done() -> Operation[bool]:
    yield FORGET_DONE, ((yield from now()) - REMEMBERED_S * 1_000_000,)
    return False


def erase(scope: Scope) -> Operation[list[str] | None]:
    """Delete a session and tell what may still hold its words; `None` when there is none."""
    left: list[str] | None = None
    session = yield from registry.find_unleased(scope)
    if session is not None:
        left = [*(yield from remains.in_the_store(session, scope.session_id)), ELSEWHERE]
        yield from registry.remove(session)
    # Also without such a session: perhaps it was deleted before.
    yield from _drop_discarded(scope.owner)
    return left


def _drop_discarded(owner: Owner) -> Operation[None]:
    """Remove all that an owner let go of; nothing tells which of it was a session's until that was cleared."""
    # At once, and not left to whoever purges: another process may have begun to, and die. Each is held by its number:
    # who holds what he searches for waits for what others hold of other owners.
    for (tree_no,) in (yield LIST_TREES, owner_ids(owner)):
        if (yield HOLD_TREE, (tree_no,)):
            while (yield from _drop_from_tree(tree_no)):
                continue
    for (shelf_no,) in (yield LIST_SHELVES, owner_ids(owner)):
        if (yield HOLD_SHELF, (shelf_no,)):
            while (yield from _drop_from_shelf(shelf_no)):
                continue
