"""A private Redis."""

from __future__ import annotations

import redis
from redis.backoff import NoBackoff
from redis.exceptions import BusyLoadingError
from redis.retry import Retry

from tests.servers.packages import program
from tests.servers.server import HOST, Server


class Redis(Server):
    """A private Redis that has every write on disk before it answers."""

    @property
    def url(self) -> str:
        """What a user would give to `open_store`."""
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def client(self) -> redis.Redis:
        """Return a blocking client, to be closed by the caller."""
        once = Retry(NoBackoff(), 0)
        return redis.Redis(host=HOST, port=self.port, password=self.password, decode_responses=True, retry=once)

    def _prepare(self) -> None:
        """Redis makes its data by itself."""

    def _command(self) -> list[str]:
        return [program("redis-server"), str(self._write("redis.conf", [*self._settings(), *self.settings]))]

    def _settings(self) -> list[str]:
        return [
            f"bind {HOST}",
            f"port {self.port}",
            f"dir {self.directory}",
            f"requirepass {self.password}",
            f"masterauth {self.password}",
            'save ""',
            "appendonly yes",
            "appendfsync always",
        ]

    def _is_ready(self) -> bool:
        """Whether it answers; while it reads its data it refuses to."""
        with self.client() as client:
            try:
                return bool(client.ping())
            except (redis.ConnectionError, BusyLoadingError):
                return False
