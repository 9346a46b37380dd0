"""Sessions in a database in memory, journalled as they change, and their rows to compare."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from leafward.core.errors import LeafwardError
from leafward.core.ids import Owner, Scope
from leafward.stores.contracts import ChangeRecord
from leafward.stores.journal.entry import Entry
from leafward.stores.journal.lines import encode, read
from leafward.stores.journal.records import header, neighbour, record, record_shared, shared_header
from leafward.stores.journal.replaying import commands, shared_commands
from leafward.stores.sql import copying, overlays, reads
from leafward.stores.sql.commands import Command, EditEntry, End, Fork, Remove, Restore, Split
from leafward.stores.sql.in_memory import new_database, render
from leafward.stores.sql.operations import Operation, run_steps
from leafward.stores.sql.scanning import NO_INDEX

OWNER = Owner("agent", "alice")
SHARED = ""
"""The name under which the owner's shared journal is kept here; no session has it."""


class Rows:
    """A database that operations run on."""

    def __init__(self) -> None:
        self.connection = new_database()

    def execute(self, statement: str, parameters: tuple[Any, ...]) -> list[Any]:
        return self.connection.execute(render(statement), parameters).fetchall()

    def run(self, operation: Operation[Any], at: int | None = None) -> Any:
        return run_steps(operation, self.execute, at)

    def all(self, statement: str, *parameters: Any) -> list[Any]:
        return self.connection.execute(statement, parameters).fetchall()

    def session(self, scope: Scope) -> dict[str, Any]:
        """Return all that the tables hold of a session, with places counted from the session's first lane."""
        self.connection.row_factory = sqlite3.Row
        try:
            found = self.all("SELECT * FROM session WHERE session_id = ?", scope.session_id)
            return _session(self, dict(found[0])) if found else {}
        finally:
            self.connection.row_factory = None

    def shared(self) -> list[Any]:
        return _shelves(self, 0)

    def answers(self, scope: Scope) -> list[Any]:
        """Return what readers are told."""
        asked = [
            reads.path(scope, None, False),
            reads.path(scope, None, True),
            _records(scope),
            overlays.weigh(scope),
        ]
        return [self.run(one) for one in asked]


def _records(scope: Scope) -> Operation[list[ChangeRecord]]:
    return (yield from reads.changes(scope, 0)).records


def _session(rows: Rows, session: dict[str, Any]) -> dict[str, Any]:
    number, tree = session["session_no"], session["tree_no"]
    lanes = rows.all("SELECT * FROM lane WHERE tree_no = ? ORDER BY lane_no", tree)
    rank = {lane["lane_no"]: index for index, lane in enumerate(lanes)}

    def tidy(row: Mapping[str, Any]) -> dict[str, Any]:
        kept = {key: value for key, value in dict(row).items() if not key.endswith("_no") and key != "window_tokens"}
        for key in ("place", "leaf", "origin", "floor", "low", "high"):
            if kept.get(key):
                kept[key] = (rank[kept[key] >> 32], kept[key] & 0xFFFFFFFF)
        return kept

    def table(statement: str, key: int) -> list[Any]:
        return [tidy(row) for row in rows.all(statement, key)]

    return {
        "session": tidy(session),
        "lanes": [tidy(lane) for lane in lanes],
        "messages": table("SELECT * FROM message WHERE tree_no = ? ORDER BY place", tree),
        "states": table("SELECT * FROM point WHERE tree_no = ? ORDER BY name, place", tree),
        "usage": table("SELECT * FROM used WHERE session_no = ? ORDER BY usage_id", number),
        "labels": table("SELECT * FROM label WHERE tree_no = ? ORDER BY place", tree),
        "overlays": table("SELECT * FROM overlay WHERE tree_no = ? ORDER BY overlay_no", tree),
        "reclaimed": table("SELECT * FROM reclaimed WHERE tree_no = ? ORDER BY place, call_id", tree),
        "changes": table("SELECT * FROM change WHERE session_no = ? ORDER BY seq", number),
        "skills": table("SELECT * FROM skill WHERE session_no = ? ORDER BY label, skill_key", number),
        "prompt": table("SELECT * FROM prompt WHERE session_no = ?", number),
        "shelves": _shelves(rows, number),
    }


def _shelves(rows: Rows, session_no: int) -> list[Any]:
    entries = """
        SELECT s.label, e.entry_key, e.updated_at, e.analyzer, e.description, e.content,
            (SELECT group_concat(word, ' ') FROM (
                SELECT word FROM entry_word w WHERE w.entry_no = e.entry_no ORDER BY word))
        FROM shelf s LEFT JOIN entry e ON e.shelf_no = s.shelf_no
        WHERE s.session_no = ? AND e.entry_no IS NOT NULL ORDER BY s.label, e.entry_key"""
    return [tuple(row) for row in rows.all(entries, session_no)]


class Journalled:
    """Carries out commands and writes down what they changed, each session in a journal of its own."""

    def __init__(self) -> None:
        self.rows = Rows()
        self.journals: dict[str, bytes] = {}
        self.crcs: dict[str, int] = {}
        self.at = 1_700_000_000_000_000

    def do(self, command: Command[Any]) -> None:
        self.at += 1_000_003
        self.rows.connection.execute("BEGIN")
        try:
            self._do(command)
        except (LeafwardError, ValueError):
            self.rows.connection.execute("ROLLBACK")
        else:
            self.rows.connection.execute("COMMIT")

    def _do(self, command: Command[Any]) -> None:
        ended: str | None = None
        if isinstance(command, (Fork, Split)):
            ended = command.source.session_id if isinstance(command, Split) else None
            command = self._as_restore(command)
        before = self.rows.connection.total_changes
        beside = self.rows.run(neighbour(command))
        result = self.rows.run(command.operation(NO_INDEX), self.at)
        if self.rows.connection.total_changes == before:
            return
        if isinstance(command, Remove):
            del self.journals[command.scope.session_id]
            return
        version = self.rows.run(reads.revision(command.scope)).version
        shared = record_shared(command, result, self.at, version)
        if shared:
            assert isinstance(command, EditEntry)
            self.write(SHARED, shared_header(OWNER, self.at), shared)
        self.write(command.scope.session_id, header(command.scope, self.at), record(command, result, self.at, beside))
        if ended is not None:
            self._do(End(Scope(OWNER, ended), copying.SPLIT))

    def _as_restore(self, command: Fork | Split) -> Restore:
        self.rows.connection.execute("SAVEPOINT trial")
        self.rows.run(command.operation(NO_INDEX), self.at)
        archive = self.rows.run(copying.dump(command.scope))
        self.rows.connection.execute("ROLLBACK TO trial")
        return Restore(command.scope, archive)

    def write(self, name: str, first: list[Entry], entries: list[Entry]) -> None:
        if name not in self.journals:
            self.journals[name], self.crcs[name] = encode(first, 0)
        written, self.crcs[name] = encode(entries, self.crcs[name])
        self.journals[name] += written


def replayed(journals: Mapping[str, bytes]) -> Rows:
    """Return a new database with what journals tell."""
    rows = Rows()
    for name, data in journals.items():
        if name == SHARED:
            for command, at, _, _ in shared_commands(read(data).entries, OWNER):
                rows.run(command.operation(NO_INDEX), at)
        else:
            for command, at in commands(read(data).entries, Scope(OWNER, name)):
                rows.run(command.operation(NO_INDEX), at)
    return rows
