"""Which directory is a session's.

AgentScope takes a safe id as it is and writes any other in base64, which gives a safe name as well: `acme` is the
session `acme`, or the session `iɞ`. Such a directory is taken for what is noted in it, by us or by AgentScope. Where
nothing is noted it is unclear: both find it, as both do in Java, the one who saves first has it, and a list shows its
literal name. All of this is decided for each session by itself, also where the name of its user is the unclear one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from leafward.core.errors import StoreError
from leafward.core.ids import refusal
from leafward.core.json import DecodeError, decode, encode
from leafward.stores.files import state_lists as lists
from leafward.stores.files import state_names as names
from leafward.stores.files.folder import Parts
from leafward.stores.files.names import ANONYMOUS, ESCAPE, decoded
from leafward.stores.files.state_names import IDS, directory_names, id_before, may_be_encoded, places_of
from leafward.stores.files.state_tree import StateTree, is_saved_by_us
from leafward.stores.leases import Slot
from leafward.stores.states.table import Layout

_log = logging.getLogger("leafward.stores.files")

_STATE = "agent_state" + names.VALUE
"""What AgentScope 2.x keeps of a session; it begins with the ids."""
_BEGINNING = 4096
_USER_ID, _SESSION_ID = (
    re.compile(rb'"' + key + rb'"\s*:\s*("(?:[^"\\]|\\.)*")') for key in (b"user_id", b"session_id")
)


class _Noted(NamedTuple):
    """Whose a directory is by what is in it; `None` is what nothing tells, or what the name tells alone."""

    user_id: str | None = None
    session_id: str | None = None


Beginning = Callable[[str, int], bytes]
"""Returns the first bytes of a file in a directory; none when it is not there."""


class _Found(NamedTuple):
    """A directory that may be a session's."""

    place: Parts
    files: list[str]
    is_certain: bool

    @property
    def is_empty(self) -> bool:
        return not any(map(names.is_state, self.files))


