"""What context promises: blocks within their limits, and whose they are; beside it entries, prompt and skills."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import (
    BlockNotFound,
    ConfigurationError,
    ContextBlock,
    ContextError,
    InvalidId,
    Session,
    StoredContextProvider,
    user,
)
from leafward.testing.changes import changes_until
from leafward.testing.content import EXACT_TEXTS
from leafward.testing.ids import HOSTILE_IDS, REFUSED_IDS
from leafward.testing.keyed import KeyedEntries, content_of
from leafward.testing.loading import LoadedSkills
from leafward.testing.prompts import FrozenPrompts
from leafward.testing.unseen import EntriesAreSeenAndDeleted, NothingIsOverwrittenUnseen

if TYPE_CHECKING:
    from leafward.stores import Store


def with_memory(store: Store, session_id: str = "s", *, max_tokens: int | None = None, **ids: Any) -> Session:
    """Return a session with a writable block `memory`."""
    return Session(store, session_id, **ids).with_context("memory", max_tokens=max_tokens)


class _Blocks:
    """Reading and writing."""

    async def test_a_block_without_a_provider_is_empty_and_writable(self, store: Store) -> None:
        session = Session(store, "s").with_context("memory", description="Learned facts", max_tokens=1100)

        found = await session.get_context_block("memory")

        assert found == ContextBlock("memory", "Learned facts", "", 0, 1100, True, False, False)
        assert await session.get_context_blocks() == [found]

    async def test_a_block_holds_what_was_written(self, store: Store) -> None:
        session = with_memory(store)

        first = await session.replace_context_block("memory", "Likes tea.")
        then = await session.append_context_block("memory", "Takes milk.")

        assert first == ContextBlock("memory", None, "Likes tea.", 3, None, True, False, False)
        assert then.content == "Likes tea.\nTakes milk."
        assert await session.get_context_block("memory") == then
        assert (await session.replace_context_block("memory", "")).content == ""
        assert await content_of(session) == ""

    async def test_appending_begins_a_line_unless_there_is_one_already(self, store: Store) -> None:
        session = with_memory(store)

        for text in ("a", "b", "\nc", "d"):
            await session.append_context_block("memory", text)

        assert await content_of(session) == "a\nb\nc\nd"

    async def test_blocks_come_in_the_order_they_were_set_up(self, store: Store) -> None:
        session = Session(store, "s").with_context("z").with_context("a", provider="fixed").with_context("m")

        await session.add_context("b")

        assert [block.label for block in await session.get_context_blocks()] == ["z", "a", "m", "b"]

    async def test_a_label_nobody_set_up_is_not_there(self, store: Store) -> None:
        session = with_memory(store)

        assert await session.get_context_block("other") is None
        assert await session.remove_context("other") is False
        for write in (session.replace_context_block, session.append_context_block):
            with pytest.raises(BlockNotFound, match=r"'other'.*'memory'"):
                await write("other", "text")

    async def test_a_fixed_text_cannot_be_written(self, store: Store) -> None:
        session = Session(store, "s").with_context("soul", provider="You are helpful.")

        for write in (session.replace_context_block, session.append_context_block):
            with pytest.raises(ContextError, match="soul"):
                await write("soul", "You are evil.")

        assert await session.get_context_block("soul") == ContextBlock(
            "soul", None, "You are helpful.", 4, None, False, False, False
        )

    async def test_two_handles_agree_at_once(self, store: Store) -> None:
        one, other = with_memory(store), with_memory(store)
        assert await content_of(other) == ""

        await one.replace_context_block("memory", "a")
        assert await content_of(other) == "a"
        await other.append_context_block("memory", "b")

        assert await content_of(one) == await content_of(with_memory(store)) == "a\nb"

    async def test_blocks_keep_text_exactly(self, store: Store) -> None:
        session = with_memory(store)

        for text in EXACT_TEXTS:
            assert (await session.replace_context_block("memory", text)).content == text
            assert await content_of(session) == text

    async def test_labels_stay_apart_whatever_they_are(self, store: Store) -> None:
        session = Session(store, "s")
        for label in HOSTILE_IDS:
            session.with_context(label)

        for label in HOSTILE_IDS:
            await session.replace_context_block(label, f"of {label}")

        assert {b.label: b.content for b in await session.get_context_blocks()} == {n: f"of {n}" for n in HOSTILE_IDS}
        for refused in REFUSED_IDS:
            with pytest.raises(InvalidId):
                Session(store, "s").with_context(refused)
            with pytest.raises(InvalidId):
                await session.add_context(refused)

    async def test_a_block_added_at_run_time_is_like_any_other(self, store: Store) -> None:
        session = with_memory(store)
        await session.get_history()

        added = await session.add_context("notes", description="More", max_tokens=10)
        await session.replace_context_block("notes", "kept")

        assert (added.label, added.description, added.content, added.max_tokens) == ("notes", "More", "", 10)
        with pytest.raises(ConfigurationError, match="notes"):
            await session.add_context("notes")
        with pytest.raises(ConfigurationError, match=r"add_context\('late'"):
            session.with_context("late")
        assert await session.remove_context("notes") is True
        assert await session.get_context_block("notes") is None
        assert (await session.add_context("notes")).content == "kept"

    async def test_clearing_the_messages_keeps_the_blocks(self, store: Store) -> None:
        session = with_memory(store)
        await session.replace_context_block("memory", "kept")
        await session.append_message(user("gone"))

        await session.clear_messages()

        assert await content_of(session) == "kept"


class _Limits:
    """How much a block may hold."""

    async def test_a_block_holds_up_to_its_limit_and_no_more(self, store: Store) -> None:
        session = with_memory(store, max_tokens=5)
        await session.replace_context_block("memory", "x" * 16)

        for write, text in ((session.replace_context_block, "y" * 21), (session.append_context_block, "yyyy")):
            with pytest.raises(ContextError, match=r"memory.* 6 of 5 tokens"):
                await write("memory", text)

        assert await content_of(session) == "x" * 16
        assert (await session.append_context_block("memory", "yyy")).tokens == 5

    async def test_writers_at_once_never_exceed_a_limit_and_lose_nothing(self, store: Store) -> None:
        handles = [with_memory(store, max_tokens=40) for _ in range(4)]
        await handles[0].replace_context_block("memory", "x" * 100)

        async def write(number: int) -> str | None:
            line = f"line {number:02}"
            try:
                await handles[number % 4].append_context_block("memory", line)
            except ContextError:
                return None
            return line

        written = [line for line in await asyncio.gather(*map(write, range(20))) if line is not None]

        found = await handles[0].get_context_block("memory")
        assert found is not None
        assert found.tokens <= 40
        assert sorted(found.content.split("\n")[1:]) == sorted(written)
        # 100 characters are there, each line is 8 more, and 160 are 40 tokens.
        assert len(written) == 7


class _Sharing:
    """Whose content it is."""

    async def test_content_belongs_to_one_session_of_one_user_with_one_agent(self, store: Store) -> None:
        mine = with_memory(store, "s", user_id="alice", agent_id="x")
        await mine.replace_context_block("memory", "secret")

        for session_id, user_id, agent_id in [
            ("t", "alice", "x"),
            ("s", "bob", "x"),
            ("s", None, "x"),
            ("s", "alice", "y"),
        ]:
            other = with_memory(store, session_id, user_id=user_id, agent_id=agent_id)
            assert await content_of(other) == ""
            await other.replace_context_block("memory", "theirs")

        assert await content_of(mine) == "secret"

    async def test_many_sessions_append_to_a_shared_block_at_once_and_no_line_is_lost(self, store: Store) -> None:
        sessions = [Session(store, f"s{n % 6}").with_context("memory", shared=True) for n in range(12)]
        await sessions[0].append_context_block("memory", "first")

        await asyncio.gather(*(one.append_context_block("memory", f"line {n}") for n, one in enumerate(sessions)))

        lines = (await content_of(sessions[0])).split("\n")
        assert lines[0] == "first"
        assert sorted(lines[1:]) == sorted(f"line {n}" for n in range(12))

    async def test_shared_content_is_one_for_all_sessions_of_a_user_with_an_agent(self, store: Store) -> None:
        def shared(session_id: str, user_id: str | None = "alice", agent_id: str = "x") -> Session:
            return Session(store, session_id, user_id=user_id, agent_id=agent_id).with_context("memory", shared=True)

        await shared("s").replace_context_block("memory", "a")
        await shared("t").append_context_block("memory", "b")

        assert await content_of(shared("u")) == "a\nb"
        for stranger in (shared("s", "bob"), shared("s", None), shared("s", agent_id="y")):
            assert await content_of(stranger) == ""
        assert await content_of(with_memory(store, "s", user_id="alice", agent_id="x")) == ""

    async def test_a_stored_provider_may_name_its_own_place(self, store: Store) -> None:
        session = (
            Session(store, "s")
            .with_context("a", provider=StoredContextProvider(store, "kept"))
            .with_context("b", provider=StoredContextProvider(label="kept"))
            .with_context("kept")
        )

        await session.replace_context_block("a", "text")

        assert [block.content for block in await session.get_context_blocks()] == ["text", "text", "text"]

    async def test_a_change_shows_in_the_session_that_wrote_it(self, store: Store) -> None:
        one = with_memory(store, "s").with_context("all", shared=True)
        other = with_memory(store, "t").with_context("all", shared=True)
        await other.append_message(user("hi", id="hi"))
        before = await other.get_version()

        await one.replace_context_block("memory", "a")
        await one.append_context_block("all", "b")
        await one.append_message(user("hi", id="hi"))

        changes = await changes_until(one, await one.get_version())
        assert [(c.kind, list(c.message_ids), c.session_id) for c in changes] == [
            ("context", [], "s"),
            ("context", [], "s"),
            ("append", ["hi"], "s"),
        ]
        assert await other.get_version() == before
        assert await content_of(other, "all") == "b"


@pytest.mark.asyncio
class ContextContract(
    _Blocks,
    _Limits,
    _Sharing,
    NothingIsOverwrittenUnseen,
    KeyedEntries,
    EntriesAreSeenAndDeleted,
    FrozenPrompts,
    LoadedSkills,
):
    """Blocks, entries, prompt and skills. Subclasses define an async `store` fixture, which holds nothing yet."""
