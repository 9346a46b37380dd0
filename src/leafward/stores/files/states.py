"""Typed state in files of AgentScope's shape: a file for a value, and one of lines for a list."""

from __future__ import annotations

from collections.abc import Sequence

from leafward.core.errors import StaleState
from leafward.core.pretty import pretty
from leafward.stores.files import older_states as older
from leafward.stores.files import state_lists as lists
from leafward.stores.files import state_names as names
from leafward.stores.files.folder import Content, Parts
from leafward.stores.files.names import encoded
from leafward.stores.files.state_names import NameFiles, files_of
from leafward.stores.files.state_places import StatePlaces
from leafward.stores.files.state_tree import StateTree, digest_of, version_text
from leafward.stores.files.unfinished import mark_text
from leafward.stores.leases import Slot
from leafward.stores.states.table import OF_SANDBOXES, Layout, LaysOut, Stored, common_items, holds_list, holds_value


class StateFiles:
    """The states in one tree, in one layout; each call is one step.

    With `legacy`, a session that has no directory yet is made from its one file of AgentScope before 1.0.5. Reading
    what another process is writing raises `BeingWritten`: read it again.
    """

    def __init__(self, tree: StateTree, layout: Layout, *, legacy: bool = False) -> None:
        self._tree = tree
        self._layout: Layout = layout
        self._slots = StatePlaces(self._tree, layout)
        self._slots_of_1x = StatePlaces(self._tree, "1.x")
        self._legacy = legacy
        self.memory = tree.memory
        self.shown = tree.folder.shown(tree.root)

    def clear(self) -> None:
        """Finish or remove what killed processes left unfinished."""
        self._tree.clear()

    # Places.

    def _home(self, slot: Slot) -> Parts:
        """Return where a slot is written, ready for what comes."""
        self._tree.finish()
        is_new = self._legacy and not self._has_directory(slot)
        home = self._slots.make(slot) if self._tree.writes else self._slots.place_to_imagine(slot)
        if is_new:
            self._adopt(slot, home)
        return home

    def _adopt(self, slot: Slot, home: Parts) -> None:
        """Make a session from its one file of AgentScope before 1.0.5, if there is one."""
        file = older.session_file(self._tree, slot)
        states = {} if file is None else older.states_in(self._tree, slot, file, home)
        if states:
            self._tree.replace(self._slots.mark(slot, home) | states, at_once=True)

    def _has_directory(self, slot: Slot) -> bool:
        return any(map(self._tree.folder.has_directory, self._slots.find(slot)))

    def _own_place(self, slot: Slot) -> list[Parts]:
        """Return where a slot is; nothing if it is nowhere."""
        self._tree.finish()
        if self._legacy and older.session_file(self._tree, slot) is not None and not self._has_directory(slot):
            return [self._home(slot)]
        return self._slots.find(slot)[:1]

    def _places_of_1x(self, slot: Slot) -> list[Parts]:
        """Return where 1.x has what 2.x may read too, unless that could be a user's in 2.x."""
        if self._layout == "1.x" or slot.user_id is not None or not _is_of_1x(slot.session_id):
            return []
        # What is there may be the directory of a user: it is not for a warning.
        places = self._slots_of_1x.find(slot, warn=False)
        return [place for place in places if self._tree.folder.has_directory(place)]

    def _knows_older_names(self, slot: Slot) -> bool:
        return self._layout == "1.x" or slot.user_id is None

    # Looking.

    def get(self, slot: Slot, name: str, *, versioned: bool = False) -> Stored | None:
        own = self._own_place(slot)
        for place in [*own, *self._places_of_1x(slot)]:
            found = self._value_in(slot, place, name, is_own=place in own, versioned=versioned)
            if found is not None:
                return found
        return None

    def _value_in(
        self, slot: Slot, place: Parts, name: str, *, is_own: bool = True, versioned: bool = False
    ) -> Stored | None:
        files = files_of(place, name)
        found = self._tree.content(files.value)
        if found is not None and is_own:
            return Stored(found.data, self._tree.version_of(files, found, noted=versioned))
        if found is not None:
            # What 1.x left has no version that a save would go on from.
            self.memory.unfinished.check_value(files.value, found)
            return Stored(found.data, 0)
        if self._tree.has(files.items) or self._older_list(slot, place, name) is not None:
            raise holds_list(slot, name)
        other = self._older_value(slot, place, name)
        data = None if other is None else self._tree.read(other)
        return None if data is None else Stored(data, 0)

    def get_list(self, slot: Slot, name: str) -> Sequence[str | bytes]:
        for place in [*self._own_place(slot), *self._places_of_1x(slot)]:
            found = self._list_in(slot, place, name)
            if found is not None:
                return found
        return []

    def _list_in(self, slot: Slot, place: Parts, name: str) -> Sequence[str | bytes] | None:
        files = files_of(place, name)
        found, mark = self._content(files)
        if found is not None:
            self._check_list(files, found, mark)
            return lists.read_lines(found.data, mark_text(mark)).items
        if self._tree.has(files.value) or self._older_value(slot, place, name) is not None:
            raise holds_value(slot, name)
        other = self._older_list(slot, place, name)
        if other is not None:
            return other[1]
        self._check_missing(files.items, files.mark)
        return None

    def _content(self, files: NameFiles) -> tuple[Content | None, Content | None]:
        """Return what is stored of a list, and its mark."""
        # In this order: Java writes its mark last, so that lines which it had not finished are newer than the mark.
        mark = self._tree.content(files.mark)
        return self._tree.content(files.items), mark

    def _check_list(self, files: NameFiles, found: Content, mark: Content | None, *, warn: bool = True) -> bool:
        """Tell whether a list was written to its end; raise while it is being written."""
        shown = self._tree.folder.shown(files.items) if warn else None
        return self.memory.unfinished.check_list(files.items, found, mark, shown)

    def _check_missing(self, items: Parts, mark: Parts, *, warn: bool = True) -> None:
        """Raise if a list is missing only while it is being written."""
        found = self._tree.content(mark)
        if found is not None:
            place = self._tree.folder.stamp(mark[:-1])
            touched = found.stamp.changed if place is None else place.changed
            shown = self._tree.folder.shown(items) if warn else None
            self.memory.unfinished.check_missing(items, found, touched, shown)

    def _older_value(self, slot: Slot, place: Parts, name: str) -> Parts | None:
        return older.value_file(self._tree, place, name) if self._knows_older_names(slot) else None

    def _older_list(self, slot: Slot, place: Parts, name: str) -> tuple[Parts, list[str]] | None:
        return older.list_file(self._tree, slot, place, name) if self._knows_older_names(slot) else None

    def exists(self, slot: Slot) -> bool:
        for place in [*self._own_place(slot), *self._places_of_1x(slot)]:
            files = self._tree.files(place)
            if any(map(names.is_state, files)):
                return True
            self.check_all_there(place, files)
        return False

    def check_all_there(self, place: Parts, files: Sequence[str]) -> None:
        """Raise `BeingWritten` if a list is missing from a directory only while it is being written."""
        for items, mark in names.lists_missing(files):
            self._check_missing((*place, items), (*place, mark))

    def names(self, slot: Slot) -> dict[str, bool]:
        found: dict[str, bool] = {}
        for home in self._own_place(slot):
            found |= self._names_in(slot, home)
        return found

    def _names_in(self, slot: Slot, home: Parts) -> dict[str, bool]:
        files = self._tree.files(home)
        self.check_all_there(home, files)
        found: dict[str, bool] = {}
        for file in sorted(filter(names.is_state, files)):
            name = names.name_in(file, lambda other: self._tree.read((*home, other)))
            if name is not None:
                found[name] = file.endswith(names.ITEMS)
        for name in older.NAMES if self._knows_older_names(slot) else ():
            value, items = self._older_value(slot, home, name), self._older_list(slot, home, name)
            if value is not None or items is not None:
                found.pop(older.NAMES[name], None)
                found.setdefault(name, items is not None)
        return found

    def sessions(self, user_id: str | None) -> set[str]:
        self._tree.finish()
        found = self._with_states(self._slots, user_id)
        if self._legacy and user_id is None:
            found |= {id for id in older.sessions(self._tree) if not self._has_directory(Slot(None, id))}
        if self._layout == "2.x" and user_id is None:
            found |= {id for each in self._with_states(self._slots_of_1x, None) if (id := self._listed_of_1x(each))}
        return found

    def _with_states(self, slots: StatePlaces, user_id: str | None) -> set[str]:
        """Return the sessions of a user that hold anything; Java's sandboxes are nobody's."""
        hidden = OF_SANDBOXES + names.VALUE if user_id is None else ""
        found: set[str] = set()
        for session_id, place, files in slots.sessions(user_id):
            if any(names.is_state(file) and file != hidden for file in files):
                found.add(session_id)
            else:
                self.check_all_there(place, files)
        return found

    def _listed_of_1x(self, session_id: str) -> str | None:
        """Return the id under which 2.x finds a session of 1.x: where its own could be a user's, the literal name."""
        if _is_of_1x(session_id):
            return session_id
        literal = encoded(session_id)
        return literal if self._places_of_1x(Slot(None, literal)) else None

    # Changing.

    def put(self, slot: Slot, name: str, value: str | LaysOut, expected: int | None) -> int:
        # Nothing is moved for what is not saved.
        version, stored = self._version(slot, name, expected)
        home = self._home(slot)
        files = files_of(home, name)
        data = (pretty(value) if isinstance(value, str) else value.laid_out()).encode()
        # The value first: until its version is noted, it counts as saved by somebody else, which is the same version.
        written = {files.value: data, files.version: version_text(version + 1, digest_of(data))}
        others = [parts for parts in (files.mark, files.items) if self._tree.has(parts)]

        def check() -> None:
            # Java takes no notice of our lock, and to write the new file takes long.
            if expected is not None and self._tree.read(files.value) != stored:
                raise StaleState(*slot, name, expected)

        self._tree.replace(self._to_keep(slot, home, name) | written, removing=others, check=check)
        return version + 1

    def _version(self, slot: Slot, name: str, expected: int | None) -> tuple[int, bytes | None]:
        """Return the version of a value, 0 if there is none, and its bytes; raise if it is not the expected one."""
        version, stored, is_list = 0, None, False
        for place in self._own_place(slot):
            files = files_of(place, name)
            stored = self._tree.read(files.value)
            version = 0 if stored is None else self._tree.version(files, stored)
            is_list = stored is None and self._tree.has(files.items)
        if expected is not None and (expected != version or is_list):
            raise StaleState(*slot, name, expected)
        return version, stored

    def put_list(self, slot: Slot, name: str, texts: Sequence[str], *, fresh: bool = False) -> None:
        if fresh:
            self._version(slot, name, 0)
        home = self._home(slot)
        files = files_of(home, name)
        others = [parts for parts in (files.value, files.version) if self._tree.has(parts)]
        # Before anything else: what we write under an unclear name is another's without it.
        self._tree.keep(self._to_keep(slot, home, name))
        found, mark = self._content(files)
        whole = self._whole(files, found, mark)
        if whole is not None and not others and self._append(files, whole, mark, texts):
            return
        # Before the lines: beside others, Java's hash would be taken for theirs, and the mark of an append could hide
        # some of them.
        durable = not lists.is_settled(mark_text(mark))
        self._tree.set_mark(files, lists.mark_before(texts), before=mark, durable=durable)
        lines = lists.to_lines(texts)

        def check() -> None:
            # To write the new file takes long, and Java may have begun to write the list since.
            stamp = None if found is None else found.stamp
            self._tree.check_unchanged(files, stamp, self._tree.folder.stamp(files.items))

        self._tree.replace({files.items: lines}, removing=others, check=check)
        stamp = self._tree.folder.stamp(files.items)
        if stamp is not None and stamp.size == len(lines):
            self._tree.set_mark_after(files, lists.mark_of(lines))
        else:
            # Java has saved since.
            self._tree.mark_as_anothers(files)

    def _whole(self, files: NameFiles, found: Content | None, mark: Content | None) -> Content | None:
        """Return what was found of a list if lines may be added to it; what Java did not finish, it may go on with.

        `BeingWritten` is raised while Java writes it.
        """
        # What is not whole is replaced, so there is nothing to warn of.
        if found is None:
            self._check_missing(files.items, files.mark, warn=False)
            return None
        return found if self._check_list(files, found, mark, warn=False) else None

    def _append(self, files: NameFiles, found: Content, noted: Content | None, texts: Sequence[str]) -> bool:
        """Store a list that begins with the stored one by adding the rest; tell whether that could be done."""
        mark = mark_text(noted)
        known = _count_known(found.data, mark, texts)
        if known is None:
            return False
        if known < len(texts):
            self._tree.append(files, found, noted, texts[known:])
        elif lists.is_ours(mark.encode()):
            # Another program may have changed the lines.
            after = lists.mark_of(found.data, settled=lists.is_settled(mark))
            if after != mark:
                self._tree.set_mark_after(files, after)
        return True

    def drop(self, slot: Slot, name: str | None) -> None:
        gone, leaving = self._dropped(slot, name)
        self._tree.remove(gone, leaving=leaving)

    def has_to_drop(self, slot: Slot, name: str | None) -> bool:
        """Tell whether `drop` would change anything."""
        gone, leaving = self._dropped(slot, name)
        folder = self._tree.folder
        return bool(gone) or any(folder.has_directory(place) and not folder.names(place) for place in leaving)

    def _dropped(self, slot: Slot, name: str | None) -> tuple[list[Parts], list[Parts]]:
        """Return the files that go with a state or a slot, and the directories that go if they are empty then."""
        if name is None:
            self._tree.finish()
        own = [] if name is None else self._own_place(slot)
        # What is left of it under another name goes too, so that it does not come back.
        places = [*dict.fromkeys([*own, *self._slots.find(slot)]), *self._places_of_1x(slot)]
        gone = [parts for place in places for parts in self._to_be_dropped(slot, place, name)]
        file = older.session_file(self._tree, slot) if self._legacy else None
        if file is not None and name is None:
            gone.append(file)
        # Without its directory, a session that has such a file would be made from it again.
        return gone, places if file is None or name is None else []

    def forget(self, slot: Slot) -> bool:
        there = self.has_to_drop(slot, None)
        if there:
            self.drop(slot, None)
        return there

    def _to_be_dropped(self, slot: Slot, place: Parts, name: str | None) -> list[Parts]:
        ours = {(*place, file) for file in self._tree.files(place) if names.is_of_a_slot(file)}
        if name is None:
            return sorted(ours)
        of_name: set[Parts] = {*files_of(place, name)}
        if self._knows_older_names(slot):
            of_name |= {*older.other_files(self._tree, slot, place, name)}
        is_last = not any(names.is_state(parts[-1]) for parts in ours - of_name)
        return sorted(ours & (of_name | {(*place, names.IDS)} if is_last else of_name))

    def _to_keep(self, slot: Slot, home: Parts, name: str) -> dict[Parts, bytes]:
        """Return what tells ids and names that file names do not, as far as it is not there yet."""
        kept = names.name_to_keep(files_of(home, name), name)
        return self._slots.mark(slot, home) | {
            parts: data for parts, data in kept.items() if self._tree.read(parts) != data
        }


def _count_known(data: bytes, mark: str, texts: Sequence[str]) -> int | None:
    """Return how many items a list has that are stored; `None` unless it goes on where the stored lines end."""
    if not lists.is_appending(mark) and data[-1:] in (b"", b"\n") and lists.to_lines(texts).startswith(data):
        return data.count(b"\n")
    items, whole = lists.read_lines(data, mark)
    return len(items) if whole and common_items(items, texts) == len(items) else None


def _is_of_1x(session_id: str) -> bool:
    """Tell whether a session may have been one in 1.x; others could be a user's session in 2.x."""
    return not {":", "/"} & {*session_id}
