"""Brings the index up to the journals, on the writer's thread and behind the lock.

Mostly there is nothing to do: whoever wrote a journal wrote to the index as well. After a crash, or when somebody
changed files by hand, what the index lacks is read and done again.
"""

from __future__ import annotations

import logging
import os
import sqlite3

from leafward.core.errors import StoreError
from leafward.core.ids import Owner, Scope
from leafward.core.times import now_micros, to_micros
from leafward.stores.files import names, positions
from leafward.stores.files.folder import Folder, Parts, Stamp, read_from
from leafward.stores.files.journal_places import JournalPlaces, candidates, home
from leafward.stores.files.mending import Replay
from leafward.stores.files.positions import NOWHERE, Key, Position
from leafward.stores.files.writing import Journals, named, write_all
from leafward.stores.journal.lines import Batch, Damage, Reading, read
from leafward.stores.journal.records import record
from leafward.stores.journal.replaying import SharedText, continued, read_header, shared_commands
from leafward.stores.sql import commands as c
from leafward.stores.sql import copying, entries, reads, registry
from leafward.stores.sql import statements as sql
from leafward.stores.sql.operations import Operation, find_session, owner_ids, single
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.index import FtsIndexing

_log = logging.getLogger("leafward.stores.files")


class Following:
    """Knows how far the index is, and takes it further."""

    def __init__(self, database: Database, folder: Folder, places: JournalPlaces, journals: Journals) -> None:
        self._database = database
        self._folder = folder
        self._places = places
        self._journals = journals
        self._indexing = FtsIndexing()

    def is_current(self, connection: sqlite3.Connection, key: Key) -> bool:
        """Tell whether the index holds all that a journal did when this was asked."""
        with named(self._folder.shown(home(key))):
            parts, stamp = self._places.find(key)
            known = self._database.run(connection, positions.get(key))
            if known is None or stamp is None:
                return known is None and stamp is None
            if known.is_unreadable:
                # Not for a reader to take for an empty session.
                return False
            if known.stamp.size > stamp.size:
                # Written to between the two looks, unless somebody cut it.
                stamp = self._folder.stamp(parts) or stamp
                return known.stamp.inode == stamp.inode and known.stamp.size <= stamp.size
            return known.stamp == stamp

    def follow(self, connection: sqlite3.Connection, key: Key) -> Position | None:
        """Take the index to the end of a journal and tell where that is; `None` when there is no journal.

        Raises:
            StoreError: the file is another session's, or a newer leafward wrote it.
        """
        if self._journals.knows(key) or key in self._journals.seen:
            return self._journals.seen.get(key)
        with named(self._folder.shown(home(key))):
            parts, stamp = self._places.find(key)
            known = self._database.run(connection, positions.get(key))
            if stamp == (None if known is None else known.stamp):
                self._journals.seen[key] = known
                return known
            number = self._folder.open(parts)
            if number is None:
                self._forget(connection, key)
                return None
            try:
                return self._catch_up(connection, key, parts, known, number)
            finally:
                os.close(number)

    def _catch_up(
        self, connection: sqlite3.Connection, key: Key, parts: Parts, known: Position | None, number: int
    ) -> Position:
        stamp = Stamp.of(os.fstat(number))
        reading = self._read_on(known, stamp, number)
        short = None
        if reading is None:
            reading = read(read_from(number, 0))
            self._check_owner(connection, key, parts, stamp, reading)
            self._places.report_others(key)
            short = self._note_loss(parts, reading, known, stamp)
            if known is None or not _has_reached(reading, known):
                self._forget(connection, key)
                known = None
            else:
                reading.batches = [batch for batch in reading.batches if batch.start >= known.stamp.size]
        if reading.torn is not None and not reading.damage:
            stamp = self._cut(parts, number, reading, short)
        elif reading.batches:
            # Whoever wrote it may have died before it was durable.
            self._folder.sync(number)
        lost = self._replay(connection, key, reading.batches, damaged=bool(reading.damage))
        if lost and known is not None:
            # What is needed for mending stands above.
            return self._catch_up(connection, key, parts, None, number)
        crc = short.crc if short is not None and reading.damage else reading.crc
        position = Position(stamp, crc, reading.line, self._told(parts, reading, lost))
        self._database.run(connection, positions.put(key, position))
        if known is None and _has_header(reading):
            incarnation = read_header(reading.batches[0].entries[0]).incarnation
            self._database.run(connection, positions.put_incarnation(key, incarnation))
        self._redo(connection, key, reading.batches, known)
        return position

    def _read_on(self, known: Position | None, stamp: Stamp, number: int) -> Reading | None:
        """Read what was added since; `None` when all must be read again."""
        if known is None or known.damage or stamp.inode != known.stamp.inode or stamp.size <= known.stamp.size:
            return None
        size = known.stamp.size
        reading = read(read_from(number, size), known.crc, offset=size, line=known.line)
        # Only lines that go on from the checksum show that what stands above them is what it was.
        return reading if reading.batches and not reading.damage and reading.torn is None else None

    def _check_owner(
        self, connection: sqlite3.Connection, key: Key, parts: Parts, stamp: Stamp, reading: Reading
    ) -> None:
        """Raise when a file holds another session than its name says."""
        if not _has_header(reading):
            if len(candidates(key)) > 1 and self._database.run(connection, positions.is_of_another(key, stamp)):
                shown = self._folder.shown(parts)
                raise StoreError(f"{shown} is the damaged journal of another id that has this name: repair that first")
            return
        entry = reading.batches[0].entries[0]
        told = read_header(entry)
        owner, id = (key.owner, key.session_id) if isinstance(key, Scope) else (key, key.agent_id)
        kind = "session" if isinstance(key, Scope) else "shared"
        if (entry.type, entry.id, told.agent, told.user) != (kind, id, owner.agent_id, owner.user_id):
            raise StoreError(
                f"{self._folder.shown(parts)} holds {entry.type} {entry.id!r} of agent {told.agent!r} and user "
                f"{told.user!r}, not {id!r} of agent {owner.agent_id!r} and user {owner.user_id!r}: "
                "it was put there by hand, or the file system does not tell these names apart; nothing was changed"
            )

    def _note_loss(self, parts: Parts, reading: Reading, known: Position | None, stamp: Stamp) -> Position | None:
        """Return where a journal stood if it lost what was acknowledged; that is damage unless its end is torn."""
        lost = known if known is not None and _is_short(reading, known) else None
        # A journal gets its name when its first lines are whole.
        unreadable = not reading.batches
        if lost is not None and lost.stamp.inode != stamp.inode and not unreadable:
            _log.warning(
                "%s was replaced by a file that holds less than was acknowledged, %d bytes of %d; it counts as it is",
                self._folder.shown(parts),
                reading.end,
                lost.stamp.size,
            )
            lost = None
        told = bool(reading.damage) and reading.damage[-1].offset >= reading.end
        if (unreadable or (lost is not None and not _is_torn(reading, lost))) and not told:
            reason = "is missing or cannot be read, with all that follows, though it was acknowledged"
            reading.damage.append(Damage(reading.line, reading.end, reason))
        return lost

    def _cut(self, parts: Parts, number: int, reading: Reading, lost: Position | None) -> Stamp:
        """Move a tail that is not whole out of a journal."""
        shown, whole = self._folder.shown(parts), reading.end
        kept = self.keep_aside(parts, read_from(number, whole), "torn")
        if lost is None:
            os.ftruncate(number, whole)
            self._folder.sync(number)
            _log.warning("%s ended in the middle of a write: its last bytes are now in %s", shown, kept)
            return Stamp.of(os.fstat(number))
        _log.error(
            "%s ended in the middle of a write that was acknowledged: line %d and what followed are lost, "
            "%d of %d bytes; what was left of them is now in %s",
            shown,
            reading.line,
            lost.stamp.size - whole,
            lost.stamp.size,
            kept,
        )
        # Another file: if the index does not get to know of it, this one is not taken for one that lost whole lines.
        return self.replace(parts, read_from(number, 0)[:whole])

    def replace(self, parts: Parts, data: bytes) -> Stamp:
        """Put another file in the place of a journal, for good."""
        unfinished = names.temporary()
        number = self._folder.create(unfinished)
        try:
            write_all(number, data, 0)
            self._folder.sync(number)
            self._folder.move(unfinished, parts)
            return Stamp.of(os.fstat(number))
        finally:
            os.close(number)

    def keep_aside(self, parts: Parts, data: bytes, kind: str) -> str:
        """Keep some bytes of a journal in a file beside it, for good, and return its name."""
        aside = self._places.free_beside(parts, kind)
        number = self._folder.create(aside)
        try:
            write_all(number, data, 0)
            self._folder.sync(number)
        finally:
            os.close(number)
        self._folder.sync_names(parts[:-1])
        return aside[-1]

    def _told(self, parts: Parts, reading: Reading, lost: list[str]) -> list[str]:
        """Return, and log, what of a journal cannot be relied on."""
        shown = self._folder.shown(parts)
        found = [f"{shown}: line {one.line} (byte {one.offset}) {one.reason}" for one in reading.damage]
        found += [f"{shown}: {one}" for one in lost]
        for one in found:
            _log.error("%s; what is whole around it is served, the file was not changed", one)
        return found

    def _replay(self, connection: sqlite3.Connection, key: Key, batches: list[Batch], *, damaged: bool) -> list[str]:
        if isinstance(key, Scope):
            return Replay(self._database, connection, self._indexing, key).run(batches, damaged=damaged)
        for text in _texts(key, batches):
            self._database.run(connection, text.command.operation(self._indexing), text.at)
        return []

    def _redo(self, connection: sqlite3.Connection, key: Key, batches: list[Batch], known: Position | None) -> None:
        """Write what a crash kept from being written to another journal."""
        if isinstance(key, Owner):
            texts = _texts(key, batches)
            if texts and (known is not None or len(texts) == 1):
                self._redo_note(connection, key, texts[-1])
        elif known is None:
            ended = continued(entry for batch in batches for entry in batch.entries)
            if ended is not None:
                self._redo_end(connection, Scope(key.owner, ended[0]), ended[1])

    def _redo_note(self, connection: sqlite3.Connection, owner: Owner, text: SharedText) -> None:
        scope = Scope(owner, text.session_id)
        position = self.follow(connection, scope)
        # A session without a journal was deleted since.
        if position is None or position.damage:
            return
        if self._database.run(connection, reads.revision(scope)).version < text.version:
            self._do(connection, c.Note(scope, text.command.shelf.label), position, text.at)

    def _redo_end(self, connection: sqlite3.Connection, source: Scope, at: int) -> None:
        position = self.follow(connection, source)
        info = self._database.run(connection, registry.get(source))
        # A session that was made since under the same name is another one.
        same = info is not None and info.end_reason is None and to_micros(info.created_at) <= at
        if same and not (position or NOWHERE).damage:
            self._do(connection, c.End(source, copying.SPLIT), position, now_micros())

    def _do(self, connection: sqlite3.Connection, command: c.Note | c.End, position: Position | None, at: int) -> None:
        self._database.run(connection, command.operation(self._indexing), at)
        self._journals.add(command.scope, position, record(command, None, at))

    def _forget(self, connection: sqlite3.Connection, key: Key) -> None:
        """Take what the index holds of a journal out of it."""
        if isinstance(key, Scope):
            if self._database.run(connection, find_session(key)) is not None:
                self._database.run(connection, registry.delete(key))
        else:
            self._database.run(connection, _drop_shared(key))
        self._database.run(connection, positions.drop(key))


