"""What the numbers were measured on, without names of hosts or people."""

from __future__ import annotations

import os
import platform
import sqlite3
from pathlib import Path


def filesystem(path: Path) -> str:
    """Return the type of the filesystem that holds `path`."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown filesystem"
    best, kind = "", "unknown filesystem"
    for line in mounts.read_text().splitlines():
        _, point, found, *_ = line.split(" ")
        inside = path.resolve().is_relative_to(point.replace("\\040", " "))
        if inside and len(point) >= len(best):
            best, kind = point, found
    return kind


def describe(work: Path) -> str:
    """Return one sentence about cores, system, Python, SQLite and filesystem."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, "
        f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}, "
        f"{filesystem(work)}."
    )
