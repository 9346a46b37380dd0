"""file:/// keeps every promise."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from leafward import open_store
from leafward.stores import Store
from leafward.stores.files import FileStore
from leafward.testing.durable import Reopen
from tests.stores.every_contract import EveryContract


class TestFiles(EveryContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file:///{tmp_path}/chats"

    @pytest.fixture
    async def store(self, url: str) -> AsyncGenerator[Store]:
        async with open_store(url) as store:
            yield store

    async def settle(self, store: Store) -> None:
        assert isinstance(store, FileStore)
        await store.settle()

    @pytest.fixture
    async def reopen(self, url: str) -> AsyncGenerator[Reopen]:
        async with AsyncExitStack() as opened:

            async def reopen() -> Store:
                return await opened.enter_async_context(open_store(url))

            yield reopen
