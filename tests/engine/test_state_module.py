"""Components save and restore themselves, on stores of ours and of a user's own."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    InvalidId,
    Message,
    SessionKey,
    SessionNotFound,
    StateDecodeError,
    open_store,
    user,
)
from leafward.engine import InMemoryMemory, Plan, PlanNotebook, SubTask, Toolkit
from leafward.stores import AgentStateStore, InMemoryAgentStateStore, InMemorySession, SimpleSessionKey
from leafward.stores.states.store import StateStore, save_written
from leafward.testing import StateContract
from tests.engine.assistant import Assistant


async def test_a_memory_comes_back(states: AgentStateStore) -> None:
    memory = InMemoryMemory()
    memory.add_message(user("hi"))
    memory.add_message({"role": "assistant", "parts": [{"type": "text", "text": "你好"}]})
    await memory.save_to(states, "s")

    other = InMemoryMemory()
    other.add_message(user("of another conversation"))
    await other.load_from(states, "s")
    assert other.get_messages() == memory.get_messages()


async def test_a_memory_is_a_list_of_agentscopes_messages(states: AgentStateStore) -> None:
    memory = InMemoryMemory()
    memory.add_message(Message("user", "hi", id="m1", name="user"))
    await memory.save_to(states, "s")
    (saved,) = await states.get_list("s", "memory_messages")
    assert [saved[key] for key in ("id", "name", "role", "content")] == [
        "m1",
        "user",
        "USER",
        [{"type": "text", "text": "hi"}],
    ]


async def test_a_memory_in_a_1x_session_holds_only_blocks_of_1x() -> None:
    hint = {"type": "hint", "id": "h", "hint": "do it", "source": None}
    memory = InMemoryMemory()
    memory.add_message(Message("assistant", [hint]))
    async with InMemorySession() as states:
        await memory.save_to(states, "s")

        (saved,) = await states.get_list("s", "memory_messages")
        assert saved["content"] == [{"type": "text", "text": "do it"}]
        other = InMemoryMemory()
        await other.load_from(states, "s")
        assert other.get_messages() == memory.get_messages()


async def test_the_minimal_messages_of_the_seed_are_read(states: AgentStateStore) -> None:
    await states.save_list(
        "user123",
        "memory_messages",
        [
            {"role": "USER", "name": "user", "content": [{"type": "text", "text": "Hello"}]},
            {"role": "ASSISTANT", "name": "Assistant", "content": [{"type": "text", "text": "Hi!"}]},
        ],
    )
    memory = InMemoryMemory()
    await memory.load_from(states, SimpleSessionKey.of("user123"))
    assert [(one.role, one.text) for one in memory.get_messages()] == [("user", "Hello"), ("assistant", "Hi!")]


async def test_an_emptied_memory_comes_back_empty(states: AgentStateStore) -> None:
    memory = InMemoryMemory()
    memory.add_message(user("hi"))
    await memory.save_to(states, "s")
    memory.clear()
    await memory.save_to(states, "s")
    other = InMemoryMemory()
    assert await other.load_if_exists(states, "s")
    assert other.get_messages() == []


async def test_what_get_messages_gave_is_a_copy() -> None:
    memory = InMemoryMemory()
    memory.add_message(user("hi"))
    memory.get_messages().clear()
    assert len(memory.get_messages()) == 1


async def test_a_session_that_is_not_there_is_told(states: AgentStateStore) -> None:
    memory = InMemoryMemory()
    memory.add_message(user("kept"))
    with pytest.raises(SessionNotFound):
        await memory.load_from(states, "nobody")
    assert not await memory.load_if_exists(states, "nobody")
    assert [one.text for one in memory.get_messages()] == ["kept"]


async def test_a_damaged_memory_is_told_and_not_taken_for_an_empty_one(states: AgentStateStore) -> None:
    if isinstance(states, StateStore):
        await save_written(states, SessionKey("s", "alice"), "memory_messages", ['{"role":"user","content":"hi"}'])
    else:
        await states.save_list(SessionKey("s", "alice"), "memory_messages", [{"role": "user", "content": "hi"}])
    memory = InMemoryMemory()
    memory.add_message(user("kept"))
    with pytest.raises(StateDecodeError) as told:
        await memory.load_from(states, SessionKey("s", "alice"))
    assert (told.value.user_id, told.value.session_id, told.value.name) == ("alice", "s", "memory_messages")
    assert [one.text for one in memory.get_messages()] == ["kept"]


async def test_a_plan_comes_back_in_agentscopes_shape(states: AgentStateStore) -> None:
    notebook = PlanNotebook()
    notebook.current_plan = Plan("P", "D", "O", [SubTask("n", "d", "o", "DONE", "2026-11-15 18:32:13")])
    await notebook.save_to(states, "s")
    assert await states.get("s", "planNotebook_state") == {
        "currentPlan": {
            "name": "P",
            "description": "D",
            "expectedOutcome": "O",
            "subtasks": [
                {
                    "name": "n",
                    "description": "d",
                    "expectedOutcome": "o",
                    "state": "DONE",
                    "createdAt": "2026-11-15 18:32:13",
                }
            ],
        }
    }
    other = PlanNotebook()
    await other.load_from(states, "s")
    assert other.current_plan == notebook.current_plan


async def test_no_plan_comes_back_as_none(states: AgentStateStore) -> None:
    await PlanNotebook().save_to(states, "s")
    assert await states.get("s", "planNotebook_state") == {"currentPlan": None}
    other = PlanNotebook()
    other.current_plan = Plan("old")
    await other.load_from(states, "s")
    assert other.current_plan is None


async def test_fields_of_a_plan_that_are_not_known_are_kept(states: AgentStateStore) -> None:
    saved = {"currentPlan": {"name": "P", "color": "red", "subtasks": [{"name": "n", "by": "me"}]}, "history": [1]}
    await states.save("s", "planNotebook_state", saved)
    notebook = PlanNotebook()
    await notebook.load_from(states, "s")
    await notebook.save_to(states, "t")
    again = await states.get("t", "planNotebook_state")
    assert again is not None
    assert (again["history"], again["currentPlan"]["color"]) == ([1], "red")
    assert again["currentPlan"]["subtasks"][0]["by"] == "me"


@pytest.mark.parametrize("plan", [{"subtasks": [{"state": "LATER"}]}, {"subtasks": "none"}, "P", {"name": []}])
async def test_a_plan_that_is_none_is_told(states: AgentStateStore, plan: object) -> None:
    await states.save("s", "planNotebook_state", {"currentPlan": plan})
    with pytest.raises(StateDecodeError, match="planNotebook_state"):
        await PlanNotebook().load_from(states, "s")


async def test_two_notebooks_have_prefixes_of_their_own(states: AgentStateStore) -> None:
    await PlanNotebook("other").save_to(states, "s")
    assert await states.get("s", "other_state") == {"currentPlan": None}
    with pytest.raises(InvalidId):
        PlanNotebook("x" * 255)


async def test_active_groups_come_back(states: AgentStateStore) -> None:
    tools = Toolkit().create_group("web").create_group("files", active=True)
    tools.set_active_groups(["web"])
    await tools.save_to(states, "s")
    assert await states.get("s", "toolkit_activeGroups") == {"activeGroups": ["web"]}
    other = Toolkit().create_group("web").create_group("files", active=True)
    await other.load_from(states, "s")
    assert other.active_groups == ["web"]
    other.set_active_groups([])
    await other.save_to(states, "s")
    await tools.load_from(states, "s")
    assert tools.active_groups == []


async def test_groups_that_were_never_saved_stay_as_they_were_made(states: AgentStateStore) -> None:
    await states.save("s", "something", {})
    tools = Toolkit().create_group("web", active=True)
    await tools.load_from(states, "s")
    assert tools.active_groups == ["web"]


async def test_a_group_twice_or_unknown_is_refused() -> None:
    tools = Toolkit().create_group("web", "for pages")
    assert [(one.name, one.description) for one in tools.groups] == [("web", "for pages")]
    with pytest.raises(ConfigurationError):
        tools.create_group("web")
    with pytest.raises(ConfigurationError, match="web"):
        tools.set_active_groups(["mail"])


async def test_names_that_layouts_use_are_refused_at_once() -> None:
    for make in (lambda: InMemoryMemory("x:list"), lambda: PlanNotebook("x:_hash:list:ver\n")):
        with pytest.raises(InvalidId):
            make()


async def test_all_who_use_a_plain_store_take_turns(tmp_path: Path) -> None:
    inside, most = 0, 0

    class Slow(database_session()):
        def save_list(self, key: SessionKey, name: str, value: Any) -> None:
            nonlocal inside, most
            inside += 1
            most = max(most, inside)
            time.sleep(0.01)
            super().save_list(key, name, value)
            inside -= 1

    store: Any = Slow(f"{tmp_path}/states.db")
    await asyncio.gather(*(InMemoryMemory().save_to(store, f"s{n}") for n in range(6)))
    assert most == 1


async def test_an_open_store_will_do(tmp_path: Path) -> None:
    memory = InMemoryMemory()
    memory.add_message(user("hi"))
    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        await memory.save_to(store, "s")
    other = InMemoryMemory()
    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        await other.load_from(store, "s")
    assert other.get_messages() == memory.get_messages()


async def test_what_is_no_store_is_refused() -> None:
    for bad in ({}, "sqlite:///x.db", InMemoryAgentStateStore, None):
        store: Any = bad
        with pytest.raises(ConfigurationError):
            await InMemoryMemory().save_to(store, "s")


async def test_a_1x_session_is_used_as_the_seed_does() -> None:
    async with InMemorySession() as session:
        memory = InMemoryMemory()
        memory.add_message(user("hi"))
        assert not await memory.load_if_exists(session, "userId")
        await memory.save_to(session, "userId")
        assert await session.exists(SimpleSessionKey.of("userId"))
        assert await session.list_session_keys() == {SimpleSessionKey.of("userId")}
        await session.delete(SimpleSessionKey.of("userId"))
        assert await session.list_session_keys() == set()


def database_session() -> Any:
    """Return the class of the guide, which is that of the seed."""
    page = Path(__file__).parents[2] / "docs/guides/your-own-states.md"
    program = page.read_text(encoding="utf-8").split("```python\n")[1].partition("\n\nasync def main")[0]
    assert len([line for line in program.splitlines() if line.strip()]) <= 45
    names: dict[str, Any] = {}
    exec(compile(program, str(page), "exec"), names)
    return names["DatabaseSession"]


class TestDatabaseSession(StateContract):
    @pytest.fixture
    def states(self, tmp_path: Path) -> object:
        return database_session()(f"{tmp_path}/states.db")


async def test_a_store_of_ones_own_with_plain_methods_will_do(tmp_path: Path) -> None:
    store: Any = database_session()(f"{tmp_path}/states.db")
    one = Assistant()
    one.memory.add_message(user("hi"))
    one.tools.set_active_groups(["files"])
    await one.save_to(store, "user123")
    other = Assistant()
    await other.load_from(store, "user123")
    assert [message.text for message in other.memory.get_messages()] == ["hi"]
    assert other.tools.active_groups == ["files"]
    assert store.list_session_keys() == {SessionKey("user123")}
    with pytest.raises(SessionNotFound):
        await other.load_from(store, "nobody")
