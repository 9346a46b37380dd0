"""Which journals an owner's directory holds that the index does not."""

from __future__ import annotations

import logging
import sqlite3

from leafward.core.ids import Owner, Scope
from leafward.stores.files import positions
from leafward.stores.files.folder import Folder, Parts, Stamp
from leafward.stores.files.journal_places import JournalPlaces, candidates, is_in_place, sessions_of
from leafward.stores.files.names import JOURNAL, names_of, user_names
from leafward.stores.files.positions import Key
from leafward.stores.files.writing import named
from leafward.stores.sqlite.connection import Database

_log = logging.getLogger("leafward.stores.files")


class Listing:
    """Looks at the files of an owner's sessions; cost grows with their number."""

    def __init__(self, database: Database, folder: Folder, places: JournalPlaces) -> None:
        self._database = database
        self._folder = folder
        self._places = places

    def behind(self, connection: sqlite3.Connection, owner: Owner) -> list[Scope]:
        """Return the sessions whose journals are new, changed or gone since the index looked at them."""
        directories = sessions_of(owner)
        with named(self._folder.shown(directories.home)):
            # The files first: what is written after this look need not be seen.
            held = {directory: self._journals_in(directory) for directory in dict.fromkeys(directories)}
            known = self._database.run(connection, positions.of_owner(owner))
            in_order = [held[directory] for directory in directories]
            behind: list[Scope] = []
            for session_id, position in known.items():
                for files, name in zip(in_order, names_of(session_id, JOURNAL), strict=True):
                    if files.get(name) == position.stamp:
                        del files[name]
                        break
                else:
                    behind.append(Scope(owner, session_id))
            expected = {self._places.where(scope) for scope in behind}
            left = [(*directory, name) for directory, files in held.items() for name in files]
            new = (self._session_in(parts, owner) for parts in left if parts not in expected)
            return [*behind, *(scope for scope in new if scope is not None)]

    def _journals_in(self, directory: Parts) -> dict[str, Stamp]:
        return {name: stamp for name, stamp in self._folder.stamps(directory) if name.endswith(JOURNAL)}

    def is_shared(self, scope: Scope) -> bool:
        """Tell whether there is a journal of another agent for a session of this user and this id."""
        own = candidates(scope)
        for user in set(user_names(scope.owner.user_id)):
            above = (user, "agents")
            with named(self._folder.shown(above)):
                agents, own_names = self._folder.directories(above), set(names_of(scope.session_id, JOURNAL))
                for parts in ((*above, agent, "sessions", name) for agent in agents for name in own_names):
                    file = self._places.look(parts)
                    if file is not None and _is_of_another_agent(file.key, scope, unclear=parts not in own):
                        return True
        return False

    def _session_in(self, parts: Parts, owner: Owner) -> Scope | None:
        """Return whose journal a file is, by its first line; `None` unless it is one of this owner's that counts."""
        file = self._places.look(parts)
        if file is None:
            return None
        key = file.key
        if not isinstance(key, Scope) or not is_in_place(key, parts):
            _log.error(
                "%s is left out of what was asked for: it does not begin as its name says", self._folder.shown(parts)
            )
            return None
        if key.owner != owner:
            return None
        if self._places.where(key) != parts:
            self._places.report_others(key)
            return None
        return key


def _is_of_another_agent(key: Key | None, scope: Scope, *, unclear: bool) -> bool:
    if not isinstance(key, Scope):
        return unclear
    same = (key.owner.user_id, key.session_id) == (scope.owner.user_id, scope.session_id)
    return same and key != scope
