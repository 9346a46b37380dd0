"""The directory tree of a store, reached one name at a time below its root, so that no link leads out of it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import NamedTuple

from leafward.core.errors import ConfigurationError, StoreError

Parts = tuple[str, ...]
"""The names from the root down to a file or directory."""

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ROOT = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK

_MOST_OPEN = 16
"""Directories that stay open at one time."""


class Stamp(NamedTuple):
    """What tells, without reading it, whether a file is the one that was last seen."""

    size: int
    inode: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> Stamp:
        # A column holds a signed number.
        return cls(found.st_size, found.st_ino & (2**63 - 1), found.st_mtime_ns)


class Content(NamedTuple):
    """The bytes of a file, and its stamp from before they were read."""

    data: bytes
    stamp: Stamp


class Below(NamedTuple):
    """A directory in another one, with its files."""

    name: str
    files: list[str]
    number: int

    def beginning(self, file: str, size: int) -> bytes:
        """Return the first bytes of one of the files; none when it is gone, or no file."""
        try:
            number = os.open(file, os.O_RDONLY | _FILE, dir_fd=self.number)
        except FileNotFoundError:
            return b""
        try:
            return os.pread(number, size, 0)
        finally:
            os.close(number)


class _Rights(NamedTuple):
    """What new files and directories get."""

    mode: int
    owner: tuple[int, int] | None
    """The user, -1 for ours, and group that they are given to, if not ours."""


_OURS_ALONE = _Rights(0o700, None)


class _Closing(AbstractContextManager[int | None]):
    """A descriptor, closed at the end."""

    __slots__ = ("_number",)

    def __init__(self, number: int | None) -> None:
        self._number = number

    def __enter__(self) -> int | None:
        return self._number

    def __exit__(self, *_: object) -> None:
        if self._number is not None:
            os.close(self._number)


class Folder:
    """Opens, makes, lists and removes files below one root; makes names durable unless `synced` is off.

    The root is made when it is missing. Unless it is `shared`, no other user may own it or write in it.
    """

    def __init__(self, path: str, *, synced: bool, shared: bool = False) -> None:
        self.path = path
        self._synced = synced
        self._root = _open_root(path)
        found = os.fstat(self._root)
        self.others = _others(found)
        """Why other users can change what is here, if they can."""
        self._rights = _OURS_ALONE if self.others is None else _rights_in(found)
        if self.others is not None and not shared:
            self.close()
            raise ConfigurationError(f"the directory {path} {self.others}: use one of your own with mode 0700")

    def close(self) -> None:
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def look_anew(self) -> None:
        """Forget which directories were there."""

    def is_there(self) -> bool:
        """Tell whether the root is still the directory of its name."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._root))
        except FileNotFoundError:
            return False

    def shown(self, parts: Parts) -> str:
        """Return a path as a person may use it."""
        return os.path.join(self.path, *parts)

    def stamp(self, parts: Parts) -> Stamp | None:
        """Look at a file without opening it."""
        found = self._look(parts)
        return None if found is None else Stamp.of(found)

    def has_directory(self, parts: Parts) -> bool:
        """Tell whether there is such a directory; a link is none."""
        found = self._look(parts)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def _look(self, parts: Parts) -> os.stat_result | None:
        with self._directory(parts[:-1]) as directory:
            try:
                return None if directory is None else os.stat(parts[-1], dir_fd=directory, follow_symlinks=False)
            except FileNotFoundError:
                return None

    def open(self, parts: Parts, *, make: bool = False) -> int | None:
        """Return a descriptor of a file, which is the caller's to close; `None` when there is none and none is made.

        Raises:
            StoreError: a link, or something that is no file, stands in its place.
        """
        with self._directory(parts[:-1], make=make) as directory:
            if directory is None:
                return None
            found = self._open(parts, directory, os.O_RDWR)
            if found is None:
                return self._create(parts[-1], directory) if make else None
            return found[0]

    def content(self, parts: Parts, *, at_most: int | None = None) -> Content | None:
        """Return what a file holds, or its first bytes; it need not be writable. `None` when there is none.

        Raises:
            StoreError: a link, or something that is no file, stands in its place.
        """
        with self._directory(parts[:-1]) as directory:
            found = None if directory is None else self._open(parts, directory, os.O_RDONLY)
        if found is None:
            return None
        try:
            data = read_from(found[0], 0) if at_most is None else os.pread(found[0], at_most, 0)
            return Content(data, Stamp.of(found[1]))
        finally:
            os.close(found[0])

    def _open(self, parts: Parts, directory: int, access: int) -> tuple[int, os.stat_result] | None:
        try:
            number = os.open(parts[-1], access | _FILE, dir_fd=directory)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._refused(parts, error) from error
        found = os.fstat(number)
        if not stat.S_ISREG(found.st_mode):
            os.close(number)
            raise self._refused(parts, None)
        return number, found

    def read(self, parts: Parts) -> bytes:
        """Return the bytes of a file; none when there is none."""
        found = self.content(parts)
        return b"" if found is None else found.data

    def create(self, parts: Parts) -> int:
        """Return a descriptor of a new file."""
        with self._directory(parts[:-1], make=True) as directory:
            assert directory is not None
            return self._create(parts[-1], directory)

    def _create(self, name: str, directory: int) -> int:
        number = os.open(name, os.O_RDWR | _FILE | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=directory)
        self.share(number)
        return number

    def share(self, number: int) -> None:
        """Give a new file the rights that files have here."""
        self._hand_over(number, self._rights.mode & 0o666)

    def give_to_group(self, name: str) -> None:
        """Give a file of ours at the root to the group that files here have; it is not opened for that."""
        if self._rights.owner is not None and os.geteuid() != 0:
            with suppress(OSError):
                # A further name may be of a file that is somewhere else.
                if os.stat(name, dir_fd=self._root, follow_symlinks=False).st_nlink == 1:
                    os.chown(name, -1, self._rights.owner[1], dir_fd=self._root, follow_symlinks=False)

    def _hand_over(self, number: int, mode: int) -> None:
        # In this order: a new owner takes the bit away by which a directory gives its group to what is in it.
        if self._rights.owner is not None:
            with suppress(OSError):
                os.fchown(number, *self._rights.owner)
        os.fchmod(number, mode)

    def names(self, parts: Parts) -> list[str]:
        """Return what a directory holds; nothing when there is none."""
        with self._directory(parts) as directory:
            return [] if directory is None else os.listdir(directory)

    def files(self, parts: Parts) -> list[str]:
        """Return the files that a directory holds; links are none."""
        return self._named(parts, _is_file)

    def directories(self, parts: Parts) -> list[str]:
        """Return the directories that a directory holds; links are none."""
        return self._named(parts, _is_directory)

    def _named(self, parts: Parts, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        with self._directory(parts) as directory:
            if directory is None:
                return []
            return _named_in(directory, wanted)

    def below(self, parts: Parts) -> Iterator[Below]:
        """Find the directories that a directory holds; links are none. Each can be looked at until the next."""
        with self._directory(parts) as above:
            for name in [] if above is None else _named_in(above, _is_directory):
                try:
                    directory = os.open(name, _DIRECTORY, dir_fd=above)
                except FileNotFoundError:
                    # Somebody has just removed it.
                    continue
                try:
                    yield Below(name, _named_in(directory, _is_file), directory)
                finally:
                    os.close(directory)

    def stamps(self, parts: Parts) -> Iterator[tuple[str, Stamp]]:
        """Look at all that a directory holds."""
        with self._directory(parts) as directory:
            if directory is not None:
                with os.scandir(directory) as found:
                    for one in found:
                        yield one.name, Stamp.of(one.stat(follow_symlinks=False))

    def move(self, parts: Parts, to: Parts, *, synced: bool = True) -> None:
        """Give a file another name, for good unless `synced` is off; a file of that name is replaced."""
        with self._directory(parts[:-1]) as source, self._directory(to[:-1], make=True) as target:
            os.rename(parts[-1], to[-1], src_dir_fd=source, dst_dir_fd=target)
            if synced:
                self._sync_directory(target)
                self._sync_directory(source)

    def remove(self, parts: Parts, *, synced: bool = True) -> None:
        """Remove a file, for good unless `synced` is off; none there is fine."""
        with self._directory(parts[:-1]) as directory:
            if directory is not None:
                try:
                    os.unlink(parts[-1], dir_fd=directory)
                except FileNotFoundError:
                    return
                if synced:
                    self._sync_directory(directory)

    def remove_if_empty(self, parts: Parts) -> None:
        """Remove a directory for good, unless it holds something."""
        with self._directory(parts[:-1]) as directory:
            if directory is not None:
                try:
                    os.rmdir(parts[-1], dir_fd=directory)
                except OSError as error:
                    if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                        raise
                    return
                self._sync_directory(directory)

    def sync(self, number: int) -> None:
        """Make the bytes of a file durable."""
        if self._synced and _FULL_SYNC is not None:
            # On macOS the other call leaves them in the disk's own memory.
            fcntl.fcntl(number, _FULL_SYNC)
        elif self._synced:
            os.fsync(number)

    def sync_names(self, parts: Parts) -> None:
        """Make the names in a directory durable."""
        with self._directory(parts) as directory:
            self._sync_directory(directory)

    def _sync_directory(self, directory: int | None) -> None:
        if self._synced and directory is not None:
            os.fsync(directory)

    def _directory(self, parts: Parts, *, make: bool = False) -> AbstractContextManager[int | None]:
        """Open a directory while it is used; it is `None` when there is none and none is made."""
        number = self._open_top()
        try:
            for depth, name in enumerate(parts, start=1):
                if number is None:
                    break
                below = self._below(number, parts[:depth], name, make=make)
                os.close(number)
                number = below
        except BaseException:
            if number is not None:
                os.close(number)
            raise
        return _Closing(number)

    def _open_top(self) -> int | None:
        """Return a descriptor of the root, which is the caller's to close."""
        return os.dup(self._root)

    def _below(self, above: int, parts: Parts, name: str, *, make: bool) -> int | None:
        try:
            return os.open(name, _DIRECTORY, dir_fd=above)
        except FileNotFoundError:
            if not make:
                return None
        except OSError as error:
            raise self._refused(parts, error) from error
        try:
            os.mkdir(name, 0o700, dir_fd=above)
        except FileExistsError:
            # Another process was first.
            return os.open(name, _DIRECTORY, dir_fd=above)
        number = os.open(name, _DIRECTORY, dir_fd=above)
        self._hand_over(number, self._rights.mode)
        self._sync_directory(above)
        return number

    def _refused(self, parts: Parts, error: OSError | None) -> Exception:
        if error is None or error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO):
            what = "is a link, or no file or directory of a store"
            return StoreError(f"{self.shown(parts)} {what}: it is not followed; put the real one in its place")
        return error


