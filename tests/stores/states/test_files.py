"""States in files keep every promise by themselves, and in a store of the lower durability."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from leafward import open_store
from leafward.stores import AgentStateStore, JsonFileAgentStateStore, JsonSession, WorkspaceSession
from leafward.testing.our_states import OurStateContract


class TestFiles(OurStateContract):
    @pytest.fixture
    async def states(self, tmp_path: Path) -> AsyncGenerator[AgentStateStore]:
        async with JsonFileAgentStateStore(tmp_path / "states") as states:
            yield states


class TestSessions(OurStateContract):
    @pytest.fixture(params=["JsonSession", "WorkspaceSession"])
    async def states(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[AgentStateStore]:
        made = JsonSession(tmp_path) if request.param == "JsonSession" else WorkspaceSession(tmp_path, "support")
        async with made as states:
            yield states


class TestOfAStore(OurStateContract):
    @pytest.fixture
    async def states(self, tmp_path: Path) -> AsyncGenerator[AgentStateStore]:
        async with open_store(f"file:///{tmp_path}", durability="process") as store:
            yield store.states
