"""Which journals an owner's directory holds that the index does not."""

from __future__ import annotations

import logging
import os
import sqlite3

from leafward.core.ids import Owner, Scope
from leafward.stores.files import positions
from leafward.stores.files.folder import Folder, Parts
from leafward.stores.files.names import JOURNAL, name_of, owner_parts, session_parts
from leafward.stores.files.writing import named
from leafward.stores.journal.entry import Header
from leafward.stores.journal.lines import read
from leafward.stores.sqlite.connection import Database

_LONGEST_HEADER = 8192
_log = logging.getLogger("leafward.stores.files")


class Listing:
    """Looks at the files of an owner's sessions; cost grows with their number."""

    def __init__(self, database: Database, folder: Folder) -> None:
        self._database = database
        self._folder = folder

    def behind(self, connection: sqlite3.Connection, owner: Owner) -> list[Scope]:
        """Return the sessions whose journals are new, changed or gone since the index looked at them."""
        directory = (*owner_parts(owner.agent_id, owner.user_id), "sessions")
        with named(self._folder.shown(directory)):
            # The files first: what is written after this look need not be seen.
            found = {name: stamp for name, stamp in self._folder.stamps(directory) if name.endswith(JOURNAL)}
            known = self._database.run(connection, positions.of_owner(owner))
            behind: list[Scope] = []
            for session_id, position in known.items():
                stamp = found.pop(name_of(session_id, JOURNAL), None)
                if stamp != position.stamp:
                    behind.append(Scope(owner, session_id))
            ids = (self._id_in((*directory, name)) for name in found)
            return [*behind, *(Scope(owner, id) for id in ids if id is not None)]

    def is_shared(self, scope: Scope) -> bool:
        """Tell whether there is a journal of another agent for a session of this user and this id."""
        own, above = session_parts(scope), owner_parts(scope.owner.agent_id, scope.owner.user_id)[:-1]
        with named(self._folder.shown(above)):
            others = [(*above, agent, *own[-2:]) for agent in self._folder.directories(above)]
            return any(parts != own and self._folder.stamp(parts) is not None for parts in others)

    def _id_in(self, parts: Parts) -> str | None:
        """Return whose journal a file is, by its first line; `None` unless that fits its name."""
        number = self._folder.open(parts)
        if number is None:
            return None
        try:
            start = os.pread(number, _LONGEST_HEADER, 0)
        finally:
            os.close(number)
        entries = read(start[: start.find(b"\n") + 1]).entries
        id = entries[0].id if entries and entries[0].type == Header.kind else ""
        if name_of(id, JOURNAL) == parts[-1]:
            return id
        _log.error(
            "%s is left out of what was asked for: it does not begin as its name says", self._folder.shown(parts)
        )
        return None
