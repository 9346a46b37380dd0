"""What the tests of cold sessions on Redis share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest

from leafward import LATEST_LEAF, open_store, user
from leafward.core.ids import Scope, new_id
from leafward.stores import Draft
from leafward.stores.redis.opening import RedisStore
from tests.stores.redis_store import forget

S = Scope.of("s")


def draft(id: str, tokens: int = 3) -> Draft:
    return Draft(*user(f"text of {id}", id=id).sealed(), tokens)


async def fill(store: RedisStore, count: int, scope: Scope = S) -> None:
    """Append so many messages, `m0` and so on, a thousand at a time."""
    for start in range(0, count, 1000):
        drafts = [draft(f"m{number}") for number in range(start, min(count, start + 1000))]
        await store.messages.append(scope, drafts, LATEST_LEAF)


def cool(store: RedisStore) -> None:
    """Have a store know no session, like one that was just opened."""
    replicas = store.runner._replicas
    for kept in (replicas._kept, replicas._shrunk):
        for replica in kept.values():
            replica.close()
        kept.clear()
    replicas.size = replicas._shrunk_size = 0


def is_cold(store: RedisStore, scope: Scope = S) -> bool:
    """Whether the store has not read a session."""
    replica = store.runner._replicas._kept.get(scope)
    return replica is None or not replica.loaded


class OnRedis:
    """A store, `store`, and the same as another process has it, `other`."""

    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url

    @pytest.fixture
    def prefix(self, url: str) -> Iterator[str]:
        prefix = f"{new_id()}:"
        yield prefix
        forget(url, prefix)

    @pytest.fixture
    async def store(self, url: str, prefix: str) -> AsyncGenerator[RedisStore]:
        async with opened(url, prefix) as store:
            yield store

    @pytest.fixture
    async def other(self, url: str, prefix: str) -> AsyncGenerator[RedisStore]:
        async with opened(url, prefix) as other:
            yield other


def opened(url: str, prefix: str) -> Any:
    return open_store(url, key_prefix=prefix)
