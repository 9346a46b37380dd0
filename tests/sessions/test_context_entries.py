"""The entries of keyed blocks: listed, deleted, and replaced only if they were seen, wherever they are kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    BlockNotFound,
    ContextError,
    DirectorySkillProvider,
    Session,
    StoredSearchProvider,
    open_store,
    tool_result,
)
from leafward.sessions import ContextEntry
from leafward.stores import Store
from leafward.testing.keyed import look_up, note, with_facts
from leafward.testing.unseen import call, put, was_shown
from leafward.tools.answers import ANSWER_CHARACTERS


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


class Documents:
    """Skills kept by the program, which can be listed and deleted."""

    def __init__(self, **documents: str) -> None:
        self.documents = dict(documents)

    def get(self) -> str:
        return "\n".join(f"- {key}" for key in self.documents)

    def load(self, key: str) -> str | None:
        return self.documents.get(key)

    def set(self, key: str, content: str, description: str | None = None) -> None:
        self.documents[key] = content

    def list_entries(self) -> list[str]:
        return list(self.documents)

    def delete_entry(self, key: str) -> bool:
        return self.documents.pop(key, None) is not None


def searched(**methods: Any) -> dict[str, Any]:
    """Return a provider that is searched and finds nothing."""
    return {"get": lambda: "", "search": lambda _: None, **methods}


async def test_a_skill_is_replaced_and_deleted_only_if_it_was_loaded_or_written_here(store: Store) -> None:
    documents = Documents()

    def opened(session_id: str) -> Session:
        return Session(store, session_id).with_context("skills", provider=documents)

    assert (await put(opened("a"), "Tea", "Steep it.", "skills")).startswith("Indexed")
    assert was_shown(await put(opened("b"), "Tea", "Boil it.", "skills"), "Steep it.")
    assert (await put(opened("b"), "Tea", "Boil it.", "skills")).startswith("Indexed")
    assert await call(opened("c"), "load_context", label="skills", key="tea") == "Boil it."
    assert (await put(opened("c"), "Tea", "Stir it.", "skills")).startswith("Indexed")

    tea = {"label": "skills", "key": "tea"}
    assert was_shown(await call(opened("a"), "delete_context", **tea), "Stir it.")
    assert await call(opened("a"), "delete_context", **tea) == 'Deleted "tea" from skills.'
    assert documents.documents == {}
    assert (await put(opened("d"), "Tea", "Fresh.", "skills")) == 'Indexed "tea" in skills.'


async def test_a_model_deletes_no_skill_that_was_put_there_by_hand(store: Store) -> None:
    documents = Documents(house="No smoking.")
    session = Session(store, "s").with_context("skills", provider=documents)
    await call(session, "load_context", label="skills", key="house")

    answer = await call(session, "delete_context", label="skills", key="house")

    assert answer == 'Error: "house" was not written with set_context, so you cannot delete it.'
    assert await call(session, "delete_context", label="skills", key="other") == "Not found: other"
    assert documents.documents == {"house": "No smoking."}
    assert await session.delete_context_entry("skills", "house") is True
    assert await put(session, "House", "Smoke outside.", "skills") == 'Indexed "house" in skills.'


async def test_a_deleted_skill_is_unloaded(store: Store) -> None:
    documents = Documents(a="Text of a.", b="Text of b.")
    session = Session(store, "s").with_context("skills", provider=documents)
    for key in ("a", "b"):
        part = {"type": "tool_use", "id": key, "name": "load_context", "input": {"label": "skills", "key": key}}
        await session.append_message({"role": "assistant", "parts": [part]})
        text = await call(session, "load_context", label="skills", key=key)
        await session.append_message(tool_result(key, text, name="load_context"))

    assert await session.delete_context_entry("skills", "a") is True

    assert await session.get_loaded_skill_keys() == ["skills:b"]
    seen = str([message.parts for message in await session.get_history()])
    assert "Text of a." not in seen
    assert "Text of b." in seen


async def test_a_directory_of_skills_keeps_the_same_rules(store: Store, tmp_path: Path) -> None:
    def opened(session_id: str) -> Session:
        provider = DirectorySkillProvider(tmp_path, writable=True)
        return Session(store, session_id).with_context("skills", provider=provider)

    assert (await put(opened("a"), "Tea", "Steep it.\n", "skills")).startswith("Indexed")
    assert (await put(opened("a"), "Tea", "\nSteep it long.", "skills")).startswith("Indexed")
    refused = await put(opened("b"), "Tea", "Boil it.", "skills")
    assert refused.startswith("Error: ")
    assert "Steep it long." in refused
    (tmp_path / "tea" / "more.md").write_text("resource")

    assert (await put(opened("a"), "Tea", "Boil it.", "skills")).startswith("Error: ")  # its resources are news
    assert await opened("a").list_context_entries("skills") == [ContextEntry("tea", "Tea")]
    with pytest.raises(ContextError, match=r"more\.md"):
        await opened("a").delete_context_entry("skills", "tea")
    (tmp_path / "tea" / "more.md").unlink()
    assert await opened("a").delete_context_entry("skills", "tea") is True
    assert list(tmp_path.iterdir()) == []


async def test_a_search_provider_without_a_way_to_read_an_entry_is_exempt(store: Store) -> None:
    kept: dict[str, str] = {}
    plain = searched(set=kept.__setitem__)

    for session_id in ("a", "b"):
        session = Session(store, session_id).with_context("index", provider=plain)
        assert (await put(session, "Tea", session_id, "index")).startswith("Indexed")
    readable = {**plain, "get_entry": kept.get}
    session = Session(store, "c").with_context("index", provider=readable)

    assert was_shown(await put(session, "Tea", "c", "index"), "b")
    assert (await put(session, "Tea", "c", "index")).startswith("Indexed")
    assert kept == {"tea": "c"}


async def test_entries_of_a_users_provider_are_listed_as_it_gives_them(store: Store) -> None:
    given = [{"key": "b", "description": "B"}, "c", ContextEntry("a", None, "text")]
    provider = searched(list_entries=lambda: given)
    session = Session(store, "s").with_context("index", provider=provider)

    assert await session.list_context_entries("index") == [
        ContextEntry("a", None, "text"),
        ContextEntry("b", "B"),
        ContextEntry("c"),
    ]
    assert list(await session.tools()) == ["search_context", "list_context"]
    assert await call(session, "list_context", label="index") == "- a: text\n- b: B\n- c"


@pytest.mark.parametrize("given", [None, 7, "text", [7], [{}], [{"key": 7}], [{"key": "a", "content": 7}], [None]])
async def test_a_list_of_something_else_raises_and_names_the_block(store: Store, given: Any) -> None:
    provider = searched(list_entries=lambda: given)
    session = Session(store, "s").with_context("index", provider=provider)

    with pytest.raises(ContextError, match=r"'index'.*list_entries\(\)"):
        await session.list_context_entries("index")


async def test_a_deletion_says_whether_there_was_an_entry(store: Store) -> None:
    provider = searched(delete_entry=lambda key: None)
    session = Session(store, "s").with_context("index", provider=provider)

    with pytest.raises(ContextError, match=r"'index' gave NoneType from delete_entry\(\), not True or False"):
        await session.delete_context_entry("index", "a")


async def test_a_block_without_the_method_says_which_one_it_lacks(store: Store) -> None:
    session = Session(store, "s").with_context("memory").with_context("facts", provider=StoredSearchProvider())

    with pytest.raises(ContextError, match=r'"memory".*list_entries\(\).*facts'):
        await session.list_context_entries("memory")
    with pytest.raises(ContextError, match=r'"memory".*delete_entry\(key\).*facts'):
        await session.delete_context_entry("memory", "a")
    for missing in (session.list_context_entries("x"), session.delete_context_entry("x", "a")):
        with pytest.raises(BlockNotFound):
            await missing
    assert (await call(session, "list_context", label="memory")).startswith('Error: the entries of "memory" cannot be')
    assert (await call(session, "delete_context", label="x", key="a")).startswith('Error: the entries of "x" cannot be')


async def test_a_long_list_of_entries_comes_in_pages(store: Store) -> None:
    documents = Documents(**{f"k{number:03}": "" for number in range(3_000)})
    session = Session(store, "s").with_context("skills", provider=documents)

    lines, offset, page = list[str](), 0, ""
    while "[More:" in page or not page:
        page = await call(session, "list_context", label="skills", offset=offset)
        assert len(page) < ANSWER_CHARACTERS + 100
        lines += [line for line in page.split("\n") if line.startswith("- ")]
        offset = len(lines)

    assert lines == [f"- {key}" for key in sorted(documents.documents)]
    assert await call(session, "list_context", label="skills", offset=3_000) == "skills has no entry at offset 3000."
    empty = Session(store, "t").with_context("skills", provider=Documents())
    assert await call(empty, "list_context", label="skills") == "skills has no entries."


async def test_an_entry_written_while_its_key_is_freed_is_not_overwritten(store: Store) -> None:
    session = with_facts(store)
    await note(session, "C", "one")
    keys = session._ready().blocks.keys_of(session._ready().blocks.all()[0])

    await keys.release("c")  # as a deletion does that another write of the same title came before

    assert await note(session, "C++", "two") != "c"
    assert await look_up(session, "one") == "[c]\none"