class StatePlaces:
    """Finds and names the directories of sessions below a root, in one layout; whoever uses it holds a lock."""

    def __init__(self, tree: StateTree, layout: Layout) -> None:
        self._tree = tree
        self._layout: Layout = layout

    # Looking.

    def find(self, slot: Slot, *, warn: bool = True) -> list[Parts]:
        """Return where a session is: the first place is its own, another one is what an older leafward left.

        What nothing tells to be the session's is its own only where nothing else is.
        """
        places = self._places(slot)
        if len(places) == 1:
            return places
        found = [one for one in (self._look_at(place, slot) for place in places) if one is not None]
        certain = [one for one in found if one.is_certain] or found
        ranked = sorted(certain, key=lambda one: one.is_empty)
        if warn:
            self._warn_of(slot, [one.place for one in ranked if not one.is_empty])
        return [one.place for one in ranked]

    def _places(self, slot: Slot) -> list[Parts]:
        return [(*self._tree.root, *place) for place in places_of(slot, self._layout)]

    def _look_at(self, place: Parts, slot: Slot) -> _Found | None:
        """Return what is in a place, unless that is somebody else's."""
        if not self._tree.has(place):
            return None
        files = self._tree.files(place)
        noted = self._noted(place, files, self._in(place))
        self._refuse_two(place, files)
        is_certain = True
        for name, id, told in zip(self._unclear_names(place), (slot.user_id, slot.session_id), noted, strict=True):
            if told not in (None, id):
                return None
            # Without a note a name is the id that is called so.
            is_certain = is_certain and (name is None or told is not None or name == id)
        return _Found(place, files, is_certain)

    def _refuse_two(self, place: Parts, files: list[str]) -> None:
        """Raise if we and AgentScope keep different sessions in a directory: nothing tells which states are whose."""
        if IDS not in files or _STATE not in files:
            return
        kept = _kept_ids(self._in(place))
        written = _in_agent_state(self._in(place))
        for name, ours, theirs in zip(self._unclear_names(place), kept or _Noted(), written, strict=True):
            readings = () if name is None else (name, decoded(name))
            if ours in readings and theirs in readings and ours != theirs:
                raise StoreError(
                    f"{self._tree.folder.shown(place)} is the directory of {ours!r}, and AgentScope has saved the "
                    f"state of {theirs!r} there, which it names so, too: move the files of one of them elsewhere"
                )

    def _unclear_names(self, place: Parts) -> tuple[str | None, str | None]:
        """Return the names of a session's user and of itself that may be encodings."""
        *above, name = place[len(self._tree.root) :]
        user = above[0] if above and above[0] != ANONYMOUS else ""
        return (user if may_be_encoded(user) else None), (name if may_be_encoded(name) else None)

    def _warn_of(self, slot: Slot, found: list[Parts]) -> None:
        for place in found[1:]:
            if place not in self._tree.memory.doubled:
                self._tree.memory.doubled.add(place)
                _log.warning(
                    "session %r is in %s; %s holds states of it as well, which are not read: compare them",
                    slot.session_id,
                    self._tree.folder.shown(found[0]),
                    self._tree.folder.shown(place),
                )

    def sessions(self, user_id: str | None) -> Iterator[tuple[str, list[str]]]:
        """Find the sessions of a user, each with the files in its directory."""
        for above in self._user_places(user_id):
            is_clear = self._layout == "1.x" and user_id is None
            is_clear = is_clear or (self._layout == "2.x" and not may_be_encoded(above[-1]))
            if above:
                # Whoever reads without a lock looks again at its end.
                self._tree.has(above)
            for found in self._tree.folder.below(above):
                if is_clear and IDS not in found.files and names.is_clear(found.name):
                    yield found.name, found.files
                    continue
                slot = self._slot_in((*above, found.name), user_id, found.files, found.beginning)
                if slot is not None and slot.user_id == user_id:
                    yield slot.session_id, found.files

    def _user_places(self, user_id: str | None) -> list[Parts]:
        if self._layout == "1.x":
            return [self._tree.root]
        users = (ANONYMOUS,) if user_id is None else directory_names(user_id)
        return [(*self._tree.root, user) for user in users]

    def slot_in(self, place: Parts) -> Slot | None:
        """Return which session a directory in layout 1.x is, whoever's it is."""
        if place[-1].startswith(names.HASHED):
            slot = _kept_ids(self._in(place))
        elif place[-1].count(ESCAPE) == 2:
            _, user, session = place[-1].split(ESCAPE)
            slot = Slot(id_before(user), id_before(session))
        else:
            slot = self._slot_in(place, None, self._tree.files(place), self._in(place))
        return slot if slot is not None and self._is_place_of(place, slot) else None

    def noted_user(self, place: Parts) -> str | None:
        """Return the user whose session a directory is, if its name leaves that open and something tells."""
        return self._note_in(place).user_id

    def is_unclear(self, place: Parts) -> bool:
        """Tell whether nothing says if the name of a directory is an id or an encoding."""
        return may_be_encoded(place[-1]) and self._note_in(place).session_id is None

    def _slot_in(self, place: Parts, user_id: str | None, files: list[str], beginning: Beginning) -> Slot | None:
        name = place[-1]
        if self._layout == "1.x" and name.startswith(ESCAPE) and name.count(ESCAPE) > 1:
            return self.slot_in(place)
        if name.startswith(names.HASHED):
            slot = _kept_ids(beginning)
        elif name.startswith(ESCAPE):
            slot = Slot(self._noted(place, files, beginning).user_id or user_id, name[1:])
        else:
            # Whatever is noted fits the name.
            noted = self._noted(place, files, beginning)
            known = may_be_encoded(name) or names.is_clear(name)
            user = noted.user_id or user_id if self._layout == "2.x" else None
            return Slot(user, noted.session_id or name) if known else None
        return slot if slot is not None and self._is_place_of(place, slot) else None

    def _is_place_of(self, place: Parts, slot: Slot) -> bool:
        known = refusal(slot.session_id) is None and (slot.user_id is None or refusal(slot.user_id) is None)
        return known and place in self._places(slot)

    # What tells whose a directory is.

    def _in(self, place: Parts) -> Beginning:
        def beginning(file: str, size: int) -> bytes:
            found = self._tree.content((*place, file), at_most=size)
            return b"" if found is None else found.data

        return beginning

    def _note_in(self, place: Parts) -> _Noted:
        return self._noted(place, self._tree.files(place), self._in(place))

    def _noted(self, place: Parts, files: list[str], beginning: Beginning) -> _Noted:
        """Return whose a directory is, as far as its name leaves that open."""
        unclear = self._unclear_names(place)
        if unclear == (None, None):
            return _Noted()
        kept = (_kept_ids(beginning) if IDS in files else None) or _Noted()
        written = _in_agent_state(beginning) if _STATE in files else _Noted()
        # We keep the ids under such a name, and did not when we took every such name for an encoding.
        is_from_before = IDS not in files and any(_is_ours(beginning, file) for file in files)
        told: list[str | None] = []
        for name, by_us, by_java in zip(unclear, kept, written, strict=True):
            readings = () if name is None else (name, decoded(name))
            known = [id for id in (by_us, by_java) if id is not None and id in readings]
            told.append(known[0] if known else decoded(name) if name is not None and is_from_before else None)
        return _Noted(*told)

    # Writing.

    def make(self, slot: Slot) -> Parts:
        """Return where a session is to be written; whoever writes keeps what `ids_to_keep` says with it, first."""
        places = self._places(slot)
        if len(places) == 1:
            return places[0]
        found = self.find(slot)
        if found and not self._is_from_before(found[0], slot):
            return found[0]
        place = self._free_place(places, slot)
        if found and self._tree.has(place):
            # Two places are full: what is found is written to where it is.
            return found[0]
        if found:
            # Before it moves: without this, it would be another's there.
            self._tree.keep(names.ids_to_keep(slot, place, self._layout, found[0]))
            self._tree.folder.move(found[0], place)
            if self._layout == "2.x":
                self._tree.folder.remove_if_empty(found[0][:-1])
        return place

    def _is_from_before(self, place: Parts, slot: Slot) -> bool:
        """Tell whether a place is named as an older leafward named it."""
        parts = place[len(self._tree.root) :]
        ids = [slot.session_id] if self._layout == "1.x" else [slot.user_id or "", slot.session_id]
        return any(
            names.is_literal(id) and name not in (id, directory_names(id)[0])
            for name, id in zip(parts, ids, strict=True)
        )

    def _free_place(self, places: list[Parts], slot: Slot) -> Parts:
        """Return the first place that a session can have; who is encoded makes way for who is called so."""
        home = places[0]
        if not self._tree.has(home) or self._moves_aside(home, slot):
            return home
        ours = [place for place in places[1:] if not self._is_from_before(place, slot)]
        return ours[-1] if ours else places[-1]

    def _moves_aside(self, home: Parts, slot: Slot) -> bool:
        """Move the session of another, whose name is only encoded so, out of the way of a literal one, if it can be."""
        if not all(names.is_literal(id) for id in slot if id is not None):
            return False
        noted = self._note_in(home)
        other = Slot(noted.user_id or slot.user_id, noted.session_id or slot.session_id)
        aside = self._places(other)[-1]
        if other == slot or self._tree.has(aside):
            return False
        self._tree.keep({(*home, IDS): encode(other)})
        self._tree.folder.move(home, aside)
        return True

    def place_to_imagine(self, slot: Slot) -> Parts:
        """Return a place for a session that is looked at as if it were there, because it is nowhere."""
        return (*self._tree.root, names.hashed(slot.session_id))


def _kept_ids(beginning: Beginning) -> Slot | None:
    return names.read_ids(beginning(IDS, _BEGINNING))


def _is_ours(beginning: Beginning, file: str) -> bool:
    if file.endswith(names.VERSION):
        return is_saved_by_us(beginning(file, _BEGINNING))
    return file.endswith(names.MARK) and lists.is_ours(beginning(file, _BEGINNING))


def _in_agent_state(beginning: Beginning) -> _Noted:
    ids = beginning(_STATE, _BEGINNING).partition(b'"context"')[0]
    return _Noted(_text_of(_USER_ID, ids), _text_of(_SESSION_ID, ids))


def _text_of(pattern: re.Pattern[bytes], beginning: bytes) -> str | None:
    found = pattern.search(beginning)
    if found is not None:
        with suppress(ValueError, DecodeError):
            text = decode(found[1])
            return text if isinstance(text, str) else None
    return None
