"""A store of states for components."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from leafward.stores import AgentStateStore, InMemoryAgentStateStore


@pytest.fixture
async def states() -> AsyncGenerator[AgentStateStore]:
    async with InMemoryAgentStateStore() as states:
        yield states
