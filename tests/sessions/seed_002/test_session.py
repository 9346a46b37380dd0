"""Seed 002's examples of a session and its messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    Session,
    StoredContextProvider,
    assistant,
    create_compact_function,
    open_store,
    user,
)
from leafward.stores import Store
from tests.sessions.seed_002.examples import Summariser, ids, said, soul


class TestQuickStart:
    async def test_a_turn_has_history_prompt_and_tools_for_the_model(self, store: Store) -> None:
        session = (
            Session.create(store)
            .with_context("soul", provider={"get": soul})
            .with_context("memory", description="Learned facts about the user", max_tokens=1100)
            .with_cached_prompt()
        )

        await session.append_message(user("Hello"))

        assert [message.text for message in await session.get_history()] == ["Hello"]
        system = await session.freeze_system_prompt()
        assert "You are a helpful assistant." in system
        assert "MEMORY (Learned facts about the user) [0% — 0/1100 tokens]" in system
        assert list(await session.tools()) == ["set_context"]

    async def test_all_of_it_outlives_the_process(self, tmp_path: Path) -> None:
        def opened(store: Store) -> Session:
            return Session.create(store).with_context("memory", max_tokens=1100).with_cached_prompt()

        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            before = opened(store)
            await before.append_message(user("Hello"))
            await before.replace_context_block("memory", "User likes coffee.")
            system = await before.freeze_system_prompt()
        async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
            after = opened(store)
            await after.replace_context_block("memory", "User likes tea.")

            assert [message.text for message in await after.get_history()] == ["Hello"]
            assert await after.freeze_system_prompt() == system


class TestCreating:
    async def test_builder_calls_return_the_session_in_any_order(self, store: Store) -> None:
        session = Session.create(store)
        summarise = create_compact_function(summarize=Summariser())

        assert session.compact_after(100_000) is session
        assert session.on_compaction(summarise) is session
        assert session.with_cached_prompt() is session
        assert session.with_context("memory", description="Learned facts", max_tokens=1100) is session
        assert session.with_context("soul", provider={"get": soul}) is session
        assert session.for_session("chat-1") is session

        assert session.session_id == "chat-1"
        assert [block.label for block in await session.get_context_blocks()] == ["memory", "soul"]

    async def test_a_provider_is_asked_at_first_use_and_not_before(self, store: Store) -> None:
        asked: list[str] = []

        def get() -> str:
            asked.append("get")
            return "You are helpful."

        session = Session.create(store).with_context("soul", provider={"get": get}).for_session("chat-1")
        assert asked == []

        await session.freeze_system_prompt()
        assert asked == ["get"]

    async def test_a_block_without_a_provider_is_kept_in_the_store(self, store: Store) -> None:
        await Session.create(store).with_context("memory").replace_context_block("memory", "Learned.")

        block = await Session.create(store).with_context("memory").get_context_block("memory")

        assert block is not None
        assert (block.content, block.writable) == ("Learned.", True)

    async def test_a_session_is_made_directly_of_a_store_and_configured_blocks(self, store: Store) -> None:
        session = Session(
            store,
            context=[
                {
                    "label": "memory",
                    "description": "Notes",
                    "max_tokens": 500,
                    "provider": StoredContextProvider(store, "memory"),
                },
                {"label": "soul", "provider": {"get": soul}},
            ],
        )

        await session.replace_context_block("memory", "Noted.")

        memory, identity = await session.get_context_blocks()
        assert (memory.description, memory.content, memory.max_tokens) == ("Notes", "Noted.", 500)
        assert (identity.content, identity.writable) == ("You are a helpful assistant.", False)

    async def test_sessions_of_different_names_are_apart(self, store: Store) -> None:
        one, two = (Session.create(store).for_session(name).with_context("memory") for name in ("one", "two"))

        await one.append_message(user("Hello"))
        await one.replace_context_block("memory", "Learned.")

        assert await two.get_history() == []
        assert [block.content for block in await two.get_context_blocks()] == [""]

    async def test_a_threshold_needs_a_compaction_function(self, store: Store) -> None:
        session = Session.create(store).compact_after(100_000)

        with pytest.raises(ConfigurationError, match="on_compaction"):
            await session.append_message(user("Hello"))


class TestMessages:
    async def test_messages_are_appended_updated_deleted_and_cleared(self, store: Store) -> None:
        session = Session(store)
        for message in said(3):
            await session.append_message(message)
        await session.append_message(user("aside", id="aside"), "msg-1")
        assert ids(await session.get_history()) == ["msg-1", "aside"]

        await session.update_message(user("changed", id="msg-1"))
        assert [message.text for message in await session.get_history()] == ["changed", "aside"]

        assert await session.delete_messages(["msg-1", "msg-2"]) == 2
        assert ids(await session.get_history("msg-3")) == ["msg-3"]

        await session.clear_messages()
        assert await session.get_history() == []

    async def test_clearing_forgets_which_skills_are_loaded(self, store: Store) -> None:
        skills = {"get": lambda: "- guide", "load": lambda key: f"all of {key}"}
        session = Session(store, context=[{"label": "skills", "provider": skills}])
        await session.load_skill("skills", "guide")
        assert await session.get_loaded_skill_keys() == ["skills:guide"]

        await session.clear_messages()

        assert await session.get_loaded_skill_keys() == []

    async def test_a_ui_message_is_a_message(self, store: Store) -> None:
        session = Session(store)
        ui: dict[str, Any] = {
            "id": "a1",
            "role": "assistant",
            "parts": [
                {"type": "step-start"},
                {"type": "tool-weather", "toolCallId": "c1", "state": "output-available", "input": {}, "output": 21},
                {"type": "text", "text": "21 degrees", "state": "done"},
            ],
            "metadata": {"model": "m"},
        }

        await session.append_message(ui)

        found = await session.get_message("a1")
        assert found is not None
        assert {**found.to_dict(), "createdAt": None} == {**ui, "createdAt": None}

    async def test_history_is_read_whole_by_leaf_by_message_and_counted(self, store: Store) -> None:
        session = Session(store)
        await session.append_messages(said(3))
        await session.append_message(user("aside", id="aside"), "msg-1")

        assert ids(await session.get_history()) == ["msg-1", "aside"]
        assert ids(await session.get_history("msg-3")) == ["msg-1", "msg-2", "msg-3"]
        assert await session.get_message("msg-1") == (await session.get_history())[0]
        assert await session.get_message("nobody") is None
        assert await session.get_latest_leaf() == await session.get_message("aside")
        assert (await session.get_path_length(), await session.get_path_length("msg-3")) == (2, 3)

    async def test_an_answer_made_again_is_a_branch_beside_the_first(self, store: Store) -> None:
        session = Session(store)
        await session.append_message(user("What is it?", id="question"))
        await session.append_message(assistant("This.", id="first"))

        await session.append_message(assistant("That.", id="second"), "question")

        assert ids(await session.get_branches("question")) == ["first", "second"]
        assert ids(await session.get_history("first")) == ["question", "first"]
        assert ids(await session.get_history()) == ["question", "second"]

    async def test_a_search_finds_stems_on_every_branch(self, store: Store) -> None:
        session = Session(store)
        await session.append_message(user("Shall we do the deployments on Friday?", id="asked"))
        await session.append_message(user("On Friday we deploy again.", id="aside"), None)
        await session.append_message(user("Friday it is."))

        results = await session.search("deployment Friday", limit=10)

        assert {found.id for found in results} == {"asked", "aside"}
        assert all(found.role == "user" and found.content and found.created_at for found in results)
        assert len(await session.search("deployment Friday", limit=1)) == 1
