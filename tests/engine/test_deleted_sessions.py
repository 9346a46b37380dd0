"""A session that is deleted while a turn runs: the turn says so, and nothing of it is stored again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leafward import ReActAgent, SessionKey, SessionManager, SessionNotFound, tool, user
from leafward.engine.tree_log import TreeLog
from leafward.stores import Store
from leafward.testing import ScriptedModel, call
from tests.engine.test_turn import ALICE, store, texts

__all__ = ["store"]

KEY = SessionKey("s1", "alice")
POLICIES = ["fail", "overwrite", "append_merge"]


async def delete(store: Store) -> None:
    await SessionManager(store, user_id="alice", agent_id="cook").delete("s1")


def agent(store: Store, script: Any = ("Done.",), **options: Any) -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(list(script)), store=store, **options)


def disturbed(store: Store, act: Callable[[], Awaitable[object]], **options: Any) -> ReActAgent:
    """Return an agent whose tool does something to the session."""

    @tool
    async def work() -> str:
        """Work."""
        await act()
        return "worked"

    return agent(store, [[call("work", {}, id="c1")], "Ready."], tools=[work], **options)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("save", ["step", "call"])
@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_turn_ends_when_its_session_is_deleted(store: Store, earlier: int, save: Any, policy: Any) -> None:
    for _ in range(earlier):
        await agent(store).call("Hello", ALICE)

    with pytest.raises(SessionNotFound):
        await disturbed(store, lambda: delete(store), save=save, conflict_policy=policy).call("Cook dinner", ALICE)

    assert await texts(store) == []
    assert not await store.states.exists(KEY)


@pytest.mark.parametrize("save", ["step", "call"])
@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_turn_does_not_go_on_in_a_session_made_anew(store: Store, earlier: int, save: Any) -> None:
    for _ in range(earlier):
        await agent(store).call("Hello", ALICE)

    async def replace() -> None:
        await delete(store)
        await agent(store).session("alice", "s1").append_messages([user(f"New {number}") for number in range(9)])

    with pytest.raises(SessionNotFound):
        await disturbed(store, replace, save=save).call("Cook dinner", ALICE)

    assert await texts(store) == [f"user: New {number}" for number in range(9)]
    assert not await store.states.exists(KEY)


async def test_a_turn_before_the_first_message_does_not_go_on_in_a_session_made_anew(store: Store) -> None:
    await agent(store).call("Hello", ALICE)
    session = agent(store).session("alice", "s1")
    await session.checkout(None)

    async def replace() -> None:
        await delete(store)
        for number in range(9):
            await session.append_message(user(f"New {number}"))

    with pytest.raises(SessionNotFound):
        await disturbed(store, replace, save="call").call("Cook dinner", ALICE)

    assert await texts(store) == [f"user: New {number}" for number in range(9)]


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_session_deleted_before_the_slot_is_written_stays_deleted(
    store: Store, policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = TreeLog.project

    async def late(log: TreeLog) -> None:
        await delete(store)
        await project(log)

    monkeypatch.setattr(TreeLog, "project", late)
    with pytest.raises(SessionNotFound):
        await agent(store, conflict_policy=policy).call("Cook dinner", ALICE)

    assert await texts(store) == []
    assert not await store.states.exists(KEY)


async def test_a_turn_goes_on_when_all_but_what_a_summary_covers_is_deleted(store: Store) -> None:
    await agent(store).call("Hello", ALICE)
    session = agent(store).session("alice", "s1")
    first, last = await session.get_raw_history()
    await session.add_compaction("They said hello.", first.id, last.id)

    async def delete_turn() -> None:
        history = await session.get_raw_history()
        await session.delete_messages([message.id for message in history[2:]])

    assert (await disturbed(store, delete_turn).call("Cook dinner", ALICE)).text == "Ready."
    assert (await texts(store))[-1] == "assistant: Ready."
