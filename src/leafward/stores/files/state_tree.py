"""Reads and writes single files of typed state: values with their versions, and lists with their marks."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

from leafward.core.errors import OutcomeUnknown, StoreError
from leafward.stores.files import state_lists as lists
from leafward.stores.files.changes import Changes
from leafward.stores.files.folder import Folder, Parts, read_from
from leafward.stores.files.state_names import NameFiles
from leafward.stores.files.writing import named, write_all
from leafward.stores.states.table import FILLED

_VERSION = re.compile(rb"([1-9][0-9]{0,18}) ([0-9a-f]{64})( found)?\n")
_FOUND = b" found\n"


class StateTree(Changes):
    """The files below one root; whoever uses them holds a lock."""

    def __init__(self, folder: Folder, root: Parts) -> None:
        super().__init__(folder, root)
        self.folder = folder
        self.root = root

    def read(self, parts: Parts, *, at_most: int | None = None) -> bytes | None:
        """Return the bytes of a file, or the first of them; `None` when there is none."""
        with named(self.folder.shown(parts)):
            number = self.folder.open(parts)
            if number is None:
                return None
            try:
                return read_from(number, 0) if at_most is None else os.pread(number, at_most, 0)
            finally:
                os.close(number)

    def has(self, parts: Parts) -> bool:
        return self.folder.stamp(parts) is not None

    # Versions: a number, and a hash of the bytes that it is the version of.

    def version(self, files: NameFiles, data: bytes) -> int:
        """Return the version of a value; one that somebody else has saved since it was noted is the next."""
        return self._version(files, data)[0]

    def note_version(self, files: NameFiles, data: bytes) -> int:
        """Return the same, noted."""
        version, noted = self._version(files, data)
        if not noted:
            self.replace({files.version: version_text(version, data, found=not self.is_ours(files))})
        return version

    def is_ours(self, files: NameFiles) -> bool:
        """Tell whether a value was ever saved under its name by us, and not only found there."""
        return is_saved_by_us(self.read(files.version))

    def _version(self, files: NameFiles, data: bytes) -> tuple[int, bool]:
        noted = _VERSION.fullmatch(self.read(files.version) or b"")
        if noted is None:
            return 1, False
        same = noted[2].decode() == sha256(data).hexdigest()
        return int(noted[1]) + (not same), same

    # Lists.

    def mark(self, files: NameFiles) -> str:
        return (self.read(files.mark) or b"").decode(errors="replace").strip()

    def set_mark(self, files: NameFiles, mark: str, *, durable: bool = True) -> None:
        """Write what stands beside a list, in place: whatever a crash leaves of it is no hash of Java's."""
        before = self.read(files.mark)
        if before == mark.encode():
            return
        with named(self.folder.shown(files.mark)):
            number = self.folder.open(files.mark, make=True)
            assert number is not None
            try:
                os.ftruncate(number, 0)
                write_all(number, mark.encode(), 0)
                if durable:
                    self.folder.sync(number)
            finally:
                os.close(number)
            if durable and before is None:
                self.folder.sync_names(files.mark[:-1])

    def append(self, files: NameFiles, start: int, texts: Sequence[str]) -> None:
        """Write lines behind those of a list, which end at a place."""
        self.set_mark(files, lists.appending(start, texts))
        shown = self.folder.shown(files.items)
        with named(shown):
            number = self.folder.open(files.items, make=True)
            assert number is not None
            try:
                try:
                    write_all(number, lists.to_lines(texts), start)
                except OSError:
                    os.ftruncate(number, start)
                    raise
                self._sync(number, shown)
            finally:
                os.close(number)
        # Without this the lines are found to be all there.
        with suppress(StoreError):
            self.set_mark(files, FILLED, durable=False)

    def _sync(self, number: int, shown: str) -> None:
        try:
            self.folder.sync(number)
        except OSError as error:
            raise OutcomeUnknown(shown) from error


def version_text(version: int, data: bytes, *, found: bool = False) -> bytes:
    """Return what is noted of a value that we save, or one that we found."""
    return f"{version} {sha256(data).hexdigest()}".encode() + (_FOUND if found else b"\n")


def is_saved_by_us(noted: bytes | None) -> bool:
    """Tell by what is noted of a value whether we ever saved it, and did not only find it."""
    return noted is not None and not noted.endswith(_FOUND)
