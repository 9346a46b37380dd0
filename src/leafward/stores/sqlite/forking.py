"""Keeps SQLite whole when the process is forked.

SQLite remembers in its own memory which locks the process holds, and a child inherits that memory but not the locks. So
a fork waits until no thread is inside SQLite, and the child closes what it inherited: then it can open the file anew.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Forkable(Protocol):
    """An open store."""

    def before_fork(self) -> None:
        """Wait until no thread of the store is inside SQLite, and keep it so."""
        ...

    def after_fork(self) -> None:
        """Let the threads go on; in the parent."""
        ...

    def drop(self) -> None:
        """Close the connections; in the child, where the store is of no use."""
        ...


_open: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held: list[Forkable] = []


def remember(store: Forkable) -> None:
    """See to this store at every fork, as long as it exists."""
    _open.add(store)


def forget(store: Forkable) -> None:
    """The store is closed."""
    _open.discard(store)


def _before() -> None:
    _held.extend(_open)
    for store in _held:
        store.before_fork()


def _in_parent() -> None:
    while _held:
        _held.pop().after_fork()


def _in_child() -> None:
    while _held:
        _held.pop().drop()
    _open.clear()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
