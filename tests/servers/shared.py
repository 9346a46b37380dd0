"""One set of servers for a whole run of the tests, each started when a test first asks for it.

With pytest-xdist the servers belong to the controlling process, because any worker may end while another
still needs them; workers ask for addresses through a socket.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from multiprocessing.connection import Client, Listener
from threading import Thread

from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
from tests.servers.redis_cluster import RedisCluster

_KINDS: Mapping[str, Callable[[], Postgres | MariaDB | Redis | RedisCluster]] = {
    "postgres": lambda: Postgres(fast=True),
    "mysql": lambda: MariaDB(fast=True),
    "redis": lambda: Redis(fast=True),
    "redis_cluster": lambda: RedisCluster(fast=True),
}


class SharedServers:
    """The servers of this run; one that the environment names is used instead of a private one."""

    def __init__(self) -> None:
        self._urls: dict[str, str] = {}
        self._servers = ExitStack()
        self._desk: Listener | None = None
        self._clerk = Thread(target=self._answer, name="test-servers", daemon=True)

    def url(self, kind: str) -> str:
        """Return the address of a server: `postgres`, `mysql`, `redis` or `redis_cluster`.

        Raises:
            ServerFailed: it does not start.
            ProgramMissing: it is not installed, and we may not install it.
        """
        given = os.environ.get(f"LEAFWARD_TEST_{kind.upper()}")
        if given:
            return given
        if kind not in self._urls:
            self._urls[kind] = self._servers.enter_context(_KINDS[kind]()).url
        return self._urls[kind]

    def address(self) -> str:
        """Return where other processes can ask for addresses, with `ask`."""
        if self._desk is None:
            self._desk = Listener(family="AF_UNIX")
            self._clerk.start()
        return str(self._desk.address)

    def close(self) -> None:
        """End all servers."""
        with self._servers:
            if self._desk:
                with Client(self._desk.address) as line:
                    line.send(None)
                self._clerk.join()
                self._desk.close()

    def _answer(self) -> None:
        """Serve one request after the other, so that no server is started twice."""
        assert self._desk
        while True:
            with self._desk.accept() as line:
                kind = line.recv()
                if kind is None:
                    return
                try:
                    line.send((self.url(kind), None))
                except Exception as error:
                    line.send((None, f"{type(error).__name__}: {error}"))


class ServerUnavailable(RuntimeError):
    """The process that keeps the servers could not start this one; the message tells why."""


def ask(address: str, kind: str) -> str:
    """Return the address of a server that another process keeps.

    Raises:
        ServerUnavailable: it could not be started.
    """
    with Client(address) as line:
        line.send(kind)
        url, failure = line.recv()
    if failure:
        raise ServerUnavailable(failure)
    return url
