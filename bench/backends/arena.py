"""The backends of a run: private servers on disk with durable settings, directories, and the processes on them."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from contenders import HERE, Contender, Process, local, running
from machine import filesystem
from setting import Setting

from backends.duel import LIMIT, OURS

KINDS = ("postgresql", "mysql", "redis", "file", "sqlite", "memory")
SERVERS = frozenset(KINDS[:3])
PROGRAMS = {
    "postgresql": ("PostgreSQL", "postgres", "asyncpg"),
    "mysql": ("MariaDB", "mariadbd", "asyncmy"),
    "redis": ("Redis", "redis-server", "redis"),
}
"""A server's name, its program, and its driver's package."""
IN_MEMORY = frozenset({"tmpfs", "ramfs"})

# The servers are those of the tests.
sys.path.append(str(HERE.parent))


class NotOnDisk(Exception):
    """A server's directory is in memory, where a commit costs nothing."""

    def __init__(self, directory: Path, found: str) -> None:
        super().__init__(f"{directory.parent} is a {found}: set TMPDIR to a directory on a disk")


@dataclass(frozen=True)
class Arena:
    """One backend, with both contenders in a process that waits for commands."""

    kind: str
    path: str
    """The URL of the server, or the directory."""
    process: Process
    log: Path

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Ask the process something and wait for the answer."""
        return self.process.ask(do, **arguments)

    def alone(self, name: str) -> Contender:
        """Return one of the two, to be run in a process of its own."""
        return local(f"{name} on {self.kind}", "backends.duel", self.kind, name)

    @contextmanager
    def second(self) -> Iterator[Process]:
        """Run another process on the same backend."""
        with _opened(self.kind, self.path, self.log) as process:
            yield process


def need_servers() -> None:
    """Install the servers' programs, or end with the line that does."""
    from tests.servers import packages

    packages.main()


def versions(kind: str) -> str:
    """Return which server and which driver were measured."""
    from tests.servers import packages

    name, program, driver = PROGRAMS[kind]
    said = subprocess.run([packages.program(program), "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"\d+(\.\d+)+", said)
    assert found is not None
    return f"{name} {found[0]}, {driver} {version(driver)}"


@contextmanager
def arena(setting: Setting, kind: str) -> Iterator[Arena]:
    """Start a backend and the process on it."""
    log = setting.work / "stderr.log"
    with place(setting, kind) as path, _opened(kind, path, log) as process:
        yield Arena(kind, path, process, log)


@contextmanager
def _opened(kind: str, path: str, log: Path) -> Iterator[Process]:
    with running(local(f"{OURS} and {LIMIT} on {kind}", "backends.duel", kind), log) as process:
        process.ask("open", path=path)
        yield process


@contextmanager
def place(setting: Setting, kind: str) -> Iterator[str]:
    """Start a backend and yield the URL of its server, or a directory."""
    if kind not in SERVERS:
        directory = setting.work / "backends" / kind
        directory.mkdir(parents=True)
        yield str(directory)
        return
    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis

    with {"postgresql": Postgres, "mysql": MariaDB, "redis": Redis}[kind]() as server:
        found = filesystem(server.directory)
        if found in IN_MEMORY:
            raise NotOnDisk(server.directory, found)
        yield server.url
