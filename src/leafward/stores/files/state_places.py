"""Which directory is a session's.

AgentScope takes a safe id as it is and writes any other in base64, which gives a safe name as well: `acme` is the
session `acme`, or the session `iɞ`. Such a directory is taken for what is noted in it, by us or by AgentScope. Where
nothing is noted, both find it, as both do in Java, and the one who saves first has it; a list shows its literal name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

from leafward.core.ids import refusal
from leafward.core.json import DecodeError, decode, encode
from leafward.stores.files import state_names as names
from leafward.stores.files.folder import Parts
from leafward.stores.files.names import ANONYMOUS, ESCAPE, decoded, hashed
from leafward.stores.files.state_names import IDS, USER, directory_names, id_before, may_be_encoded, places_of
from leafward.stores.files.state_tree import StateTree, is_saved_by_us
from leafward.stores.leases import Slot
from leafward.stores.states.table import Layout

_log = logging.getLogger("leafward.stores.files")

_STATE = "agent_state" + names.VALUE
"""What AgentScope 2.x keeps of a session; it begins with the ids."""
_BEGINNING = 4096
_STRING = rb'"(?:[^"\\]|\\.)*"'


class _Noted(NamedTuple):
    """Whose a directory is by what is in it; `None` is what nothing tells."""

    user_id: str | None = None
    session_id: str | None = None


class StatePlaces:
    """Finds and names the directories of sessions below a root, in one layout; whoever uses it holds a lock."""

    def __init__(self, tree: StateTree, layout: Layout) -> None:
        self._tree = tree
        self._layout: Layout = layout

    # Looking.

    def find(self, slot: Slot) -> list[Parts]:
        """Return where a session is: the first place is its own, another one is what an older leafward left."""
        places = self._below_root(places_of(slot, self._layout))
        if len(places) == 1:
            return places
        found = [one for one in places if self._tree.has(one) and self._may_be(one, slot)]
        self._warn_of(slot, found)
        return found

    def _below_root(self, places: Iterable[Parts]) -> list[Parts]:
        return [(*self._tree.root, *place) for place in places]

    def _warn_of(self, slot: Slot, found: list[Parts]) -> None:
        for place in found[1:]:
            if place not in self._tree.memory.doubled:
                self._tree.memory.doubled.add(place)
                _log.warning(
                    "session %r is in %s; %s, which leafward wrote before, is not read: compare them and remove one",
                    slot.session_id,
                    self._tree.folder.shown(found[0]),
                    self._tree.folder.shown(place),
                )

    def _may_be(self, place: Parts, slot: Slot) -> bool:
        """Tell whether nothing says that a directory is somebody else's."""
        noted = self._noted(place, self._tree.files(place))
        return noted.user_id in (None, slot.user_id) and noted.session_id in (None, slot.session_id)

    def sessions(self, user_id: str | None) -> Iterator[tuple[str, list[str]]]:
        """Find the sessions of a user, each with the files in its directory."""
        for above in self._user_places(user_id):
            # Looked up once, and not for each of them.
            whose = self._whose(above) if self._layout == "2.x" and may_be_encoded(above[-1]) else user_id
            is_clear = whose == user_id and (self._layout == "2.x" or user_id is None)
            for name, files in self._tree.folder.files_below(above) if whose in (None, user_id) else ():
                if is_clear and IDS not in files and names.is_clear(name):
                    yield name, files
                    continue
                slot = self._slot_in((*above, name), user_id, files)
                if slot is not None and slot.user_id == user_id:
                    yield slot.session_id, files

    def _user_places(self, user_id: str | None) -> list[Parts]:
        if self._layout == "1.x":
            return [self._tree.root]
        return self._below_root((user,) for user in ((ANONYMOUS,) if user_id is None else directory_names(user_id)))

    def slot_in(self, place: Parts) -> Slot | None:
        """Return which session a directory in layout 1.x is, whoever's it is."""
        name = place[-1]
        if name.startswith(names.HASHED):
            slot = names.read_ids(self._tree.read((*place, IDS)) or b"")
        elif name.count(ESCAPE) == 2:
            _, user, session = name.split(ESCAPE)
            slot = Slot(id_before(user), id_before(session))
        else:
            slot = self._slot_in(place, None, self._tree.files(place))
        return slot if slot is not None and self._is_place_of(place, slot) else None

    def is_unclear(self, place: Parts) -> bool:
        """Tell whether nothing says if the name of a directory is an id or an encoding."""
        return may_be_encoded(place[-1]) and self._noted(place, self._tree.files(place)).session_id is None

    def _slot_in(self, place: Parts, user_id: str | None, files: list[str]) -> Slot | None:
        name = place[-1]
        if self._layout == "1.x" and name.startswith(ESCAPE) and name.count(ESCAPE) > 1:
            return self.slot_in(place)
        if name.startswith(names.HASHED):
            slot = names.read_ids(self._tree.read((*place, IDS)) or b"")
        elif name.startswith(ESCAPE):
            slot = Slot(user_id, name[1:])
        else:
            noted = self._noted(place, files)
            slot = Slot(noted.user_id or user_id, noted.session_id or name)
        return slot if slot is not None and self._is_place_of(place, slot) else None

    def _is_place_of(self, place: Parts, slot: Slot) -> bool:
        known = refusal(slot.session_id) is None and (slot.user_id is None or refusal(slot.user_id) is None)
        return known and place[len(self._tree.root) :] in places_of(slot, self._layout)

    # What tells whose a directory is.

    def _noted(self, place: Parts, files: list[str]) -> _Noted:
        """Return whose a directory is, as far as its name leaves that open."""
        *above, name = place[len(self._tree.root) :]
        user = above[0] if above and above[0] != ANONYMOUS else ""
        if not may_be_encoded(name) and not may_be_encoded(user):
            return _Noted()
        slot = names.read_ids(self._tree.read((*place, IDS)) or b"") if IDS in files else None
        if slot is not None:
            return _Noted(*slot)
        marked = self._marked_user(place[:-1]) if may_be_encoded(user) else None
        if any(self._is_ours(place, file) for file in files):
            # We mark what we write under such a name, and did not when we took every such name for an encoding.
            return _Noted(marked or decoded(user), decoded(name))
        written = self._in_agent_state(place, files)
        return _Noted(
            marked or (written.user_id if written.user_id in (user, decoded(user)) else None),
            written.session_id if written.session_id in (name, decoded(name)) else None,
        )

    def _marked_user(self, above: Parts) -> str | None:
        return names.read_user(self._tree.read((*above, USER)) or b"")

    def _is_ours(self, place: Parts, file: str) -> bool:
        if file.endswith(names.VERSION):
            return is_saved_by_us(self._tree.read((*place, file)))
        return file.endswith(names.MARK) and (self._tree.read((*place, file)) or b"").startswith(b"py:")

    def _in_agent_state(self, place: Parts, files: list[str]) -> _Noted:
        if _STATE not in files:
            return _Noted()
        beginning = self._tree.beginning((*place, _STATE), _BEGINNING).partition(b'"context"')[0]
        return _Noted(_text_of(beginning, b"user_id"), _text_of(beginning, b"session_id"))

    # Writing.

    def make(self, slot: Slot) -> Parts:
        """Return where a session is to be written; whoever writes keeps what `ids_to_keep` says with it."""
        places = self._below_root(places_of(slot, self._layout))
        if len(places) == 1:
            return places[0]
        above = self._tree.root if self._layout == "1.x" else self._own_user(slot.user_id)
        found = self.find(slot)
        place = self._own_session(above, slot)
        if found and found[0] != place and not self._tree.folder.has_directory(place):
            self._tree.folder.move(found[0], place)
            if self._layout == "2.x":
                self._tree.folder.remove_if_empty(found[0][:-1])
        return place

    def place_to_imagine(self, slot: Slot) -> Parts:
        """Return a place for a session that is looked at as if it were there; nobody has a directory of that name."""
        return (*self._tree.root, hashed(slot.session_id))

    def _own_user(self, user_id: str | None) -> Parts:
        name, *others = (ANONYMOUS,) if user_id is None else directory_names(user_id)
        place = (*self._tree.root, name)
        if user_id is None or not may_be_encoded(name):
            return place
        aside = (*self._tree.root, hashed(user_id))
        if aside[-1] in others and self._tree.folder.has_directory(aside):
            return aside
        whose = self._whose(place)
        if whose not in (None, user_id):
            if not names.is_literal(user_id):
                return aside
            self._tree.keep({(*place, USER): encode(whose)})
            self._tree.folder.move(place, (*self._tree.root, hashed(whose)))
        self._tree.keep({(*place, USER): encode(user_id)})
        return place

    def _whose(self, above: Parts) -> str | None:
        """Return whose a directory of a user is: as it is marked, or else as the first session tells that tells it."""
        marked = self._marked_user(above)
        if marked is not None:
            return marked
        for name, files in self._tree.folder.files_below(above):
            user_id = self._noted((*above, name), files).user_id
            if user_id is not None:
                return user_id
        return None

    def _own_session(self, above: Parts, slot: Slot) -> Parts:
        name, *others = directory_names(slot.session_id)
        place, aside = (*above, name), (*above, hashed(slot.session_id))
        if not may_be_encoded(name):
            return place
        if aside[-1] in others and self._tree.folder.has_directory(aside):
            return aside
        whose = self._noted(place, self._tree.files(place)).session_id
        if whose not in (None, slot.session_id):
            if not names.is_literal(slot.session_id):
                return aside
            self._tree.keep({(*place, IDS): encode(Slot(slot.user_id, whose))})
            self._tree.folder.move(place, (*above, hashed(whose)))
        return place


def _text_of(beginning: bytes, key: bytes) -> str | None:
    found = re.search(rb'"' + key + rb'"\s*:\s*(' + _STRING + rb")", beginning)
    if found is not None:
        with suppress(ValueError, DecodeError):
            text = decode(found[1])
            return text if isinstance(text, str) else None
    return None
