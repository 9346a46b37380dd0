"""A store that stops for good after some commits, as it looks to a process that is lost there."""

from __future__ import annotations

from typing import Any

from leafward import LeafwardError
from leafward.stores import Store

_WRITES = frozenset({"append", "update", "checkout", "add_overlay", "save", "save_if_version"})


class Died(LeafwardError):
    """The process would be gone now."""


class DyingStore:
    """Hands every call on to a store, until `commits` writes to trees and slots have been made."""

    def __init__(self, store: Store, commits: int | None = None) -> None:
        self._store = store
        self._counter = _Counter(commits)

    @property
    def commits(self) -> int:
        return self._counter.made

    @property
    def messages(self) -> Any:
        return _Dying(self._store.messages, self._counter)

    @property
    def states(self) -> Any:
        return _Dying(self._store.states, self._counter)

    def fenced(self, lease: Any) -> Any:
        fenced = DyingStore(self._store.fenced(lease))
        fenced._counter = self._counter
        return fenced

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Counter:
    def __init__(self, left: int | None) -> None:
        self.left = left
        self.made = 0

    def count(self) -> None:
        if self.left is not None and self.made >= self.left:
            raise Died("the process is gone")
        self.made += 1


class _Dying:
    def __init__(self, inner: Any, counter: _Counter) -> None:
        self._inner = inner
        self._counter = counter

    def with_lease(self, lease: Any) -> Any:
        return _Dying(self._inner.with_lease(lease), self._counter)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in _WRITES:
            return found

        async def write(*args: Any, **options: Any) -> Any:
            self._counter.count()
            return await found(*args, **options)

        return write
