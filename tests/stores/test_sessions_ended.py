"""Whoever comes back to a session while it is being ended keeps what they write then."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import SessionManager, open_store, user
from leafward.stores.memory import MemoryStore


@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_what_is_written_after_a_session_was_ended_stays(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store("memory://") as store:
        assert isinstance(store, MemoryStore)
        one, other = (SessionManager(store, agent_id=agent) for agent in ("one", "other"))
        for manager in (one, other):
            await manager.get_session("s").append_message(user("old"))
        await store.states.save("s", "agent_state", {"is": "old"})
        method = {"delete": "write", "erase": "erase"}[how]
        original = getattr(store.runner, method)

        async def then_come_back(*arguments: Any) -> Any:
            monkeypatch.undo()
            result = await original(*arguments)
            await getattr(other, how)("s")
            await one.get_session("s").append_message(user("new"))
            await store.states.save("s", "agent_state", {"is": "new"})
            return result

        monkeypatch.setattr(store.runner, method, then_come_back)
        await getattr(one, how)("s")
        assert [message.text for message in await one.get_session("s").get_history()] == ["new"]
        assert await store.states.get("s", "agent_state") == {"is": "new"}
