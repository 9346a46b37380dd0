"""Changes to several files of a tree, all of them or none: what a killed process began, the next one finishes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from leafward.core.errors import OutcomeUnknown, StaleState, StoreError
from leafward.stores.files.folder import Folder, Parts
from leafward.stores.files.unfinished import BeingWritten
from leafward.stores.files.writing import named, write_all

UNFINISHED = ".leafward.new"
"""How the names of files begin, at the root, that are not in their places yet."""
PLAN = ".leafward.plan"
"""The file, at the root, that tells what is to be done once it is there."""


class _Plan(msgspec.Struct):
    move: list[tuple[Parts, Parts]]
    remove: list[Parts]
    leave: list[Parts]
    """Directories to be removed if they are empty then."""


_read_plan = msgspec.json.Decoder(_Plan).decode


class Changes:
    """Replaces and removes files; whoever uses it holds a lock."""

    def __init__(self, folder: Folder, root: Parts) -> None:
        self._folder = folder
        self._root = root
        self._planned = (*root, PLAN)

    def finish(self) -> None:
        """Do what was planned by a process that did not live to do it."""
        with named(self._folder.shown(self._planned)):
            content = self._folder.read(self._planned)
            if content:
                self._carry_out(self._checked(content), planned=True)

    def _checked(self, content: bytes) -> _Plan:
        strange = StoreError(f"{self._folder.shown(self._planned)} was not written by leafward: remove it")
        try:
            plan = _read_plan(content)
        except msgspec.DecodeError as error:
            raise strange from error
        moved = [parts for move in plan.move for parts in move]
        if not all(map(_is_below, [*moved, *plan.remove, *plan.leave])):
            raise strange
        return plan

    def clear(self) -> None:
        """Finish what was planned, and remove what was not to be."""
        self.finish()
        with named(self._folder.shown(self._root)):
            for name in self._folder.files(self._root):
                if name.startswith(UNFINISHED):
                    self._folder.remove((*self._root, name))

    def replace(
        self,
        files: Mapping[Parts, bytes],
        *,
        removing: Sequence[Parts] = (),
        at_once: bool = False,
        check: Callable[[], None] | None = None,
    ) -> None:
        """Put files in place of those of their names, in this order, and then remove others.

        If there are others, or it is to be `at_once`, nobody ever meets a part of it. `check` is called when all is
        written that takes time, and may raise: nothing is changed then.
        """
        moves = [((*self._root, f"{UNFINISHED}{number}"), parts) for number, parts in enumerate(files)]
        with named(self._folder.shown(next(iter(files)))):
            try:
                for (unfinished, _), data in zip(moves, files.values(), strict=True):
                    self._write(unfinished, data)
                if check is not None:
                    check()
                self._do(_Plan(moves, list(removing), []), planned=at_once or bool(removing))
            except (OSError, StaleState, BeingWritten):
                for unfinished, _ in moves:
                    self._folder.remove(unfinished, synced=False)
                raise

    def remove(self, files: Sequence[Parts], *, leaving: Sequence[Parts] = ()) -> None:
        """Remove files, all of them or none, and directories that are empty then."""
        with named(self._folder.shown(self._root)):
            self._do(_Plan([], list(files), list(leaving)), planned=len(files) > 1)

    def _do(self, plan: _Plan, *, planned: bool) -> None:
        if planned:
            unfinished = (*self._root, f"{UNFINISHED}{len(plan.move)}")
            try:
                self._write(unfinished, msgspec.json.encode(plan))
            except OSError:
                self._folder.remove(unfinished, synced=False)
                raise
            try:
                self._folder.move(unfinished, self._planned, synced=False)
                self._folder.sync_names(self._root)
            except OSError as error:
                # It may be there: what it tells of must stay.
                raise OutcomeUnknown(self._folder.shown(self._root)) from error
        self._carry_out(plan, planned=planned)

    def _write(self, parts: Parts, data: bytes) -> None:
        # Never over what is there: it may be the same file as one that is in its place.
        self._folder.remove(parts, synced=False)
        number = self._folder.create(parts)
        try:
            write_all(number, data, 0)
            self._folder.sync(number)
        finally:
            os.close(number)

    def _carry_out(self, plan: _Plan, *, planned: bool) -> None:
        begun = planned
        try:
            for unfinished, parts in plan.move:
                if not planned or self._folder.stamp(unfinished) is not None:
                    self._folder.move(unfinished, parts, synced=False)
                    begun = True
            for parts in plan.remove:
                self._folder.remove(parts, synced=False)
                begun = True
            for directory in _directories([*(parts for _, parts in plan.move), *plan.remove]):
                self._folder.sync_names(directory)
            for directory in plan.leave:
                self._folder.remove_if_empty(directory)
            if planned:
                # For good, or it would be done again after somebody else wrote.
                self._folder.remove(self._planned)
        except OSError as error:
            if begun:
                raise OutcomeUnknown(self._folder.shown(self._root)) from error
            raise


def _directories(files: Iterable[Parts]) -> list[Parts]:
    return list(dict.fromkeys(parts[:-1] for parts in files))


def _is_below(parts: Parts) -> bool:
    return bool(parts) and all(name not in ("", ".", "..") and not {"/", "\0"} & {*name} for name in parts)
