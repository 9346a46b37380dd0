"""A SQLite store to look into."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from leafward import (
    open_store,
)
from leafward.stores.sqlite import SqliteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        yield store
