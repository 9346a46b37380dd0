"""Reads streams with the packages that pages read them with: npm's `ai` in three versions, and `@ag-ui/client`."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.servers.packages import program

_HERE = Path(__file__).parent
_CACHE = _HERE.parent.parent / ".venv" / "pages"
"""Where the packages are installed, once for each list of them."""
_INSTALL = ("install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--loglevel=error")


def read_streams(streams: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what pages make of streams, each of them as `read.mjs` wants it.

    Raises:
        ProgramMissing: there is no node, and it may not be installed.
    """
    script = _installed() / "read.mjs"
    done = subprocess.run(
        [program("node"), str(script)],
        input=json.dumps(streams),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _installed() -> Path:
    """Return the folder that has the packages, after installing them if it is the first time."""
    wanted = _HERE / "package.json"
    folder = _CACHE / sha256(wanted.read_bytes()).hexdigest()[:16]
    _CACHE.mkdir(parents=True, exist_ok=True)
    with (_CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            shutil.copy(wanted, folder)
            command = [program("npm"), *_INSTALL]
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100, check=False)
            assert done.returncode == 0, f"npm could not install what pages need\n{done.stderr}"
            (folder / ".complete").touch()
        # Modules are looked up beside the script.
        script = _HERE / "read.mjs"
        if not (copy := folder / script.name).exists() or copy.read_bytes() != script.read_bytes():
            shutil.copy(script, copy)
    return folder
