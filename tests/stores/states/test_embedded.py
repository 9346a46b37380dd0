"""States in memory and in SQLite keep every promise by themselves."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from leafward.stores import AgentStateStore, InMemoryAgentStateStore, Slot, SqliteAgentStateStore
from leafward.testing.our_states import OurStateContract


class TestMemory(OurStateContract):
    @pytest.fixture(params=["1.x", "2.x"])
    async def states(self, request: pytest.FixtureRequest) -> AsyncGenerator[AgentStateStore]:
        async with InMemoryAgentStateStore(layout=request.param) as states:
            yield states


class TestSQLite(OurStateContract):
    @pytest.fixture(params=["1.x", "2.x"])
    async def states(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[AgentStateStore]:
        async with SqliteAgentStateStore(tmp_path / "states.db", layout=request.param) as states:
            yield states


async def test_the_names_of_a_slot_are_those_that_were_saved() -> None:
    async with InMemoryAgentStateStore() as states:
        await states.save("s", "value", {})
        await states.save_list("s", "list", [{}, {}])
        await states.save_list("s", "empty", [])
        await states.save("s", "~x61", {})
        table = await states._table()
        assert await table.names(Slot(None, "s")) == {"value": False, "list": True, "empty": True, "~x61": False}
        assert await table.names(Slot(None, "t")) == {}
