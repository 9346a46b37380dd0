"""Print the figures we keep an eye on: long files, exported names, import time."""

from __future__ import annotations

import statistics
import subprocess
import sys
from pathlib import Path

import leafward

SOURCE = Path(__file__).parent.parent / "src"
IMPORT_TARGET_MS = 60
RUNS = 7

TIMED_IMPORT = """
import asyncio, time
began = time.perf_counter()
from leafward import Session, open_store
print((time.perf_counter() - began) * 1000)
"""


def longest_files(count: int) -> list[tuple[int, Path]]:
    """Return the longest source files with their number of lines, longest first."""
    sized = [(len(path.read_text(encoding="utf-8").splitlines()), path) for path in SOURCE.rglob("*.py")]
    return sorted(sized, reverse=True)[:count]


def import_time_ms() -> float:
    """Return the median time of the first day's import, in an interpreter that imported asyncio."""
    return statistics.median(
        float(subprocess.run([sys.executable, "-c", TIMED_IMPORT], capture_output=True, check=True).stdout)
        for _ in range(RUNS)
    )


def main() -> None:
    """Print the figures."""
    for lines, path in longest_files(3):
        print(f"long file      {lines:4} lines  {path.relative_to(SOURCE)}")
    print(f"exported       {len(leafward.__all__):4} names from the package root")
    print(f"import time    {import_time_ms():4.0f} ms over asyncio (target: at most {IMPORT_TARGET_MS})")


if __name__ == "__main__":
    main()
