"""Commands of a journal done again, also where others before them are lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from leafward.core.errors import LeafwardError
from leafward.core.ids import Scope
from leafward.core.parent import LATEST_LEAF
from leafward.stores.drafts import Draft
from leafward.stores.journal.lines import Batch
from leafward.stores.journal.records import neighbour
from leafward.stores.journal.replaying import Happened, commands
from leafward.stores.sql.commands import Append, Command, End, Rename
from leafward.stores.sql.operations import Indexing, find_session
from leafward.stores.sql.reads import get
from leafward.stores.sqlite.connection import Database

Tell = Callable[[Command[Any], Any, int, str | None], None]
"""Is told each command that changed something: what it returned, when it ran, and the message that its lines name."""


class Replay:
    """Brings the rows of one session up to its journal.

    A message whose parent is lost goes below the nearest earlier one that is there. What cannot be done because of what
    is lost is left out and told.
    """

    def __init__(
        self,
        database: Database,
        connection: sqlite3.Connection,
        indexing: Indexing,
        scope: Scope,
        tell: Tell | None = None,
    ) -> None:
        self._database = database
        self._connection = connection
        self._indexing = indexing
        self._scope = scope
        self._tell = tell
        self._stored: list[str] = []
        """The messages that were appended so far, in the order of the journal."""

    def run(self, batches: Iterable[Batch], *, damaged: bool) -> list[str]:
        """Do what batches tell; return what could not be done."""
        lost: list[str] = []
        for batch in batches:
            for happened in commands(batch.entries, self._scope):
                reason = self.apply(happened, damaged=damaged)
                if reason is not None:
                    lost.append(f"line {batch.line} cannot be carried out: {reason}")
        return lost

    def apply(self, happened: Happened, *, damaged: bool) -> str | None:
        """Do one command, mended when that is needed; return why it could not be done, if so."""
        command, at = happened
        try:
            self._do(self._whole(command) if damaged else command, at)
        except (LeafwardError, ValueError) as error:
            try:
                self._do(self._whole(command), at)
            except (LeafwardError, ValueError):
                return str(error)
        return None

    def _do(self, command: Command[Any], at: int) -> None:
        beside = None if self._tell is None else self._database.run(self._connection, neighbour(command))
        before = self._connection.total_changes
        self._connection.execute("SAVEPOINT replay")
        try:
            result = self._database.run(self._connection, command.operation(self._indexing), at)
        except BaseException:
            self._connection.execute("ROLLBACK TO replay")
            raise
        finally:
            self._connection.execute("RELEASE replay")
        if self._tell is not None and self._connection.total_changes > before:
            self._tell(command, result, at, beside)
        if isinstance(command, Append):
            self._stored += [draft.message.id for draft in command.drafts]

    def _whole(self, command: Command[Any]) -> Command[Any]:
        """Return a command that does not rely on what is lost."""
        if isinstance(command, Append):
            return self._mended(command)
        if isinstance(command, (Rename, End)) and not self._has_session():
            self._do(Append(self._scope, [], LATEST_LEAF), 0)
        return command

    def _mended(self, command: Append) -> Append:
        drafts = [draft for draft in command.drafts if draft.body or self._has(draft)]
        parent = command.parent
        if isinstance(parent, str) and not self._has_id(parent):
            parent = next((one for one in reversed(self._stored) if self._has_id(one)), None)
        return replace(command, drafts=drafts, parent=parent)

    def _has_session(self) -> bool:
        return self._database.run(self._connection, find_session(self._scope)) is not None

    def _has(self, draft: Draft) -> bool:
        return self._has_id(draft.message.id)

    def _has_id(self, message_id: str) -> bool:
        return self._database.run(self._connection, get(self._scope, message_id)) is not None
