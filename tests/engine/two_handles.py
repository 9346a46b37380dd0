"""Two handles on one store, of each kind: what one process leaves behind, and another one finds."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from leafward import open_store
from leafward.core.ids import new_id
from leafward.stores import Store

_SERVERS = ("postgres", "mysql", "redis")
KINDS = ("memory", "sqlite", "files", *_SERVERS)

Handles = tuple[Store, Store]


def on(*kinds: str) -> pytest.MarkDecorator:
    """Run a test on each of these kinds of store; it takes their name as `handles`."""
    marks = {kind: [pytest.mark.server] for kind in _SERVERS}
    return pytest.mark.parametrize(
        "handles", [pytest.param(kind, marks=marks.get(kind, [])) for kind in kinds], indirect=True
    )


@pytest.fixture
async def handles(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Handles]:
    kind: str = request.param
    server_url: str = request.getfixturevalue(f"{kind}_url") if kind in _SERVERS else ""
    async with opened(kind, tmp_path, server_url) as both:
        yield both


@asynccontextmanager
async def opened(kind: str, directory: Path, server_url: str) -> AsyncGenerator[Handles]:
    """Open a store of a kind twice; what it holds is gone afterwards."""
    # Drivers and contracts are imported where a server is asked for.
    if kind == "redis":
        from tests.stores.redis_store import forget

        prefix = f"{new_id()}:"
        async with (
            open_store(server_url, key_prefix=prefix) as first,
            open_store(server_url, key_prefix=prefix) as second,
        ):
            yield first, second
        forget(server_url, prefix)
    elif server_url:
        from tests.stores.server_store import PREFIX, emptied

        async with emptied(server_url) as first, open_store(server_url, table_prefix=PREFIX) as second:
            yield first, second
    else:
        urls = {
            "memory": f"memory://{new_id()}",
            "sqlite": f"sqlite:///{directory}/dinners.db",
            "files": f"file:///{directory}/dinners",
        }
        async with open_store(urls[kind]) as first, open_store(urls[kind]) as second:
            yield first, second