def _texts(owner: Owner, batches: list[Batch]) -> list[SharedText]:
    return shared_commands((entry for batch in batches for entry in batch.entries), owner)


def _has_header(reading: Reading) -> bool:
    """Tell whether what was read from the beginning of a journal has its first line."""
    return bool(reading.batches) and not (reading.damage and reading.damage[0].line == 1)


def _has_reached(reading: Reading, known: Position) -> bool:
    """Tell whether a journal still begins with all that the index holds of it."""
    if reading.damage or known.damage:
        return False
    return any((batch.end, batch.crc) == (known.stamp.size, known.crc) for batch in reading.batches)


def _is_short(reading: Reading, known: Position) -> bool:
    """Tell whether a journal ends before what was acknowledged."""
    if any(batch.crc == known.crc for batch in reading.batches):
        return False
    # One that was found short is noted with its own size, and with the checksum of what was acknowledged.
    return reading.end < known.stamp.size or (bool(known.damage) and reading.end == known.stamp.size)


def _is_torn(reading: Reading, known: Position) -> bool:
    """Tell whether nothing but the end of a journal is wrong, with something left of what stood there."""
    # A loss that was noted before is not made good by what came after it.
    return reading.torn is not None and not reading.damage and not known.damage


def _drop_shared(owner: Owner) -> Operation[None]:
    owner_no = single((yield sql.GET_OWNER, owner_ids(owner)))
    if owner_no is None:
        return
    scope = Scope(owner, "any")
    for shelf_no, label in (yield sql.LIST_SHELVES, (owner_no, entries.SHARED)):
        for key, *_ in (yield sql.LIST_ENTRIES, (shelf_no,)):
            yield from entries.put_shared(entries.Shelf(scope, label, True), key, None, None, False)
