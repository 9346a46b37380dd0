"""Reads and writes below one directory, and never outside it.

Every name of a key is opened by itself, relative to the directory above, and links are not followed: there is no moment
between a check and its use in which a name could come to mean another place.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EDQUOT, EEXIST, ELOOP, ENOSPC, ENOTEMPTY
from pathlib import Path

from leafward.core.errors import ConfigurationError, ContextError, StorageFull, StoreError
from leafward.sessions.skills.keys import is_hidden, refusal
from leafward.sessions.skills.listing import MAX_RESOURCES, SKILL_FILE

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_DEPTH = 8


class SkillFolder:
    """The folders of skills in one directory."""

    def __init__(self, path: Path, *, max_bytes: int, create: bool) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._create = create

    def names(self) -> list[str]:
        """Return the names of the folders that hold a skill, links to a folder included: reading them says more."""
        with self._root() as root:
            return [] if root is None else [name for name in os.listdir(root) if _may_be_skill(root, name)]

    def read(self, names: list[str]) -> str | None:
        """Return the text of a file of a skill, or None when there is no such file or its folder is no skill.

        Raises:
            ContextError: a link, what is no regular file, too large, or not UTF-8.
        """
        with self._root() as root, ExitStack() as opened:
            directory = root
            for depth, name in enumerate(names[:-1]):
                directory = None if directory is None else _enter(opened, directory, name, names[: depth + 1])
                if depth == 0 and directory is not None and SKILL_FILE not in os.listdir(directory):
                    return None
            return None if directory is None else self._text(directory, names)

    def resources(self, skill: str) -> tuple[list[str], bool]:
        """Return the keys of the files beside a skill's document, and whether there are more than that."""
        found: list[str] = []
        with self._root() as root, ExitStack() as opened:
            folder = None if root is None else _enter(opened, root, skill, [skill])
            if folder is None:
                return [], False
            for names, directory in _files(folder):
                key = "/".join([skill, *names])
                if names == [SKILL_FILE] or refusal(key) is not None or not _is(stat.S_ISREG, directory, names[-1]):
                    continue
                if len(found) == MAX_RESOURCES:
                    return found, True
                found.append(key)
        return found, False

    def write(self, skill: str, render: Callable[[str | None], str]) -> None:
        """Write a skill's document, whole or not at all; `render` makes it from the former one.

        Raises:
            ContextError: too large, or in the way is what cannot be replaced.
            StorageFull: there is no room; nothing was written.
        """
        names = [skill, SKILL_FILE]
        with _told("/".join(names)):
            with suppress(FileExistsError):
                self._path.mkdir(parents=True)
            with self._root() as root:
                assert root is not None
                with _made(root, skill), ExitStack() as opened:
                    folder = _enter(opened, root, skill, [skill])
                    if folder is None:
                        raise ContextError(f"skill key {skill!r} is taken by a file or by a key in another case")
                    self._replace(folder, names, render)

    def delete(self, skill: str) -> bool:
        """Remove the document of a skill and its folder; False when there is no such skill.

        Raises:
            ContextError: a link, or there are other files in the folder: nothing was removed.
        """
        file = f"{skill}/{SKILL_FILE}"
        with _told(file), self._root() as root, ExitStack() as opened:
            folder = None if root is None else _enter(opened, root, skill, [skill])
            if root is None or folder is None or SKILL_FILE not in os.listdir(folder):
                return False
            if not _is(stat.S_ISREG, folder, SKILL_FILE):
                raise ContextError(f"{file} is not a regular file")
            others = [name for name in os.listdir(folder) if name != SKILL_FILE and not is_hidden([name])]
            if others:
                raise ContextError(
                    f"the folder of skill {skill!r} has more in it than {SKILL_FILE}, such as {min(others)!r}: "
                    "nothing was deleted; delete the folder by hand"
                )
            os.unlink(SKILL_FILE, dir_fd=folder)
            os.fsync(folder)
            try:
                os.rmdir(skill, dir_fd=root)
            except OSError as error:
                # Something hidden, or put there meanwhile, keeps the folder, which is then no skill.
                if error.errno not in (ENOTEMPTY, EEXIST):
                    raise
            os.fsync(root)
        return True

    def _replace(self, folder: int, names: list[str], render: Callable[[str | None], str]) -> None:
        data = render(self._text(folder, names)).encode()
        if len(data) > self._max_bytes:
            raise ContextError(f"the skill would be {len(data):,} bytes, at most {self._max_bytes:,} are taken")
        _replace_file(folder, names[-1], data)

    @contextmanager
    def _root(self) -> Generator[int | None]:
        try:
            number = os.open(self._path, _DIRECTORY)
        except FileNotFoundError as error:
            if not self._create:
                raise ConfigurationError(f"there is no directory of skills at {self._path}") from error
            number = None
        except NotADirectoryError as error:
            raise ConfigurationError(f"{self._path} is not a directory of skills") from error
        except OSError as error:
            raise StoreError(f"the directory of skills {self._path} cannot be read: {error.strerror}") from error
        try:
            yield number
        finally:
            if number is not None:
                os.close(number)

    def _text(self, directory: int, names: list[str]) -> str | None:
        file = "/".join(names)
        with _told(file):
            number = _open_file(directory, names[-1], file)
            if number is None:
                return None
            with os.fdopen(number, "rb") as opened:
                if not stat.S_ISREG(os.fstat(number).st_mode):
                    raise ContextError(f"{file} is not a regular file")
                data = opened.read(self._max_bytes + 1)
        if len(data) > self._max_bytes:
            raise ContextError(f"{file} is larger than {self._max_bytes:,} bytes")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ContextError(f"{file} is not UTF-8 text") from error


