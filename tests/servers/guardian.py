"""Servers end, and their directories go, with the process that made them, however that ended.

A second process holds the reading end of a pipe whose writing end is ours. When we are gone, killed or not,
the pipe ends; then it kills what we asked it to guard and removes the directories. It has a session of its own,
so that neither Ctrl-C nor a signal to our process group reaches it first.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.servers.processes import kill_tree
from tests.servers.shared_memory import remove_shared_memory

_ROOT = Path(__file__).parents[2]
_guardians: dict[int, int] = {}


def guard(what: int | Path) -> None:
    """End this process, or remove this directory, when we are gone."""
    _tell(f"+{what}")


def release(what: int | Path) -> None:
    """Guard this no longer: we ended or removed it ourselves."""
    _tell(f"-{what}")


def _tell(line: str) -> None:
    # A forked child that starts servers has a guardian of its own: what it started ends with it.
    owner = os.getpid()
    if owner not in _guardians:
        _guardians[owner] = _start()
    os.write(_guardians[owner], line.encode() + b"\n")


def _start() -> int:
    reading, writing = os.pipe()
    # Nobody waits for it, and a `Popen` object would complain about that.
    os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", __name__],
        {**os.environ, "PYTHONPATH": str(_ROOT)},
        file_actions=[
            (os.POSIX_SPAWN_DUP2, reading, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    os.close(reading)
    return writing


def _watch() -> None:
    """Note what is to be guarded until the pipe ends, then end and remove it."""
    processes: dict[int, int] = {}
    directories: set[Path] = set()
    for line in sys.stdin:
        sign, what = line[0], line[1:].rstrip("\n")
        if not what.isdecimal():
            (directories.add if sign == "+" else directories.discard)(Path(what))
        elif sign == "+":
            # A handle, because a number may be given to a stranger once its process has ended.
            with suppress(ProcessLookupError):
                processes[int(what)] = os.pidfd_open(int(what))
        else:
            processes.pop(int(what), None)
    with ExitStack() as last:
        for directory in directories:
            last.callback(shutil.rmtree, directory)
            last.callback(remove_shared_memory, directory / "data")
        for pid, handle in processes.items():
            last.callback(_end, pid, handle)


def _end(pid: int, handle: int) -> None:
    has_ended = bool(select.select([handle], [], [], 0)[0])
    if not has_ended:
        kill_tree(pid)


if __name__ == "__main__":
    _watch()
