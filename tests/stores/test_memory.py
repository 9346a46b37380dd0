"""memory:// keeps every promise but that of outliving its process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from leafward import open_store
from leafward.stores import Store
from leafward.testing import (
    ChangeContract,
    CompactionContract,
    ContextContract,
    LeaseContract,
    MessageContract,
    RegistryContract,
    ScopeContract,
    SearchContract,
    StoreContract,
    TreeContract,
)
from leafward.testing.durable import Reopen


class TestMemory(
    MessageContract,
    TreeContract,
    SearchContract,
    ChangeContract,
    CompactionContract,
    ContextContract,
    ScopeContract,
    RegistryContract,
    StoreContract,
):
    @pytest.fixture
    async def store(self) -> AsyncGenerator[Store]:
        async with open_store("memory://") as store:
            yield store


class TestNamedMemory(LeaseContract):
    """A store of one name is shared by all who open it."""

    @pytest.fixture
    def url(self) -> str:
        return f"memory://{uuid4()}"

    @pytest.fixture
    async def store(self, url: str) -> AsyncGenerator[Store]:
        async with open_store(url) as store:
            yield store

    @pytest.fixture
    async def reopen(self, url: str) -> AsyncGenerator[Reopen]:
        async with AsyncExitStack() as opened:

            async def reopen() -> Store:
                return await opened.enter_async_context(open_store(url))

            yield reopen
