"""Look at processes and end them whole, by what Linux says in /proc."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

_STEP = 0.005
_PATIENCE = 90.0
"""Sentinels that a busy machine kept from their work for two seconds do nothing for another thirty."""


def kill_tree(pid: int) -> None:
    """End a process and everything it started with SIGKILL, and return when none of it runs any more.

    The process is stopped first, so that it starts nothing while its descendants are counted, and so that
    the number of a descendant that ends meanwhile is not given to a stranger.
    """
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: _state(pid) in {"", "T", "Z"}, f"process {pid} to stop")
    family = [pid, *_descendants(pid)]
    for member in family:
        with suppress(ProcessLookupError):
            os.kill(member, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, family)), f"process {pid} to end")


def is_running(pid: int) -> bool:
    """Whether a process exists and has not ended; one that only waits to be reaped has ended."""
    return _state(pid) not in {"", "Z"}


def wait_until(happened: Callable[[], bool], what: str, *, patience: float = _PATIENCE) -> None:
    """Return once `happened` does.

    Raises:
        TimeoutError: it did not for `patience` seconds.
    """
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience:g} s for {what}")
        time.sleep(_STEP)


def _state(pid: int) -> str:
    """Return the letter of a process's state, or nothing when there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    # The name of the program stands in brackets and may hold anything, brackets too.
    return status.rpartition(")")[2].split()[0]


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found.extend(map(int, task.read_text(encoding="ascii").split()))
    return [*found, *(deeper for child in found for deeper in _descendants(child))]
