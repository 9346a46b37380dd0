"""Setting up context blocks wrongly: told at once, in words, and nothing is changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import (
    BlockNotFound,
    ConfigurationError,
    ContextError,
    Session,
    SessionManager,
    StoredContextProvider,
    open_store,
    user,
)
from leafward.stores import Store
from leafward.testing.keyed import content_of


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


async def test_a_label_twice_is_refused(store: Store) -> None:
    with pytest.raises(ConfigurationError, match="'memory'"):
        Session(store, "s").with_context("memory").with_context("memory", provider="other")
    with pytest.raises(ConfigurationError, match="'memory'"):
        Session(store, "s", context=[{"label": "memory"}, {"label": "memory"}])
    with pytest.raises(ConfigurationError, match="'memory'"):
        SessionManager(store).with_context("memory").with_searchable_history("memory")
    session = Session(store, "s").with_context("memory")
    with pytest.raises(ConfigurationError, match="'memory'"):
        await session.add_context("memory")
    assert [block.label for block in await session.get_context_blocks()] == ["memory"]


BUILDER_CALLS: dict[str, Any] = {
    "with_context": lambda s: s.with_context("late"),
    "with_cached_prompt": lambda s: s.with_cached_prompt(),
    "on_compaction": lambda s: s.on_compaction(print),
    "compact_after": lambda s: s.compact_after(10),
    "on_compaction_error": lambda s: s.on_compaction_error(print),
    "for_session": lambda s: s.for_session("other"),
}

FIRST_USES: dict[str, Any] = {
    "append_message": lambda s: s.append_message(user("hi")),
    "get_history": lambda s: s.get_history(),
    "get_context_blocks": lambda s: s.get_context_blocks(),
    "freeze_system_prompt": lambda s: s.freeze_system_prompt(),
    "tools": lambda s: s.tools(),
    "add_context": lambda s: s.add_context("more"),
    "get_version": lambda s: s.get_version(),
}


@pytest.mark.parametrize("use", FIRST_USES.values(), ids=FIRST_USES)
async def test_a_session_in_use_cannot_be_set_up_any_more(store: Store, use: Any) -> None:
    session = Session(store, "s").with_context("memory")
    await use(session)

    for name, build in BUILDER_CALLS.items():
        with pytest.raises(ConfigurationError, match=r"add_context\('late'" if name == "with_context" else name):
            build(session)

    assert "late" not in [block.label for block in await session.get_context_blocks()]


@pytest.mark.parametrize(
    "options",
    [
        {"provider": 7},
        {"provider": object()},
        {"provider": {}},
        {"provider": {"set": print}},
        {"provider": {"get": "text"}},
        {"provider": {"get": lambda: "", "fetch": print}},
        {"provider": ["text"]},
        {"max_tokens": 0},
        {"max_tokens": -1},
        {"max_tokens": "many"},
        {"max_tokens": True},
        {"timeout": 0},
        {"timeout": "long"},
        {"timeout": None},
        {"description": 7},
    ],
)
async def test_a_wrong_option_is_told_when_the_block_is_set_up(store: Store, options: dict[str, Any]) -> None:
    session = Session(store, "s")

    with pytest.raises(ConfigurationError, match="'memory'"):
        session.with_context("memory", **options)
    with pytest.raises(ConfigurationError, match="'memory'"):
        Session(store, "s", context=[{"label": "memory", **options}])
    with pytest.raises(ConfigurationError, match="'memory'"):
        await session.add_context("memory", **options)

    assert (await session.add_context("memory")).content == ""


@pytest.mark.parametrize("item", [7, "memory", {}, {"lable": "memory"}, {"label": "memory", "size": 3}, None])
async def test_a_context_item_is_a_dict_or_a_config(store: Store, item: Any) -> None:
    with pytest.raises(ConfigurationError):
        Session(store, "s", context=[item])


async def test_an_unknown_option_at_run_time_is_refused(store: Store) -> None:
    session = Session(store, "s")

    with pytest.raises(TypeError, match="size"):
        await session.add_context("memory", size=3)  # pyright: ignore[reportCallIssue]

    assert await session.get_context_blocks() == []


@pytest.mark.parametrize("content", [None, 7, b"bytes", ["text"]])
async def test_content_that_is_no_text_is_refused(store: Store, content: Any) -> None:
    session = Session(store, "s").with_context("memory")

    for write in (session.replace_context_block, session.append_context_block):
        with pytest.raises(ContextError, match="text"):
            await write("memory", content)

    with pytest.raises(BlockNotFound):
        await session.replace_context_block("nowhere", "text")
    assert await content_of(session) == ""


def test_a_stored_provider_alone_says_where_it_belongs() -> None:
    with pytest.raises(ConfigurationError, match="with_context"):
        asyncio.run(StoredContextProvider().get())
