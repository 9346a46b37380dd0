"""What AgentScope left in a directory, which may be somebody else's: files are opened for reading only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from typing import TypeVar

from leafward.core.errors import ConfigurationError, StateDecodeError, StoreError
from leafward.stores.files import state_names as names
from leafward.stores.files.changes import PLAN
from leafward.stores.files.folder import Parts, UntouchedFolder
from leafward.stores.files.names import ANONYMOUS, decoded, is_likely_encoded
from leafward.stores.files.older_states import session_file
from leafward.stores.files.read_tree import ReadTree
from leafward.stores.files.state_names import files_of
from leafward.stores.files.state_places import StatePlaces
from leafward.stores.files.state_tree import Memory
from leafward.stores.files.states import StateFiles
from leafward.stores.files.writing import named
from leafward.stores.leases import Slot
from leafward.stores.states.older import Place, Reading, Remark, Text, Texts
from leafward.stores.states.table import Layout

T = TypeVar("T")


async def open_older_files(path: str, names: Reading = "guess") -> OlderFiles:
    """Open a directory; `names` says what a name is taken for that may be an id or an encoding.

    Raises:
        ConfigurationError: there is none, or a change to it is not finished.
        StoreError: it cannot be read.
    """
    return await asyncio.to_thread(OlderFiles, path, names)


class OlderFiles:
    """The sessions below a directory: one for each directory of 1.x, and for each file `<id>.json`."""

    renamed = None

    def __init__(self, path: str, names: Reading) -> None:
        if not os.path.isdir(path):
            what = "is a file" if os.path.exists(path) else "does not exist"
            raise ConfigurationError(f"{path} {what}: name the directory in which AgentScope keeps its sessions")
        with named(path):
            self._folder = UntouchedFolder(path)
            self._memory = Memory()
            if self._folder.stamp((PLAN,)) is not None:
                raise ConfigurationError(
                    f"a process was killed while it wrote to {path}: open it once, with JsonSession, and try again"
                )
        self._names: Reading = names
        self._left_out: dict[str, str] = {}
        self._unclear: dict[str, str] = {}

    async def count(self) -> int:
        return len(await self._do(self._directories)) + len(await self._do(self._documents))

    async def places(self) -> AsyncIterator[Place]:
        for name in await self._do(self._directories):
            yield Place(self._folder.shown((name,)), name)

    async def documents(self) -> AsyncIterator[Place]:
        for name in await self._do(self._documents):
            yield Place(self._folder.shown((name,)), name.removesuffix(names.VALUE))

    async def read(self, place: Place) -> tuple[Slot, Texts]:
        return await self._do(partial(self._read, place.at))

    async def held(self, slot: Slot, layout: Layout) -> Texts:
        return await self._do(lambda: _Files(self._tree(), layout).texts(slot))

    async def document(self, session_id: str) -> Text | None:
        return await self._do(partial(self._document, session_id))

    async def left_out(self) -> list[Remark]:
        doubled = await self._do(self._doubled)
        return [Remark(*item) for item in (self._left_out | doubled).items()]

    async def unclear(self) -> list[Remark]:
        return [Remark(*item) for item in self._unclear.items()]

    async def close(self) -> None:
        """Do nothing: no file stays open."""

    async def _do(self, step: Callable[[], T]) -> T:
        return await self._memory.unfinished.wait(lambda: asyncio.to_thread(step))

    def _tree(self) -> ReadTree:
        return ReadTree(self._folder, (), self._memory)

    def _places(self) -> StatePlaces:
        return StatePlaces(self._tree(), "1.x")

    def _directories(self, parts: Parts = ()) -> list[str]:
        with named(self._folder.shown(parts)):
            return sorted(self._folder.directories(parts))

    def _documents(self) -> list[str]:
        # A link among them is refused when it is read.
        with named(self._folder.path):
            found = {name for name in self._folder.names(()) if name.endswith(names.VALUE)}
            return sorted(
                name for name in found.difference(self._folder.directories(())) if name[: len(names.OWN)] != names.OWN
            )

    def _read(self, directory: str) -> tuple[Slot, Texts]:
        slot: Slot | None = None
        try:
            with named(self._folder.shown((directory,))):
                if not self._has_states((directory,)):
                    _Files(self._tree(), "1.x").check_all_there((directory,), self._folder.files((directory,)))
                    return Slot(None, directory), {}
                slot = self._slot_in(directory)
                if slot is None:
                    raise StateDecodeError(None, None, None, "no session has a directory of this name")
                first = self._first_place(slot, directory)
                if first != (directory,):
                    text = f"session {slot.session_id!r} is also in {self._folder.shown(first)}, and that one is moved"
                    self._left_out[self._folder.shown((directory,))] = text
                    return slot, {}
                return slot, _Files(self._tree(), "1.x").texts(slot, first)
        except StoreError as error:
            user_id, session_id = slot or (None, None)
            raise StateDecodeError(user_id, session_id, None, str(error)) from error

    def _first_place(self, slot: Slot, directory: str) -> Parts:
        """Return the place of a session that is moved: this one, or another that comes before it."""
        found = self._places().find(slot, warn=False)
        if not found or (found[0] != (directory,) and self._slot_in(found[0][-1]) != slot):
            return (directory,)
        return found[0]

    def _doubled(self) -> dict[str, str]:
        """Return directories of 2.x that an older leafward left beside others of the same sessions."""
        found: dict[str, str] = {}
        for user in self._directories():
            # A directory that cannot be read is reported by `read`.
            with suppress(StoreError):
                for session in self._directories((user,)):
                    found |= self._doubles_of(user, session)
        return found

    def _doubles_of(self, user: str, session: str) -> dict[str, str]:
        """Return the directories beside one, with the reason, whoever's it is; and this one if it cannot be read."""
        places, found = StatePlaces(self._tree(), "2.x"), dict[str, str]()
        users = [None] if user == ANONYMOUS else _readings(user)
        shown = self._folder.shown((user, session))
        try:
            for slot in [Slot(user_id, session_id) for user_id in users for session_id in _readings(session)]:
                with named(shown):
                    full = [place for place in places.find(slot, warn=False) if self._has_states(place)]
                for place in full[1:]:
                    text = f"session {slot.session_id!r} is also in {self._folder.shown(full[0])}, and that one is read"
                    found[self._folder.shown(place)] = text
        except StoreError as error:
            found[shown] = str(error)
        return found

    def _has_states(self, place: Parts) -> bool:
        return any(map(names.is_state, self._folder.files(place)))

    def _slot_in(self, directory: str) -> Slot | None:
        other = decoded(directory)
        if other is None or not self._places().is_unclear((directory,)):
            return self._places().slot_in((directory,))
        is_encoded = self._names == "encoded" or (self._names == "guess" and is_likely_encoded(directory))
        taken, not_taken = (other, directory) if is_encoded else (directory, other)
        text = f"taken for session {taken!r}; AgentScope would give {not_taken!r} the same name"
        self._unclear[self._folder.shown((directory,))] = text
        return Slot(None, taken)

    def _document(self, session_id: str) -> Text | None:
        tree = self._tree()
        try:
            with named(self._folder.path):
                file = session_file(tree, Slot(None, session_id))
                return None if file is None else tree.read(file)
        except StoreError as error:
            raise StateDecodeError(None, session_id, None, str(error)) from error


def _readings(name: str) -> list[str]:
    """Return the ids that AgentScope gives a name; none where it is not one of its names."""
    return [id for id in (name, decoded(name)) if id is not None and names.is_literal(name)]


class _Files(StateFiles):
    """The states in one layout, to be read."""

    def texts(self, slot: Slot, place: Parts | None = None) -> Texts:
        """Return all that a slot holds in a place, or where it is written to."""
        found: Texts = {}
        for one in self._own_place(slot) if place is None else [place]:
            for name, is_list in self._names_in(slot, one).items():
                files = files_of(one, name)
                if self._tree.has(files.value) and self._tree.has(files.items):
                    raise StateDecodeError(*slot, name, "there are a value and a list of this name")
                if is_list:
                    found[name] = list(self._list_in(slot, one, name) or ())
                elif (stored := self._value_in(slot, one, name)) is not None:
                    found[name] = stored.text
            self._check_names(slot, one)
        return found

    def _check_names(self, slot: Slot, place: Parts) -> None:
        for file in self._tree.folder.files(place):
            if names.is_state(file) and names.name_in(file, lambda other: self._tree.read((*place, other))) is None:
                raise StateDecodeError(*slot, None, f"{self._tree.folder.shown((*place, file))}: no state is called so")
