"""file:/// keeps every promise."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from leafward import open_store
from leafward.stores import Store
from leafward.stores.files import FileStore
from leafward.testing import (
    ChangeContract,
    CompactionContract,
    ContextContract,
    DurableContextContract,
    DurableContract,
    LeaseContract,
    MessageContract,
    RegistryContract,
    ScopeContract,
    SearchContract,
    StoreContract,
    TreeContract,
)
from leafward.testing.durable import Reopen


class TestFiles(
    MessageContract,
    TreeContract,
    SearchContract,
    ChangeContract,
    CompactionContract,
    ContextContract,
    ScopeContract,
    RegistryContract,
    StoreContract,
    DurableContextContract,
    DurableContract,
    LeaseContract,
):
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
