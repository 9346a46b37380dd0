"""A session's rows as one line, in place of a journal that has grown longer than what it tells.

Versions, places and the log of changes are those of the journal, so that nobody notices.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from leafward.core.errors import CorruptStore
from leafward.core.ids import Owner, Scope
from leafward.core.text import analyzer_version
from leafward.stores.entries import Entry as StoredEntry
from leafward.stores.journal import lines, records
from leafward.stores.journal.entry import FORMAT, Entry, SharedWritten, newer, timestamp
from leafward.stores.journal.replaying import read_header
from leafward.stores.journal.telling import batch, fact
from leafward.stores.replicated.journals import Mark
from leafward.stores.sql import statements as sql
from leafward.stores.sql.entries import put
from leafward.stores.sql.operations import Operation, find_or_add_owner
from leafward.stores.sql.schema import MIGRATIONS

SNAPSHOT = "snapshot"
SMALLEST = 1024 * 1024
"""Bytes that are left as they are, whatever they tell."""

TABLES = (
    *("session", "tree", "lane", "message", "label", "change", "overlay", "reclaimed", "skill", "prompt"),
    *("point", "used"),
)
COUNTED = ("session", "tree", "lane", "overlay")
COLUMNS = "SELECT name FROM pragma_table_info(?)"
ROWS = "SELECT {columns} FROM {table}"
ADD_ROW = "INSERT INTO {table} ({columns}) VALUES ({places})"
GET_COUNT = "SELECT name, seq FROM sqlite_sequence"
DROP_COUNT = "DELETE FROM sqlite_sequence WHERE name = ?"
SET_COUNT = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"
_ENTRIES = """
    SELECT f.label, e.entry_key, e.updated_at, e.analyzer, e.description, e.content
    FROM shelf f JOIN entry e ON e.shelf_no = f.shelf_no WHERE f.session_no {which} ORDER BY e.entry_no"""
OWN_ENTRIES = _ENTRIES.format(which="> 0")
SHARED_ENTRIES = _ENTRIES.format(which="= 0")
SET_TIME = "UPDATE entry SET updated_at = ? WHERE shelf_no = ? AND entry_key = ?"
_TEXTS = """
    SELECT coalesce(sum(length(e.content)), 0) FROM shelf f JOIN entry e ON e.shelf_no = f.shelf_no
    WHERE f.session_no {which}"""
SHARED_LENGTH = _TEXTS.format(which="= 0")
OWN_LENGTH = f"""
    SELECT ({_TEXTS.format(which="> 0")})
        + (SELECT coalesce(sum(length(body) + length(id)), 0) FROM message)
        + (SELECT coalesce(sum(length(summary)), 0) FROM overlay)
        + (SELECT coalesce(sum(length(prompt)), 0) FROM prompt)
        + (SELECT coalesce(sum(length(ids)), 0) FROM change)
        + (SELECT coalesce(sum(length(text)), 0) FROM point)"""


class Table(msgspec.Struct, array_like=True):
    columns: list[str]
    rows: list[list[Any]]


class _MadeBy(msgspec.Struct):
    """What every leafward can read of a snapshot."""

    format: int
    schema: int


class Snapshot(msgspec.Struct):
    """All that a session consists of, by the names of tables and columns."""

    at: int
    format: int
    schema: int
    """How many steps had made the tables."""
    incarnation: str
    tables: dict[str, Table]
    counted: dict[str, int]
    context: list[tuple[str, str, int, str | None, str | None, str]]


def bound(*, shared: bool) -> Operation[int]:
    """Return how many bytes a journal may have before it is better written anew: twice what it amounts to, and some."""
    return 2 * (SMALLEST + (yield SHARED_LENGTH if shared else OWN_LENGTH, ())[0][0])


def take_down(mark: Mark, at: int) -> Operation[tuple[Mark, bytes]]:
    """Return a session as the one batch of a journal that replaces the one that goes up to `mark`."""
    tables: dict[str, Table] = {}
    for table in TABLES:
        columns = [name for (name,) in (yield COLUMNS, (table,))]
        rows = yield ROWS.format(table=table, columns=", ".join(columns)), ()
        tables[table] = Table(columns, [list(row) for row in rows])
    counted = {name: number for name, number in (yield GET_COUNT, ()) if name in COUNTED}
    context = yield OWN_ENTRIES, ()
    # Another incarnation than any before, so that nobody takes it for a journal that lost its end.
    first, _, number = mark.incarnation.partition("~")
    told = Snapshot(at, FORMAT, len(MIGRATIONS), f"{first}~{int(number or 0) + 1}", tables, counted, context)
    entry = Entry(type=SNAPSHOT, timestamp=timestamp(at), leafward=msgspec.Raw(msgspec.json.encode(told)))
    data, crc = lines.encode([entry], 0)
    return Mark(told.incarnation, 1, crc), data[:-1]


def take_down_shared(scope: Scope, at: int) -> Operation[tuple[Mark, bytes]]:
    """Return what an owner's sessions share as the one batch of a journal that replaces the one there is."""
    header = records.shared_header(scope.owner, at)
    told = list(header)
    for label, key, updated_at, analyzer, description, content in (yield SHARED_ENTRIES, ()):
        text = SharedWritten(
            session=scope.session_id,
            version=0,
            label=label,
            key=key,
            content=content,
            description=description,
            searchable=analyzer is not None,
        )
        told += batch(updated_at, [fact(text, updated_at)])
    data, crc = lines.encode(told, 0)
    return Mark(read_header(header[0]).incarnation, 1, crc), data[:-1]


