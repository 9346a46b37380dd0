"""How far the index has come in each journal, and which journal that is, as operations on tables beside the others."""

from __future__ import annotations

from typing import NamedTuple

from leafward.core.ids import Owner, Scope
from leafward.core.json import decode, encode_text
from leafward.stores.files.folder import Stamp
from leafward.stores.sql.operations import Operation, owner_ids, scope_ids

CREATE = """
    CREATE TABLE IF NOT EXISTS {p}journal (
        agent_id TEXT NOT NULL,
        user_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        size INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        changed INTEGER NOT NULL,
        crc INTEGER NOT NULL,
        line INTEGER NOT NULL,
        damage TEXT NOT NULL,
        PRIMARY KEY (agent_id, user_id, session_id)
    ) WITHOUT ROWID"""
GET = """
    SELECT size, inode, changed, crc, line, damage FROM {p}journal
    WHERE agent_id = ? AND user_id = ? AND session_id = ?"""
SET = """
    INSERT OR REPLACE INTO {p}journal (agent_id, user_id, session_id, size, inode, changed, crc, line, damage)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""
DROP = "DELETE FROM {p}journal WHERE agent_id = ? AND user_id = ? AND session_id = ?"
LIST = """
    SELECT session_id, size, inode, changed, crc, line, damage FROM {p}journal
    WHERE agent_id = ? AND user_id = ? AND session_id <> ''"""
CREATE_INCARNATIONS = """
    CREATE TABLE IF NOT EXISTS {p}incarnation (
        agent_id TEXT NOT NULL,
        user_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        incarnation TEXT NOT NULL,
        PRIMARY KEY (agent_id, user_id, session_id)
    ) WITHOUT ROWID"""
SET_INCARNATION = """
    INSERT OR REPLACE INTO {p}incarnation (agent_id, user_id, session_id, incarnation) VALUES (?, ?, ?, ?)"""
DROP_INCARNATION = "DELETE FROM {p}incarnation WHERE agent_id = ? AND user_id = ? AND session_id = ?"
# A session has another number in an index that was made anew, but the same journal. One that the index had before it
# knew of incarnations goes by its number.
GET_REVISION = """
    SELECT coalesce(i.incarnation, s.session_no), s.version
    FROM {p}owner o JOIN {p}session s ON s.owner_no = o.owner_no
        LEFT JOIN {p}incarnation i
            ON i.agent_id = o.agent_id AND i.user_id = o.user_id AND i.session_id = s.session_id
    WHERE o.agent_id = ? AND o.user_id = ? AND s.session_id = ?"""
GET_ANOTHER = """
    SELECT 1 FROM {p}journal
    WHERE inode = ? AND NOT (agent_id = ? AND user_id = ? AND session_id = ?) LIMIT 1"""
LIST_DAMAGED = "SELECT damage FROM {p}journal WHERE damage <> '[]' ORDER BY agent_id, user_id, session_id"

Key = Scope | Owner
"""Whose journal: a session's, or the one that all sessions of an owner share."""


class Position(NamedTuple):
    """Where in a journal the index stands: the file as it was, the checksum, the next line, what is damaged above."""

    stamp: Stamp
    crc: int
    line: int
    damage: list[str]

    @property
    def is_unreadable(self) -> bool:
        """Tell whether the journal is there with not one sound line, so that nobody can say what it held."""
        return self.line == 1


NOWHERE = Position(Stamp(0, 0, 0), 0, 1, [])
"""Before the first line."""


def ids_of(key: Key) -> tuple[str, str, str]:
    # No session id is empty.
    return scope_ids(key) if isinstance(key, Scope) else (*owner_ids(key), "")


def get(key: Key) -> Operation[Position | None]:
    rows = yield GET, ids_of(key)
    return _position(*rows[0]) if rows else None


def put(key: Key, position: Position) -> Operation[None]:
    yield SET, (*ids_of(key), *position.stamp, position.crc, position.line, encode_text(position.damage))


def put_incarnation(key: Key, incarnation: str) -> Operation[None]:
    """Note which journal of that name it is, as its first line says."""
    yield SET_INCARNATION, (*ids_of(key), incarnation)


def drop(key: Key) -> Operation[None]:
    yield DROP, ids_of(key)
    yield DROP_INCARNATION, ids_of(key)


def of_owner(owner: Owner) -> Operation[dict[str, Position]]:
    """Return the positions in the journals of an owner's sessions, by session id."""
    rows = yield LIST, owner_ids(owner)
    return {session_id: _position(*rest) for session_id, *rest in rows}


def is_of_another(key: Key, stamp: Stamp) -> Operation[bool]:
    """Tell whether the index knows a file as the journal of another key."""
    return bool((yield GET_ANOTHER, (stamp.inode, *ids_of(key))))


def damage() -> Operation[list[str]]:
    """Return what is damaged, in all journals that were looked at."""
    rows = yield LIST_DAMAGED, ()
    return [one for (text,) in rows for one in decode(text)]


def _position(size: int, inode: int, changed: int, crc: int, line: int, text: str) -> Position:
    return Position(Stamp(size, inode, changed), crc, line, decode(text))
