"""Lists and values that AgentScope is writing at this moment, and those that it never finished.

Its 1.x deletes the lines of a list, writes them 8 KiB at a time and then writes their hash; 2.x appends in the same
order. So lines that are newer than their hash are not all there yet. A value is truncated and then written.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from leafward.core.json import decode_leniently
from leafward.stores.files.folder import Content, Parts
from leafward.stores.states.table import EMPTY

T = TypeVar("T")

_log = logging.getLogger("leafward.stores.files")

PATIENCE = 2.0
"""Seconds without a change after which a file is no longer taken to be in the middle of being written."""
_PAUSE = 0.01
_TICK = 0.01
"""Seconds within which two changes may have the same time."""
_HASH = re.compile(r"[0-9a-f]{1,8}")
"""A mark of Java's, unless the list is empty."""


class BeingWritten(Exception):
    """Another process is writing what was to be read."""

    def __init__(self, parts: Parts, seen: object) -> None:
        super().__init__(parts, seen)
        self.parts = parts
        self.seen = seen
        """How it looks: if it stays so, the other process was killed."""


class Unfinished:
    """Tells whether files are being written, and remembers which ones were waited for in vain."""

    def __init__(self) -> None:
        self._given_up: dict[Parts, object] = {}
        self._reported: set[Parts] = set()

    async def wait(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` returns, repeated while it raises `BeingWritten` and something still changes."""
        seen: object = None
        since = 0.0
        while True:
            try:
                return await read()
            except BeingWritten as found:
                now = time.monotonic()
                if found.seen != seen:
                    seen, since = found.seen, now
                elif now - since > PATIENCE:
                    self._given_up[found.parts] = seen
            await asyncio.sleep(_PAUSE)

    def is_given_up(self, parts: Parts, seen: object) -> bool:
        """Tell whether a file has looked so for so long that its writer must have been killed."""
        return self._given_up.get(parts) == seen

    def check_list(self, parts: Parts, items: Content, mark: Content | None, shown: str) -> None:
        """Raise `BeingWritten` while Java writes the lines of a list; if they were left unfinished, say so once."""
        touched = items.stamp.changed
        ahead = touched - (0 if mark is None else mark.stamp.changed)
        if not _is_unfinished(items, mark_text(mark) if mark is not None else None, ahead):
            return
        self._check(parts, (items.stamp, ahead), touched)
        # In a copy, the times are those of copying.
        if mark is not None and ahead > PATIENCE * 1e9:
            self._report(parts, "%s is newer than its .hash: a writer was stopped, or the file was edited", shown)

    def check_missing(self, parts: Parts, mark: Content, touched: int, shown: str) -> None:
        """Do the same where there are no lines, in a directory that was last touched at some time."""
        if _HASH.fullmatch(mark_text(mark)):
            self._check(parts, mark.stamp, touched)
            self._report(parts, "%s is missing beside its .hash: a writer was stopped, and the list is lost", shown)

    def check_value(self, parts: Parts, value: Content) -> None:
        """Raise `BeingWritten` while a value is being written."""
        if _is_recent(value.stamp.changed, PATIENCE):
            try:
                decode_leniently(value.data)
            except ValueError:
                self._check(parts, value.stamp, value.stamp.changed)

    def _check(self, parts: Parts, seen: object, touched: int) -> None:
        if _is_recent(touched, PATIENCE) and not self.is_given_up(parts, seen):
            raise BeingWritten(parts, seen)

    def _report(self, parts: Parts, message: str, shown: str) -> None:
        if parts not in self._reported:
            self._reported.add(parts)
            _log.warning(message, shown)


def _is_unfinished(items: Content, mark: str | None, ahead: int) -> bool:
    """Tell whether lines, that were written so many nanoseconds after their mark, may be some of those to come."""
    if mark is None:
        return not items.data.endswith(b"\n")
    if mark == EMPTY:
        return bool(items.data) and ahead > 0
    # We write a mark of ours before the lines.
    is_theirs = _HASH.fullmatch(mark) is not None
    return is_theirs and (ahead > 0 or (ahead == 0 and _is_recent(items.stamp.changed, _TICK)))


def mark_text(mark: Content | None) -> str:
    """Return what stands beside a list."""
    return "" if mark is None else mark.data.decode(errors="replace").strip()


def _is_recent(touched: int, seconds: float) -> bool:
    # Another machine's clock may be ahead.
    return abs(time.time_ns() - touched) < seconds * 1e9
