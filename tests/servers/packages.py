"""Find the programs of the test servers, and node; install Debian's packages when they are missing and we are root.

`python -m tests.servers.packages` does it for all of them, before a run of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

UPDATE = ("apt-get", "update")
INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")

PROGRAMS = {
    "LEAFWARD_TEST_POSTGRES": ("postgres", "initdb", "psql", "pg_isready"),
    "LEAFWARD_TEST_MYSQL": ("mariadbd", "mariadb-install-db", "mariadb-admin"),
    # Clusters and failovers are of our own making, whatever server is given; pages are read by their own packages.
    None: ("redis-server", "node", "npm"),
}
"""What `make test` needs, by the variable that names a server to use instead."""
PACKAGES = {
    **dict.fromkeys(PROGRAMS["LEAFWARD_TEST_POSTGRES"], "postgresql"),
    **dict.fromkeys(PROGRAMS["LEAFWARD_TEST_MYSQL"], "mariadb-server"),
    "redis-server": "redis-server",
    "node": "nodejs",
    "npm": "npm",
}
"""Debian's package of each program."""

_FOLDERS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_POSTGRES = Path("/usr/lib/postgresql")
_POLICY = Path("/usr/sbin/policy-rc.d")
_POLICY_TEXT = "#!/bin/sh\n# No service starts while the packages of the test servers are installed.\nexit 101\n"


class ProgramMissing(RuntimeError):
    """A server's program is not on this machine, and we may not install it."""

    def __init__(self, *programs: str) -> None:
        super().__init__(
            f"{', '.join(programs)} not found: the tests start private PostgreSQL, MariaDB and Redis servers, and node."
            " Run\n"
            f"    sudo sh -c '{' '.join(UPDATE)} && {' '.join((*INSTALL, *packages_of(programs)))}'\n"
            "or name servers of your own in LEAFWARD_TEST_POSTGRES, LEAFWARD_TEST_MYSQL and LEAFWARD_TEST_REDIS"
            " (clusters and failovers need redis-server, and pages node and npm, all the same)."
        )


def packages_of(programs: Iterable[str]) -> list[str]:
    """Return the packages that hold some programs, each once."""
    return list(dict.fromkeys(PACKAGES[name] for name in programs))


def program(name: str) -> str:
    """Return the path of a program, after installing its package when we are root and it is missing.

    Raises:
        ProgramMissing: it is not here and we are not root, or the packages do not hold it.
    """
    require(name)
    path = find(name)
    assert path
    return path


def require(*names: str) -> None:
    """Return when all these programs are here.

    Raises:
        ProgramMissing: as `program` does.
    """
    if (missing := _missing(names)) and os.geteuid() == 0 and shutil.which(INSTALL[0]):
        install(packages_of(missing))
    if missing := _missing(names):
        raise ProgramMissing(*missing)


def find(name: str) -> str | None:
    """Return the path of a program, or None: newest PostgreSQL first, then PATH, then where Debian keeps servers."""
    versions = sorted(_POSTGRES.glob("*/bin"), key=lambda folder: float(folder.parent.name))
    places = [*map(str, reversed(versions)), *os.get_exec_path(), *_FOLDERS]
    return shutil.which(name, path=os.pathsep.join(places))


def install(packages: Sequence[str]) -> None:
    """Install packages and start none of their services."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with _services_kept_from_starting():
        for command in (UPDATE, (*INSTALL, *packages)):
            print("test servers:", *command, flush=True)
            subprocess.run(command, check=True, env=environment, stdin=subprocess.DEVNULL)


@contextmanager
def _services_kept_from_starting() -> Iterator[None]:
    """Keep Debian from starting what it installs; a machine that has a policy about that keeps its own."""
    try:
        with _POLICY.open("x", encoding="utf-8") as file:
            file.write(_POLICY_TEXT)
    except FileExistsError:
        yield
        return
    try:
        _POLICY.chmod(0o755)
        yield
    finally:
        _POLICY.unlink()


def _missing(names: tuple[str, ...]) -> list[str]:
    return [name for name in names if find(name) is None]


def main() -> None:
    """Install what is missing for the servers that the environment does not name."""
    needed = [names for variable, names in PROGRAMS.items() if not (variable and os.environ.get(variable))]
    try:
        require(*(name for names in needed for name in names))
    except ProgramMissing as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
