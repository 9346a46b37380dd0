"""Any text comes back as it was given, and texts that look alike stay apart."""

from __future__ import annotations

import random
import unicodedata
from typing import Any

import pytest

from leafward import Message, Session, SessionManager, StoredSearchProvider, tool_result, user
from leafward.stores.servers.store import ServerStore
from leafward.testing.filled import find_fact
from tests.stores.both_servers import Kind, OnBothServers, opened
from tests.stores.server_store import PREFIX

MARK = "\ue000"
"""What PostgreSQL's dialect writes a NUL with."""
TEXTS = [
    "\0",
    "a\0b\0",
    MARK,
    f"{MARK}0",
    f"{MARK}1",
    f"{MARK}{MARK}01",
    f"\0{MARK}0\0{MARK}",
    f"{MARK}\0",
    "\U0001f98a\U0010ffff𠀀",
    "'; -- \\' \\0 \\\\ %s %% ? $1 :x",
]
LOOKALIKES = ["a", "A", "á", "a\u0301", "a ", "a  ", " a", "ａ", "ª", "ß", "ss", f"a{MARK}", f"a{MARK}1", f"a{MARK}0"]


def manager_of(store: ServerStore) -> SessionManager:
    return (
        SessionManager(store)
        .with_context("notes")
        .with_context("facts", provider=StoredSearchProvider())
        .with_cached_prompt()
    )


class TestText(OnBothServers):
    @pytest.mark.parametrize("text", TEXTS, ids=ascii)
    async def test_of_messages_comes_back_exactly(self, store: ServerStore, text: str) -> None:
        session = Session(store, "s")

        def message(name: str, role: str = "user") -> Message:
            return Message(role, [{"type": "text", "text": text, text: [text]}], id=name, metadata={text: text})

        made = [message("first"), message("second"), message("a"), message("b", text)]
        for one in made[:2]:
            await session.append_message(one)
        await session.append_messages(made[2:])
        await session.append_message(message("elsewhere"), parent_id="first")
        await session.update_message(message("first", "system"))
        fork = await SessionManager(store).fork("s", "b", text)

        for reader in (session, Session(store, fork.id)):
            kept = [await reader.get_message(one.id) for one in made[1:]]
            assert [(one.role, list(one.parts), one.metadata) for one in kept if one] == [
                (one.role, list(one.parts), one.metadata) for one in made[1:]
            ]
            first = await reader.get_message("first")
            assert first is not None
            assert (first.role, first.text) == ("system", text)

    @pytest.mark.parametrize("text", TEXTS, ids=ascii)
    async def test_of_everything_else_comes_back_exactly(
        self, store: ServerStore, url: str, text: str, kind: Kind
    ) -> None:
        manager = manager_of(store)
        await manager.create(text, session_id="s", model=text, source=text)
        session = manager.get_session("s")
        await session.append_messages([user(f"m{n}", id=f"m{n}") for n in range(4)])
        await session.label("m1", text)
        await session.add_compaction(text, "m1", "m2")
        await session.replace_context_block("notes", f"{text}first")
        await session.append_context_block("notes", text)
        put = {"label": "facts", "content": f"walnut {text}", "metadata": {"title": text, "description": text}}
        await (await session.tools()).call("set_context", put)
        frozen = await session.freeze_system_prompt()
        exported = await manager.export_session("s")

        async with opened(url, table_prefix=PREFIX) as again:
            other = manager_of(again)
            info = await other.get("s")
            reader = other.get_session("s")
            assert info is not None
            assert (info.name, info.model, info.source) == (text, text, text)
            assert await reader.get_labels() == {"m1": text}
            assert [one.summary for one in await reader.get_compactions()] == [text]
            block = await reader.get_context_block("notes")
            assert block is not None
            assert block.content == f"{text}first\n{text}"
            assert "walnut" in await find_fact(reader, "walnut")
            assert await reader.freeze_system_prompt() == frozen
            copy = await other.import_session(exported, session_id="copy")
            assert copy.name == text
            again_exported: dict[str, Any] = await other.export_session("copy")
            assert again_exported["messages"] == exported["messages"]
            assert again_exported["context"] == exported["context"]

    async def test_of_a_call_id_comes_back_exactly(self, store: ServerStore) -> None:
        session = Session(store, "s")
        stored = [await session.append_message(tool_result(text, text, name="t")) for text in TEXTS]
        assert await session.get_history() == stored

    async def test_of_the_largest_message_comes_back_exactly(self, store: ServerStore) -> None:
        session = Session(store, "s")
        await session.append_message(user("first"))
        for number, text in enumerate(["x" * 8_388_000, '"' * 4_194_000, "'" * 8_388_000, "\U0001f98a" * 2_097_000]):
            await session.append_message(user(text, id=str(number)))
            kept = await session.get_message(str(number))
            assert kept is not None
            assert kept.text == text
        await session.update_message(user("'" * 8_388_000, id="0"))

    async def test_of_a_batch_larger_than_a_packet_comes_back_exactly(self, store: ServerStore) -> None:
        session = Session(store, "s")
        await session.append_message(user("first"))
        batch = [user(str(number) * 8_388_000, id=str(number)) for number in range(3)]
        assert await session.append_messages(batch) == batch
        assert [len(one.text) for one in await session.get_history()] == [5, *[8_388_000] * 3]

    async def test_of_the_largest_block_comes_back_exactly(self, store: ServerStore) -> None:
        session = Session(store, "s").with_context("notes")
        for text in ("'" * 8_388_000, "\U0001f98a" * 2_097_000):
            await session.replace_context_block("notes", text)
            block = await session.get_context_block("notes")
            assert block is not None
            assert block.content == text


