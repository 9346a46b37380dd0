"""`python -m faults.child [MODULE ...]`: import everything, wait for one job on stdin, do it.

With `--without-lock` the file locks of this process do nothing, which shows what they are good for.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sys
from importlib import import_module
from typing import Any


def _say(line: str) -> None:
    # One small write to a pipe is atomic and is in the kernel when it returns, so a kill cannot take it back.
    os.write(1, line.encode() + b"\n")


def _no_lock(*_arguments: object) -> None:
    return None


def _read_job() -> dict[str, Any] | None:
    line = sys.stdin.buffer.readline()
    return json.loads(line) if line else None


def main() -> None:
    """Do the one job that is handed in."""
    if "--without-lock" in sys.argv:
        fcntl.flock = _no_lock
        fcntl.lockf = _no_lock
    # Imported here because a store may keep its own reference to the locks.
    for name in sys.argv[1:]:
        if not name.startswith("--"):
            import_module(name)
    from faults import cancel, contention, disk_full, fencing, states, steps, turns, writer
    from faults.worker import error_line

    jobs = {
        "kill": writer.write_until_killed,
        "append": contention.append_many,
        "watch": contention.watch,
        "fill": disk_full.fill,
        "cancel": cancel.cancel_many,
        "hold": fencing.hold_and_write,
        "save": states.save_until_killed,
        "step": steps.write_until_killed,
        "turn": turns.cook_until_killed,
    }
    job = _read_job()
    if job is not None:
        try:
            asyncio.run(jobs[job["do"]](job, _say))
        except Exception as error:
            _say(error_line(error))
            raise


if __name__ == "__main__":
    main()
