"""Setting up context blocks: every way to give one, and what providers may be."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import (
    ConfigurationError,
    ContextError,
    Session,
    SessionManager,
    StaticContext,
    StoredContextProvider,
    StoredSearchProvider,
    open_store,
)
from leafward.sessions import (
    ContextConfig,
    ContextProvider,
    SearchProvider,
    SkillProvider,
    WritableContextProvider,
    estimate_tokens,
)
from leafward.stores import Store
from leafward.testing.keyed import content_of, look_up, note


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


class Notes:
    """A writable block kept in a list."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.written: list[str] = []

    def get(self) -> str | None:
        return self.text

    def set(self, content: str) -> None:
        self.text = content
        self.written.append(content)


class AsyncNotes:
    """The same, async."""

    def __init__(self, text: str | None = None) -> None:
        self.text = text
        self.written: list[str] = []

    async def get(self) -> str | None:
        await asyncio.sleep(0)
        return self.text

    async def set(self, content: str) -> None:
        await asyncio.sleep(0)
        self.text = content
        self.written.append(content)


class Documents:
    """Skills that can be written, and searched too when asked for."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, str | None]] = {}

    def get(self) -> str:
        return "\n".join(f"- {key}: {description}" for key, (_, description) in self.kept.items())

    def load(self, key: str) -> str | None:
        return self.kept[key][0] if key in self.kept else None

    def set(self, key: str, content: str, description: str | None = None) -> None:
        self.kept[key] = (content, description)


class SearchableDocuments(Documents):
    def search(self, query: str) -> str | None:
        return next((text for text, _ in self.kept.values() if query in text), None)


async def test_builder_and_constructor_set_up_the_same(store: Store) -> None:
    built = (
        Session.create(store, user_id="alice", agent_id="support")
        .with_cached_prompt()
        .with_context("soul", description="Identity", provider="You are helpful.")
        .with_context("memory", max_tokens=10)
        .for_session("chat-1")
        .with_context("all", shared=True)
    )
    given = Session(
        store,
        "chat-1",
        user_id="alice",
        agent_id="support",
        cached_prompt=True,
        context=[
            {"label": "soul", "description": "Identity", "provider": StaticContext("You are helpful.")},
            ContextConfig("memory", max_tokens=10, provider=StoredContextProvider()),
            {"label": "all", "shared": True},
        ],
    )

    await built.replace_context_block("memory", "fact")
    await built.replace_context_block("all", "shared")

    assert await given.get_context_blocks() == await built.get_context_blocks()
    assert await given.freeze_system_prompt() == await built.freeze_system_prompt()
    assert not await given.is_prompt_stale()


@pytest.mark.parametrize(
    ("provider", "writable", "is_skill", "is_searchable"),
    [
        ("text", False, False, False),
        (StaticContext("text"), False, False, False),
        ({"get": lambda: "text"}, False, False, False),
        (Notes("text"), True, False, False),
        (AsyncNotes("text"), True, False, False),
        ({"get": lambda: "text", "set": print}, True, False, False),
        ({"get": lambda: "text", "load": str}, False, True, False),
        (Documents(), True, True, False),
        ({"get": lambda: "text", "search": str}, False, False, True),
        ({"get": lambda: "text", "search": str, "set": print}, True, False, True),
        (SearchableDocuments(), True, True, True),
        (StoredContextProvider(), True, False, False),
        (StoredSearchProvider(), True, False, True),
    ],
)
async def test_what_a_provider_has_decides_what_its_block_is(
    store: Store, provider: Any, writable: bool, is_skill: bool, is_searchable: bool
) -> None:
    session = Session(store, "s").with_context("block", provider=provider)

    found = await session.get_context_block("block")

    assert found is not None
    assert (found.writable, found.is_skill, found.is_searchable) == (writable, is_skill, is_searchable)
    names = {
        "set_context": writable,
        "load_context": is_skill,
        "unload_context": is_skill,
        "search_context": is_searchable,
        "list_context": isinstance(provider, StoredSearchProvider),
        "delete_context": isinstance(provider, StoredSearchProvider),
    }
    assert set(await session.tools()) == {name for name, there in names.items() if there}


def test_providers_are_told_by_their_methods() -> None:
    assert isinstance(StaticContext(""), ContextProvider)
    assert isinstance(StoredContextProvider(), WritableContextProvider)
    assert isinstance(Documents(), SkillProvider)
    assert isinstance(StoredSearchProvider(), SearchProvider)
    assert not isinstance(StaticContext(""), WritableContextProvider)


@pytest.mark.parametrize("kind", [Notes, AsyncNotes])
async def test_a_block_is_read_and_written_through_its_provider(store: Store, kind: type[Notes | AsyncNotes]) -> None:
    notes = kind()
    session = Session(store, "s").with_context("notes", provider=notes, max_tokens=3)
    assert await content_of(session, "notes") == ""

    notes.text = "outside"
    assert await content_of(session, "notes") == "outside"
    assert (await session.append_context_block("notes", "in")).content == "outside\nin"
    with pytest.raises(ContextError, match=r"notes.* 4 of 3 tokens"):
        await session.append_context_block("notes", "more")

    assert notes.written == ["outside\nin"]


async def test_appends_through_several_handles_lose_nothing(store: Store) -> None:
    for notes in (Notes(), AsyncNotes()):
        handles = [Session(store, f"s{n}").with_context("notes", provider=notes) for n in range(4)]

        await asyncio.gather(*(handles[n % 4].append_context_block("notes", f"{n}") for n in range(20)))

        assert sorted(map(int, (notes.text or "").split("\n"))) == list(range(20))


async def test_a_plain_provider_is_called_one_call_at_a_time(store: Store) -> None:
    class Alone:
        busy = 0
        most = 0

        def get(self) -> str:
            self.busy += 1
            self.most = max(self.most, self.busy)
            time.sleep(0.005)
            self.busy -= 1
            return threading.current_thread().name

    alone = Alone()
    sessions = [
        Session(store, name).with_context("a", provider=alone).with_context("b", provider=alone) for name in "xy"
    ]

    blocks = await asyncio.gather(*(session.get_context_blocks() for session in sessions * 3))

    assert alone.most == 1
    assert threading.main_thread().name not in {block.content for each in blocks for block in each}


async def test_a_provider_hears_its_label_once_before_anything_else(store: Store) -> None:
    class Labelled(Notes):
        def init(self, label: str) -> None:
            self.written.append(f"init {label}")

    labelled = Labelled()
    session = Session(store, "s").with_context("notes", provider=labelled)

    await session.replace_context_block("notes", "text")
    await session.get_context_blocks()

    assert labelled.written == ["init notes", "text"]


async def test_a_provider_that_could_not_begin_begins_again(store: Store) -> None:
    class Late(Notes):
        def init(self, label: str) -> None:
            if not self.written:
                self.written.append(label)
                raise OSError("not yet")
            self.text = "ready"

    session = Session(store, "s").with_context("notes", provider=Late())

    with pytest.raises(ContextError, match="not yet"):
        await session.get_context_block("notes")

    assert await content_of(session, "notes") == "ready"


async def test_a_skill_written_by_a_model_has_a_key_and_a_description(store: Store) -> None:
    documents = Documents()
    session = Session(store, "s").with_context("skills", provider=documents)
    tools = await session.tools()

    titled = {"label": "skills", "content": "A", "metadata": {"title": "How To"}}
    told = {"label": "skills", "content": "B", "metadata": {"title": "Other", "description": "About"}}
    for arguments in (titled, told, {"label": "skills", "content": "no key"}):
        assert (await tools.call("set_context", arguments)).startswith('Indexed "')

    assert documents.kept == {"how-to": ("A", "How To"), "other": ("B", "About"), "no-key-1nprufp": ("no key", None)}


async def test_a_skill_block_that_can_be_searched_is_written_as_skills(store: Store) -> None:
    documents = SearchableDocuments()
    session = Session(store, "s").with_context("skills", provider=documents)

    await note(session, "How To", "boil water", "skills")

    assert documents.kept == {"how-to": ("boil water", "How To")}
    assert await look_up(session, "boil", "skills") == "boil water"
    assert await look_up(session, "fry", "skills") == "No results found."
    assert await session.load_skill("skills", "how-to") == "boil water"


async def test_a_plain_function_may_give_something_to_await(store: Store) -> None:
    notes = AsyncNotes("text")

    def get() -> Awaitable[str | None]:
        return notes.get()

    provider = {"get": get, "set": functools.partial(notes.set)}
    session = Session(store, "s").with_context("notes", provider=provider)

    await session.append_context_block("notes", "more")

    assert await content_of(session, "notes") == "text\nmore"


async def test_titles_stay_apart_in_a_provider_that_sessions_share(store: Store) -> None:
    documents = Documents()
    one, other = (Session(store, name).with_context("skills", provider=documents) for name in "xy")

    keys = [await note(session, title, title, "skills") for session, title in ((one, "C"), (other, "C++"), (one, "C#"))]

    assert [documents.kept[key][0] for key in keys] == ["C", "C++", "C#"]


async def test_keyed_blocks_are_not_written_whole(store: Store) -> None:
    session = Session(store, "s").with_context("facts", provider=StoredSearchProvider())

    for write in (session.replace_context_block, session.append_context_block):
        with pytest.raises(ContextError) as refused:
            await write("facts", "text")
        entry = """{"label": 'facts', "content": ..., "metadata": {"title": ...}}"""
        assert f'(await session.tools()).call("set_context", {entry})' in str(refused.value)


async def test_a_stored_provider_without_a_session_says_how_it_is_written(store: Store) -> None:
    with pytest.raises(ConfigurationError, match=r"with_context\(label.*session\.tools\(\).*set_context.*title"):
        await StoredSearchProvider(store).set("a", "text")
    with pytest.raises(ConfigurationError, match=r"with_context\(label.*session\.replace_context_block\(label"):
        await StoredContextProvider(store).set("text")


async def test_stored_providers_given_to_a_manager_are_each_sessions_own(store: Store) -> None:
    manager = (
        SessionManager(store, user_id="alice")
        .with_context("memory", provider=StoredContextProvider(store, "kept"))
        .with_context("facts", provider=StoredSearchProvider(store))
        .with_context("all", shared=True)
        .with_cached_prompt()
    )
    one, other = manager.get_session("one"), manager.get_session("other")

    await one.replace_context_block("memory", "secret")
    await note(one, "a", "secret walnut")
    await one.replace_context_block("all", "for all")

    assert await content_of(other) == ""
    assert await look_up(other, "walnut") == "No results found."
    assert await content_of(other, "all") == "for all"
    assert "secret" in await one.freeze_system_prompt()
    assert "secret" not in await other.freeze_system_prompt()


async def test_a_stored_provider_may_keep_its_content_in_another_store(store: Store) -> None:
    async with open_store("memory://") as elsewhere:

        def opened(session_id: str = "s") -> Session:
            providers = {"memory": StoredContextProvider(elsewhere), "facts": StoredSearchProvider(elsewhere)}
            session = Session(store, session_id, user_id="alice")
            for label, provider in providers.items():
                session.with_context(label, provider=provider)
            return session

        await opened().replace_context_block("memory", "kept there")
        await note(opened(), "C", "walnut")
        await note(opened(), "C++", "hazelnut")

        assert await content_of(opened()) == "kept there"
        assert await content_of(opened(), "facts") == "2 entries indexed."
        assert await content_of(opened("t")) == ""
        assert await content_of(Session(store, "s", user_id="alice").with_context("memory")) == ""
        assert await content_of(Session(elsewhere, "s", user_id="alice").with_context("memory")) == "kept there"


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.booleans(), st.text(st.characters(codec="utf-8"), max_size=40)), max_size=12),
    st.integers(1, 20),
)
def test_a_block_holds_what_its_writes_make_of_it_within_its_limit(writes: list[tuple[bool, str]], limit: int) -> None:
    async def write() -> None:
        expected = ""
        async with open_store("memory://") as store:
            session = Session(store, "s").with_context("memory", max_tokens=limit)
            for appending, text in writes:
                begins_a_line = bool(expected) and not text.startswith("\n")
                wanted = f"{expected}\n{text}" if begins_a_line else expected + text
                change = session.append_context_block if appending else session.replace_context_block
                wanted = wanted if appending else text
                if estimate_tokens(wanted) > limit:
                    with pytest.raises(ContextError, match="tokens"):
                        await change("memory", text)
                else:
                    expected = wanted
                    assert (await change("memory", text)).content == expected
                assert await content_of(session) == expected

    asyncio.run(write())
