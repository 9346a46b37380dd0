"""redis:// keeps every promise, on one server and on a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

import pytest

from leafward import open_store
from leafward.core.ids import new_id
from leafward.stores import Store
from leafward.stores.replicated.journals import NOTHING, Journal
from leafward.stores.replicated.replica import Replica
from leafward.testing import DurableContextContract, DurableContract
from leafward.testing.durable import Reopen
from tests.stores.every_contract import EveryContract
from tests.stores.redis_store import forget


class _OnAServer:
    @pytest.fixture
    async def prefix(self, url: str) -> AsyncGenerator[str]:
        prefix = f"{new_id()}:"
        yield prefix
        forget(url, prefix)

    @pytest.fixture
    async def store(self, url: str, prefix: str) -> AsyncGenerator[Store]:
        async with open_store(url, key_prefix=prefix) as store:
            yield store

    @pytest.fixture
    async def reopen(self, url: str, prefix: str) -> AsyncGenerator[Reopen]:
        async with AsyncExitStack() as opened:

            async def reopen() -> Store:
                return await opened.enter_async_context(open_store(url, key_prefix=prefix))

            yield reopen


class TestRedis(_OnAServer, EveryContract):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url


class TestRedisCluster(_OnAServer, EveryContract):
    @pytest.fixture
    def url(self, redis_cluster_url: str) -> str:
        return redis_cluster_url


class TestAJournalThatIsWrittenAnewEachTime(_OnAServer, DurableContract, DurableContextContract):
    @pytest.fixture
    def url(self, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
        async def whenever_there_is_one(self: Replica, journal: Journal) -> bool:
            return self.marks[journal] != NOTHING

        monkeypatch.setattr(Replica, "is_outgrown", whenever_there_is_one)
        return redis_url
