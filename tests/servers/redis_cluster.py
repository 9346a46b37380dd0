"""A private Redis cluster of three nodes."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

from tests.servers.ports import Port
from tests.servers.processes import wait_until
from tests.servers.redis import Redis
from tests.servers.server import HOST

_SLOTS = 16384


class RedisNode(Redis):
    """One node of a cluster, with a port of its own for what nodes tell each other."""

    def __init__(self, *, fast: bool = False, settings: Sequence[str] = (), password: str | None = None) -> None:
        super().__init__(fast=fast, settings=settings, password=password)
        self._bus = Port()
        self.bus_port = self._bus.number

    def close(self) -> None:
        """End it and remove its directory."""
        if self.directory.exists():
            self._bus.release()
        super().close()

    def _settings(self) -> list[str]:
        cluster = ["cluster-enabled yes", f"cluster-port {self.bus_port}", "cluster-node-timeout 2000"]
        return [*super()._settings(), *cluster]


class RedisCluster:
    """Three Redis nodes that share the keys between them, without replicas.

    Each of `nodes` can be killed and started by itself; it keeps its place in the cluster.
    """

    def __init__(self, *, fast: bool = False, settings: Sequence[str] = ()) -> None:
        self.password = secrets.token_hex(12)
        self.nodes = [RedisNode(fast=fast, settings=settings, password=self.password) for _ in range(3)]
        self._is_formed = False

    @property
    def url(self) -> str:
        """What a user would give to `open_store`."""
        return f"redis+cluster://:{self.password}@{','.join(f'{HOST}:{node.port}' for node in self.nodes)}"

    def start(self) -> None:
        """Start all nodes, and return when each says that every key has its place."""
        for node in self.nodes:
            node.start()
        if not self._is_formed:
            self._form()
            self._is_formed = True
        wait_until(lambda: all(map(_is_whole, self.nodes)), "the Redis cluster to form")

    def kill(self) -> None:
        """SIGKILL all nodes."""
        for node in self.nodes:
            node.kill()

    def stop(self) -> None:
        """Stop all nodes, keeping their data."""
        for node in self.nodes:
            node.stop()

    def close(self) -> None:
        """End all nodes and remove their directories."""
        with ExitStack() as last:
            for node in self.nodes:
                last.callback(node.close)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _form(self) -> None:
        first, bounds = self.nodes[0], [_SLOTS * number // len(self.nodes) for number in range(len(self.nodes) + 1)]
        for number, node in enumerate(self.nodes):
            with node.client() as client:
                client.execute_command("CLUSTER SET-CONFIG-EPOCH", number + 1)
                client.execute_command("CLUSTER ADDSLOTSRANGE", bounds[number], bounds[number + 1] - 1)
                if node is not first:
                    client.execute_command("CLUSTER MEET", HOST, first.port, first.bus_port)


def _is_whole(node: RedisNode) -> bool:
    with node.client() as client:
        told = client.cluster("INFO")
    return told["cluster_state"] == "ok" and told["cluster_known_nodes"] == "3"
