"""Lists and values that AgentScope is writing at this moment, and those that it never finished.

Its 1.x deletes the lines of a list, writes them 8 KiB at a time and then writes their hash; 2.x appends in the same
order. So lines that are newer than their hash are not all there yet, nor are those that a mark of ours does not fit.
A value is truncated and then written.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

from leafward.core.json import decode_leniently
from leafward.stores.files import state_lists as lists
from leafward.stores.files.folder import Content, Parts
from leafward.stores.states.table import EMPTY

T = TypeVar("T")

_log = logging.getLogger("leafward.stores.files")

PATIENCE = 2.0
"""Seconds without a change after which no process is taken to be writing a file."""
_LONGEST = 20.0
"""Seconds after which a file that changes all the time is read as it is."""
_PAUSE = 0.01
_TICK = 0.01
"""Seconds within which two changes may have the same time."""
_NO_LONGER = 60.0
"""Seconds for which such a file is not waited for."""
_NEVER = object()
_HALF = (
    "%s is newer than its .hash: AgentScope was stopped while it wrote the list, or the file was edited. "
    "Its complete lines are read; save the list again to end this warning."
)
_OTHER = (
    "%s does not fit its .hash: AgentScope was stopped while it wrote the list, or the file was edited. "
    "Its complete lines are read; save the list again to end this warning."
)
_MISSING = (
    "%s is missing beside its .hash: AgentScope was stopped while it wrote the list. "
    "It is read as an empty list; save the list again to end this warning."
)


class _Until(NamedTuple):
    """A time until which a file is not waited for, however it looks."""

    end: float


class BeingWritten(Exception):
    """Another process is writing what was to be read."""

    def __init__(self, looks: Mapping[Parts, object]) -> None:
        super().__init__(looks)
        self.looks = looks
        """How the files look: if they stay so, the other process was killed."""


class Unfinished:
    """Tells whether files are being written, and remembers those whose writers never finish."""

    def __init__(self) -> None:
        self._given_up: dict[Parts, object] = {}
        self._reported: set[Parts] = set()

    async def wait(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return what `read` returns, repeated while it raises `BeingWritten` and something still changes."""
        looks: Mapping[Parts, object] = {}
        began = since = 0.0
        while True:
            try:
                return await read()
            except BeingWritten as found:
                now = time.monotonic()
                began = began or now
                if found.looks != looks:
                    looks, since = found.looks, now
                if now - since > PATIENCE:
                    self._given_up |= looks
                elif now - began > _LONGEST:
                    self._given_up |= dict.fromkeys(looks, _Until(now + _NO_LONGER))
            await asyncio.sleep(_PAUSE)

    def check(self, looks: Mapping[Parts, object]) -> None:
        """Raise `BeingWritten` for files that look so, except those for which waiting has no effect."""
        awaited = {parts: look for parts, look in looks.items() if not self._is_given_up(parts, look)}
        if awaited:
            raise BeingWritten(awaited)

    def _is_given_up(self, parts: Parts, look: object) -> bool:
        found = self._given_up.get(parts, _NEVER)
        return time.monotonic() < found.end if isinstance(found, _Until) else found == look

    def check_list(self, parts: Parts, items: Content, mark: Content | None, shown: str | None) -> bool:
        """Tell whether the lines of a list are all there; if Java never wrote them all, log that once as `shown`.

        `BeingWritten` is raised while Java writes them.
        """
        touched = items.stamp.changed
        if mark is not None and lists.is_ours(mark.data):
            return self._check_marked(parts, items, mark_text(mark), shown)
        ahead = touched - (0 if mark is None else mark.stamp.changed)
        if not _is_unfinished(items, mark, ahead):
            return True
        self._check(parts, (items.stamp, ahead), touched)
        # In a copy, the times are those of copying.
        if mark is not None and ahead > PATIENCE * 1e9:
            self._report(parts, _HALF, shown)
        return False

    def _check_marked(self, parts: Parts, items: Content, mark: str, shown: str | None) -> bool:
        """Do the same for lines that we marked: Java writes all of them again."""
        touched = items.stamp.changed
        has_length = lists.has_length(items.data, mark)
        if has_length and (not _is_recent(touched, PATIENCE) or lists.is_as_marked(items.data, mark)):
            return True
        self._check(parts, items.stamp, touched)
        # What follows all of our lines was added to them.
        if not has_length and not lists.begins_as_marked(items.data, mark):
            self._report(parts, _OTHER, shown)
        return False

    def check_missing(self, parts: Parts, mark: Content, touched: int, shown: str | None) -> None:
        """Do the same for lines that are missing from a directory, which was last changed at `touched`."""
        if _is_javas(mark) or lists.has_lines(mark_text(mark)):
            self._check(parts, mark.stamp, touched)
            self._report(parts, _MISSING, shown)

    def check_value(self, parts: Parts, value: Content) -> None:
        """Raise `BeingWritten` while a value is being written."""
        if _is_recent(value.stamp.changed, PATIENCE):
            try:
                decode_leniently(value.data)
            except ValueError:
                self._check(parts, value.stamp, value.stamp.changed)

    def _check(self, parts: Parts, look: object, touched: int) -> None:
        if _is_recent(touched, PATIENCE):
            self.check({parts: look})

    def _report(self, parts: Parts, message: str, shown: str | None) -> None:
        if shown is not None and parts not in self._reported:
            self._reported.add(parts)
            _log.warning(message, shown)


def _is_unfinished(items: Content, mark: Content | None, ahead: int) -> bool:
    """Tell whether lines, written so many nanoseconds after their mark, may be followed by more."""
    # Java ends each line.
    is_cut = not items.data.endswith(b"\n")
    if mark is None:
        return is_cut
    if mark_text(mark) == EMPTY:
        return bool(items.data) and (is_cut or ahead > 0)
    same_tick = ahead == 0 and _is_recent(items.stamp.changed, _TICK)
    return _is_javas(mark) and (is_cut or ahead > 0 or same_tick)


def _is_javas(mark: Content) -> bool:
    """Tell whether a mark is Java's, of a list that is not empty; so is one that it writes while we write ours."""
    return not lists.is_ours(mark.data) and mark_text(mark) != EMPTY


def mark_text(mark: Content | None) -> str:
    """Return what stands beside a list."""
    return "" if mark is None else mark.data.decode(errors="replace").strip()


def _is_recent(touched: int, seconds: float) -> bool:
    # Another machine's clock may be ahead.
    return abs(time.time_ns() - touched) < seconds * 1e9
