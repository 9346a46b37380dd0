"""The one thread that writes: operations that wait together are committed together."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from leafward.core.errors import OutcomeUnknown, StoreError
from leafward.stores.guard import Guard
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.lock import WriterLock

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

MOST_IN_ONE_COMMIT = 256
IDLE_S = 0.05
"""How long nothing must have been written before background work begins."""
BREATH_S = 0.001
"""The pause between two slices of it, in which the event loop gets its turn."""


class Upkeep(Protocol):
    """Work that can wait, in slices short enough for a write to wait for."""

    def wrote(self, rows: int, size: int) -> None:
        """Take note of a commit that changed so many rows, with so many bytes of content."""
        ...

    def report_damage(self) -> None:
        """Have the index made anew."""
        ...

    def due(self, *, idle: bool) -> bool:
        """Tell whether a slice should be done now."""
        ...

    def step(self, connection: sqlite3.Connection) -> None:
        """Do one slice."""
        ...


class Transaction:
    """How a transaction ends; a store that keeps more than its tables has a say in it."""

    def commit(self, connection: sqlite3.Connection) -> None:
        """Make all that was written durable, or raise."""
        connection.execute("COMMIT")

    def undo(self) -> None:
        """Undo what was done beside the tables, whose transaction was rolled back."""


class _Signal(Enum):
    """What the thread is told beside writes."""

    STOP = "stop"
    WAKE = "wake"


class Pending(Generic[T]):
    """One write on its way; whoever claims it first, the writer or a cancellation, decides its fate."""

    __slots__ = ("_claim", "error", "flushed", "future", "over", "result", "size", "waiter", "work")

    def __init__(self, work: Work[T], future: asyncio.Future[T], size: int, *, flushed: bool) -> None:
        self.work = work
        self.future = future
        self.size = size
        self.flushed = flushed
        self.result: T
        self.error: BaseException | None = None
        self.over = False
        self.waiter: asyncio.Future[None] | None = None
        self._claim = threading.Lock()

    def claim(self) -> bool:
        return self._claim.acquire(blocking=False)

    def settle(self) -> None:
        """Hand the outcome to whoever waits; runs in the event loop."""
        self.over = True
        if not self.future.done():
            if self.error is None:
                self.future.set_result(self.result)
            else:
                self.future.set_exception(self.error)
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Writer:
    """Runs writes in their order, each all or nothing, on a thread of its own.

    What waits when a commit ends goes into the next one: one fsync serves all of them. Inside it each has a savepoint,
    so that a bad one fails alone.
    """

    def __init__(
        self,
        database: Database,
        guard: Guard,
        lock: WriterLock,
        upkeep: Upkeep,
        transaction: Transaction | None = None,
    ) -> None:
        self._database = database
        self._guard = guard
        self._lock = lock
        self._upkeep = upkeep
        self._ending = transaction or Transaction()
        self._queue: queue.SimpleQueue[Pending[Any] | _Signal] = queue.SimpleQueue()
        self._broken = False
        self.in_sqlite = threading.Lock()
        """Held while the thread uses its connection."""
        self._setback: Exception | None = None
        self._connection: sqlite3.Connection
        self._thread = threading.Thread(target=self._serve, name=f"leafward {database.path}", daemon=True)

    def start(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._thread.start()

    async def run(self, work: Work[T], *, size: int = 0, flushed: bool = True) -> T:
        """Run `work`, which writes about `size` bytes, inside a transaction and return once it is durable.

        Unless it is to be `flushed`, it does not wait for the disk if nothing else is in the same commit. Cancelled
        before it began, the work is withdrawn; later, it is finished before the cancellation goes on.
        """
        self._guard.check()
        pending = Pending(work, self._guard.loop.create_future(), size, flushed=flushed)
        self._queue.put(pending)
        try:
            return await pending.future
        except asyncio.CancelledError:
            if not pending.claim():
                await self._finish(pending)
            raise

    async def _finish(self, pending: Pending[Any]) -> None:
        while not pending.over:
            pending.waiter = self._guard.loop.create_future()
            try:
                await pending.waiter
            except asyncio.CancelledError:
                continue

    async def settle(self) -> None:
        """Try what stopped before again, and return once there is no background work left; raise what stops it."""
        await self.work_until(lambda: not self._upkeep.due(idle=True))

    async def work_until(self, is_over: Callable[[], bool]) -> None:
        """Do background work, also what stopped before, until it is over; raise what stops it."""
        self._setback = None
        self._queue.put(_Signal.WAKE)
        while not is_over():
            self._guard.check()
            if self._setback is not None:
                raise self._database.explain(self._setback) from self._setback
            await asyncio.sleep(0.005)

    def report_damage(self) -> None:
        """Have the search index made anew, soon."""
        self._upkeep.report_damage()
        self._queue.put(_Signal.WAKE)

    def stop(self) -> None:
        """End the thread after all that waits is written; the connection is then free to close."""
        self._queue.put(_Signal.STOP)
        self._thread.join()

    def _serve(self) -> None:
        patience: float | None = IDLE_S
        while True:
            batch, running = self._take(patience)
            if batch:
                self._setback = None
                self._commit(batch)
            if not running:
                return
            if self._setback is None and self._upkeep.due(idle=not batch):
                self._step()
            due = self._setback is None and self._upkeep.due(idle=True)
            patience = None if not due else IDLE_S if batch else BREATH_S

    def _take(self, patience: float | None) -> tuple[list[Pending[Any]], bool]:
        """Wait for writes; give those that wait together, and whether to go on after them."""
        batch: list[Pending[Any]] = []
        try:
            item = self._queue.get(timeout=patience)
            while True:
                if isinstance(item, Pending):
                    batch.append(item)
                elif item is _Signal.STOP:
                    return batch, False
                if len(batch) == MOST_IN_ONE_COMMIT:
                    return batch, True
                item = self._queue.get_nowait()
        except queue.Empty:
            return batch, True

    def _step(self) -> None:
        try:
            with self.in_sqlite:
                self._upkeep.step(self._connection)
        except Exception as error:  # noqa: BLE001  (the thread outlives whatever a slice meets)
            # Nothing anybody waits for: what could not be indexed stays in the queue that searches read as well.
            # The next write tries again, and settle() tells.
            self._setback = error
            self._broken = self._broken or isinstance(self._database.explain(error), OutcomeUnknown)

    def _commit(self, batch: list[Pending[Any]]) -> None:
        changed = self._connection.total_changes
        claimed: list[Pending[Any]] = []
        try:
            with self._lock, self.in_sqlite:
                self._database.check_file()
                with self._flushing(any(pending.flushed for pending in batch)):
                    # A write has begun when it can no longer be kept waiting.
                    self._connection.execute("BEGIN IMMEDIATE")
                    claimed += [pending for pending in batch if pending.claim()]
                    self._write(claimed)
        except Exception as error:  # noqa: BLE001  (whatever went wrong, whoever waits is told and the thread goes on)
            claimed += [pending for pending in batch if pending.claim()]
            self._fail(claimed, error)
        # Before whoever waits is told: what they ask for next must find this work noted.
        rows = self._connection.total_changes - changed
        self._upkeep.wrote(rows, sum(pending.size for pending in claimed))
        try:
            self._guard.loop.call_soon_threadsafe(_settle_all, claimed)
        except RuntimeError:
            # The loop was closed while the write went on; it is stored, and nobody waits for it.
            return

    @contextmanager
    def _flushing(self, flushed: bool) -> Generator[None]:
        """Have commits wait for the disk, or not."""
        if flushed:
            yield
            return
        # Outside of a transaction: inside one, SQLite does not change this.
        self._connection.execute("PRAGMA synchronous = NORMAL")
        try:
            yield
        finally:
            self._database.set_synchronous(self._connection)

    def _write(self, claimed: list[Pending[Any]]) -> None:
        try:
            if self._broken:
                self._connection.rollback()
                raise StoreError(f"{self._database.path} could not be made durable: close it and open it again")
            self._transaction(claimed)
        except (sqlite3.Error, StoreError) as error:
            # After a failed fsync the kernel may forget what it could not write:
            # nothing that follows in the log could be relied on.
            lost = isinstance(self._database.explain(error), OutcomeUnknown)
            self._broken = self._broken or lost
            if len(claimed) > 1 and not lost:
                for pending in claimed:
                    self._write([pending])
            else:
                self._fail(claimed, error)

    def _fail(self, claimed: list[Pending[Any]], error: Exception) -> None:
        for pending in claimed:
            # One error each: raised ones grow a traceback.
            pending.error = self._database.explain(error)
            if pending.error is not error:
                pending.error.__cause__ = error

    def _transaction(self, claimed: list[Pending[Any]]) -> None:
        """Run the writes and commit, or raise with none of them done."""
        connection = self._connection
        if not connection.in_transaction:
            connection.execute("BEGIN IMMEDIATE")
        try:
            if len(claimed) == 1:
                pending = claimed[0]
                pending.result, pending.error = pending.work(connection), None
            else:
                for pending in claimed:
                    self._attempt(connection, pending)
        except sqlite3.Error:
            self._roll_back(connection)
            raise
        except Exception as error:  # noqa: BLE001  (handed to whoever waits)
            self._roll_back(connection)
            claimed[0].error = self._database.translate(error)
            return
        try:
            self._ending.commit(connection)
        except (sqlite3.Error, StoreError):
            self._roll_back(connection)
            raise

    def _roll_back(self, connection: sqlite3.Connection) -> None:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        self._ending.undo()

    def _attempt(self, connection: sqlite3.Connection, pending: Pending[Any]) -> None:
        connection.execute("SAVEPOINT write")
        try:
            pending.result, pending.error = pending.work(connection), None
        except Exception as error:
            if not connection.in_transaction:
                raise
            connection.execute("ROLLBACK TO write")
            pending.error = self._database.translate(error)
        connection.execute("RELEASE write")


def _settle_all(settled: Sequence[Pending[Any]]) -> None:
    for pending in settled:
        pending.settle()
