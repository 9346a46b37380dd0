"""Seed 002's examples of a manager of sessions."""

from __future__ import annotations

import pytest

from leafward import (
    MessageNotFound,
    SessionManager,
    SessionNotFound,
    StoredContextProvider,
    StoredSearchProvider,
    assistant,
    create_compact_function,
    user,
)
from leafward.stores import Store
from tests.sessions.seed_002.examples import Summariser, ids, said, soul


async def test_what_is_set_on_a_manager_reaches_every_session(store: Store) -> None:
    model = Summariser()
    manager = (
        SessionManager(store)
        .with_context("soul", provider={"get": soul})
        .with_context("memory", description="Learned facts", max_tokens=1100)
        .with_cached_prompt()
        .on_compaction(
            create_compact_function(summarize=model, protect_head=1, tail_token_budget=14, min_tail_messages=2)
        )
        .compact_after(150)
        .with_searchable_history("history")
    )

    for name in ("one", "two"):
        session = manager.get_session((await manager.create(name)).id)
        assert [block.label for block in await session.get_context_blocks()] == ["soul", "memory", "history"]
        assert list(await session.tools()) == ["set_context", "search_context"]
        system = await session.freeze_system_prompt()
        await session.replace_context_block("memory", "Changed.")
        assert await session.freeze_system_prompt() == system
        await session.append_messages(said(30))
        assert await session.get_compactions() != []
    assert len(model.prompts) == 2


async def test_every_builder_call_returns_the_manager(store: Store) -> None:
    manager = SessionManager(store)

    assert manager.with_searchable_history("history") is manager
    assert manager.compact_after(100_000) is manager
    assert manager.on_compaction(create_compact_function(summarize=Summariser())) is manager
    assert manager.with_cached_prompt() is manager
    assert manager.with_context("memory") is manager


async def test_what_is_stored_for_one_session_is_not_the_others(store: Store) -> None:
    manager = (
        SessionManager(store)
        .with_context("memory")
        .with_context("notes", provider=StoredContextProvider(store, "notes"))
        .with_context("knowledge", provider=StoredSearchProvider(store))
        .with_cached_prompt(StoredContextProvider(store))
    )
    one, two = [manager.get_session((await manager.create(name)).id) for name in ("one", "two")]

    await one.replace_context_block("memory", "A secret.")
    await one.replace_context_block("notes", "A secret.")
    await (await one.tools()).call("set_context", {"label": "knowledge", "content": "A secret."})
    assert "A secret." in await one.freeze_system_prompt()

    assert [block.content for block in await two.get_context_blocks()] == ["", "", ""]
    assert "A secret." not in await two.freeze_system_prompt()
    searched = await (await two.tools()).call("search_context", {"label": "knowledge", "query": "secret"})
    assert searched == "No results found."


async def test_a_session_is_created_listed_renamed_and_deleted(store: Store) -> None:
    manager = SessionManager(store)
    first = await manager.create("My Chat")
    second = await manager.create("My Chat", parent_session_id=first.id, model="claude-sonnet-4-20250514", source="web")
    assert (second.parent_session_id, second.model, second.source) == (first.id, "claude-sonnet-4-20250514", "web")
    assert await manager.get(second.id) == second
    assert await manager.get("nobody") is None

    await manager.append(first.id, user("Hello"))
    assert [info.id for info in await manager.list()] == [first.id, second.id]

    await manager.rename(second.id, "New Name")
    assert [info.name for info in await manager.list()] == ["New Name", "My Chat"]

    assert await manager.delete(first.id) is True
    assert await manager.get(first.id) is None
    assert await manager.get_session(first.id).get_history() == []
    assert [info.id for info in await manager.list()] == [second.id]


async def test_a_handle_is_made_at_first_access_and_kept(store: Store) -> None:
    manager = SessionManager(store)

    assert manager.get_session("chat-1") is manager.get_session("chat-1")

    assert await manager.get("chat-1") is None
    await manager.get_session("chat-1").append_message(user("Hello"))
    assert await manager.get("chat-1") is not None


async def test_messages_are_written_and_read_by_the_id_of_their_session(store: Store) -> None:
    manager = SessionManager(store)
    created = await manager.create("My Chat")
    chat, last = created.id, created.updated_at

    async def touched() -> bool:
        nonlocal last
        info = await manager.get(chat)
        assert info is not None
        before, last = last, info.updated_at
        return last > before

    await manager.append(chat, user("message 1", id="msg-1"))
    assert await touched()
    await manager.upsert(chat, user("message one", id="msg-1"))
    assert await touched()
    await manager.upsert(chat, assistant("new", id="new"), "msg-1")
    assert await touched()
    await manager.append_all(chat, said(2, start=2))
    assert await touched()
    assert ids(await manager.get_history(chat)) == ["msg-1", "new", "msg-2", "msg-3"]
    assert [message.text for message in await manager.get_history(chat, "new")] == ["message one", "new"]
    await manager.append_all(chat, said(2, start=4), "new")
    assert ids(await manager.get_history(chat)) == ["msg-1", "new", "msg-4", "msg-5"]
    assert await manager.get_message_count(chat) == 4
    assert await touched()
    assert await manager.delete_messages(chat, ["msg-1"]) == 1
    assert await touched()
    await manager.clear_messages(chat)
    assert await touched()
    assert await manager.get_message_count(chat) == 0
    with pytest.raises(SessionNotFound):
        await manager.append("nobody", user("Hello"))


async def test_a_fork_has_the_history_up_to_a_message(store: Store) -> None:
    manager = SessionManager(store)
    chat = (await manager.create("My Chat")).id
    await manager.append_all(chat, said(4))

    forked = await manager.fork(chat, "msg-2", "Forked Chat")

    assert (forked.parent_session_id, forked.name) == (chat, "Forked Chat")
    assert ids(await manager.get_history(forked.id)) == ["msg-1", "msg-2"]
    await manager.append(forked.id, user("elsewhere"))
    assert ids(await manager.get_history(chat)) == ["msg-1", "msg-2", "msg-3", "msg-4"]
    with pytest.raises(MessageNotFound):
        await manager.fork(chat, "nobody", "Forked Chat")


async def test_usage_adds_up(store: Store) -> None:
    manager = SessionManager(store)
    chat = (await manager.create("My Chat")).id

    await manager.add_usage(chat, 100, 20, 0.25)
    await manager.add_usage(chat, 10, 2, 0.5)

    info = await manager.get(chat)
    assert info is not None
    assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (110, 22, 0.75)


async def test_all_sessions_are_searched_by_the_program_and_by_the_model(store: Store) -> None:
    manager = SessionManager(store).with_searchable_history("history")
    for name, text in (("one", "Deployment on Friday."), ("two", "We deploy each Friday."), ("three", "Friday off.")):
        await manager.create(name, session_id=name)
        await manager.append(name, user(text))

    results = await manager.search("deployment Friday", limit=20)
    assert {found.session_id for found in results} == {"one", "two"}

    assert "session_search" in manager.tools()
    told = await manager.tools().call("session_search", {"query": "deployment Friday"})
    assert ("Deployment on Friday." in told, "We deploy each Friday." in told) == (True, True)

    elsewhere = await manager.get_session("three").tools()
    found = await elsewhere.call("search_context", {"label": "history", "query": "deployment Friday"})
    assert ("Deployment on Friday." in found, "We deploy each Friday." in found) == (True, True)
    assert "session_search" not in elsewhere
