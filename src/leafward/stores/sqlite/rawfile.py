"""The bytes of a database file, beside SQLite.

Whichever of a process's descriptors of a file is closed, the process loses all its locks on that file, also those that
SQLite holds through others. So a descriptor that was opened here is closed only when the process has no other.
"""

from __future__ import annotations

import os
import threading

Identity = tuple[int, int]
"""The device and the number of a file."""

_held: dict[Identity, int] = {}
_changing = threading.Lock()


def raw_file(path: str) -> int:
    """Return a descriptor to read and write the file's bytes with; not to be closed, but for `let_go`."""
    with _changing:
        found = os.stat(path)
        identity = found.st_dev, found.st_ino
        if identity not in _held:
            _held[identity] = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        return _held[identity]


def let_go() -> None:
    """Close the descriptors of those files that nobody else in this process has open."""
    with _changing:
        # Where the system does not tell who else has them open, they stay.
        users = _count_descriptors() if _held and os.path.isdir("/dev/fd") else {}
        for identity in [one for one in _held if users.get(one) == 1]:
            os.close(_held.pop(identity))


def _count_descriptors() -> dict[Identity, int]:
    """Count this process's descriptors of each file."""
    users: dict[Identity, int] = {}
    for name in os.listdir("/dev/fd"):
        try:
            found = os.fstat(int(name))
        except OSError:
            # The one that listed the directory, or one that was closed since.
            continue
        identity = found.st_dev, found.st_ino
        users[identity] = users.get(identity, 0) + 1
    return users
