"""memory:// keeps every promise but that of outliving its process."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from uuid import uuid4

import pytest

from leafward import open_store
from leafward.stores import Store
from leafward.testing import LeaseContract, LeaseMessageContract
from leafward.testing.durable import Reopen
from tests.stores.every_contract import EveryVolatileContract


class TestMemory(EveryVolatileContract):
    @pytest.fixture
    async def store(self) -> AsyncGenerator[Store]:
        async with open_store("memory://") as store:
            yield store


class TestNamedMemory(LeaseContract, LeaseMessageContract):
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
