"""What shared memory promises: a model overwrites and deletes only what its session was shown."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import ContextError, Session, SessionManager, user
from leafward.testing.changes import changes_until
from leafward.testing.keyed import content_of, look_up, note, with_facts

if TYPE_CHECKING:
    from leafward.stores import Store


def chat(store: Store, session_id: str, *, cached: bool = True) -> Session:
    """Return a new handle on a chat that shares its block `memory` with others."""
    return Session(store, session_id, cached_prompt=cached).with_context("memory", shared=True)


async def call(session: Session, tool: str, **arguments: Any) -> str:
    """Call a tool as a model does."""
    return await (await session.tools()).call(tool, arguments)


async def replace(session: Session, content: str, label: str = "memory") -> str:
    return await call(session, "set_context", label=label, content=content)


async def append(session: Session, content: str) -> str:
    return await call(session, "set_context", label="memory", content=content, action="append")


async def put(session: Session, title: str, content: str, label: str = "facts") -> str:
    """Write an entry as a model does, and return the answer."""
    return await call(session, "set_context", label=label, content=content, metadata={"title": title})


def was_shown(answer: str, content: str) -> bool:
    """Tell whether a refusal gives what is there."""
    return answer.startswith("Error: ") and answer.endswith(f"\n\n{content}")


async def merge(store: Store, session_id: str, held: str, line: str) -> None:
    """Add a line as a model does that replaces the whole block, and merges when it is shown another text."""
    while (answer := await replace(chat(store, session_id), f"{held}\n{line}")).startswith("Error: "):
        held = answer.partition("\n\n")[2]


class NothingIsOverwrittenUnseen:
    """Replacing blocks; each call has a handle of its own, as in a web service."""

    async def test_a_model_does_not_overwrite_what_another_chat_wrote(self, store: Store) -> None:
        for day in ("monday", "tuesday"):
            await chat(store, day).freeze_system_prompt()

        assert (await replace(chat(store, "monday"), "Takes coffee black.")).startswith("Written to memory.")
        refused = await replace(chat(store, "tuesday"), "Is allergic to peanuts.")

        assert was_shown(refused, "Takes coffee black.")
        assert await content_of(chat(store, "monday")) == "Takes coffee black."
        merged = "Takes coffee black. Is allergic to peanuts."
        assert (await replace(chat(store, "tuesday"), merged)).startswith("Written to memory.")
        assert was_shown(await replace(chat(store, "monday"), "Takes tea."), merged)

    @pytest.mark.parametrize("cached", [True, False])
    async def test_a_model_may_replace_what_the_prompt_of_its_session_shows(self, store: Store, cached: bool) -> None:
        await chat(store, "other").replace_context_block("memory", "Likes tea.")
        session = chat(store, "s", cached=cached)
        assert was_shown(await replace(chat(store, "unfrozen"), "Likes milk."), "Likes tea.")

        await session.freeze_system_prompt()
        assert (await replace(chat(store, "s", cached=cached), "Likes milk.")).startswith("Written")

        await chat(store, "other").replace_context_block("memory", "Likes water.")
        assert await session.freeze_system_prompt()
        assert was_shown(await replace(session, "Likes wine."), "Likes water.")
        await chat(store, "other").replace_context_block("memory", "Likes juice.")
        assert "juice" in await session.refresh_system_prompt()
        assert (await replace(chat(store, "s", cached=cached), "Likes wine.")).startswith("Written")

    async def test_a_prompt_rendered_after_a_compaction_counts_as_shown(self, store: Store) -> None:
        session = chat(store, "s")
        await session.append_messages([user("a", id="a"), user("b", id="b")])
        await session.freeze_system_prompt()
        await chat(store, "other").replace_context_block("memory", "Likes tea.")

        await session.add_compaction("short", "a", "b")

        assert was_shown(await replace(chat(store, "t"), "Likes milk."), "Likes tea.")
        assert "Likes tea." in await chat(store, "s").freeze_system_prompt()
        assert (await replace(chat(store, "s"), "Likes milk.")).startswith("Written")

    async def test_what_a_model_wrote_itself_it_may_replace(self, store: Store) -> None:
        for answer in (
            await replace(chat(store, "s"), "one"),
            await replace(chat(store, "s"), "two"),
            await append(chat(store, "s"), "three"),
            await append(chat(store, "s"), "four"),
            await replace(chat(store, "s"), "five"),
        ):
            assert answer.startswith("Written to memory.")

        assert await content_of(chat(store, "s")) == "five"

    async def test_appending_to_text_that_was_not_shown_does_not_show_it(self, store: Store) -> None:
        await chat(store, "other").replace_context_block("memory", "unseen")

        assert (await append(chat(store, "s"), "seen")).startswith("Written")

        assert was_shown(await replace(chat(store, "s"), "all"), "unseen\nseen")
        assert (await replace(chat(store, "s"), "all")).startswith("Written")

    async def test_what_the_program_writes_is_not_shown(self, store: Store) -> None:
        session = chat(store, "s")
        await replace(session, "by the model")

        await session.replace_context_block("memory", "by the program")
        assert was_shown(await replace(session, "by the model"), "by the program")
        await session.append_context_block("memory", "and more")

        assert was_shown(await replace(session, "by the model"), "by the program\nand more")
        assert (await replace(session, "by the model")).startswith("Written")

    async def test_nothing_is_lost_when_an_empty_block_or_the_same_text_is_written(self, store: Store) -> None:
        await chat(store, "other").replace_context_block("memory", "same")
        assert (await replace(chat(store, "s"), "same")).startswith("Written")
        await chat(store, "other").replace_context_block("memory", "")

        assert (await replace(chat(store, "t"), "new")).startswith("Written")

    async def test_chats_that_merge_at_once_lose_nothing(self, store: Store) -> None:
        await chat(store, "s0").replace_context_block("memory", "start")

        await asyncio.gather(*(chat(store, f"s{number}").freeze_system_prompt() for number in range(6)))

        await asyncio.gather(*(merge(store, f"s{number}", "start", f"line {number}") for number in range(6)))

        lines = (await content_of(chat(store, "s0"))).split("\n")
        assert sorted(lines) == sorted(["start", *(f"line {number}" for number in range(6))])

    async def test_what_a_session_was_shown_its_fork_was_not(self, store: Store) -> None:
        manager = SessionManager(store).with_context("memory").with_cached_prompt()
        session = manager.get_session("s")
        await session.append_message(user("hi", id="hi"))
        await replace(session, "from before")

        copy = manager.get_session((await manager.fork("s", "hi", "copy")).id)

        assert was_shown(await replace(copy, "in the fork"), "from before")
        assert (await replace(copy, "in the fork")).startswith("Written")
        assert (await replace(session, "from here")).startswith("Written")

    async def test_what_was_shown_before_a_clear_or_a_deletion_counts_no_longer(self, store: Store) -> None:
        manager = SessionManager(store).with_context("memory", shared=True)
        for empty in (manager.clear_messages, manager.delete):
            await manager.get_session("s").append_message(user("hi"))
            await replace(manager.get_session("s"), "known")
            assert (await replace(manager.get_session("s"), "kept")).startswith("Written")

            await empty("s")

            assert was_shown(await replace(manager.get_session("s"), "known"), "kept")

    async def test_what_was_shown_is_no_change_of_the_session(self, store: Store) -> None:
        await chat(store, "other").replace_context_block("memory", "Likes tea.")
        session = chat(store, "s")

        await session.append_message(user("hi"))
        await session.freeze_system_prompt()
        await chat(store, "other").replace_context_block("memory", "Likes milk.")
        assert was_shown(await replace(session, "Likes wine."), "Likes milk.")
        await replace(session, "Likes wine.")

        changes = await changes_until(session, await session.get_version())
        assert [change.kind for change in changes] == ["append", "context"]

    async def test_a_write_that_expects_another_text_is_refused(self, store: Store) -> None:
        session = chat(store, "s")
        await session.replace_context_block("memory", "a", expected="")
        await session.replace_context_block("memory", "b", expected="a")

        for expected in ("a", "", "b "):
            with pytest.raises(ContextError, match=r"'memory' no longer holds.*get_context_block"):
                await session.replace_context_block("memory", "c", expected=expected)

        assert await content_of(session) == "b"

    async def test_of_writers_that_expect_the_same_text_one_is_first(self, store: Store) -> None:
        await chat(store, "s").replace_context_block("memory", "start")

        written = await asyncio.gather(
            *(
                chat(store, f"s{number}").replace_context_block("memory", f"{number}", expected="start")
                for number in range(6)
            ),
            return_exceptions=True,
        )

        (first,) = (block for block in written if not isinstance(block, BaseException))
        assert sum(isinstance(error, ContextError) for error in written) == 5
        assert await content_of(chat(store, "s")) == first.content


class EntriesAreSeenAndDeleted:
    """The entries of a searchable block: listed, deleted, and replaced only if they were seen."""

    async def test_an_entry_of_another_chat_is_not_replaced_unseen(self, store: Store) -> None:
        await note(with_facts(store, "monday", shared=True), "Drinks", "coffee, black")
        tea = {"label": "facts", "content": "tea", "metadata": {"title": "Drinks"}}

        refused = await call(with_facts(store, "tuesday", shared=True), "set_context", **tea)

        assert was_shown(refused, "coffee, black")
        assert await look_up(with_facts(store, "monday", shared=True), "coffee") == "[drinks]\ncoffee, black"
        assert await note(with_facts(store, "tuesday", shared=True), "Drinks", "coffee or tea") == "drinks"
        assert was_shown(await call(with_facts(store, "monday", shared=True), "set_context", **tea), "coffee or tea")

    async def test_an_entry_that_a_search_gave_may_be_replaced(self, store: Store) -> None:
        await note(with_facts(store, "monday", shared=True), "Drinks", "coffee, black")

        await look_up(with_facts(store, "tuesday", shared=True), "coffee")

        assert await note(with_facts(store, "tuesday", shared=True), "Drinks", "tea") == "drinks"
        assert await note(with_facts(store, "tuesday", shared=True), "Drinks", "milk") == "drinks"

    async def test_entries_are_listed_by_key(self, store: Store) -> None:
        session = with_facts(store)
        assert await session.list_context_entries("facts") == []
        await note(session, "Pets", "two cats")
        await note(session, "用户喜欢咖啡", "coffee 咖啡")
        about = {"title": "Drinks", "description": "What she drinks"}
        await call(session, "set_context", label="facts", content="coffee", metadata=about)

        entries = await with_facts(store).list_context_entries("facts")

        assert [(one.key, one.description, one.content) for one in entries] == [
            ("drinks", "What she drinks", "coffee"),
            ("entry-2mzjev", "用户喜欢咖啡", "coffee 咖啡"),
            ("pets", "Pets", "two cats"),
        ]
        listed = "- drinks: What she drinks\n- entry-2mzjev: 用户喜欢咖啡\n- pets: Pets"
        assert await call(with_facts(store), "list_context", label="facts") == listed

    @pytest.mark.parametrize("shared", [False, True])
    async def test_a_deleted_entry_is_gone(self, store: Store, shared: bool) -> None:
        session = with_facts(store, shared=shared)
        for title in ("Drinks", "Pets"):
            await note(session, title, f"walnut {title}")

        assert await with_facts(store, shared=shared).delete_context_entry("facts", "drinks") is True

        assert await session.delete_context_entry("facts", "drinks") is False
        assert await session.delete_context_entry("facts", "other") is False
        assert await content_of(session, "facts") == "1 entries indexed."
        assert await look_up(session, "walnut") == "[pets]\nwalnut Pets"
        assert [entry.key for entry in await session.list_context_entries("facts")] == ["pets"]
        assert await note(session, "drinks!", "tea") == "drinks"

    async def test_deleting_an_entry_gives_no_other_title_another_key(self, store: Store) -> None:
        session = with_facts(store)
        keys = {title: await note(session, title, f"old {title}") for title in ("C", "C++", "C#")}

        assert await session.delete_context_entry("facts", keys["C"]) is True

        for title in ("C++", "C", "C#"):
            assert await note(session, title, f"new {title}") == keys[title]
        assert await content_of(session, "facts") == "3 entries indexed."

    async def test_a_model_deletes_only_what_it_was_shown(self, store: Store) -> None:
        await note(with_facts(store, "monday", shared=True), "Drinks", "coffee, black")
        drinks = {"label": "facts", "key": "drinks"}

        refused = await call(with_facts(store, "tuesday", shared=True), "delete_context", **drinks)
        assert was_shown(refused, "coffee, black")
        assert await content_of(with_facts(store, shared=True), "facts") == "1 entries indexed."

        answer = await call(with_facts(store, "tuesday", shared=True), "delete_context", **drinks)
        assert answer == 'Deleted "drinks" from facts.'
        assert await call(with_facts(store, shared=True), "delete_context", **drinks) == "Not found: drinks"
        assert await content_of(with_facts(store, shared=True), "facts") == ""

    @pytest.mark.parametrize("key", ["", " ", "a\x00b", "\ud800", "x" * 10_000, "../x", "shown", "%"])
    async def test_a_key_that_no_entry_has_is_not_found(self, store: Store, key: str) -> None:
        session = with_facts(store)
        await note(session, "a", "walnut")

        assert await session.delete_context_entry("facts", key) is False
        answer = await call(session, "delete_context", label="facts", key=key)
        assert answer.startswith("Error: the arguments hold " if key == "\ud800" else "Not found: ")
        assert await content_of(session, "facts") == "1 entries indexed."