def read_snapshot(entries: Iterable[Entry], where: str) -> Snapshot | None:
    """Return what the first of some entries tells, if it is a snapshot.

    Raises:
        StoreError: a newer leafward wrote it.
        CorruptStore: no leafward wrote it.
    """
    first = next(iter(entries))
    if first.type != SNAPSHOT:
        return None
    try:
        made_by = msgspec.json.decode(first.leafward, type=_MadeBy)
        if made_by.format > FORMAT:
            raise newer(f"its format is {made_by.format}, this one knows {FORMAT}")
        if made_by.schema > len(MIGRATIONS):
            raise newer(f"its tables are at version {made_by.schema}, this one knows {len(MIGRATIONS)}")
        return msgspec.json.decode(first.leafward, type=Snapshot)
    except msgspec.DecodeError as error:
        raise CorruptStore(where, f"begins with a snapshot that cannot be read ({error})") from error


def put_back(snapshot: Snapshot, owner: Owner, where: str) -> Operation[None]:
    """Put the rows into tables that hold no session.

    Raises:
        CorruptStore: it names tables or columns that no session has.
    """
    owner_no = yield from find_or_add_owner(owner)
    for name, table in snapshot.tables.items():
        # The names become part of a statement, and whoever can write to the server can write any.
        known = {column for (column,) in (yield COLUMNS, (name,))}
        if name not in TABLES or not known.issuperset(table.columns):
            raise CorruptStore(where, f"begins with a snapshot of other tables than a session has ({name!r})")
        owned = table.columns.index("owner_no") if "owner_no" in table.columns else None
        places = ", ".join("?" * len(table.columns))
        statement = ADD_ROW.format(table=name, columns=", ".join(table.columns), places=places)
        for row in table.rows:
            if owned is not None:
                row[owned] = owner_no
            yield statement, tuple(row)
    for name, number in snapshot.counted.items():
        yield DROP_COUNT, (name,)
        yield SET_COUNT, (name, number)
    yield from _put_context(snapshot, owner_no)


def _put_context(snapshot: Snapshot, owner_no: int) -> Operation[None]:
    sessions = snapshot.tables["session"]
    shelves: dict[str, int] = {}
    for label, key, at, analyzer, description, content in snapshot.context:
        if label not in shelves:
            session_no = sessions.rows[0][sessions.columns.index("session_no")]
            shelves[label] = (yield sql.ADD_SHELF, (owner_no, session_no, label))[0][0]
        # Words that were cut are cut again, by the rules of today; what has none, or has yet to be cut, stays so.
        words_by = analyzer_version() if analyzer else analyzer
        yield from put(shelves[label], None, StoredEntry(key, content, description), words_by)
        yield SET_TIME, (at, shelves[label], key)
