"""The manager's tools: a model finds, lists and reads its user's sessions, and nobody else's."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

import pytest

from leafward import Session, SessionManager, assistant, open_store, system, user
from leafward.stores import Store
from leafward.testing.keyed import content_of, look_up

DAY = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


async def _fill(store: Store, word: str, **owner: Any) -> SessionManager:
    """Give an owner two sessions that talk about a walnut."""
    manager = SessionManager(store, **owner)
    await manager.create("First chat", session_id="one")
    await manager.append_all(
        "one", [user(f"the walnut is {word}", created_at=DAY), assistant(f"noted: {word}", created_at=DAY)]
    )
    await Session(store, "two", **owner).append_message(system(f"another {word} walnut", created_at=DAY))
    return manager


async def _answers(manager: SessionManager) -> str:
    """Return all that the tools tell about sessions `one` and `two`."""
    tools = await manager.tools()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("session_search", {"query": "walnut"}),
        ("session_list", {}),
        ("session_history", {"session_id": "one"}),
        ("session_history", {"session_id": "two"}),
    ]
    return "\n".join([await tools.call(name, arguments) for name, arguments in calls])


async def test_a_model_sees_the_sessions_of_its_user_and_agent_only(store: Store) -> None:
    words = {"red": {"user_id": "alice", "agent_id": "x"}, "green": {"user_id": "bob", "agent_id": "x"}}
    words |= {"blue": {"user_id": None, "agent_id": "x"}, "white": {"user_id": "alice", "agent_id": "y"}}
    managers = {word: await _fill(store, word, **owner) for word, owner in words.items()}

    for word, manager in managers.items():
        seen = await _answers(manager)
        assert {other for other in words if other in seen} == {word}


async def test_no_argument_widens_the_scope(store: Store) -> None:
    await _fill(store, "red", user_id="alice")
    tools = await SessionManager(store, user_id="mallory").tools()

    for name in tools:
        properties = tools[name].input_schema["properties"]
        assert {"user_id", "agent_id", "user", "agent", "store"}.isdisjoint(properties)
        for extra in ("user_id", "agent_id"):
            given = {"session_id": "one", "query": "walnut", extra: "alice"}
            answer = await tools.call(name, {key: given[key] for key in given if key in {*properties, extra}})
            assert answer.startswith(f"Error: there is no argument {extra!r}.")
    assert await tools.call("session_search", {"query": "walnut"}) == "No results found."
    assert await tools.call("session_list", {}) == "There are no sessions."
    for guess in ("one", "alice/one", "alice:one", "../alice/one", "%", "*"):
        assert (await tools.call("session_history", {"session_id": guess})).startswith("Error: no session")


async def test_a_search_tells_session_role_and_day(store: Store) -> None:
    tools = await (await _fill(store, "red")).tools()

    found = await tools.call("session_search", {"query": "walnut another"})

    assert found == "[system] in session two, 2026-03-04\nanother red walnut"
    both = (await tools.call("session_search", {"query": "walnut"})).split("\n\n---\n\n")
    assert sorted(both) == [
        "[system] in session two, 2026-03-04\nanother red walnut",
        "[user] in session one, 2026-03-04\nthe walnut is red",
    ]


async def test_a_search_gives_ten_results_at_most(store: Store) -> None:
    manager = SessionManager(store)
    await Session(store, "s").append_messages([user(f"walnut {n}") for n in range(30)])

    found = await (await manager.tools()).call("session_search", {"query": "walnut"})

    assert len(found.split("\n\n---\n\n")) == 10


async def test_sessions_are_listed_newest_first_with_their_names(store: Store) -> None:
    manager = await _fill(store, "red")
    await manager.append("one", user("later"))
    tools = await manager.tools()

    lines = (await tools.call("session_list", {})).split("\n")

    assert [line.split(" (last changed ")[0] for line in lines] == ["- one: First chat", "- two: two"]
    shorter = (await tools.call("session_list", {"limit": 1})).split("\n")
    assert shorter[0].startswith("- one: First chat")
    assert len(shorter) == 2
    assert "more" in shorter[1]


async def test_a_session_is_read_from_its_end(store: Store) -> None:
    manager = await _fill(store, "red")
    tools = await manager.tools()

    whole = await tools.call("session_history", {"session_id": "one"})
    last = await tools.call("session_history", {"session_id": "one", "last_n": 1})

    assert "the walnut is red" in whole
    assert whole.index("the walnut is red") < whole.index("noted: red")
    assert "the walnut is red" not in last
    assert "noted: red" in last
    assert "earlier messages" in last
    await manager.create("Empty", session_id="empty")
    assert await tools.call("session_history", {"session_id": "empty"}) == "This session has no messages."


async def test_reading_another_session_does_not_change_it(store: Store) -> None:
    manager = await _fill(store, "red")
    before = [(info.id, info.updated_at) for info in await manager.list()]
    version = await manager.get_session("one").get_version()

    await _answers(manager)

    assert [(info.id, info.updated_at) for info in await manager.list()] == before
    assert await manager.get_session("one").get_version() == version


async def test_a_history_block_searches_all_sessions_of_the_user(store: Store) -> None:
    await _fill(store, "green", user_id="bob")
    await _fill(store, "red", user_id="alice")
    manager = SessionManager(store, user_id="alice").with_searchable_history("history")
    session = manager.get_session("three")

    block = await session.get_context_block("history")

    assert block is not None
    assert (block.writable, block.is_searchable, block.content) == (False, True, "2 session(s) available for search.")
    found = await look_up(session, "walnut", "history")
    assert "the walnut is red" in found
    assert "another red walnut" in found
    assert "green" not in found
    assert list(await session.tools()) == ["search_context"]
    assert "HISTORY (Cross-session conversation history) [searchable]" in await session.freeze_system_prompt()


async def test_a_history_block_of_a_new_user_is_empty(store: Store) -> None:
    session = SessionManager(store, user_id="new").with_searchable_history("history").get_session("s")

    assert await content_of(session, "history") == ""
    assert await look_up(session, "walnut", "history") == "No results found."
