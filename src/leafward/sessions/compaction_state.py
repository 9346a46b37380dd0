"""What the handles of one session in a process share about its compactions: the queue, the back-off, the record."""

from __future__ import annotations

import weakref
from asyncio import Task
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from leafward.core.ids import Scope
from leafward.core.overlays import Compaction
from leafward.sessions.user_functions import Turns

LONGEST_WAIT = 64
"""Appends after which an automatic compaction is tried again, however often it failed."""
_REMEMBERED = 50
_MUCH_MORE = 1.5
BACKING_OFF, ANOTHER = "backing off", "another compaction"
"""How the reasons of attempts begin that were put off."""


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
        self._turns = Turns()
        self._queued = 0
        self._task: Task[None] | None = None
        self.failures = 0
        self.appends_to_skip = 0
        self.tokens_left = 0
        """What the session took after the last attempt that failed."""
        self.tokens_seen = 0
        """What it took when an attempt was last made or put off."""
        self.growing: str | None = None
        """The message that alone kept the session above its threshold then, because it was still being written."""
        self.streamed: set[str] = set()
        """What was upserted since the last new message, that message, and what was upserted last before it."""
        self._streamed_last: set[str] = set()
        """The message that was upserted last, unless one was appended since."""
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
            async with self._turns.alone():
                yield
        finally:
            self._queued -= 1

    def runs_in(self, task: Task[None]) -> None:
        self._task = task

    def note_streamed(self, message_id: str | None, *, is_new: bool) -> None:
        """Remember a message that was upserted, because more of it may come.

        After a new message the one upserted last may still grow: a reply goes on while the user writes again. It is
        complete when another new one is stored.
        """
        if is_new:
            self.streamed, self._streamed_last = self._streamed_last, set()
        if message_id is not None:
            self.streamed = {*self.streamed, message_id}
            self._streamed_last = {message_id}

    def back_off(self, tokens_left: int, growing: str | None = None, *, retry_at_once: bool = False) -> None:
        """Wait for more appends before the next attempt; `growing` is the message that this one had to leave out.

        With `retry_at_once`, and if this is the first failure in a row, the next append tries again.
        """
        self.tokens_left = self.tokens_seen = tokens_left
        # Of failures in a row only the first message gets an attempt of its own: others would undo the back-off.
        self.growing = growing if self.failures == 0 or growing == self.growing else None
        _backing_off.append(self)
        self.failures += 1
        self.appends_to_skip = 0 if retry_at_once and self.failures == 1 else min(2**self.failures - 1, LONGEST_WAIT)

    def skips(self, tokens: int, threshold: int) -> bool:
        """Tell whether to wait with the next attempt, and count this write as one of those to wait for.

        No attempt waits once the session has grown by half, after a write that adds half of the threshold (perhaps a
        tool result, which can be shortened), or once the message that was left out is complete.
        """
        complete = self.growing is not None and self.growing not in self.streamed
        much = tokens > self.tokens_left * _MUCH_MORE or tokens - self.tokens_seen > threshold / 2
        self.tokens_seen = tokens
        if self.appends_to_skip == 0 or complete or much:
            return False
        self.appends_to_skip -= 1
        return True

    def remember(self, record: CompactionRecord) -> None:
        """Keep a record; of attempts that were put off one after the other, only the last."""
        if self.records and _is_put_off(record) and _is_put_off(self.records[-1]):
            self.records.pop()
        self.records.append(record)

    def succeeded(self) -> None:
        self.failures = self.appends_to_skip = 0


def _is_put_off(record: CompactionRecord) -> bool:
    return record.reason.startswith((BACKING_OFF, ANOTHER))


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
