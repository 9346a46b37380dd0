"""The stores that each example of seed 002 is tried on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from leafward import open_store
from leafward.stores import Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db"
    async with open_store(url) as store:
        yield store
