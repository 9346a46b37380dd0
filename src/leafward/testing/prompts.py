"""What the system prompt promises: the same to the byte until somebody asks for a new one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leafward import Message, Session, StoredSearchProvider, user

if TYPE_CHECKING:
    from leafward.stores import Store

LINE = "═" * 46

PROMPT = f"""\
{LINE}
SOUL (Identity) [readonly]
{LINE}
You are a helpful assistant.

{LINE}
MEMORY (Learned facts) [1% — 11/1100 tokens] [writable]
{LINE}
User likes coffee.
User prefers dark roast.

{LINE}
SKILLS [loadable]
{LINE}
- api-ref: API Reference

{LINE}
KNOWLEDGE (Docs) [searchable]
{LINE}
"""


class Shelf:
    """A collection of skills held in memory, which counts how often it was asked for its list."""

    def __init__(self, documents: dict[str, str] | None = None) -> None:
        self.documents = {"api-ref": "GET /users lists users."} if documents is None else documents
        self.asked = 0

    def get(self) -> str:
        self.asked += 1
        return "\n".join(f"- {key}: API Reference" for key in self.documents)

    def load(self, key: str) -> str | None:
        return self.documents.get(key)


def with_everything(store: Store, session_id: str = "s", **options: Any) -> Session:
    """Return a session with a block of each kind."""
    return (
        Session(store, session_id, **options)
        .with_context("soul", description="Identity", provider="You are a helpful assistant.")
        .with_context("memory", description="Learned facts", max_tokens=1100)
        .with_context("skills", provider=Shelf())
        .with_context("knowledge", description="Docs", provider=StoredSearchProvider())
    )


def _cached(store: Store, session_id: str = "s", soul: str = "You are helpful.") -> Session:
    return Session(store, session_id).with_context("soul", provider=soul).with_context("memory").with_cached_prompt()


def _summed_up(messages: list[Message]) -> dict[str, str]:
    return {"summary": "short", "from_message_id": messages[0].id, "to_message_id": messages[-1].id}


class FrozenPrompts:
    """Rendering, freezing, and what thaws it."""

    async def test_the_prompt_shows_each_block_under_its_header(self, store: Store) -> None:
        session = with_everything(store)
        await session.append_context_block("memory", "User likes coffee.")
        await session.append_context_block("memory", "User prefers dark roast.")

        assert await session.freeze_system_prompt() == PROMPT

    async def test_the_prompt_of_no_blocks_is_empty(self, store: Store) -> None:
        assert await Session(store, "s").freeze_system_prompt() == ""
        assert await Session(store, "s").with_context("soul", provider="").freeze_system_prompt() == ""
        assert await Session(store, "t", cached_prompt=True).freeze_system_prompt() == ""

    async def test_a_frozen_prompt_stays_until_it_is_refreshed(self, store: Store) -> None:
        for session in (with_everything(store), with_everything(store, "t", cached_prompt=True)):
            frozen = await session.freeze_system_prompt()
            await session.replace_context_block("memory", "new fact")
            await session.add_context("more", provider="more")
            await session.remove_context("soul")
            await session.append_message(user("hi"))

            assert await session.freeze_system_prompt() == frozen
            refreshed = await session.refresh_system_prompt()
            assert "new fact" in refreshed
            assert "\nMORE [readonly]\n" in refreshed
            assert "SOUL" not in refreshed
            assert await session.freeze_system_prompt() == refreshed

    async def test_a_cached_prompt_is_the_same_for_every_handle(self, store: Store) -> None:
        frozen = await _cached(store).freeze_system_prompt()
        await _cached(store).replace_context_block("memory", "new fact")

        assert await _cached(store).freeze_system_prompt() == frozen
        refreshed = await _cached(store).refresh_system_prompt()

        assert "new fact" in refreshed
        assert await _cached(store).freeze_system_prompt() == refreshed
        assert "new fact" not in await _cached(store, "t").freeze_system_prompt()

    async def test_without_a_cache_each_handle_freezes_its_own(self, store: Store) -> None:
        one, other = with_everything(store), with_everything(store)
        frozen = await one.freeze_system_prompt()
        await one.replace_context_block("memory", "new fact")

        assert "new fact" in await other.freeze_system_prompt()
        assert await one.freeze_system_prompt() == frozen

    async def test_handles_that_freeze_at_once_get_the_same_prompt(self, store: Store) -> None:
        handles = [_cached(store, soul=f"You are number {number}.") for number in range(8)]

        frozen = await asyncio.gather(*(handle.freeze_system_prompt() for handle in handles))

        assert len(set(frozen)) == 1
        assert await _cached(store).freeze_system_prompt() == frozen[0]

    async def test_a_clear_renders_the_prompt_anew(self, store: Store) -> None:
        for session in (with_everything(store), with_everything(store, "t", cached_prompt=True)):
            await session.append_message(user("hi"))
            await session.freeze_system_prompt()
            await session.replace_context_block("memory", "new fact")

            await session.clear_messages()

            assert "new fact" in await session.freeze_system_prompt()

    async def test_a_compaction_renders_the_prompt_anew(self, store: Store) -> None:
        for session in (with_everything(store), with_everything(store, "t", cached_prompt=True)):
            session.on_compaction(_summed_up)
            await session.append_messages([user(f"m{n}", id=f"m{n}") for n in range(6)])
            frozen = await session.freeze_system_prompt()
            await session.replace_context_block("memory", "first fact")
            assert await session.freeze_system_prompt() == frozen

            await session.add_compaction("short", "m0", "m1")
            assert "first fact" in await session.freeze_system_prompt()
            await session.replace_context_block("memory", "second fact")
            await session.compact()

            assert "second fact" in await session.freeze_system_prompt()

    async def test_a_prompt_is_stale_once_the_blocks_are_set_up_differently(self, store: Store) -> None:
        assert not await _cached(store).is_prompt_stale()
        await _cached(store).freeze_system_prompt()
        await _cached(store).replace_context_block("memory", "content is no setting")
        changed = _cached(store, soul="You are blunt.")

        assert not await _cached(store).is_prompt_stale()
        assert await changed.is_prompt_stale()
        assert "helpful" in await changed.freeze_system_prompt()
        assert "blunt" in await changed.refresh_system_prompt()
        assert not await changed.is_prompt_stale()
        assert await _cached(store).is_prompt_stale()

    async def test_adding_or_removing_a_block_makes_the_prompt_stale(self, store: Store) -> None:
        for session in (with_everything(store), with_everything(store, "t", cached_prompt=True)):
            await session.freeze_system_prompt()
            assert not await session.is_prompt_stale()

            await session.add_context("more")
            assert await session.is_prompt_stale()
            await session.remove_context("more")
            assert not await session.is_prompt_stale()
            await session.remove_context("soul")
            assert await session.is_prompt_stale()

    async def test_the_prompt_counts_as_tokens(self, store: Store) -> None:
        for cached in (False, True):
            session = Session(store, f"s{cached}", cached_prompt=cached).with_context("memory")
            empty = await session.estimate_tokens()
            await session.replace_context_block("memory", "x" * 400)
            grown = await session.estimate_tokens()
            assert grown >= empty + 90
            await session.freeze_system_prompt()
            assert await session.estimate_tokens() == grown
            await session.replace_context_block("memory", "")

            assert await session.estimate_tokens() == grown
            await session.refresh_system_prompt()
            assert await session.estimate_tokens() == empty
