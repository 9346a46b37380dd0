"""Which process of this machine holds something, and whether it is gone; where /proc is missing, neither is known."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

_PROC = Path("/proc")
_DEAD = frozenset("ZX")
"""States of a process that has ended and was not waited for yet."""


def this_process() -> str | None:
    """Return this process as others that see it can tell it: its namespace, its number and when it started."""
    return _process(os.getpid())


@lru_cache(maxsize=1)
def _process(pid: int) -> str | None:
    namespace, found = _namespace(), _stat(pid)
    return None if namespace is None or found is None else f"{namespace} {pid} {found[1]}"


def is_gone(process: str | None) -> bool:
    """Tell whether a process is known to have ended; one of another machine, boot or namespace never is."""
    if process is None:
        return False
    namespace, _, known = process.rpartition(" ")[0].rpartition(" ")
    started = process.rpartition(" ")[2]
    if not known.isdecimal() or namespace != _namespace():
        return False
    pid = int(known)
    found = _stat(pid)
    if found is None:
        # A process of another user may be hidden; only this tells for sure.
        return not _answers(pid)
    state, since = found
    return since != started or (state in _DEAD and _threads(pid) <= 1)


def _namespace() -> str | None:
    """Return in which numbers of processes, and of which boot, are those that we see."""
    return _namespace_of(os.getpid())


@lru_cache(maxsize=1)
def _namespace_of(pid: int) -> str | None:
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        numbers = os.readlink(_PROC / "self/ns/pid")
        # If it is the namespace of another, what is found under our own number is not this process.
        return f"{boot} {numbers}" if os.readlink(_PROC / "self") == str(pid) else None
    except (OSError, UnicodeDecodeError):
        return None


def _stat(pid: int) -> tuple[str, str] | None:
    """Return the state of a process and when it started, in ticks since the boot."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name before it may hold anything.
    fields = text.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None


def _threads(pid: int) -> int:
    try:
        return len(os.listdir(_PROC / str(pid) / "task"))
    except OSError:
        return 0


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
