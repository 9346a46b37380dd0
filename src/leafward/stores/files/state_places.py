"""Which directory is a session's.

AgentScope takes a safe id as it is and writes any other in base64, which gives a safe name as well: `acme` is the
session `acme`, or the session `iɞ`. What is in a directory tells whose it is: `state_owners`. Where it is one id's, the
other has a name of our own. Where nothing tells, the literal id finds it, and so does the encoded one if an encoding is
likely: then both are one session, as in Java. All of this is decided for each session by itself, also where the name
of its user is the unclear one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from leafward.core.errors import StoreError
from leafward.core.ids import refusal
from leafward.core.json import encode
from leafward.stores.files import state_names as names
from leafward.stores.files import state_owners as owners
from leafward.stores.files.folder import Parts
from leafward.stores.files.names import ANONYMOUS, ESCAPE, decoded, is_likely_encoded
from leafward.stores.files.state_names import IDS, directory_names, id_before, may_be_encoded, places_of
from leafward.stores.files.state_owners import Beginning, Noted, Unclear
from leafward.stores.files.state_tree import StateTree
from leafward.stores.leases import Slot
from leafward.stores.states.table import Layout

_log = logging.getLogger("leafward.stores.files")


class _Found(NamedTuple):
    """A directory that may be a session's."""

    place: Parts
    files: list[str]

    @property
    def is_empty(self) -> bool:
        # A mark alone is that of a list which AgentScope is writing.
        return not any(names.is_state(file) or file.endswith(names.MARK) for file in self.files)


