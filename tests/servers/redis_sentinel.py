"""A private Redis with a replica, and three sentinels that promote it when the master dies."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Self

import redis

from tests.servers.packages import program
from tests.servers.processes import wait_until
from tests.servers.redis import Redis
from tests.servers.server import HOST

MASTER = "mymaster"
_SENTINELS = 3
_QUORUM = 2
_HURRY = ("INFO-PERIOD", "200", "PUBLISH-PERIOD", "200")


class _Node(Redis):
    """A Redis whose configuration file is ours only once: sentinels write into it who is master."""

    def _prepare(self) -> None:
        self._write("redis.conf", [*self._settings(), *self.settings])

    def _command(self) -> list[str]:
        return [program("redis-server"), str(self.directory / "redis.conf")]

    def role(self) -> str:
        """Return `master` or `slave`."""
        with self.client() as client:
            role: Any = client.execute_command("ROLE")
        return str(role[0])


class _Sentinel(_Node):
    """One sentinel; its settings say what it would else take seconds to learn."""

    def __init__(self, *, fast: bool, password: str) -> None:
        super().__init__(fast=fast, password=password)
        self.name = secrets.token_hex(20)

    def _settings(self) -> list[str]:
        return [
            f"bind {HOST}",
            f"port {self.port}",
            f"dir {self.directory}",
            f"requirepass {self.password}",
            f"sentinel sentinel-pass {self.password}",
            f"sentinel myid {self.name}",
        ]

    def _command(self) -> list[str]:
        return [*super()._command(), "--sentinel"]

    def start(self) -> None:
        """Start it, in a hurry: it looks at the nodes and tells what it knows five times a second."""
        super().start()
        with self.client() as client:
            client.execute_command("SENTINEL", "DEBUG", *_HURRY)

    def master_port(self) -> int:
        """Return the port that clients are sent to."""
        with self.client() as client:
            address: Any = client.sentinel_get_master_addr_by_name(MASTER)
        return int(address[1])

    def is_content(self) -> bool:
        """Whether it reaches enough sentinels to promote a replica, and knows one to promote."""
        with self.client() as client:
            try:
                client.execute_command("SENTINEL", "CKQUORUM", MASTER)
            except redis.ResponseError:
                return False
            replicas: Any = client.sentinel_slaves(MASTER)
        return any(replica["flags"] == "slave" and replica["master-link-status"] == "ok" for replica in replicas)


class RedisSentinel:
    """A Redis master, its replicas, and three sentinels, all with the same password.

    Replicas copy after the master has answered, as Redis does it: a failover may lose what was just written.
    """

    def __init__(self, *, fast: bool = False, replicas: int = 1, settings: Sequence[str] = ()) -> None:
        self.password = secrets.token_hex(12)
        # A replica is given its copy at once, where Redis would wait five seconds for others to ask too.
        lines = ["repl-diskless-sync-delay 0", *settings]
        self.nodes = [_Node(fast=fast, settings=lines, password=self.password) for _ in range(1 + replicas)]
        self.sentinels = [_Sentinel(fast=fast, password=self.password) for _ in range(_SENTINELS)]
        first, *others = self.nodes
        for replica in others:
            replica.settings.append(f"replicaof {HOST} {first.port}")
        for sentinel in self.sentinels:
            sentinel.settings.extend(self._known_to(sentinel))

    @property
    def url(self) -> str:
        """What a user would give to `open_store`."""
        hosts = ",".join(f"{HOST}:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://:{self.password}@{hosts}/{MASTER}"

    @property
    def master(self) -> Redis:
        """The node that the sentinels send clients to."""
        port = self.sentinels[0].master_port()
        return next(node for node in self.nodes if node.port == port)

    def roles(self) -> list[str]:
        """Return what each node takes itself for: `master` or `slave`."""
        return [node.role() for node in self.nodes]

    def start(self) -> None:
        """Start all that does not run, and return when the sentinels could promote a replica."""
        known = [sentinel.master_port() for sentinel in self.sentinels if sentinel.is_running]
        back = [node for node in self.nodes if known and not node.is_running and node.port != known[0]]
        for server in (*self.nodes, *self.sentinels):
            if not server.is_running:
                server.start()
        for node in back:
            # The sentinels would do so too, but on a busy machine they take rests of half a minute.
            with node.client() as client:
                client.execute_command("REPLICAOF", HOST, known[0])
        wait_until(lambda: all(sentinel.is_content() for sentinel in self.sentinels), "the sentinels to meet")

    def failover(self) -> None:
        """Kill the master, and return when all sentinels send clients to a promoted replica.

        The killed node stays dead until `start`, and then is a replica.
        """
        old = self.master
        old.kill()
        wait_until(lambda: all(self._is_promoted(sentinel, old) for sentinel in self.sentinels), "a promotion")

    def close(self) -> None:
        """End all servers and remove their directories."""
        with ExitStack() as last:
            for server in (*self.nodes, *self.sentinels):
                last.callback(server.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _is_promoted(self, sentinel: _Sentinel, old: Redis) -> bool:
        port = sentinel.master_port()
        return port != old.port and any(node.port == port and node.role() == "master" for node in self.nodes)

    def _known_to(self, sentinel: _Sentinel) -> list[str]:
        first, *replicas = self.nodes
        others = [other for other in self.sentinels if other is not sentinel]
        return [
            f"sentinel monitor {MASTER} {HOST} {first.port} {_QUORUM}",
            f"sentinel auth-pass {MASTER} {self.password}",
            f"sentinel down-after-milliseconds {MASTER} 500",
            f"sentinel failover-timeout {MASTER} 1000",
            *(f"sentinel known-replica {MASTER} {HOST} {replica.port}" for replica in replicas),
            *(f"sentinel known-sentinel {MASTER} {HOST} {other.port} {other.name}" for other in others),
        ]
