"""What persistent context promises: blocks, entries, prompt and loaded skills are there after a restart."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import ContextError, Session
from leafward.testing.content import EXACT_TEXTS
from leafward.testing.context import with_memory
from leafward.testing.keyed import CONFUSABLE_TITLES, content_of, look_up, note, with_facts
from leafward.testing.loading import TEXT, one_message, shown, two_messages, use, with_skills
from leafward.testing.prompts import with_everything
from leafward.testing.unseen import chat, merge, replace, was_shown

if TYPE_CHECKING:
    from leafward.stores import Store
    from leafward.testing.durable import Reopen


async def _picture(session: Session) -> dict[str, Any]:
    """All that can be read of a session's context."""
    return {
        "blocks": await session.get_context_blocks(),
        "prompt": await session.freeze_system_prompt(),
        "stale": await session.is_prompt_stale(),
        "loaded": await session.get_loaded_skill_keys(),
        "found": await look_up(session, "walnut", "knowledge"),
        "seen": shown(await session.get_history()),
        "stored": shown(await session.get_raw_history()),
        "tokens": await session.estimate_tokens(),
        "version": await session.get_version(),
    }


@pytest.mark.asyncio
class DurableContextContract:
    """Context outlives the handle that wrote it, and stores on the same data share it at once.

    Subclasses define `store` and `reopen` as for `DurableContract`.
    """

    async def test_context_is_the_same_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        session = with_everything(store, user_id="alice", cached_prompt=True)
        await session.append_context_block("memory", "User likes coffee.")
        await session.freeze_system_prompt()
        await session.append_context_block("memory", "After the freeze.")
        await note(session, "Nuts", "walnut", "knowledge")
        await session.load_skill("skills", "api-ref")
        before = await _picture(session)
        await store.close()

        again = with_everything(await reopen(), user_id="alice", cached_prompt=True)

        assert await _picture(again) == before
        assert before["loaded"] == ["skills:api-ref"]
        assert "After the freeze." not in before["prompt"]

    async def test_what_was_unloaded_stays_out_of_sight_after_a_restart(self, store: Store, reopen: Reopen) -> None:
        session = with_skills(store)
        await session.append_messages(one_message("load_context", "c1", await use(session, "load_context")))
        await session.append_messages(two_messages("unload_context", "c2", await use(session, "unload_context")))
        seen, tokens = shown(await session.get_history()), await session.estimate_tokens()
        await store.close()

        again = with_skills(await reopen())

        assert TEXT not in seen
        assert shown(await again.get_history()) == seen
        assert TEXT in shown(await again.get_raw_history())
        assert await again.estimate_tokens() == tokens
        assert await again.get_loaded_skill_keys() == []

    async def test_a_skill_loaded_before_a_restart_can_be_unloaded_after_it(self, store: Store, reopen: Reopen) -> None:
        session = with_skills(store)
        await session.append_messages(two_messages("load_context", "c1", await use(session, "load_context")))
        await store.close()

        again = with_skills(await reopen())

        assert await again.unload_skill("skills", "api-ref") is True
        assert TEXT not in shown(await again.get_history())

    async def test_blocks_keep_text_exactly_over_a_restart(self, store: Store, reopen: Reopen) -> None:
        for number, text in enumerate(EXACT_TEXTS):
            await with_memory(store, f"s{number}").replace_context_block("memory", text)
        await store.close()

        again = await reopen()

        assert [await content_of(with_memory(again, f"s{number}")) for number in range(len(EXACT_TEXTS))] == EXACT_TEXTS

    async def test_titles_keep_their_keys_over_a_restart(self, store: Store, reopen: Reopen) -> None:
        half = len(CONFUSABLE_TITLES) // 2
        keys = [await note(with_facts(store), title, "old") for title in CONFUSABLE_TITLES[:half]]
        await store.close()
        again = with_facts(await reopen())

        new = [await note(again, title, "new") for title in CONFUSABLE_TITLES]

        assert new[:half] == keys
        assert len(set(new)) == len(CONFUSABLE_TITLES)

    async def test_what_a_model_was_shown_is_remembered_over_a_restart(self, store: Store, reopen: Reopen) -> None:
        await chat(store, "other").replace_context_block("memory", "Likes tea.")
        await chat(store, "s").freeze_system_prompt()
        await note(with_facts(store, "s", shared=True), "Drinks", "coffee")
        await store.close()
        again = await reopen()

        assert was_shown(await replace(chat(again, "t"), "Likes milk."), "Likes tea.")
        assert (await replace(chat(again, "s"), "Likes milk.")).startswith("Written")
        assert await note(with_facts(again, "s", shared=True), "Drinks", "tea") == "drinks"
        assert [one.content for one in await with_facts(again, shared=True).list_context_entries("facts")] == ["tea"]

    async def test_a_deleted_entry_stays_deleted_over_a_restart(self, store: Store, reopen: Reopen) -> None:
        for shared in (False, True):
            for title in ("Drinks", "Pets"):
                await note(with_facts(store, shared=shared), title, f"walnut {title}")
            assert await with_facts(store, shared=shared).delete_context_entry("facts", "drinks") is True
        await store.close()
        again = await reopen()

        for shared in (False, True):
            assert await content_of(with_facts(again, shared=shared), "facts") == "1 entries indexed."
            assert await look_up(with_facts(again, shared=shared), "walnut") == "[pets]\nwalnut Pets"
            assert await note(with_facts(again, shared=shared), "Drinks", "tea") == "drinks"

    async def test_a_model_does_not_overwrite_what_another_process_wrote(self, store: Store, reopen: Reopen) -> None:
        stores = [store, await reopen(), await reopen()]
        await chat(store, "s0").replace_context_block("memory", "start")

        await asyncio.gather(*(merge(stores[n % 3], f"s{n}", "", f"line {n}") for n in range(6)))

        lines = (await content_of(chat(stores[1], "s0"))).split("\n")
        assert sorted(lines) == sorted(["start", *(f"line {number}" for number in range(6))])

    async def test_two_stores_on_the_same_data_agree_at_once(self, store: Store, reopen: Reopen) -> None:
        one = with_everything(store, cached_prompt=True)
        other = with_everything(await reopen(), cached_prompt=True)

        frozen = await asyncio.gather(one.freeze_system_prompt(), other.freeze_system_prompt())
        await one.replace_context_block("memory", "from one")
        assert await content_of(other) == "from one"
        await other.load_skill("skills", "api-ref")
        assert await one.get_loaded_skill_keys() == ["skills:api-ref"]

        assert frozen[0] == frozen[1]
        assert await other.refresh_system_prompt() == await one.freeze_system_prompt() != frozen[0]
        await note(one, "a", "walnut", "knowledge")
        assert await look_up(other, "walnut", "knowledge") == "[a]\nwalnut"

    async def test_stores_that_write_at_once_never_exceed_a_limit(self, store: Store, reopen: Reopen) -> None:
        stores = [store, await reopen(), await reopen()]
        handles = [with_memory(one, max_tokens=40) for one in stores]
        await handles[0].replace_context_block("memory", "x" * 100)

        async def write(number: int) -> str | None:
            try:
                await handles[number % 3].append_context_block("memory", f"line {number:02}")
            except ContextError:
                return None
            return f"line {number:02}"

        written = [line for line in await asyncio.gather(*map(write, range(20))) if line is not None]

        assert len(written) == 7
        assert sorted((await content_of(handles[2])).split("\n")[1:]) == sorted(written)
