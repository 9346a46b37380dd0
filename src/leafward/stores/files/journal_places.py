"""Where the journal of a session, or of an owner, is kept.

Nearly all ids have one file name, and their journals one place. An id that is encoded, or that looks like an encoding,
may share a name with another id; there the first line of a journal says whose it is.
"""

from __future__ import annotations

import logging
import os
from functools import lru_cache
from typing import NamedTuple

from msgspec import DecodeError, Struct, json

from leafward.core.errors import StoreError
from leafward.core.ids import Owner, Scope
from leafward.stores.files import names
from leafward.stores.files.folder import Folder, Parts, Stamp
from leafward.stores.files.positions import Key
from leafward.stores.journal.entry import SharedHeader
from leafward.stores.journal.lines import read

_LONGEST_HEADER = 8192
_log = logging.getLogger("leafward.stores.files")


class Places(NamedTuple):
    """The places of a journal, or the directories of an owner's; the words are those of `names.Names`."""

    home: Parts
    unique: Parts
    old: Parts


def sessions_of(owner: Owner) -> Places:
    """Return the directories that the journals of an owner's sessions may be in."""
    return Places(*((*above, "sessions") for above in _owner_places(owner)))


@lru_cache(maxsize=4096)
def candidates(key: Key) -> tuple[Parts, ...]:
    """Return the different places that a journal may be in, in the order in which they count; mostly there is one."""
    return tuple(dict.fromkeys(_places(key)))


def home(key: Key) -> Parts:
    """Return the place that a journal has unless another id has it."""
    return candidates(key)[0]


def _places(key: Key) -> Places:
    if isinstance(key, Owner):
        return Places(*((*above, "shared" + names.JOURNAL) for above in _owner_places(key)))
    files = names.names_of(key.session_id, names.JOURNAL)
    return Places(*((*above, file) for above, file in zip(sessions_of(key.owner), files, strict=True)))


def _owner_places(owner: Owner) -> Places:
    users, agents = names.user_names(owner.user_id), names.agent_names(owner.agent_id)
    return Places(*((user, "agents", agent) for user, agent in zip(users, agents, strict=True)))


class _Whose(Struct):
    """What the first line of a journal says, also in a format that is newer than ours."""

    agent: str
    user: str | None


@lru_cache(maxsize=4096)
def _key_in(line: bytes) -> Key | None:
    """Return whose journal begins with a line; `None` if it does not say so."""
    try:
        [first] = read(line).entries
        whose = json.decode(bytes(first.leafward), type=_Whose)
        owner = Owner(whose.agent, whose.user)
        return owner if first.type == SharedHeader.kind else Scope(owner, first.id)
    except (ValueError, DecodeError, RecursionError, StoreError):
        return None


class FoundFile(NamedTuple):
    """A file in the place of a journal."""

    stamp: Stamp
    key: Key | None
    """Whose journal it is; `None` if its first line does not say so."""


class JournalPlaces:
    """Finds journals; looks at the disk only for a key that has several places."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._reported: set[Parts] = set()

    def find(self, key: Key) -> tuple[Parts, Stamp | None]:
        """Return where a journal is, with its stamp; if there is none, a place without a file."""
        places = candidates(key)
        return (places[0], self._folder.stamp(places[0])) if len(places) == 1 else self._search(key)

    def where(self, key: Key) -> Parts:
        """Return the same place without its stamp."""
        places = candidates(key)
        return places[0] if len(places) == 1 else self._search(key)[0]

    def _search(self, key: Key) -> tuple[Parts, Stamp | None]:
        unclear: tuple[Parts, Stamp] | None = None
        free: Parts | None = None
        for parts in candidates(key):
            file = self.look(parts)
            if file is None:
                free = free or parts
            elif file.key == key:
                return parts, file.stamp
            elif unclear is None and not is_in_place(file.key, parts):
                unclear = parts, file.stamp
        if unclear is not None:
            # Damaged, or put there by hand: not to be taken for a session that does not exist.
            return unclear
        assert free is not None, "each key has a place that no other has"
        return free, None

    def look(self, parts: Parts) -> FoundFile | None:
        """Look at the file in a place, and at its first line."""
        number = self._folder.open(parts)
        if number is None:
            return None
        try:
            stamp = Stamp.of(os.fstat(number))
            start = os.pread(number, _LONGEST_HEADER, 0)
        finally:
            os.close(number)
        return FoundFile(stamp, _key_in(start[: start.find(b"\n") + 1]))

    def of(self, key: Key) -> list[Parts]:
        """Return every place that holds a journal of a key, a damaged one that can only be its own, or no journal."""
        places = candidates(key)
        if len(places) == 1:
            return [*places]
        found = self.where(key)
        files = {parts: self.look(parts) for parts in places}
        return [
            parts
            for parts, file in files.items()
            if parts == found or file is None or file.key == key or (file.key is None and _is_of_one_key(parts))
        ]

    def place_for_new(self, key: Key) -> tuple[Parts, Key | None]:
        """Return where a new journal goes, and whose journal must leave that place first.

        Raises:
            StoreError: there is no free place.
        """
        places = _places(key)
        if len(candidates(key)) == 1:
            return places.home, None
        for parts in dict.fromkeys((places.home, places.unique)):
            file = self.look(parts)
            if file is None:
                return parts, None
            if file.key is not None and places.home == places.unique:
                return parts, file.key
        raise StoreError(
            f"{self._folder.shown(places.unique)} is in the way of a journal: move it to another directory"
        )

    def report_others(self, key: Key) -> None:
        """Warn, once, of further journals of a key: only the first counts."""
        places = candidates(key)
        if len(places) == 1:
            return
        first, *others = [parts for parts in places if (file := self.look(parts)) and file.key == key] or [places[0]]
        for parts in others:
            if parts not in self._reported:
                self._reported.add(parts)
                _log.warning(
                    "%s holds a session that is also in %s: the latter is used, the former was not changed. "
                    "Move it to another directory, or delete the session to remove both",
                    self._folder.shown(parts),
                    self._folder.shown(first),
                )

    def free_beside(self, parts: Parts, kind: str) -> Parts:
        """Return the first free name for a file that is kept beside a journal."""
        taken = set(self._folder.names(parts[:-1]))
        numbered = (names.aside(parts[-1], kind, number) for number in range(1, len(taken) + 2))
        return *parts[:-1], next(name for name in numbered if name not in taken)


def _is_of_one_key(parts: Parts) -> bool:
    """Tell whether only one key has a place: none of the names in it may be an encoding."""
    user, _, agent, *session = parts
    ids = (user, agent, *(name.removesuffix(names.JOURNAL) for name in session[1:]))
    return all(names.decoded(id) is None for id in ids)


def is_in_place(key: Key | None, parts: Parts) -> bool:
    """Tell whether a place is one of a key's."""
    return key is not None and parts in candidates(key)
