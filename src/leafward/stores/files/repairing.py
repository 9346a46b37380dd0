"""Writes a damaged journal anew, from what is whole of it."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

from leafward.core.ids import Owner
from leafward.core.times import now_micros
from leafward.stores.files import positions
from leafward.stores.files.folder import Folder
from leafward.stores.files.following import Following
from leafward.stores.files.journal_places import JournalPlaces, home
from leafward.stores.files.mending import Replay
from leafward.stores.files.positions import Key, Position
from leafward.stores.files.writing import named
from leafward.stores.journal.entry import Entry, SharedHeader
from leafward.stores.journal.lines import Reading, encode, read
from leafward.stores.journal.records import header, record, shared_header
from leafward.stores.journal.replaying import read_header
from leafward.stores.sql import registry
from leafward.stores.sql.commands import Command
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.index import FtsIndexing


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What a repair did."""

    session_id: str
    repaired: bool
    """False when there was nothing to repair."""
    lost: list[str]
    """What is missing now, with file and line."""
    kept: list[str]
    """The files that hold the journals as they were."""


class Repairing:
    """Repairs one journal inside a transaction of the index."""

    def __init__(
        self,
        database: Database,
        connection: sqlite3.Connection,
        folder: Folder,
        places: JournalPlaces,
        following: Following,
    ) -> None:
        self._database = database
        self._connection = connection
        self._folder = folder
        self._places = places
        self._following = following

    def repair(self, key: Key, position: Position | None) -> tuple[list[str], str | None]:
        """Return what was lost and where the journal is kept as it was; nothing when it is sound."""
        if position is None or not position.damage:
            return [], None
        with named(self._folder.shown(home(key))):
            parts = self._places.where(key)
            data = self._folder.read(parts)
            kept = self._following.keep_aside(parts, data, "damaged")
            reading = read(data)
            lines = self._sound_lines(key, reading)
            first = shared_header(key, now_micros()) if isinstance(key, Owner) else header(key, now_micros())
            entries = [*first, *lines]
            written, crc = encode(entries, 0)
            new = Position(self._following.replace(parts, written), crc, len(entries) + 1, [])
            self._database.run(self._connection, positions.put(key, new))
            self._database.run(self._connection, positions.put_incarnation(key, read_header(first[0]).incarnation))
        lost = [*position.damage]
        if reading.torn is not None:
            lost.append(f"{self._folder.shown(parts)}: the bytes from {reading.torn} on are no whole write")
        return lost, self._folder.shown((*parts[:-1], kept))

    def _sound_lines(self, key: Key, reading: Reading) -> list[Entry]:
        """Return lines that need nothing that is lost; a session's are made by doing it all again."""
        if isinstance(key, Owner):
            return [entry for batch in reading.batches for entry in batch.entries if entry.type != SharedHeader.kind]
        self._database.run(self._connection, registry.delete(key))
        found: list[Entry] = []

        def tell(command: Command[Any], result: Any, at: int, beside: str | None) -> None:
            found.extend(record(command, result, at, beside))

        Replay(self._database, self._connection, FtsIndexing(), key, tell).run(reading.batches, damaged=True)
        return found
