"""How a model gets at the other sessions of its user: three tools, and a block that searches them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import SessionManager, assistant, open_store, user
from leafward.stores import Store


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db") as store:
        yield store


@pytest.fixture
async def manager(store: Store) -> SessionManager:
    manager = SessionManager(store, user_id="alice").with_searchable_history("past")
    await manager.create("Trees", session_id="trees")
    await manager.append_all("trees", [user("I planted a walnut.", id="m1"), assistant("A fine tree.", id="m2")])
    await manager.create("Drinks", session_id="drinks")
    await manager.append("drinks", user("I take my coffee black."))
    await SessionManager(store, user_id="bob").get_session("theirs").append_message(user("my walnut"))
    return manager


async def test_a_model_searches_lists_and_reads_sessions(manager: SessionManager) -> None:
    tools = await manager.tools()

    found = await tools.call("session_search", {"query": "walnut"})
    listed = await tools.call("session_list", {})
    read = await tools.call("session_history", {"session_id": "trees"})

    assert set(tools) == {"session_search", "session_list", "session_history"}
    assert found.startswith("[user] in session trees, ")
    assert found.endswith("\nI planted a walnut.")
    assert [line.split(" (")[0] for line in listed.splitlines()] == ["- drinks: Drinks", "- trees: Trees"]
    assert "I planted a walnut." in read
    assert read.index("walnut") < read.index("A fine tree.")
    assert "theirs" not in found + listed


async def test_a_model_reads_the_newest_messages_first_of_all(manager: SessionManager) -> None:
    tools = await manager.tools()

    read = await tools.call("session_history", {"session_id": "trees", "last_n": 1})

    assert "A fine tree." in read
    assert "walnut" not in read
    assert "larger last_n" in read
    assert "There are more" in await tools.call("session_list", {"limit": 1})


@pytest.mark.parametrize(
    ("tool", "arguments", "answer"),
    [
        ("session_search", {"query": "nothing like it"}, "No results found."),
        ("session_search", {"query": '" OR 1=1; --'}, "No results found."),
        ("session_search", {}, "Error: the argument 'query' is missing"),
        ("session_search", {"query": "walnut", "user_id": "bob"}, "Error: there is no argument 'user_id'"),
        ("session_list", {"limit": 0}, "Error: the argument 'limit' is 0"),
        ("session_list", {"limit": "all"}, "Error: the argument 'limit' is a str"),
        ("session_history", {"session_id": "theirs"}, "Error: no session 'theirs'"),
        ("session_history", {"session_id": ""}, "Error: no session ''"),
        ("session_history", {"session_id": "trees", "agent_id": "x"}, "Error: there is no argument 'agent_id'"),
    ],
)
async def test_a_models_mistake_is_answered_in_words(
    manager: SessionManager, tool: str, arguments: dict[str, Any], answer: str
) -> None:
    assert (await (await manager.tools()).call(tool, arguments)).startswith(answer)


async def test_a_model_that_reads_a_session_makes_none(manager: SessionManager) -> None:
    answer = await (await manager.tools()).call("session_history", {"session_id": "nowhere"})

    assert "session_list" in answer
    assert await manager.get("nowhere") is None


async def test_searchable_history_is_a_read_only_block_of_every_session(manager: SessionManager) -> None:
    session = manager.get_session("new")

    block = await session.get_context_block("past")
    found = await (await session.tools()).call("search_context", {"label": "past", "query": "walnut"})

    assert block is not None
    assert (block.content, block.writable, block.is_searchable) == ("2 session(s) available for search.", False, True)
    assert block.description == "Cross-session conversation history"
    assert "I planted a walnut." in found
    assert "trees" in found
    assert "my walnut" not in found
    assert "set_context" not in await session.tools()
    assert "[searchable]" in await session.freeze_system_prompt()


async def test_searchable_history_of_no_sessions_is_empty(store: Store) -> None:
    session = SessionManager(store).with_searchable_history("past").get_session("new")

    block = await session.get_context_block("past")
    found = await (await session.tools()).call("search_context", {"label": "past", "query": "walnut"})

    assert block is not None
    assert block.content == ""
    assert found == "No results found."
