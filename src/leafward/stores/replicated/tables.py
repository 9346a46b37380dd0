"""The tables of one session in memory, and how they are filled from what a journal tells."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import chain, count, groupby
from typing import TypeVar

from leafward.core.errors import StoreError
from leafward.core.ids import Scope
from leafward.core.json import encode_text
from leafward.core.message import Message
from leafward.core.parent import LATEST_LEAF
from leafward.stores.drafts import Draft
from leafward.stores.journal.appends import Appended, Row, Told
from leafward.stores.journal.replaying import commands, read_header, shared_commands
from leafward.stores.replicated.snapshots import put_back, read_snapshot
from leafward.stores.sql import statements as sql
from leafward.stores.sql.commands import Append
from leafward.stores.sql.in_memory import drop_discarded, new_database, render
from leafward.stores.sql.operations import Operation, find_session, run_steps
from leafward.stores.sql.scanning import NO_INDEX

T = TypeVar("T")

SEED = "INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)"

KNOWS = "SELECT 1 FROM message WHERE tree_no = (SELECT tree_no FROM session) AND id = ?"
KNOWS_ANY = """
    SELECT 1 FROM json_each(?) j CROSS JOIN message m ON m.id = j.value
    WHERE m.tree_no = (SELECT tree_no FROM session) LIMIT 1"""
IDS = "SELECT id FROM message"
COUNTED = "SELECT 1 FROM used WHERE session_no = (SELECT session_no FROM session) AND usage_id = ?"


class Tables:
    """A database with one session in it, and with what its owner's sessions share."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._connection = new_database()

    def close(self) -> None:
        self._connection.close()

    def run(self, operation: Operation[T], at: int | None = None) -> T:
        """Run an operation."""
        return run_steps(operation, self.execute, at)

    def execute(self, statement: str, parameters: tuple[object, ...]) -> list[object]:
        return self._connection.execute(render(statement), parameters).fetchall()

    def knows(self, message_ids: Sequence[str]) -> bool:
        """Whether any of these messages is there."""
        if len(message_ids) == 1:
            return bool(self.execute(KNOWS, (message_ids[0],)))
        return bool(self.execute(KNOWS_ANY, (encode_text(message_ids),)))

    def counted(self, usage_id: str) -> bool:
        """Whether usage of this name was counted."""
        return bool(self.execute(COUNTED, (usage_id,)))

    def ids(self) -> Iterable[str]:
        """Return the ids of all messages that are there."""
        return (one for (one,) in self._connection.execute(IDS))

    @property
    def changes(self) -> int:
        """A number that grows with every row that is changed."""
        return self._connection.total_changes

    def begin(self) -> None:
        self._connection.execute("BEGIN")

    def undo(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def keep(self) -> None:
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")

    def tidy(self) -> None:
        """Remove what a clear let go of."""
        self.run(drop_discarded())

    @contextmanager
    def changing(self) -> Generator[None]:
        """Keep all that is done within, or nothing."""
        self.begin()
        try:
            yield
            self.tidy()
            self.keep()
        except BaseException:
            self.undo()
            raise

    def seed(self, incarnation: str) -> None:
        """Have session, trees and lanes numbered as in no other incarnation of the session, but the same everywhere."""
        # A place has 31 bits for the number of its lane; half of them are left to count on.
        chance = zlib.crc32(incarnation.encode())
        for table, number in (("session", chance << 20), ("tree", chance << 20), ("lane", chance >> 2)):
            self._connection.execute(SEED, (table, number))

    # What the journals say.

    def begin_with(self, first: Told, where: str, *, shared: bool) -> str:
        """Read the first batch of a journal, whose it is or a snapshot; return the incarnation."""
        if isinstance(first, Appended):
            raise StoreError(f"{where} does not begin with whose it is, but with messages")
        snapshot = None if shared else read_snapshot(first, where)
        if snapshot is not None:
            self.run(put_back(snapshot, self._scope.owner, where))
            return snapshot.incarnation
        incarnation = read_header(first[0]).incarnation
        if not shared:
            self.seed(incarnation)
        return incarnation

    def replay(self, told: Iterable[Told]) -> None:
        """Do again what batches of the session's journal tell; appends that follow each other are one."""
        for kind, group in groupby(told, type):
            if kind is Appended:
                self._append(list(group))  # pyright: ignore[reportArgumentType]  (as their type says)
            else:
                for command, at in commands(chain.from_iterable(group), self._scope):  # pyright: ignore[reportArgumentType]
                    self.run(command.operation(NO_INDEX), at)

    def replay_shared(self, told: Iterable[Told], where: str) -> None:
        """Do again what batches of the shared journal tell."""
        for one in told:
            if isinstance(one, Appended):
                raise StoreError(f"{where} holds messages: they belong to a session")
            for text in shared_commands(one, self._scope.owner):
                self.run(text.command.operation(NO_INDEX), text.at)

    def _append(self, batches: list[Appended]) -> None:
        ids = [row.id for _, rows in batches for row in rows]
        if len(set(ids)) < len(ids) or self.knows(ids):
            # No leafward writes this; where it stands, known messages stay as they are.
            for at, rows in batches:
                self._append_some(rows, at)
            return
        # The first finds its lane; all others come right after it.
        self._append_some(batches[0].rows[:1], batches[0].at)
        session = self.run(find_session(self._scope))
        assert session is not None
        assert session.leaf is not None
        place = count(session.leaf)
        rows = [
            (next(place), session.tree_no, version, *row)
            for version, batch in enumerate(batches, start=session.version)
            for row in batch.rows
        ]
        del rows[0]
        self._connection.executemany(render(sql.ADD_MESSAGE), rows)
        leaf, version = session.leaf + len(rows), session.version + len(batches) - 1
        tokens = sum(row.tokens for batch in batches for row in batch.rows) - batches[0].rows[0].tokens
        window = None if session.window is None else session.window + tokens
        self.execute(sql.MOVE_SESSION, (leaf, version, window, batches[-1].at, session.session_no))

    def _append_some(self, rows: Sequence[Row], at: int) -> None:
        drafts = [
            Draft(Message.stored(row.id, row.role, row.at, {"parts": []}), row.body.encode(), row.tokens)
            for row in rows
        ]
        self.run(Append(self._scope, drafts, LATEST_LEAF).operation(NO_INDEX), at)
