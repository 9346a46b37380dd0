"""A store that stops for good after some commits, as it looks to a process that is lost there."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from leafward.core.errors import StoreError
from leafward.stores import Lease, Store

_COMMITS = frozenset({"append", "update", "checkout", "add_overlay", "save", "save_if_version", "received"})
"""What changes trees and slots, and takes texts away that were sent to a turn."""


class Died(StoreError):
    """The process would be gone now."""


class DyingStore:
    """Hands every call on to a store until `commits` commits were made; then nothing is read or written any more.

    With `at_once` the last commit itself raises, so that the caller does nothing after it; else the next one does, so
    that whatever comes between them happens. Leases are not renewed and not released either: `bury` lets the next
    holder in.
    """

    def __init__(self, store: Store, commits: int | None = None, *, at_once: bool = False) -> None:
        self._store = store
        self._life = _Life(commits, at_once)
        self.unfenced = self

    @property
    def commits(self) -> int:
        return self._life.commits

    @property
    def is_dead(self) -> bool:
        return self._life.is_over

    def die(self) -> None:
        """Read and write nothing any more."""
        self._life.is_over = True

    async def next_commit(self) -> None:
        """Wait until another commit was made, or none can be."""
        await self._life.next_commit()

    async def bury(self, session_id: str, user_id: str | None) -> None:
        """End the lease of the dead process."""
        holder = await self._store.leases.holder(session_id, user_id)
        if holder is not None:
            # False if its release was on the way.
            await self._store.leases.release(session_id, user_id, token=holder.token)

    @property
    def messages(self) -> Any:
        return _Mortal(self._store.messages, self._life)

    @property
    def states(self) -> Any:
        return _Mortal(self._store.states, self._life)

    @property
    def registry(self) -> Any:
        return _Mortal(self._store.registry, self._life)

    @property
    def entries(self) -> Any:
        return _Mortal(self._store.entries, self._life)

    @property
    def leases(self) -> Any:
        return _MortalLeases(self._store.leases, self._life)

    def fenced(self, lease: Lease) -> Any:
        fenced = DyingStore(self._store.fenced(lease))
        fenced._life = self._life
        # Else it would be the store below, which is alive.
        fenced.unfenced = self
        return fenced

    @property
    def max_message_bytes(self) -> int:
        return self._store.max_message_bytes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class _Life:
    def __init__(self, length: int | None, at_once: bool) -> None:
        self.commits = 0
        self.is_over = False
        self.lease: Lease | None = None
        """The lease that was acquired last."""
        self._length = length
        self._at_once = at_once
        self._waiting: list[asyncio.Future[None]] = []

    async def do(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        commits = name in _COMMITS
        if self.is_over or (commits and self._has_lived()):
            raise self._end()
        done = await call()
        if commits:
            self.commits += 1
            self._wake()
            if self._at_once and self._has_lived():
                raise self._end()
        return done

    def _has_lived(self) -> bool:
        # Two commits at once may be one more than were to be made.
        return self._length is not None and self.commits >= self._length

    def _end(self) -> Died:
        self.is_over = True
        self._wake()
        return Died("the process is gone")

    def _wake(self) -> None:
        for one in self._waiting:
            if not one.done():
                one.set_result(None)
        self._waiting.clear()

    async def next_commit(self) -> None:
        if not self.is_over:
            self._waiting.append(asyncio.get_running_loop().create_future())
            await self._waiting[-1]


class _Mortal:
    def __init__(self, inner: Any, life: _Life) -> None:
        self._inner = inner
        self._life = life

    def with_lease(self, lease: Any) -> Any:
        return _Mortal(self._inner.with_lease(lease), self._life)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not inspect.iscoroutinefunction(found):
            return found
        life = self._life

        async def do(*args: Any, **options: Any) -> Any:
            return await life.do(name, lambda: found(*args, **options))

        return do


class _MortalLeases(_Mortal):
    async def acquire(self, *args: Any, **options: Any) -> Lease:
        lease: Lease = await self._life.do("acquire", lambda: self._inner.acquire(*args, **options))
        lease._table = _Mortal(lease._table, self._life)  # pyright: ignore[reportAttributeAccessIssue]
        self._life.lease = lease
        return lease


class SleepingStore(DyingStore):
    """Sleeps at a commit, before it or `at_once` after it, until `wake` is called: then its lease has run out."""

    def __init__(self, store: Store, commits: int, *, at_once: bool = False) -> None:
        super().__init__(store)
        self._life = self._sleep = _Sleep(commits, at_once)

    async def fell_asleep(self) -> None:
        await self._sleep.began.wait()

    def wake(self) -> None:
        self._sleep.ended.set()


class _Sleep(_Life):
    def __init__(self, commits: int, at_once: bool) -> None:
        super().__init__(None, at_once)
        self.began = asyncio.Event()
        self.ended = asyncio.Event()
        self._left = commits
        """Commits before it falls asleep."""

    async def do(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        # An overlay is written by a tool, whose handle carries no lease.
        sleeps = name in _COMMITS and name != "add_overlay"
        if sleeps and not self._at_once:
            await self._sleep()
        done = await super().do(name, call)
        self._left -= sleeps
        if sleeps and self._at_once:
            await self._sleep()
        return done

    async def _sleep(self) -> None:
        if self._left == 0 and not self.began.is_set():
            self.began.set()
            await self.ended.wait()
            if self.lease is not None:
                self.lease._hold(0.0)


class CountingStore(DyingStore):
    """Counts how often a slot is written that has messages: once at each end of a turn."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._life.do = self._do
        self.ends = -1

    async def _do(self, name: str, call: Callable[[], Awaitable[Any]]) -> Any:
        # The first one is the empty slot.
        self.ends += name == "save_if_version"
        for _ in range(3):
            await asyncio.sleep(0)
        return await call()
