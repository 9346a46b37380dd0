"""The statements on a table of states, which has some of the columns that there may be.

Java up to 2.0.2 saves a value without counting its version: a checksum beside the version shows it.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

CHECKSUM = "leafward_sum"
"""The column of our notes, which Java does not know."""
_VALUE_COLUMNS = ("state_data", "version", CHECKSUM)
_WITHOUT_THEM = ("state_data", "0", "NULL")

_HERE = " WHERE session_id = ? AND state_key = ? AND item_index = 0"
AS_SEEN = "(version = ? AND {checksum} = ?)"
COUNTED = (
    # A note of another version: Java has counted since. One of this version: the text is to be the noted one.
    f"({CHECKSUM} IS NULL OR POSITION(CONCAT(version, ' ') IN {CHECKSUM}) <> 1 "
    f"OR {CHECKSUM} = CONCAT(version, ' ', {{checksum}}))"
)
EXPECTED = " AND version = ?"
LEASED = (
    " AND EXISTS (SELECT 1 FROM {p}lease WHERE user_id = ? AND session_id = ? AND token = ? AND holder IS NOT NULL "
    "{share})"
)
GIVE_VERSION = " RETURNING version"
ITEMS = "SELECT item_index, state_data FROM {states} WHERE session_id = ? AND state_key = ? ORDER BY item_index"
LOCK_NAME = "SELECT {name_lock}"
"""Holds a name, where a server can, until the transaction is over."""
CUT = "DELETE FROM {states} WHERE session_id = ? AND state_key = ? AND item_index >= ?"
HOLD_IDS = "SELECT 1 FROM {states} WHERE session_id = ? AND state_key = ? AND item_index = 0{hold}"
HOLD_SLOT = "SELECT 1 FROM {states} WHERE session_id = ? AND item_index = 0{hold}"
DROP = "DELETE FROM {states} WHERE session_id = ?"
_AS_SPELLED = "CAST(CONVERT({column} USING utf8mb4) AS BINARY)"
"""The bytes of a name, in a table that folds names, whatever its character set."""
EXACTLY = f" AND {_AS_SPELLED} = CAST(? AS BINARY)".replace("{column}", "session_id")
DROP_SPELLED = "DELETE FROM {states} WHERE TRUE" + EXACTLY
HAS_SPELLED = "SELECT 1 FROM {states} WHERE TRUE" + EXACTLY + " LIMIT 1"
EXACT_KEY = f" AND {_AS_SPELLED} = CAST(? AS BINARY)".replace("{column}", "state_key")
HAS = "SELECT DISTINCT {session_id} FROM {states} WHERE session_id = ? AND state_key <> ?"
SESSIONS = "SELECT DISTINCT {session_id} FROM {states} WHERE state_key NOT IN (?, ?)"
UNLIKE = " AND {session_id}{bytewise} NOT LIKE ?"
KEPT_IDS = "SELECT {session_id}, state_data FROM {states} WHERE state_key = ?"
BETWEEN = " AND {session_id}{bytewise} >= ? AND {session_id}{bytewise} < ?"
SPELLINGS = "SELECT DISTINCT {session_id} FROM {states} WHERE session_id = ?"
NAMES = "SELECT {state_key}, COUNT(*), MAX(version) FROM {states} WHERE session_id = ?"
GROUPED = " GROUP BY {state_key}"
KEY_SPELLINGS = (
    "SELECT DISTINCT {state_key} FROM {states} WHERE session_id = ? AND (state_key IN (?, ?) "
    # An empty list has only this row, where spaces that count for nothing at the end of a name do count.
    "OR (RIGHT(state_key, 6) = ':_hash' AND LEFT(state_key, CHAR_LENGTH(state_key) - 6) = ?))"
)
_SELECT = "SELECT session_id, state_key, {} FROM {{states}} WHERE session_id IN ({}) AND state_key IN ({})"
FIRST, ORDERED = " AND item_index = 0", " ORDER BY item_index"
HELD = FIRST + "{hold}"


class Counted(IntEnum):
    """What a table counts saves by; the number is that of a value's columns."""

    NOTHING = 1
    VERSIONS = 2
    CHECKSUMS = 3


@cache
def add_row(columns: Counted) -> str:
    """Return the statement for a row of any kind; its parameters end with those columns."""
    kept = _VALUE_COLUMNS[:columns]
    return (
        f"INSERT INTO {{states}} (session_id, state_key, item_index, {', '.join(kept)}) "
        f"VALUES (?, ?, ?, {', '.join('?' * columns)})"
    )


@cache
def set_row(columns: Counted) -> str:
    """Return the statement for a value, or the mark of a list; its parameters begin with those columns."""
    return f"UPDATE {{states}} SET {', '.join(f'{name} = ?' for name in _VALUE_COLUMNS[:columns])}{{touch}}{_HERE}"


@cache
def replace_value(columns: Counted) -> str:
    """Return the statement that counts a value's version up itself, from a given one at least."""
    # The note first: some servers compute each column from those that are set already.
    note = f"{CHECKSUM} = CONCAT(GREATEST(version, ?) + 1, ' ', CAST(? AS CHAR(64))), "
    return (
        f"UPDATE {{states}} SET {note if columns >= Counted.CHECKSUMS else ''}version = {{next_version}}, "
        f"state_data = ?{{touch}}{_HERE} "
        # A row of a list has no version, nor has a value that Java saved before it knew any.
        "AND version > 0"
    )


@cache
def add_first(columns: Counted) -> str:
    """Return the statement that adds a value at its first version, unless the name holds a value or a list."""
    kept = _VALUE_COLUMNS[:columns]
    note = ", ?" if columns >= Counted.CHECKSUMS else ""
    return (
        f"INSERT INTO {{states}} (session_id, state_key, item_index, {', '.join(kept)}) "
        f"SELECT ?, ?, 0, ?, {{first_version}}{note} FROM {{one_row}} WHERE NOT EXISTS ("
        "SELECT 1 FROM {states} WHERE session_id = ? AND state_key IN (?, ?) AND item_index = 0)"
    )


@cache
def select_rows(columns: Counted, places: int, keys: int, end: str, *, texts: bool = True) -> str:
    """Return the statement for rows of some names in some slots; the first of each are a value, or item, and a hash.

    Without `texts`, that of a value is left out: it may be long.
    """
    found = _VALUE_COLUMNS[:columns] + _WITHOUT_THEM[columns:]
    if not texts:
        found = ("CASE WHEN version > 0 THEN '' ELSE state_data END", *found[1:])
    return _SELECT.format(", ".join(found), ", ".join("?" * places), ", ".join("?" * keys)) + end


ENOUGH_ALONE = frozenset(
    select_rows(columns, places, keys, end)
    for columns in Counted
    for places in (1, 2, 3)
    # Of one name, and of one with two others beside it; twice as many where each may have two spellings.
    for keys in (2, 4, 6, 12)
    for end in (FIRST, ORDERED)
)
"""Statements that tell all that is asked for."""


@cache
def as_spelled(statement: str, folds: bool) -> str:
    """Have names compared as they are spelled, also by a table that folds them."""
    for column in ("session_id", "state_key"):
        statement = statement.replace(f"{{{column}}}", _AS_SPELLED.format(column=column) if folds else column)
    return statement
