"""memory:// keeps every promise but that of outliving its process."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from leafward import open_store
from leafward.stores import Store
from leafward.testing import (
    ChangeContract,
    CompactionContract,
    ContextContract,
    MessageContract,
    RegistryContract,
    ScopeContract,
    SearchContract,
    StoreContract,
    TreeContract,
)


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
