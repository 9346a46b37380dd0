"""What tests of states on one Redis share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.stores.redis_store import looking_at
from tests.stores.states.redis_states import own_prefix


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    yield from own_prefix(redis_url)


@pytest.fixture
def client(redis_url: str) -> Iterator[redis.Redis]:
    with looking_at(redis_url) as clients:
        yield clients[0]