def _named_in(directory: int, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
    with os.scandir(directory) as found:
        return [one.name for one in found if wanted(one)]


def _is_file(one: os.DirEntry[str]) -> bool:
    return one.is_file(follow_symlinks=False)


def _is_directory(one: os.DirEntry[str]) -> bool:
    return one.is_dir(follow_symlinks=False)


def read_from(number: int, place: int) -> bytes:
    """Return the bytes of a file from a place to its end."""
    found: list[bytes] = []
    while data := os.pread(number, 1 << 20, place):
        found.append(data)
        place += len(data)
    return b"".join(found)


class UntouchedFolder(Folder):
    """A directory that is only read: it may be any user's, read-only, or not there yet.

    Its root is opened for each look and nothing stays open, so it may appear or be replaced at any time.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._synced = False
        self._root = -1

    def _open_top(self) -> int | None:
        try:
            return os.open(self.path, _ROOT)
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            raise _is_a_file(self.path) from error


class FolderAtOnce(UntouchedFolder):
    """The same for a few looks, one after the other: directories stay open until it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._opened: dict[Parts, int | None] = {}

    def _directory(self, parts: Parts, *, make: bool = False) -> AbstractContextManager[int | None]:
        if len(self._opened) > _MOST_OPEN:
            self.close()
        number = self._found(parts)
        # The caller's own: the next look may close ours, and another thread get its number.
        return _Closing(None if number is None else os.dup(number))

    def _found(self, parts: Parts) -> int | None:
        if parts not in self._opened:
            above = self._found(parts[:-1]) if parts else None
            below = None if above is None else self._below(above, parts, parts[-1], make=False)
            self._opened[parts] = below if parts else self._open_top()
        return self._opened[parts]

    def look_anew(self) -> None:
        self.close()

    def close(self) -> None:
        for number in self._opened.values():
            if number is not None:
                os.close(number)
        self._opened.clear()


def _open_root(path: str) -> int:
    """Open the root of a store, made when it is missing."""
    _make(path)
    return os.open(path, _ROOT)


def _others(root: os.stat_result) -> str | None:
    if root.st_uid != os.geteuid():
        return "belongs to another user"
    return "can be written to by others" if root.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else None


def _rights_in(root: os.stat_result) -> _Rights:
    """Return the rights of a directory that is shared: whoever may use it may use what is made in it."""
    # A directory without the bit gives what is made in it our own group, of which its owner need not be.
    return _Rights(root.st_mode & (stat.S_ISGID | 0o777), (root.st_uid if os.geteuid() == 0 else -1, root.st_gid))


def _is_a_file(path: str) -> ConfigurationError:
    return ConfigurationError(f"{path} is a file: name a directory")


def _make(path: str) -> None:
    if os.path.isdir(path):
        return
    above = os.path.dirname(path)
    _make(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError as error:
        if not os.path.isdir(path):
            raise _is_a_file(path) from error
        return
    os.chmod(path, 0o700)
    number = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)
