"""Seed 002's examples of providers and of a storage of one's own."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from leafward import ConfigurationError, Message, MessageNotFound, Session, assistant, user
from leafward.stores import Store
from tests.sessions.dict_storage import DictStorage
from tests.sessions.seed_002.examples import ids, said


class Notes:
    """A writable provider whose content is somewhere else."""

    def __init__(self) -> None:
        self.content = "from my database"

    async def get(self) -> str:
        return self.content

    async def set(self, content: str) -> None:
        self.content = content


class Documents:
    """A skill provider, written without async."""

    def __init__(self) -> None:
        self.documents = {"api-ref": ("the whole reference", "API Reference"), "guide": ("how to", "User Guide")}

    def get(self) -> str:
        return "\n".join(f"- {key}: {description}" for key, (_, description) in self.documents.items())

    def load(self, key: str) -> str | None:
        return self.documents[key][0] if key in self.documents else None

    def set(self, key: str, content: str, description: str | None) -> None:
        self.documents[key] = (content, description or key)


class Index:
    """A search provider."""

    def __init__(self) -> None:
        self.entries: dict[str, str] = {}

    async def get(self) -> str:
        return f"{len(self.entries)} entries indexed"

    async def search(self, query: str) -> str | None:
        return "\n".join(text for text in self.entries.values() if query in text) or None

    async def set(self, key: str, content: str) -> None:
        self.entries[key] = content


async def test_providers_of_ones_own_serve_blocks_prompt_and_tools(store: Store) -> None:
    notes, documents, index = Notes(), Documents(), Index()
    session = (
        Session.create(store)
        .with_context("rules", provider={"get": lambda: "Static content here"})
        .with_context("notes", provider=notes)
        .with_context("skills", provider=documents)
        .with_context("index", provider=index)
    )
    tools = await session.tools()
    assert list(tools) == ["set_context", "load_context", "unload_context", "search_context"]

    await session.freeze_system_prompt()  # a model overwrites only what it was shown
    await tools.call("set_context", {"label": "notes", "content": "written"})
    metadata = {"title": "Recipe", "description": "How to make coffee"}
    await tools.call("set_context", {"label": "skills", "content": "Grind it.", "metadata": metadata})
    await tools.call("set_context", {"label": "index", "content": "coffee is hot"})

    assert notes.content == "written"
    assert documents.documents["recipe"] == ("Grind it.", "How to make coffee")
    assert await tools.call("load_context", {"label": "skills", "key": "guide"}) == "how to"
    assert await tools.call("search_context", {"label": "index", "query": "coffee"}) == "coffee is hot"
    prompt = await session.refresh_system_prompt()
    assert all(
        text in prompt for text in ("Static content here", "written", "- guide: User Guide", "1 entries indexed")
    )


async def test_a_storage_of_ones_own_takes_the_place_of_a_store() -> None:
    storage = DictStorage()
    session = Session.create(storage).with_context("rules", provider="Static content here")
    await session.append_messages(said(4))
    await session.append_message(assistant("again", id="again"), "msg-3")

    assert ids(await session.get_history()) == ["msg-1", "msg-2", "msg-3", "again"]
    assert ids(await session.get_branches("msg-3")) == ["msg-4", "again"]
    assert await session.get_path_length("msg-4") == 4
    assert await session.get_latest_leaf() == storage.messages["again"]

    await session.update_message(user("changed", id="msg-1"))
    assert await session.delete_messages(["msg-2", "nobody"]) == 1
    assert [message.text for message in await session.get_history("msg-4")] == ["changed", "message 3", "message 4"]
    assert [found.id for found in await session.search("message 4")] == ["msg-4"]

    overlay = await session.add_compaction("so far", "msg-1", "msg-3")
    assert ids(await session.get_history()) == [f"compaction_{overlay.id}", "again"]
    assert await session.get_compactions() == [overlay]
    assert "Static content here" in await session.freeze_system_prompt()

    with pytest.raises(MessageNotFound):
        await session.append_message(user("lost"), "nobody")
    await session.clear_messages()
    assert await session.get_history() == []


async def test_a_storage_of_ones_own_is_compacted_like_any_other() -> None:
    def middle(messages: list[Message]) -> dict[str, str]:
        return {"summary": "the middle", "from_message_id": messages[1].id, "to_message_id": messages[-2].id}

    session = Session.create(DictStorage()).on_compaction(middle)
    await session.append_messages(said(5))

    made = await session.compact()

    assert made is not None
    assert [message.text for message in await session.get_history()] == ["message 1", "the middle", "message 5"]
    assert ids(await session.get_raw_history()) == ids(said(5))


async def test_plain_methods_of_a_storage_run_beside_the_loop_one_at_a_time() -> None:
    class Watched(DictStorage):
        inside = most = 0

        def get_message(self, message_id: str) -> Message | None:
            assert threading.current_thread() is not threading.main_thread()
            self.inside += 1
            self.most = max(self.most, self.inside)
            time.sleep(0.005)
            self.inside -= 1
            return super().get_message(message_id)

    storage = Watched()
    session = Session(storage)

    assert await asyncio.gather(*(session.get_message(f"msg-{n}") for n in range(5))) == [None] * 5
    assert storage.most == 1


async def test_a_storage_that_lacks_a_method_is_told_which() -> None:
    class Half:
        def get_message(self, message_id: str) -> None: ...
        def get_history(self, leaf_id: str | None = None) -> None: ...

    half: Any = Half()
    with pytest.raises(ConfigurationError, match="lacks get_latest_leaf"):
        Session(half)
