"""What a transaction of the index writes to journals: whole before the index commits, gone again if it cannot."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import NamedTuple

from leafward.core.errors import OutcomeUnknown, StorageFull, StoreError
from leafward.core.ids import Owner
from leafward.core.times import now_micros
from leafward.stores.files import names, positions
from leafward.stores.files.folder import Folder, Parts, Stamp
from leafward.stores.files.journal_places import JournalPlaces, home
from leafward.stores.files.positions import NOWHERE, Key, Position
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.lines import encode
from leafward.stores.journal.records import header, shared_header
from leafward.stores.journal.replaying import read_header
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.writer import Transaction

_AT_ONCE = 64
"""Journals that are open at one time."""
_SYNCS = 8
"""Files that are made durable at one time."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class _Lines(NamedTuple):
    """Lines on their way into a journal, and where it stands with them."""

    key: Key
    start: int
    data: bytes
    crc: int
    line: int


class Journals(Transaction):
    """Gathers the lines of all works of one transaction, so that each journal is made durable once.

    Shared journals come first, then those that begin, then the others: whoever follows the journals after a crash finds
    in the earlier ones what the later ones lack.
    """

    def __init__(self, database: Database, folder: Folder, places: JournalPlaces) -> None:
        self._database = database
        self._folder = folder
        self._places = places
        self._lines: list[_Lines] = []
        self._written = 0
        """How many of the lines are in their journals."""
        self._ahead: dict[Key, _Lines] = {}
        """The last lines of each journal that this transaction adds to."""
        self._begun: dict[Key, str] = {}
        """The incarnations of journals that this transaction begins."""
        self.seen: dict[Key, Position | None] = {}
        """Where journals stood that the index was found to hold; nobody else writes during the transaction."""
        self._stamps: dict[Key, Stamp] = {}
        self._undo: list[Callable[[], None]] = []
        self._unwanted: list[Parts] = []
        """Files to be removed once the transaction is committed."""
        self._spoilt = False

    def knows(self, key: Key) -> bool:
        """Tell whether this transaction adds to a journal, so that the index holds all of it."""
        return key in self._ahead

    def add(self, key: Key, position: Position | None, entries: list[Entry]) -> None:
        """Have lines added to a journal that stands at `position`; a new one gets its first line as well."""
        ahead = self._ahead.get(key)
        at = position or NOWHERE
        start, crc, line = (at.stamp.size, at.crc, at.line) if ahead is None else _end(ahead)
        if start == 0:
            first = shared_header(key, now_micros()) if isinstance(key, Owner) else header(key, now_micros())
            self._begun[key] = read_header(first[0]).incarnation
            entries = [*first, *entries]
        data, crc = encode(entries, crc)
        lines = _Lines(key, start, data, crc, line + len(entries))
        self._lines.append(lines)
        self._ahead[key] = lines

    def mark(self) -> int:
        """Return what `go_back` takes to forget what is added from here on."""
        return len(self._lines)

    def go_back(self, mark: int) -> None:
        """Forget what a work added that failed."""
        # What is already in its journal can only be undone with the whole transaction.
        self._spoilt = self._spoilt or self._written > mark
        del self._lines[mark:]
        self._ahead = {lines.key: lines for lines in self._lines}
        # The index goes back as well.
        self.seen = {}

    def write(self) -> None:
        """Write all lines that were added, and make them durable."""
        waiting: dict[Key, list[_Lines]] = {}
        for lines in self._lines[self._written :]:
            waiting.setdefault(lines.key, []).append(lines)
        shared = [key for key in waiting if isinstance(key, Owner)]
        new = [key for key in waiting if not isinstance(key, Owner) and waiting[key][0].start == 0]
        others = [key for key in waiting if not isinstance(key, Owner) and waiting[key][0].start > 0]
        for keys in (shared, new, others):
            for place in range(0, len(keys), _AT_ONCE):
                self._write_some({key: waiting[key] for key in keys[place : place + _AT_ONCE]})
        self._written = len(self._lines)

    def _write_some(self, lines: dict[Key, list[_Lines]]) -> None:
        """Write to several journals first and then wait for the disk, which then has less to wait for."""
        opened: list[tuple[Key, Parts, int]] = []
        try:
            for key, some in lines.items():
                data = b"".join(one.data for one in some)
                with named(self._folder.shown(home(key))):
                    opened.append((key, *(self._extend(key) if some[0].start else self._begin())))
                    write_all(opened[-1][2], data, some[0].start)
            self._sync_all([(number, parts) for _, parts, number in opened])
            for key, _, number in opened:
                self._stamps[key] = Stamp.of(os.fstat(number))
            self._sync_names([self._name(key, parts) for key, parts, _ in opened if lines[key][0].start == 0])
        finally:
            for _, _, number in opened:
                os.close(number)

    def _extend(self, key: Key) -> tuple[Parts, int]:
        parts = self._places.where(key)
        number = self._folder.open(parts)
        if number is None:
            raise StoreError(f"{self._folder.shown(parts)} was removed while it was being written: repeat the call")
        before = os.fstat(number)
        self._undo.append(lambda: self._shorten(parts, before))
        return parts, number

    def _begin(self) -> tuple[Parts, int]:
        """Make a journal under another name; it gets its own when it is whole."""
        unfinished = names.temporary()
        number = self._folder.create(unfinished)
        self._undo.append(lambda: self._folder.remove(unfinished))
        return unfinished, number

    def _name(self, key: Key, unfinished: Parts) -> Parts:
        with named(self._folder.shown(home(key))):
            parts, other = self._places.place_for_new(key)
            if other is not None:
                self._make_room(other, parts)
            self._undo.append(lambda: self._folder.remove(parts))
            self._folder.move(unfinished, parts, synced=False)
        return parts

    def _make_room(self, key: Key, parts: Parts) -> None:
        """Move a journal to another of its places; the index knows it by its inode, which stays."""
        to, other = self._places.place_for_new(key)
        assert other is None, "only an encoded name has to make room"
        # What is kept beside it comes first: left behind, it would be taken for the newcomer's.
        for one in self._all_beside(parts):
            self._move(one, self._places.free_beside(to, names.kind_of(one[-1])))
        self._move(parts, to)

    def _move(self, parts: Parts, to: Parts) -> None:
        self._folder.move(parts, to)
        self._undo.append(partial(self._folder.move, to, parts))

    def _sync_names(self, named_now: Iterable[Parts]) -> None:
        for directory in {parts[:-1] for parts in named_now}:
            with named(self._folder.shown(directory)):
                self._folder.sync_names(directory)

    def _sync_all(self, opened: list[tuple[int, Parts]]) -> None:
        """Wait for the disk, for several files at once: it serves them together."""
        if len(opened) == 1:
            self._sync(*opened[0])
        elif opened:
            with ThreadPoolExecutor(min(len(opened), _SYNCS), thread_name_prefix="leafward fsync") as pool:
                for done in [pool.submit(self._sync, *one) for one in opened]:
                    done.result()

    def _sync(self, number: int, parts: Parts) -> None:
        try:
            self._folder.sync(number)
        except OSError as error:
            # The system may have forgotten what it could not write: what is there now is read again before it counts.
            self._undo.clear()
            raise OutcomeUnknown(self._folder.shown(parts)) from error

    def _shorten(self, parts: Parts, before: os.stat_result) -> None:
        number = self._folder.open(parts)
        if number is not None:
            try:
                os.ftruncate(number, before.st_size)
                # As the index knows it, or a full disk would keep readers waiting for what cannot be written there.
                os.utime(number, ns=(before.st_atime_ns, before.st_mtime_ns))
                self._folder.sync(number)
            finally:
                os.close(number)

    def remove(self, key: Key, *, erased: bool = False) -> None:
        """Take a journal away, with what was kept beside it; for good when the transaction is committed.

        What is kept beside it is numbered from one. To be `erased` it is looked for in the whole directory: somebody
        may have removed one of the lower numbers.
        """
        self.write()
        with named(self._folder.shown(home(key))):
            for parts in self._places.of(key):
                if self._folder.stamp(parts) is not None:
                    gone = names.temporary()
                    self._move(parts, gone)
                    self._unwanted.append(gone)
                self._unwanted += self._all_beside(parts) if erased else self._beside(parts)
        # What comes next begins a new journal.
        self._lines = [lines for lines in self._lines if lines.key != key]
        self._written = len(self._lines)
        for known in (self._ahead, self._begun, self._stamps, self.seen):
            known.pop(key, None)

    def _all_beside(self, parts: Parts) -> list[Parts]:
        above = parts[:-1]
        return [(*above, name) for name in self._folder.names(above) if names.is_aside(parts[-1], name)]

    def _beside(self, parts: Parts) -> Iterator[Parts]:
        for kind in names.ASIDE:
            for number in count(1):
                one = (*parts[:-1], names.aside(parts[-1], kind, number))
                if self._folder.stamp(one) is None:
                    break
                yield one

    def remove_unfinished(self) -> None:
        """Have what writes that were killed left unfinished removed when the transaction is committed."""
        above = (names.UNFINISHED,)
        with named(self._folder.shown(above)):
            self._unwanted += [(*above, name) for name in self._folder.names(above)]

    def commit(self, connection: sqlite3.Connection) -> None:
        if self._spoilt:
            raise StoreError("a write failed after others of its transaction were in their journals")
        self.write()
        for key, lines in self._ahead.items():
            position = Position(self._stamps[key], lines.crc, lines.line, [])
            self._database.run(connection, positions.put(key, position))
            if key in self._begun:
                self._database.run(connection, positions.put_incarnation(key, self._begun[key]))
        connection.execute("COMMIT")
        unwanted = self._unwanted
        self._forget()
        for parts in unwanted:
            with named(self._folder.shown(parts)):
                self._folder.remove(parts)

    def undo(self) -> None:
        undo = self._undo
        self._forget()
        for action in reversed(undo):
            try:
                action()
            except OSError as error:
                raise OutcomeUnknown(self._folder.path) from error

    def _forget(self) -> None:
        self._lines, self._written, self._ahead, self._begun, self._stamps = [], 0, {}, {}, {}
        self._undo, self._unwanted, self._spoilt, self.seen = [], [], False, {}


def _end(lines: _Lines) -> tuple[int, int, int]:
    return lines.start + len(lines.data), lines.crc, lines.line


def write_all(number: int, data: bytes, place: int) -> None:
    """Write all of `data`; the system may take a part of it at a time, and says why only when asked for the rest."""
    view = memoryview(data)
    while view:
        written = os.pwrite(number, view, place)
        view = view[written:]
        place += written


@contextmanager
def named(path: str) -> Generator[None]:
    """Tell what the system refuses in our words, with the name of the file."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            raise StorageFull(path) from error
        raise StoreError(f"{path} could not be read or written ({error}): check its permissions") from error
