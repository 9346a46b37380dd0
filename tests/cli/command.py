"""Runs the real command, as a user's shell would."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

LEAFWARD = str(Path(sys.executable).parent / "leafward")
_FORCES = ("FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "PYTHONIOENCODING")


def environment(**extra: str) -> dict[str, str]:
    """Return an environment in which nothing but the output's kind decides how it looks."""
    kept = {name: value for name, value in os.environ.items() if name not in _FORCES}
    return {**kept, "TERM": "xterm-256color", **extra}


def leafward(*words: str, cwd: Path, **extra: str) -> subprocess.CompletedProcess[str]:
    """Run the command with its output in pipes."""
    return subprocess.run(
        [LEAFWARD, *words],
        cwd=cwd,
        env=environment(**extra),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def python(program: str, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program in a fresh interpreter."""
    return subprocess.run(
        [sys.executable, "-c", program, *words],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def leafward_in_terminal(*words: str, cwd: Path, **extra: str) -> tuple[int, str]:
    """Run the command in a terminal; return its exit code and all it wrote there."""
    terminal, side = pty.openpty()
    try:
        with subprocess.Popen(
            [LEAFWARD, *words], cwd=cwd, env=environment(**extra), stdin=side, stdout=side, stderr=side
        ) as running:
            os.close(side)
            written = b"".join(iter(lambda: _read(terminal), b""))
        return running.returncode, written.decode()
    finally:
        os.close(terminal)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        # Linux says EIO when the last program of a terminal has ended.
        return b""
