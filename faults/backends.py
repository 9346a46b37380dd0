"""The six backends as a scenario sees them: fresh places to write to, and for some a server to kill."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from leafward import Session
from leafward.stores import Store

if TYPE_CHECKING:
    from tests.servers.server import Server

TITLES: Mapping[str, str] = {
    "memory": "Memory",
    "files": "Files",
    "sqlite": "SQLite",
    "postgres": "PostgreSQL",
    "mariadb": "MariaDB",
    "redis": "Redis",
}
BACKENDS = tuple(TITLES)
SERVERS = ("postgres", "mariadb", "redis")
_DRIVERS: Mapping[str, str] = {"postgres": "asyncpg", "mariadb": "asyncmy", "redis": "redis.asyncio"}
PERSISTENT = tuple(name for name in BACKENDS if name != "memory")
ON_DISK = ("files", "sqlite")
"""Backends that keep files of their own."""
_EMBEDDED: Mapping[str, str] = {
    "memory": "memory://{directory.name}-{number}",
    "files": "file://{directory}/{number}",
    "sqlite": "sqlite:///{directory}/{number}.db",
}


class Place(NamedTuple):
    """One session that nobody has written to yet."""

    url: str
    session_id: str

    def job(self, do: str, **more: Any) -> dict[str, Any]:
        """Return a job at this place for another process."""
        return {"do": do, "url": self.url, "session": self.session_id, **more}

    def session(self, store: Store) -> Session:
        """Return the session of this place."""
        return Session(store, self.session_id)


@dataclass(frozen=True)
class Backend:
    """One kind of store: where to write, and its server when it is ours to kill."""

    name: str
    url: str
    """Of a server, or with a `{number}` for what is kept in a directory of ours."""
    server: Server | None = None
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    # Others may write to the same server.
    _mark: str = field(default_factory=lambda: token_hex(4))

    @property
    def modules(self) -> tuple[str, ...]:
        """What a process should have imported before it is given a job."""
        return (_DRIVERS[self.name],) if self.name in _DRIVERS else ()

    def fresh(self) -> Place:
        """Return a place that was not used before."""
        number = next(self._numbers)
        return Place(self.url.replace("{number}", str(number)), f"{self._mark}-{number}")

    def damage(self, place: Place) -> str | None:
        """Return what the backend's own check finds wrong, where it has one."""
        if self.name != "sqlite":
            return None
        with closing(sqlite3.connect(place.url.removeprefix("sqlite:///"))) as connection:
            answer = str(connection.execute("PRAGMA integrity_check").fetchone()[0])
        return None if answer == "ok" else answer

    def version(self) -> str:
        """Return the version of what keeps the bytes."""
        return asyncio.run(_version(self.name, self.url))


@contextmanager
def open_backend(name: str, *, fast: bool = False, settings: Sequence[str] = ()) -> Iterator[Backend]:
    """Start what the backend needs; its server and its files are gone afterwards.

    With `fast` they are kept in memory; `settings` are lines for the configuration of its server.
    """
    if name in SERVERS:
        with _server(name)(fast=fast, settings=settings) as server:
            yield Backend(name, server.url, server)
        return
    with TemporaryDirectory(prefix="faults-") as directory:
        yield embedded(name, Path(directory))


def embedded(name: str, directory: Path) -> Backend:
    """Return a backend that needs no server."""
    return Backend(name, _EMBEDDED[name].format(directory=directory, number="{number}"))


def _server(name: str) -> type[Server]:
    # Imported here: writers in other processes start sooner without drivers they do not need.
    from tests.servers.mariadb import MariaDB
    from tests.servers.postgres import Postgres
    from tests.servers.redis import Redis

    return {"postgres": Postgres, "mariadb": MariaDB, "redis": Redis}[name]


async def _version(name: str, url: str) -> str:
    from tests.servers.questions import AskMariaDB, AskPostgres

    if name == "postgres":
        return "PostgreSQL " + (await AskPostgres().setting(url, "server_version")).partition(" ")[0]
    if name == "mariadb":
        return "MariaDB " + (await AskMariaDB().setting(url, "version")).partition("-")[0]
    if name == "redis":
        import redis.asyncio

        async with redis.asyncio.Redis.from_url(url, decode_responses=True) as client:
            return f"Redis {(await client.info('server'))['redis_version']}"
    return f"SQLite {sqlite3.sqlite_version}" if name in ("memory", "sqlite") else ""
