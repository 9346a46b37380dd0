"""Seed 002's examples of context blocks, the prompt they make and the tools they allow."""

from __future__ import annotations

from typing import Any

import pytest

from leafward import (
    ContextBlock,
    ContextError,
    Message,
    Session,
    StaticContext,
    StoredSearchProvider,
    Tool,
    ToolSet,
)
from leafward.sessions import render_prompt
from leafward.stores import Store

SAMPLE = """\
══════════════════════════════════════════════
SOUL (Identity) [readonly]
══════════════════════════════════════════════
You are a helpful assistant.

══════════════════════════════════════════════
MEMORY (Learned facts) [45% — 495/1100 tokens]
══════════════════════════════════════════════
User likes coffee.
User prefers dark roast."""


class TestContextBlocks:
    @pytest.mark.parametrize(
        ("methods", "flags", "tools"),
        [
            (["get"], (False, False, False), []),
            (["get", "set"], (True, False, False), ["set_context"]),
            (["get", "load"], (False, True, False), ["load_context", "unload_context"]),
            (["get", "load", "set"], (True, True, False), ["set_context", "load_context", "unload_context"]),
            (["get", "search"], (False, False, True), ["search_context"]),
            (["get", "search", "set"], (True, False, True), ["set_context", "search_context"]),
        ],
    )
    async def test_a_provider_is_known_by_its_methods(
        self, store: Store, methods: list[str], flags: tuple[bool, bool, bool], tools: list[str]
    ) -> None:
        provider = {method: lambda *_: "text" for method in methods}
        session = Session.create(store).with_context("block", provider=provider)

        (block,) = await session.get_context_blocks()

        assert (block.writable, block.is_skill, block.is_searchable) == flags
        assert list(await session.tools()) == tools

    async def test_stored_entries_are_written_and_found_by_the_model(self, store: Store) -> None:
        session = Session.create(store).with_context(
            "knowledge", description="Searchable knowledge base", provider=StoredSearchProvider()
        )
        tools = await session.tools()

        await tools.call("set_context", {"label": "knowledge", "content": "Releases go out on Fridays."})

        assert "Fridays" in await tools.call("search_context", {"label": "knowledge", "query": "release friday"})
        assert "1 entries indexed." in await session.freeze_system_prompt()

    async def test_blocks_come_and_go_and_the_frozen_prompt_follows_a_refresh(self, store: Store) -> None:
        session = Session.create(store).with_cached_prompt()
        frozen = await session.freeze_system_prompt()

        await session.add_context("extension-notes", description="From extension X", max_tokens=500)
        await session.append_context_block("extension-notes", "A note.")
        assert await session.freeze_system_prompt() == frozen
        assert "EXTENSION-NOTES (From extension X)" in await session.refresh_system_prompt()

        assert await session.remove_context("extension-notes") is True
        assert "EXTENSION-NOTES" in await session.freeze_system_prompt()
        assert "EXTENSION-NOTES" not in await session.refresh_system_prompt()

    async def test_blocks_are_read_replaced_and_added_to(self, store: Store) -> None:
        session = Session.create(store).with_context("memory", description="Learned facts", max_tokens=1100)

        await session.replace_context_block("memory", "User likes coffee.")
        await session.append_context_block("memory", "\nUser prefers dark roast.")

        block = await session.get_context_block("memory")
        text = "User likes coffee.\nUser prefers dark roast."
        assert block == ContextBlock("memory", "Learned facts", text, 11, 1100, True, False, False)
        assert await session.get_context_blocks() == [block]


