"""What a killed PostgreSQL leaves outside its directory."""

from __future__ import annotations

import subprocess
from pathlib import Path

_LINE = 6


def remove_shared_memory(data: Path) -> None:
    """Remove the small piece of shared memory that tells a PostgreSQL its data are in use, after it was killed.

    A start on the same data removes it too; without either it stays until the machine is restarted, and a
    machine has a few thousand places for such pieces.
    """
    note = data / "postmaster.pid"
    lines = note.read_text(encoding="ascii").splitlines() if note.exists() else []
    if len(lines) > _LINE and lines[_LINE].strip():
        _, number = lines[_LINE].split()
        subprocess.run(["ipcrm", "--shmem-id", number], check=True, capture_output=True)
