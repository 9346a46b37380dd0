"""A migration keeps its promises on directories, MariaDB and Redis."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

import pytest

from tests.importers.contract import MigrationContract
from tests.importers.left import Left, LeftInFiles, LeftInRedis, LeftInTables
from tests.servers.redis import Redis
from tests.stores.redis_store import command


class TestDirectory(MigrationContract):
    @pytest.fixture
    def left(self, tmp_path: Path) -> Left:
        return LeftInFiles(tmp_path / "sessions")


class TestMySQL(MigrationContract):
    @pytest.fixture
    async def left(self, mysql_url: str) -> AsyncGenerator[Left]:
        left = LeftInTables(mysql_url)
        await left.make()
        yield left
        await left.drop()


class TestRedis(MigrationContract):
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, private_redis: Callable[[], Redis]) -> Iterator[Redis]:
        with private_redis() as server:
            yield server

    @pytest.fixture
    def left(self, server: Redis) -> Left:
        command(server.url, "FLUSHALL")
        return LeftInRedis(server.url)
