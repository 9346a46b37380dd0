"""What keyed entries promise: found by their words, each title its own, each within the limit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leafward import Session, StoredSearchProvider

if TYPE_CHECKING:
    from leafward.stores import Store

# Titles that some way of making keys would mix up.
CONFUSABLE_TITLES = [
    "C",
    "C++",
    "C#",
    "c",
    "Foo Bar",
    "foo-bar",
    "foo  bar",
    "Foo_Bar!",
    "用户喜欢咖啡",
    "用户喜欢喝茶",
    "¡¿",
    "🙂",
    "entry",
    "x" * 60 + " one",
    "x" * 60 + " two",
    "é",
    "e\u0301",
]


def with_facts(store: Store, session_id: str = "s", *, shared: bool = False, **options: Any) -> Session:
    """Return a session with a searchable block `facts`."""
    return Session(store, session_id).with_context("facts", provider=StoredSearchProvider(), shared=shared, **options)


async def content_of(session: Session, label: str = "memory") -> str:
    """Return what a block holds now."""
    block = await session.get_context_block(label)
    assert block is not None
    return block.content


async def note(session: Session, title: str | None, content: str, label: str = "facts") -> str:
    """Write an entry as a model does, and return the key it got."""
    metadata = {} if title is None else {"metadata": {"title": title}}
    answer = await (await session.tools()).call("set_context", {"label": label, "content": content, **metadata})
    assert answer.startswith('Indexed "'), answer
    return answer.removeprefix('Indexed "').removesuffix(f'" in {label}.')


async def look_up(session: Session, query: str, label: str = "facts") -> str:
    """Search a block as a model does."""
    return await (await session.tools()).call("search_context", {"label": label, "query": query})


class KeyedEntries:
    """Writing entries, and finding them."""

    async def test_entries_are_found_by_their_words(self, store: Store) -> None:
        session = with_facts(store)
        assert await content_of(session, "facts") == ""
        await note(session, "Drinks", "Alice takes her coffee black")
        await note(session, "Pets", "Alice has two cats")
        await note(session, "喜好", "用户喜欢咖啡")

        assert await content_of(session, "facts") == "3 entries indexed."
        assert await look_up(session, "alice coffee") == "[drinks]\nAlice takes her coffee black"
        assert await look_up(session, "cat") == "[pets]\nAlice has two cats"
        assert await look_up(session, '"two cats"') == "[pets]\nAlice has two cats"
        assert await look_up(session, '"cats two"') == "No results found."
        assert (await look_up(session, "咖啡")).endswith("\n用户喜欢咖啡")
        both = (await look_up(session, "alice")).split("\n\n")
        assert sorted(both) == ["[drinks]\nAlice takes her coffee black", "[pets]\nAlice has two cats"]
        for nothing in ("", "   ", '"', "dog", "* OR 1=1 --", "%"):
            assert await look_up(session, nothing) == "No results found."

    async def test_a_search_gives_the_best_ten(self, store: Store) -> None:
        session = with_facts(store)
        for number in range(12):
            await note(session, f"n{number}", f"walnut {'filler ' * number}")

        found = (await look_up(session, "walnut")).split("\n\n")

        assert len(found) == 10
        assert found[0] == "[n0]\nwalnut "

    async def test_two_titles_never_overwrite_each_other(self, store: Store) -> None:
        one, other = with_facts(store), with_facts(store)
        for number, title in enumerate(CONFUSABLE_TITLES):
            await note((one, other)[number % 2], title, f"walnut{number}")

        for number in range(len(CONFUSABLE_TITLES)):
            assert (await look_up(one, f"walnut{number}")).endswith(f"\nwalnut{number}")
        assert await content_of(one, "facts") == f"{len(CONFUSABLE_TITLES)} entries indexed."

    async def test_titles_written_at_once_never_overwrite_each_other(self, store: Store) -> None:
        handles = [with_facts(store) for _ in CONFUSABLE_TITLES]

        keys = await asyncio.gather(
            *(note(one, title, f"about {title}") for one, title in zip(handles, CONFUSABLE_TITLES, strict=True))
        )

        assert len(set(keys)) == len(CONFUSABLE_TITLES)
        assert await content_of(handles[0], "facts") == f"{len(CONFUSABLE_TITLES)} entries indexed."

    async def test_a_title_made_to_look_like_a_way_out_overwrites_nothing(self, store: Store) -> None:
        session = with_facts(store)
        await note(session, "C++", "first")
        key = await note(session, "C", "second")

        assert await note(session, key, "third") != key

        assert await content_of(session, "facts") == "3 entries indexed."
        assert await look_up(session, "second") == f"[{key}]\nsecond"

    async def test_the_same_title_replaces_its_entry(self, store: Store) -> None:
        session = with_facts(store)
        for title in ("C", "C++", "C", "C++"):
            await note(session, title, f"old {title}")

        keys = [await note(with_facts(store), title, f"new walnut {n}") for n, title in enumerate(("C", "C++"))]

        assert await content_of(session, "facts") == "2 entries indexed."
        assert await look_up(session, "old") == "No results found."
        assert await look_up(session, "walnut 1") == f"[{keys[1]}]\nnew walnut 1"

    async def test_keys_are_made_of_the_title_or_the_text(self, store: Store) -> None:
        session = with_facts(store)

        assert await note(session, "API Reference!", "x") == "api-reference"
        assert await note(session, "用户喜欢咖啡", "x") == "entry-2mzjev"
        assert await note(session, None, "no key") == "no-key-1nprufp"
        assert await note(with_facts(store, "t"), None, "用户喜欢咖啡") == "entry-2mzjev"

    async def test_a_text_without_a_title_overwrites_no_title(self, store: Store) -> None:
        session = with_facts(store)
        await note(session, "用户喜欢咖啡", "titled")

        for _ in range(2):
            await note(session, None, "用户喜欢咖啡")

        assert await content_of(session, "facts") == "2 entries indexed."
        assert await look_up(session, "titled") == "[entry-2mzjev]\ntitled"

    async def test_each_entry_of_a_keyed_block_has_the_limit(self, store: Store) -> None:
        session = with_facts(store, max_tokens=5)
        tools = await session.tools()
        await note(session, "a", "walnut " + "x" * 13)
        await note(session, "b", "walnut " + "y" * 13)

        refused = await tools.call("set_context", {"label": "facts", "content": "z" * 21, "metadata": {"title": "a"}})

        assert refused.startswith("Error:")
        assert "6 of 5 tokens" in refused
        assert await look_up(session, "walnut xxxxxxxxxxxxx") == "[a]\nwalnut xxxxxxxxxxxxx"
        assert await content_of(session, "facts") == "2 entries indexed."

    async def test_entries_are_a_sessions_own_unless_shared(self, store: Store) -> None:
        await note(with_facts(store, "s"), "a", "own walnut")
        await note(with_facts(store, "s", shared=True), "a", "shared walnut")

        assert await look_up(with_facts(store, "s"), "walnut") == "[a]\nown walnut"
        assert await look_up(with_facts(store, "t"), "walnut") == "No results found."
        assert await look_up(with_facts(store, "t", shared=True), "walnut") == "[a]\nshared walnut"
