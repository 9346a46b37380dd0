"""What the handles of one session in a process share about its compactions: the queue, the back-off, the record."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from leafward.core.ids import Scope
from leafward.core.overlays import Compaction

LONGEST_WAIT = 64
"""Appends after which an automatic compaction is tried again, however often it failed."""
_REMEMBERED = 50
_MUCH_MORE = 1.5


@dataclass(frozen=True, slots=True)
class CompactionRecord:
    """Why a compaction was, or was not, made."""

    at: datetime
    automatic: bool
    reason: str
    tokens: int | None
    threshold: int | None
    compaction: Compaction | None = None
    error: Exception | None = None


class CompactionState:
    """Lets one compaction of a session run at a time, and spaces the attempts after failures."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._queued = 0
        self._task: asyncio.Task[None] | None = None
        self.failures = 0
        self.appends_to_skip = 0
        self.tokens_left = 0
        """What the session took after the last attempt that failed."""
        self.growing: str | None = None
        """The message that attempt could not summarise because it was being written."""
        self.prompt_unknown = False
        """Whether the prompt could not be counted when that was last tried."""
        self.records: deque[CompactionRecord] = deque(maxlen=_REMEMBERED)

    @property
    def busy(self) -> bool:
        """Whether a compaction runs, or waits for one that does."""
        return self._queued > 0 or (self._task is not None and not self._task.done())

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Run one at a time, in the order they came."""
        self._queued += 1
        try:
            async with self._lock:
                yield
        finally:
            self._queued -= 1

    def runs_in(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def back_off(self, tokens_left: int, growing: str | None = None) -> None:
        self.tokens_left = tokens_left
        self.growing = growing
        _backing_off.append(self)
        self.failures += 1
        self.appends_to_skip = min(2**self.failures - 1, LONGEST_WAIT)

    def skips(self, tokens: int, growing: str | None) -> bool:
        """Count a write that does not try after a failure, if this is one.

        One that adds much is not, nor one after which a message may be summarised that was being written.
        """
        whole = self.growing is not None and growing != self.growing
        if self.appends_to_skip == 0 or whole or tokens > self.tokens_left * _MUCH_MORE:
            return False
        self.appends_to_skip -= 1
        return True

    def succeeded(self) -> None:
        self.failures = self.appends_to_skip = 0


# Where each append makes a new handle, this remembers that the last attempt failed.
_backing_off: deque[CompactionState] = deque(maxlen=1024)

_states: weakref.WeakKeyDictionary[object, weakref.WeakValueDictionary[Scope, CompactionState]] = (
    weakref.WeakKeyDictionary()
)


def state_of(storage: object, scope: Scope) -> CompactionState:
    """Return what all handles on a session of a storage share."""
    states = _states.setdefault(storage, weakref.WeakValueDictionary())
    state = states.get(scope)
    if state is None:
        state = states[scope] = CompactionState()
    return state
