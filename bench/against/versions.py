"""The two versions: each installed from its sources in its own environment, and run by this tree's drivers."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from contenders import ENVIRONMENTS, HERE, Contender, ContenderFailed

NEW = "this tree"
OLD = "the other"
ROOT = HERE.absolute().parent


class NoSuchCommit(Exception):
    """The name is not a commit of this repository."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name!r} is not a commit of this repository")


@dataclass(frozen=True)
class Versions:
    """The interpreters of both, and the commit that is compared with."""

    commit: str
    new: Path
    old: Path

    def contenders(self, module: str, *arguments: str) -> list[Contender]:
        """Return both versions with a driver; the other one is left out if it lacks what the driver imports."""
        command = ("-m", module, *arguments)
        new = Contender(NEW, (str(self.new), *command))
        old = Contender(OLD, (str(self.old), *command), may_lack=True)
        return [new, old] if self._can_import(module) else [new]

    def _can_import(self, module: str) -> bool:
        code = f"try:\n    import {module}\nexcept ImportError:\n    exit(3)"
        done = subprocess.run([str(self.old), "-c", code], cwd=HERE, capture_output=True, text=True, check=False)
        if done.returncode not in (0, 3):
            raise ContenderFailed(OLD, done.stderr.strip()[-400:])
        return done.returncode == 0


def resolve(name: str) -> str:
    """Return the full id of a commit.

    Raises:
        NoSuchCommit: the name is not a commit of this repository.
    """
    asked = ["git", "-C", str(ROOT), "rev-parse", "--quiet", "--verify", "--end-of-options", f"{name}^{{commit}}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoSuchCommit(name)
    return done.stdout.strip()


def prepare(commit: str, work: Path) -> Versions:
    """Install both versions with the same dependencies, those of this tree's constraints.txt.

    Raises:
        ContenderFailed: one could not be installed; the text is the installer's last line.
    """
    sources = Path(tempfile.mkdtemp(dir=work.absolute()))
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(packed)) as archive:
        archive.extractall(sources, filter="data")
    return Versions(commit, new=_install("this-tree", ROOT), old=_install("other-version", sources))


def _install(name: str, sources: Path) -> Path:
    home = ENVIRONMENTS / name
    python = home / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    # Without a refresh uv would take an earlier build of these sources from its cache.
    options = ["--constraint", str(ROOT / "constraints.txt"), "--compile-bytecode", "--refresh-package", "leafward"]
    for step in (
        [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
        [*uv, "pip", "install", "--quiet", "--python", str(python), *options, f"leafward[all] @ {sources.as_uri()}"],
    ):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["the installer said nothing"]
            raise ContenderFailed(name, said[-1])
    return python
