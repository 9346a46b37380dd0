"""What is set on a manager reaches every session; handles, the list, and bad input."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncGenerator
from contextlib import closing
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    ContextBlock,
    InvalidId,
    Message,
    Session,
    SessionManager,
    StoredContextProvider,
    StoredSearchProvider,
    create_compact_function,
    open_store,
    user,
)
from leafward.sessions import ContextConfig
from leafward.stores import Page, Store
from leafward.stores.sqlite import SqliteStore
from leafward.testing.filled import fill, find_fact, manage, put_fact


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/chat.db") as store:
        yield store


async def content(session: Session, label: str) -> str:
    block = await session.get_context_block(label)
    assert isinstance(block, ContextBlock)
    return block.content


# ── what is set on a manager ─────────────────────────────────────────────────


async def test_every_session_has_what_was_set_on_the_manager(store: Store) -> None:
    prompts: list[str] = []

    def summarize(prompt: str) -> str:
        prompts.append(prompt)
        return "a summary"

    def count(message: Message) -> int:
        return 100

    compact = create_compact_function(summarize=summarize, protect_head=1, tail_token_budget=250)
    manager = (
        SessionManager(store, user_id="alice", agent_id="support")
        .compact_after(1000, token_counter=count)
        .on_compaction(compact)
        .with_context("soul", provider="You are helpful.")
        .with_context("memory", description="Learned facts", max_tokens=20)
        .with_cached_prompt()
    )

    for name in ("one", "two"):
        session = manager.get_session(name)
        assert (session.session_id, session.user_id, session.agent_id) == (name, "alice", "support")
        for n in range(12):
            await session.append_message(user(f"text {n}"))
        assert len(await session.get_compactions()) == 1
        assert [block.label for block in await session.get_context_blocks()] == ["soul", "memory"]
        assert "You are helpful." in await session.freeze_system_prompt()
        answer = await (await session.tools()).call("set_context", {"label": "memory", "content": "walnut " * 40})
        assert answer.startswith("Error:")
    assert len(prompts) == 2


async def test_failures_of_every_session_are_told_to_the_manager(store: Store) -> None:
    told: list[Exception] = []

    def fail(messages: list[Message]) -> None:
        raise RuntimeError("no model")

    manager = SessionManager(store).on_compaction(fail).compact_after(5).on_compaction_error(told.append)

    for name in ("one", "two"):
        await manager.get_session(name).append_message(user("many words that cross the threshold at once"))

    assert [str(error) for error in told] == ["no model", "no model"]


@pytest.mark.parametrize("provider", [None, StoredContextProvider(), StoredContextProvider(label="own")])
async def test_stored_blocks_are_each_sessions_own(store: Store, provider: StoredContextProvider | None) -> None:
    manager = SessionManager(store).with_context("memory", provider=provider)
    one, two = manager.get_session("one"), manager.get_session("two")

    await one.replace_context_block("memory", "Likes walnuts.")
    await two.append_context_block("memory", "Likes maples.")

    assert [await content(one, "memory"), await content(two, "memory")] == ["Likes walnuts.", "Likes maples."]


@pytest.mark.parametrize("explicit", [False, True])
async def test_shared_blocks_are_one_for_all_sessions_of_a_user(store: Store, explicit: bool) -> None:
    def manager(user_id: str) -> SessionManager:
        provider = StoredContextProvider() if explicit else None
        return SessionManager(store, user_id=user_id).with_context("memory", shared=True, provider=provider)

    await manager("alice").get_session("one").replace_context_block("memory", "Likes walnuts.")

    assert await content(manager("alice").get_session("two"), "memory") == "Likes walnuts."
    assert await content(manager("bob").get_session("one"), "memory") == ""


async def test_stored_entries_are_each_sessions_own(store: Store) -> None:
    manager = SessionManager(store).with_context("facts", provider=StoredSearchProvider())
    one, two = manager.get_session("one"), manager.get_session("two")

    await put_fact(one, "Tree", "The walnut is old.")
    await put_fact(two, "Tree", "The maple is young.")

    assert await find_fact(one, "old") == "[tree]\nThe walnut is old."
    assert await find_fact(one, "young") == "No results found."
    assert await find_fact(two, "young") == "[tree]\nThe maple is young."
    assert await content(one, "facts") == "1 entries indexed."


async def test_stored_prompts_are_each_sessions_own(store: Store) -> None:
    def manager(provider: StoredContextProvider | None) -> SessionManager:
        return SessionManager(store).with_context("memory").with_cached_prompt(provider)

    for provider in (None, StoredContextProvider()):
        one, two = (manager(provider).get_session(f"{name} {provider is None}") for name in ("one", "two"))
        await one.replace_context_block("memory", "Likes walnuts.")
        assert "Likes walnuts." in await one.freeze_system_prompt()
        assert "Likes walnuts." not in await two.freeze_system_prompt()
        await one.replace_context_block("memory", "Likes maples.")
        again = manager(provider).get_session(one.session_id)
        assert "Likes walnuts." in await again.freeze_system_prompt()


async def test_a_kept_prompt_and_a_block_of_any_label_stay_apart(store: Store) -> None:
    manager = SessionManager(store).with_context("system_prompt").with_cached_prompt(StoredContextProvider())
    session = manager.get_session("s")
    await session.append_message(user("walnut", id="m"))
    await session.replace_context_block("system_prompt", "Likes walnuts.")

    frozen = await session.freeze_system_prompt()
    await session.replace_context_block("system_prompt", "Likes maples.")

    assert await content(session, "system_prompt") == "Likes maples."
    assert await session.freeze_system_prompt() == frozen
    fork = manager.get_session((await manager.fork("s", "m", "fork")).id)
    assert "Likes maples." in await fork.freeze_system_prompt()


async def test_a_block_added_to_one_session_is_not_in_the_next(store: Store) -> None:
    manager = SessionManager(store).with_context("memory")

    await manager.get_session("one").add_context("extra", provider="text")
    await manager.get_session("one").remove_context("memory")

    assert [block.label for block in await manager.get_session("one").get_context_blocks()] == ["extra"]
    assert [block.label for block in await manager.get_session("two").get_context_blocks()] == ["memory"]


async def test_a_manager_in_use_is_set_up_no_more(store: Store) -> None:
    manager = SessionManager(store)
    session = manager.get_session("s")

    with pytest.raises(ConfigurationError, match="add_context"):
        manager.with_context("memory")
    for late in (
        manager.with_cached_prompt,
        lambda: manager.compact_after(10),
        lambda: manager.on_compaction(lambda messages: None),
        lambda: manager.on_compaction_error(print),
        lambda: manager.with_searchable_history("past"),
    ):
        with pytest.raises(ConfigurationError, match="cannot be changed"):
            late()
    assert await session.get_context_blocks() == []


async def test_a_manager_needs_an_open_store() -> None:
    opening = open_store("memory://")

    with pytest.raises(ConfigurationError, match="await open_store"):
        SessionManager(opening)  # pyright: ignore[reportArgumentType]
    async with opening as store:
        with pytest.raises(InvalidId):
            SessionManager(store, user_id="")
        with pytest.raises(InvalidId):
            SessionManager(store, agent_id="..")


# ── options ──────────────────────────────────────────────────────────────────


def test_a_manager_takes_the_options_of_a_session() -> None:
    def options(made: type) -> dict[str, Parameter]:
        every = signature(made).parameters
        return {name: one for name, one in every.items() if name not in ("store", "session_id")}

    assert options(SessionManager) == options(Session)


async def test_options_of_a_manager_are_given_to_every_session(store: Store) -> None:
    asked: list[str] = []

    def summarize(prompt: str) -> str:
        asked.append(prompt)
        return "in short"

    manager = SessionManager(
        store,
        user_id="alice",
        context=[{"label": "soul", "provider": "You are helpful."}, ContextConfig("memory", max_tokens=50)],
        cached_prompt=True,
        on_compaction=create_compact_function(summarize=summarize, protect_head=1, tail_token_budget=4),
        compact_after=80,
        token_counter=lambda message: 10,
    )

    for name in ("one", "two"):
        session = manager.get_session(name)
        await session.append_messages([user(f"message {n}") for n in range(12)])
        assert [block.label for block in await session.get_context_blocks()] == ["soul", "memory"]
        assert len(await session.get_compactions()) == 1
        frozen = await session.freeze_system_prompt()
        await session.replace_context_block("memory", "Likes walnuts.")
        assert await Session(store, name, user_id="alice", cached_prompt=True).freeze_system_prompt() == frozen
    assert len(asked) == 2
    assert await manager.get_session("three").get_context_block("memory") == ContextBlock(
        "memory", None, "", 0, 50, True, False, False
    )


async def test_a_failing_compaction_is_reported_to_the_managers_handler(store: Store) -> None:
    failed: list[Exception] = []

    def compact(messages: list[Message]) -> None:
        raise RuntimeError("no model today")

    manager = SessionManager(store, on_compaction=compact, compact_after=5, on_compaction_error=failed.append)
    await manager.get_session("s").append_message(user("words " * 20))

    assert [str(error) for error in failed] == ["no model today"]


@pytest.mark.parametrize(
    "options",
    [
        {"context": [{"lable": "memory"}]},
        {"context": [{"label": "a"}, {"label": "a"}]},
        {"cached_prompt": {"get": lambda: None, "set": print}},
        {"on_compaction": "text"},
        {"compact_after": 0},
        {"token_counter": 3},
        {"on_compaction_error": 7},
    ],
)
async def test_a_wrong_option_of_a_manager_is_refused_at_once(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        SessionManager(store, **options)


# ── handles ──────────────────────────────────────────────────────────────────


async def test_a_handle_is_kept_until_its_session_ends(store: Store) -> None:
    manager = SessionManager(store).with_context("memory")
    session = manager.get_session("s")
    await session.append_message(user("walnut"))
    frozen = await session.freeze_system_prompt()
    await session.replace_context_block("memory", "Likes walnuts.")

    assert manager.get_session("s") is session
    assert await manager.get_session("s").freeze_system_prompt() == frozen
    await manager.delete("s")
    assert manager.get_session("s") is not session
    assert "Likes walnuts." not in await manager.get_session("s").freeze_system_prompt()


async def test_many_handles_do_not_pile_up(store: Store) -> None:
    manager = SessionManager(store)
    kept = manager.get_session("kept")

    for n in range(5000):
        manager.get_session(f"s{n}")
        if n % 100 == 0:
            assert manager.get_session("kept") is kept

    assert len(manager._handles) < 5000


@pytest.mark.parametrize("how", ["delete", "erase"])
async def test_an_ended_session_leaves_no_row(tmp_path: Path, how: str) -> None:
    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        assert isinstance(store, SqliteStore)
        manager = manage(store)
        await manager.create("chat", session_id="s")
        await fill(manager.get_session("s"))
        await manager.get_session("s").replace_context_block("house", "")
        await store.settle()
        before = row_counts(tmp_path / "chat.db")

        await getattr(manager, how)("s")
        await store.settle()

    tables = {"session", "message", "overlay", "label", "change", "reclaimed", "skill", "prompt", "entry_word"}
    after = row_counts(tmp_path / "chat.db")
    assert {name for name in tables if not before[name]} == set()
    assert {name for name in after if after[name]} == {"meta", "owner", "shelf", "entry"}
    assert (after["shelf"], after["entry"]) == (1, 1)


def row_counts(path: Path) -> dict[str, int]:
    """Return how many rows each table has."""
    with closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        ours = [name for name in names if name.startswith("leafward_") and "search" not in name]
        return {
            name.removeprefix("leafward_"): database.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            for name in ours
        }


# ── the list ─────────────────────────────────────────────────────────────────


async def test_sessions_changed_at_the_same_moment_are_each_listed_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = SessionManager(store)
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    made = [(await manager.create(f"{n}", session_id=f"s{n}")).id for n in range(9)]
    monkeypatch.undo()

    pages = [await manager.list(limit=2)]
    while pages[-1].next_cursor is not None:
        pages.append(await manager.list(limit=2, cursor=pages[-1].next_cursor))

    assert isinstance(pages[0], Page)
    assert [info.id for page in pages for info in page] == made[::-1]
    assert len({info.updated_at for page in pages for info in page}) == 1


async def test_a_cursor_of_another_user_opens_nothing_of_theirs(store: Store) -> None:
    theirs = SessionManager(store, user_id="alice")
    for n in range(4):
        await theirs.create(f"{n}")
    cursor = (await theirs.list(limit=1)).next_cursor

    assert await SessionManager(store, user_id="bob").list(cursor=cursor) == []


# ── bad input ────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""},
        {"name": " "},
        {"name": None},
        {"name": 5},
        {"model": 5},
        {"source": object()},
        {"parent_session_id": ""},
        {"parent_session_id": "\ud800"},
        {"parent_session_id": 5},
    ],
)
async def test_a_session_that_is_described_wrongly_is_not_made(store: Store, wrong: dict[str, Any]) -> None:
    manager = SessionManager(store)

    with pytest.raises(ValueError, match=r"name|model|source|id"):
        await manager.create(**{"name": "fine", **wrong})

    assert await manager.list() == []


async def test_texts_that_no_file_can_hold_are_mended(store: Store) -> None:
    manager = SessionManager(store)

    made = await manager.create("a\ud800b", model="m\udfff", source="\ud83e\udd8a")
    await manager.rename(made.id, "c\ud800")

    assert (made.name, made.model, made.source) == ("a\ufffdb", "m\ufffd", "🦊")
    assert [info.name for info in await manager.list()] == ["c\ufffd"]


async def test_a_fork_or_split_under_a_blank_name_is_refused(store: Store) -> None:
    manager = SessionManager(store)
    await manager.get_session("s").append_message(user("walnut", id="m"))

    with pytest.raises(ValueError, match="name"):
        await manager.fork("s", "m", " ")
    with pytest.raises(ValueError, match="name"):
        await manager.compact_and_split("s", "a summary", "")

    (only,) = await manager.list()
    assert only.end_reason is None


async def test_a_search_takes_any_text_and_no_negative_limit(store: Store) -> None:
    manager = SessionManager(store)
    await manager.get_session("s").append_message(user("walnut"))

    for query in ('"', '""', "* OR -", "walnut NEAR(", "\x00", "\ud800", "%", "a" * 100_000):
        assert await manager.search(query) == []
    with pytest.raises(ValueError, match="limit"):
        await manager.search("walnut", limit=-1)