class StatePlaces:
    """Finds and names the directories of sessions below a root, in one layout; whoever uses it holds a lock."""

    def __init__(self, tree: StateTree, layout: Layout) -> None:
        self._tree = tree
        self._layout: Layout = layout

    # Looking.

    def find(self, slot: Slot, *, warn: bool = True) -> list[Parts]:
        """Return where a session is: the first place is its own, another one is what an older leafward left.

        Where AgentScope finds it comes first, unless nothing is there.
        """
        places = self._places(slot)
        if len(places) == 1:
            return places
        found = [one for one in (self._look_at(place, slot, warn=warn) for place in places) if one is not None]
        ranked = sorted(found, key=lambda one: one.is_empty)
        if warn:
            self._warn_of(slot, [one.place for one in ranked if not one.is_empty])
        return [one.place for one in ranked]

    def _places(self, slot: Slot) -> list[Parts]:
        return [(*self._tree.root, *place) for place in places_of(slot, self._layout)]

    def _look_at(self, place: Parts, slot: Slot, *, warn: bool) -> _Found | None:
        """Return what is in a place, unless that is another's."""
        if not self._tree.has(place):
            return None
        files = self._tree.files(place)
        unclear = self._unclear_names(place)
        self._refuse_two(place, unclear, files)
        noted = owners.noted(unclear, files, self._in(place))
        for name, id, told in zip(unclear, (slot.user_id, slot.session_id), noted, strict=True):
            if not (owners.is_free(files) or owners.may_be(name, told, id)):
                if warn and name is not None and told is None:
                    self._warn_of_passed_over(place, name, id)
                return None
        return _Found(place, files)

    def _refuse_two(self, place: Parts, unclear: Unclear, files: list[str]) -> None:
        """Raise if we and AgentScope keep different sessions in a directory: nothing tells which states are whose."""
        ids = owners.ids_of_two(unclear, files, self._in(place))
        if ids is not None:
            ours, theirs = ids
            raise StoreError(
                f"{self._tree.folder.shown(place)} is the directory of {ours!r}, and AgentScope has saved the "
                f"state of {theirs!r} there, which it names so, too: move the files of one of them elsewhere"
            )

    def _unclear_names(self, place: Parts) -> Unclear:
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

    def _warn_of_passed_over(self, place: Parts, name: str, id: str | None) -> None:
        """Say once that Java's directory for an id is taken for that of the id that is called like it."""
        if place not in self._tree.memory.passed_over:
            self._tree.memory.passed_over.add(place)
            _log.warning(
                "%s is read as that of %r and not of %r, which AgentScope names so, too: nothing in it says whose it "
                "is, and %r is more likely an id than an encoding",
                self._tree.folder.shown(place),
                name,
                id,
                name,
            )

    def sessions(self, user_id: str | None) -> Iterator[tuple[str, Parts, list[str]]]:
        """Find the sessions of a user, each with its directory and the files in it."""
        for above in self._user_places(user_id):
            is_clear = self._layout == "1.x" and user_id is None
            is_clear = is_clear or (self._layout == "2.x" and not may_be_encoded(above[-1]))
            if above:
                # Whoever reads without a lock looks again at its end.
                self._tree.has(above)
            for found in self._tree.folder.below(above):
                place = (*above, found.name)
                if is_clear and IDS not in found.files and names.is_clear(found.name):
                    yield found.name, place, found.files
                    continue
                slot = self._slot_in(place, user_id, found.files, found.beginning)
                if slot is not None and slot.user_id == user_id:
                    yield slot.session_id, place, found.files

    def _user_places(self, user_id: str | None) -> list[Parts]:
        if self._layout == "1.x":
            return [self._tree.root]
        users = (ANONYMOUS,) if user_id is None else directory_names(user_id)
        return [(*self._tree.root, user) for user in users]

    def slot_in(self, place: Parts) -> Slot | None:
        """Return which session a directory in layout 1.x is, whoever's it is."""
        if place[-1].startswith(names.HASHED):
            slot = owners.kept_ids(self._in(place))
        elif place[-1].count(ESCAPE) == 2:
            _, user, session = place[-1].split(ESCAPE)
            slot = Slot(id_before(user), id_before(session))
        else:
            slot = self._slot_in(place, None, self._tree.files(place), self._in(place))
        return slot if slot is not None and self._is_place_of(place, slot) else None

    def noted(self, place: Parts) -> Noted:
        """Return whose session a directory is, as far as its name leaves that open and something tells."""
        return owners.noted(self._unclear_names(place), self._tree.files(place), self._in(place))

    def is_unclear(self, place: Parts) -> bool:
        """Tell whether nothing says if the name of a directory is an id or an encoding."""
        return may_be_encoded(place[-1]) and self.noted(place).session_id is None

    def _slot_in(self, place: Parts, user_id: str | None, files: list[str], beginning: Beginning) -> Slot | None:
        """Return which session a directory is that may be a user's; another user's is returned as such, or not."""
        name = place[-1]
        if self._layout == "1.x" and name.startswith(ESCAPE) and name.count(ESCAPE) > 1:
            return self.slot_in(place)
        if name.startswith(names.HASHED):
            slot = owners.kept_ids(beginning)
            return slot if slot is not None and self._is_place_of(place, slot) else None
        unclear = self._unclear_names(place)
        # A session is listed by its decoded id where that is likely, whatever else would tell it.
        asked = Noted(user_id, None if unclear[1] is None else decoded(unclear[1]))
        told = owners.noted(unclear, files, beginning, asked=asked)
        if self._layout == "2.x" and not owners.may_be(unclear[0], told.user_id, user_id):
            return None
        if name.startswith(ESCAPE):
            slot = Slot(user_id, name[1:])
            return slot if self._is_place_of(place, slot) else None
        if unclear[1] is None and not names.is_clear(name):
            return None
        return Slot(user_id if self._layout == "2.x" else None, owners.most_likely(name, told.session_id))

    def _is_place_of(self, place: Parts, slot: Slot) -> bool:
        known = refusal(slot.session_id) is None and (slot.user_id is None or refusal(slot.user_id) is None)
        return known and place in self._places(slot)

    # What tells whose a directory is.

    def _in(self, place: Parts) -> Beginning:
        def beginning(file: str, size: int) -> bytes:
            found = self._tree.content((*place, file), at_most=size)
            return b"" if found is None else found.data

        return beginning

    # Writing.

    def make(self, slot: Slot) -> Parts:
        """Return where a session is to be written; the caller first writes what `mark` returns."""
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
        """Move the session of another, whose name is only encoded so, out of the way of a literal one, if it can be.

        What AgentScope has saved stays where AgentScope finds it. Where an encoding is likely, the session stays too:
        AgentScope may have saved in it, although we have since saved over everything.
        """
        if not all(names.is_literal(id) for id in slot if id is not None):
            return False
        files = self._tree.files(home)
        noted = self.noted(home)
        other = Slot(noted.user_id or slot.user_id, noted.session_id or slot.session_id)
        aside = self._places(other)[-1]
        if any(id != own and is_likely_encoded(own or "") for id, own in zip(other, slot, strict=True)):
            return False
        if other == slot or self._tree.has(aside) or owners.has_sign_of_java(files, self._in(home)):
            return False
        self._tree.keep({(*home, IDS): encode(other)})
        self._tree.folder.move(home, aside)
        return True

    def mark(self, slot: Slot, place: Parts) -> dict[Parts, bytes]:
        """Return the file that tells whose a directory is, where its name does not, unless it is there already."""
        kept = names.ids_to_keep(slot, place, self._layout)
        if not kept or any(name.startswith(ESCAPE) for name in place[len(self._tree.root) :]):
            # Nothing but leafward gives such names.
            return {parts: data for parts, data in kept.items() if self._tree.read(parts) != data}
        content = owners.to_mark(slot, self._unclear_names(place), self._tree.files(place), self._in(place))
        return {} if content is None else {(*place, IDS): content}

    def place_to_imagine(self, slot: Slot) -> Parts:
        """Return a place for a session that is looked at as if it were there, because it is nowhere."""
        return (*self._tree.root, names.hashed(slot.session_id))