@contextmanager
def _told(file: str) -> Generator[None]:
    """Tell what the system refused with the file's name."""
    try:
        yield
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise StorageFull(file) from error
        raise StoreError(f"{file} cannot be read or written: {error.strerror}") from error


def _may_be_skill(root: int, name: str) -> bool:
    if name.startswith("."):
        return False
    with ExitStack() as opened:
        try:
            folder = _enter(opened, root, name, [name])
        except ContextError:
            # A link: following it only to see what it is reads no content.
            return _is(stat.S_ISDIR, root, name, follow=True)
        except StoreError:
            return True
        return folder is not None and SKILL_FILE in os.listdir(folder)


def _is(kind: Callable[[int], bool], directory: int, name: str, *, follow: bool = False) -> bool:
    try:
        return kind(os.stat(name, dir_fd=directory, follow_symlinks=follow).st_mode)
    except OSError:
        # What cannot even be looked at is of no kind; opening it says why.
        return False


def _enter(opened: ExitStack, directory: int, name: str, names: list[str]) -> int | None:
    """Open a directory in a directory, or return None when there is none of that very name."""
    # A file system that ignores case would open `A` for `a`: the listing has the true names.
    file = "/".join(names)
    with _told(file):
        if name not in os.listdir(directory):
            return None
        if _is(stat.S_ISLNK, directory, name):
            raise ContextError(f"{file} is a link, and links in a folder of skills are not followed")
        try:
            number = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
        except (FileNotFoundError, NotADirectoryError):
            return None
    opened.callback(os.close, number)
    return number


@contextmanager
def _made(root: int, skill: str) -> Generator[None]:
    """Make the folder of a skill if there is none, and unmake it if nothing comes of it."""
    try:
        os.mkdir(skill, dir_fd=root)
    except FileExistsError:
        yield
        return
    try:
        yield
    except BaseException:
        # Another writer may have put its skill there meanwhile: then it is not empty, and stays.
        with suppress(OSError):
            os.rmdir(skill, dir_fd=root)
        raise


def _open_file(directory: int, name: str, file: str) -> int | None:
    if name not in os.listdir(directory):
        return None
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            return None
        if stat.S_ISLNK(mode):
            raise ContextError(f"{file} is a link, and links in a folder of skills are not followed")
        # Opening a device can do things, so it is looked at first; what is opened is looked at again.
        if not stat.S_ISREG(mode):
            raise ContextError(f"{file} is not a regular file")
        return os.open(name, _FILE, dir_fd=directory)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno == ELOOP:
            raise ContextError(f"{file} is a link, and links in a folder of skills are not followed") from error
        raise


def _files(folder: int) -> Iterator[tuple[list[str], int]]:
    """Yield the files below an open directory, nothing hidden, in an order that stays."""
    for path, directories, files, number in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        above = path.split("/")[1:]
        directories[:] = (
            sorted(name for name in directories if not is_hidden([name])) if len(above) < _MAX_DEPTH else []
        )
        for name in sorted(files):
            if not is_hidden([name]):
                yield [*above, name], number


def _replace_file(folder: int, name: str, data: bytes) -> None:
    unfinished = f".{name}.{secrets.token_hex(8)}.tmp"
    number = os.open(unfinished, _NEW_FILE, 0o666, dir_fd=folder)
    try:
        with os.fdopen(number, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(number)
        os.replace(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished, dir_fd=folder)
        raise
    os.fsync(folder)