class TestSystemPrompt:
    def test_the_sample_is_rendered_to_the_letter(self) -> None:
        memory = "User likes coffee.\nUser prefers dark roast."
        blocks = [
            ContextBlock("soul", "Identity", "You are a helpful assistant.", 7, None, False, False, False),
            ContextBlock("memory", "Learned facts", memory, 495, 1100, True, False, False),
        ]

        assert render_prompt(blocks, writable_tag=False) == SAMPLE
        assert render_prompt(blocks) == SAMPLE.replace("1100 tokens]", "1100 tokens] [writable]")

    async def test_freezing_renders_once_and_refreshing_renders_again(self, store: Store) -> None:
        session = Session.create(store).with_context("memory").with_cached_prompt()
        prompt = await session.freeze_system_prompt()

        await session.replace_context_block("memory", "User likes coffee.")

        assert await session.freeze_system_prompt() == prompt
        assert "User likes coffee." in await session.refresh_system_prompt()
        assert "User likes coffee." in await session.freeze_system_prompt()


class TestTools:
    async def test_they_are_passed_along_with_ones_own(self, store: Store) -> None:
        async def clock(arguments: dict[str, Any]) -> str:
            return "noon"

        mine = ToolSet([Tool("clock", "Tell the time.", {"type": "object", "properties": {}}, clock)])
        tools = await Session.create(store).with_context("memory").tools() | mine

        assert list(tools) == ["set_context", "clock"]
        assert await tools.call("clock", {}) == "noon"
        assert [tool["function"]["name"] for tool in tools.to_openai()] == ["set_context", "clock"]

    async def test_set_context_writes_plain_and_keyed_blocks_within_their_limits(self, store: Store) -> None:
        skills: dict[str, str] = {}
        provider = {
            "get": lambda: "\n".join(f"- {key}" for key in skills),
            "load": skills.get,
            "set": lambda key, content, description: skills.update({key: content}),
        }
        session = (
            Session.create(store)
            .with_context("memory", max_tokens=10)
            .with_context("skills", provider=provider)
            .with_context("knowledge", provider=StoredSearchProvider())
            .with_context("soul", provider=StaticContext("You are helpful."))
        )
        tools = await session.tools()

        async def write(label: str, content: str) -> str:
            arguments = {"label": label, "content": content, "metadata": {"title": "Guide"}}
            return await tools.call("set_context", arguments)

        assert await write("memory", "Likes coffee.") == "Written to memory. Usage: 40% (4/10 tokens)"
        assert await write("skills", "Do it so.") == 'Indexed "guide" in skills.'
        assert await write("knowledge", "It is so.") == 'Indexed "guide" in knowledge.'
        assert skills == {"guide": "Do it so."}
        assert (await write("memory", "word " * 20)).startswith("Error:")
        assert (await write("soul", "You are evil.")).startswith("Error:")
        with pytest.raises(ContextError):
            await session.replace_context_block("memory", "word " * 20)

    async def test_a_skill_is_loaded_unloaded_and_loaded_again(self, store: Store) -> None:
        documents = {"api-ref": "All of the API."}
        provider = {"get": lambda: "- api-ref: API Reference", "load": documents.get}
        session = Session.create(store).with_context("skills", provider=provider)
        tools = await session.tools()
        skill = {"label": "skills", "key": "api-ref"}

        assert await tools.call("load_context", skill) == "All of the API."
        call = {"type": "tool_use", "id": "c1", "name": "load_context", "input": skill}
        result = {"type": "tool_result", "id": "c1", "name": "load_context", "output": "All of the API."}
        await session.append_messages([Message("assistant", [call]), Message("tool", [result])])
        assert (await tools.call("unload_context", skill)).startswith('Unloaded "api-ref" from skills.')

        assert "All of the API." not in str([message.parts for message in await session.get_history()])
        assert "All of the API." in str([message.parts for message in await session.get_raw_history()])
        assert await tools.call("load_context", skill) == "All of the API."

    async def test_search_context_gives_the_best_ten(self, store: Store) -> None:
        session = Session.create(store).with_context("knowledge", provider=StoredSearchProvider())
        tools = await session.tools()
        for number in range(12):
            await tools.call("set_context", {"label": "knowledge", "content": f"Fact {number} about coffee."})

        found = await tools.call("search_context", {"label": "knowledge", "query": "coffee"})

        assert found.count("about coffee.") == 10
