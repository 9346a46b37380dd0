"""Reads and writes single files of typed state: values with their versions, and lists with their marks."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256

from leafward.core.errors import OutcomeUnknown, StoreError
from leafward.stores.files import state_lists as lists
from leafward.stores.files.changes import Changes
from leafward.stores.files.folder import Content, Folder, Parts, Stamp
from leafward.stores.files.seen_versions import SeenVersions
from leafward.stores.files.state_names import NameFiles
from leafward.stores.files.unfinished import BeingWritten, Unfinished, mark_text
from leafward.stores.files.writing import named, write_all

_VERSION = re.compile(rb"([1-9][0-9]{0,18}) ([0-9a-f]{64})( found)?\n")
_FOUND = b" found\n"
_NOT_WRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EXDEV)
"""Why a file may not be put into a directory: its rights, or another file system is mounted there."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What one open store knows of files beyond what is in them."""

    versions: SeenVersions = field(default_factory=SeenVersions)
    unfinished: Unfinished = field(default_factory=Unfinished)
    doubled: set[Parts] = field(default_factory=set[Parts])
    """Directories of which it was said that they are a second one of their session."""
    passed_over: set[Parts] = field(default_factory=set[Parts])
    """Directories of which it was said that they were not taken for those of an encoded id."""


class StateTree(Changes):
    """The files below one root; whoever uses them holds a lock."""

    writes = True

    def __init__(self, folder: Folder, root: Parts, memory: Memory | None = None) -> None:
        super().__init__(folder, root)
        self.folder = folder
        self.root = root
        self.memory = memory or Memory()

    def content(self, parts: Parts, *, at_most: int | None = None) -> Content | None:
        try:
            return self.folder.content(parts, at_most=at_most)
        except OSError:
            with named(self.folder.shown(parts)):
                raise

    def read(self, parts: Parts) -> bytes | None:
        found = self.content(parts)
        return None if found is None else found.data

    def has(self, parts: Parts) -> bool:
        return self.folder.stamp(parts) is not None

    def files(self, place: Parts) -> list[str]:
        return self.folder.files(place)

    def replace(
        self,
        files: Mapping[Parts, bytes],
        *,
        removing: Sequence[Parts] = (),
        at_once: bool = False,
        check: Callable[[], None] | None = None,
    ) -> None:
        super().replace(files, removing=removing, at_once=at_once, check=check)
        self.memory.versions.evict(*files, *removing)

    def keep(self, files: Mapping[Parts, bytes]) -> None:
        """Write those of some files that are not there, or are something else."""
        missing = {parts: data for parts, data in files.items() if self.read(parts) != data}
        if missing:
            self.replace(missing)

    def remove(self, files: Sequence[Parts], *, leaving: Sequence[Parts] = ()) -> None:
        super().remove(files, leaving=leaving)
        self.memory.versions.evict(*files)

    # Versions: a number, and a hash of the bytes that it is the version of.

    def version(self, files: NameFiles, data: bytes) -> int:
        """Return the version of a value; one that somebody else has saved since it was noted is the next."""
        return self._version(files, digest_of(data))[0]

    def version_of(self, files: NameFiles, value: Content, *, noted: bool) -> int:
        """Return the same of a value that was read, and have it `noted`; `BeingWritten` is raised for half a value."""
        digest = digest_of(value.data)
        version, is_noted = self._version(files, digest)
        if is_noted:
            return version
        self.memory.unfinished.check_value(files.value, value)
        return self._note(files, digest, version) if noted else version

    def _note(self, files: NameFiles, digest: str, version: int) -> int:
        try:
            self.replace({files.version: version_text(version, digest, found=not self.is_ours(files))})
        except StoreError as error:
            if not isinstance(error.__cause__, OSError) or error.__cause__.errno not in _NOT_WRITABLE:
                raise
            return self.memory.versions.note(files.value, digest, version)
        self.memory.versions.evict(files.value)
        return version

    def is_ours(self, files: NameFiles) -> bool:
        """Tell whether a value was ever saved under its name by us, and not only found there."""
        return is_saved_by_us(self.read(files.version))

    def _version(self, files: NameFiles, digest: str) -> tuple[int, bool]:
        """Return the version of a value, and whether its files say so."""
        noted = _VERSION.fullmatch(self.read(files.version) or b"")
        same = noted is not None and noted[2].decode() == digest
        by_files = 1 if noted is None else int(noted[1]) + (not same)
        version = self.memory.versions.version(files.value, digest, by_files)
        return version, same and version == by_files

    # Lists.

    def mark(self, files: NameFiles) -> str:
        return mark_text(self.content(files.mark))

    def set_mark(self, files: NameFiles, mark: str, *, before: Content | None, durable: bool) -> None:
        """Write what stands beside a list, in place: whatever a crash leaves of it is not a hash of Java's."""
        with named(self.folder.shown(files.mark)):
            number = self.folder.open(files.mark, make=True)
            assert number is not None
            try:
                # Not emptied before: a system may flush a file that was, when it is closed.
                write_all(number, mark.encode(), 0)
                os.ftruncate(number, len(mark))
                if durable:
                    self.folder.sync(number)
            finally:
                os.close(number)
            if durable and before is None:
                self.folder.sync_names(files.mark[:-1])

    def set_mark_after(self, files: NameFiles, mark: str) -> None:
        """Write the mark of a list that was changed; without it, the lines are found to be all there."""
        with suppress(StoreError):
            self.set_mark(files, mark, before=None, durable=False)

    def mark_as_anothers(self, files: NameFiles) -> None:
        """Mark lines that another program writes, unless it has written its own mark since we changed ours."""
        if lists.is_ours(self.mark(files).encode()):
            self.set_mark_after(files, lists.ANOTHERS)

    def append(self, files: NameFiles, found: Content, noted: Content | None, texts: Sequence[str]) -> None:
        """Write lines behind those that were found of a list, with a mark.

        Raises:
            BeingWritten: another process has begun to write the list since.
        """
        start, lines, mark = len(found.data), lists.to_lines(texts), mark_text(noted)
        # One line alone is seen to be torn. Java's hash must be gone before anything else, and so must the end of a
        # longer mark: the sums in it would be taken for those of lines that are missing.
        durable = len(texts) > 1 or lists.is_appending(mark) or not lists.is_ours(mark.encode())
        self.set_mark(files, lists.appending(start, texts), before=noted, durable=durable)
        shown = self.folder.shown(files.items)
        with named(shown):
            number = self.folder.open(files.items)
            try:
                # What is opened may be another file than the one that was found, and have another's place afterwards.
                self.check_unchanged(files, found.stamp, None if number is None else Stamp.of(os.fstat(number)))
                assert number is not None
                try:
                    write_all(number, lines, start)
                except OSError:
                    os.ftruncate(number, start)
                    raise
                self._sync(number, shown)
                self.check_unchanged(files, Stamp.of(os.fstat(number)), self.folder.stamp(files.items))
            finally:
                if number is not None:
                    os.close(number)
        # The mark of one line, flushed, hides nothing.
        settled = len(texts) == 1 and (durable or lists.is_settled(mark))
        self.set_mark_after(files, lists.mark_of(found.data, lines, settled=settled))

    def check_unchanged(self, files: NameFiles, found: Stamp | None, stamp: Stamp | None) -> None:
        """Raise `BeingWritten` if the lines of a list, whose mark we have changed, are not those that were found."""
        if stamp != found:
            self.mark_as_anothers(files)
            raise BeingWritten({files.items: stamp})

    def _sync(self, number: int, shown: str) -> None:
        try:
            self.folder.sync(number)
        except OSError as error:
            raise OutcomeUnknown(shown) from error


def digest_of(data: bytes) -> str:
    """Return what tells the content of a value from any other."""
    return sha256(data).hexdigest()


def version_text(version: int, digest: str, *, found: bool = False) -> bytes:
    """Return what is noted of a value that we save, or one that we found."""
    return f"{version} {digest}".encode() + (_FOUND if found else b"\n")


def is_saved_by_us(noted: bytes | None) -> bool:
    """Tell by what is noted of a value whether we ever saved it, and did not only find it."""
    return bool(noted) and not noted.endswith(_FOUND)
