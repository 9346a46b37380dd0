"""A store of states for components, and stores that are open twice."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from leafward.stores import AgentStateStore, InMemoryAgentStateStore
from tests.engine.two_handles import handles

__all__ = ["handles", "states"]


@pytest.fixture
async def states() -> AsyncGenerator[AgentStateStore]:
    async with InMemoryAgentStateStore() as states:
        yield states