class TestLookalikes(OnBothServers):
    async def test_are_different_sessions_users_agents_and_messages(self, store: ServerStore) -> None:
        assert len(set(LOOKALIKES)) == len(LOOKALIKES)
        assert unicodedata.normalize("NFC", "a\u0301") == "á"
        for name in LOOKALIKES:
            await Session(store, name, user_id=name, agent_id=name).append_message(user(f"of {name}", id=name))
            await Session(store, "all").append_message(user(name, id=name))

        for name in LOOKALIKES:
            session = Session(store, name, user_id=name, agent_id=name)
            assert [(one.id, one.text) for one in await session.get_history()] == [(name, f"of {name}")]
            listed = await SessionManager(store, user_id=name, agent_id=name).list()
            assert [info.id for info in listed] == [name]
        assert [one.id for one in await Session(store, "all").get_history()] == LOOKALIKES

    async def test_are_different_labels_keys_and_leases(self, store: ServerStore) -> None:
        session = Session(store, "s")
        for name in LOOKALIKES:
            session.with_context(name)
        for name in LOOKALIKES:
            await session.replace_context_block(name, f"of {name}")
        assert [(one.label, one.content) for one in await session.get_context_blocks()] == [
            (name, f"of {name}") for name in LOOKALIKES
        ]
        leases = [await store.leases.acquire(name, user_id=name, wait=1) for name in LOOKALIKES]
        for lease in leases:
            await lease.release()

    async def test_long_names_are_kept_apart_to_the_last_character(self, store: ServerStore) -> None:
        long = "\U0001f98a" * 254
        names = [long + end for end in ("a", "b", MARK, "")]
        blocks = Session(store, names[0], user_id=names[0], agent_id=names[0])
        for name in names:
            blocks.with_context(name)
        for name in names:
            await blocks.replace_context_block(name, name)
            await Session(store, name, user_id=name, agent_id=name).append_message(user("hi", id=name))
        assert [one.content for one in await blocks.get_context_blocks()] == names
        for name in names:
            assert [one.id for one in await Session(store, name, user_id=name, agent_id=name).get_history()] == [name]

    async def test_long_skills_and_calls_are_kept_apart_to_the_last_character(self, store: ServerStore) -> None:
        dice = random.Random(7)
        label, long = ("".join(chr(dice.randrange(0x20000, 0x2A000)) for _ in range(n)) for n in (255, 511))
        keys = [long + end for end in ("a", "b", MARK)]
        session = Session(store, "s").with_context(label, provider=Library())
        for key in keys:
            await session.load_skill(label, key)
            part = {"type": "tool-load_context", "toolCallId": key, "state": "output-available"}
            asked = {"input": {"label": label, "key": key}, "output": await Library().load(key)}
            await session.append_message({"id": key[-1], "role": "assistant", "parts": [{**part, **asked}]})
        assert await session.get_loaded_skill_keys() == sorted(f"{label}:{key}" for key in keys)
        assert await session.unload_skill(label, keys[0])
        assert await session.get_loaded_skill_keys() == sorted(f"{label}:{key}" for key in keys[1:])


class Library:
    """A collection that has whatever it is asked for."""

    def get(self) -> str:
        return "any"

    async def load(self, key: str) -> str:
        return f"how to {key}"
