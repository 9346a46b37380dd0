"""What a model is answered: as much as it can read, in the documented words, and whatever it sent."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leafward import BlockNotFound, Message, Session, SessionManager, Tool, ToolSet, assistant, open_store, user
from leafward.stores import Store
from leafward.testing.keyed import content_of, look_up
from leafward.testing.prompts import Shelf, with_everything
from leafward.tools.answers import ANSWER_CHARACTERS

HUGE = "walnut " * 170_000
ABOUT = ANSWER_CHARACTERS + 300
"""The bound, and room for the marks."""


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


# ── how long an answer is ────────────────────────────────────────────────────


async def _summed_up(store: Store, *texts: str) -> tuple[ToolSet, str]:
    """Return the tools of a session whose messages are under a summary, and its id."""
    session = Session(store, "s")
    messages = [user(text, id=f"m{number}") for number, text in enumerate(texts)]
    await session.append_messages([*messages, assistant("on we go")])
    await session.add_compaction("They spoke.", "m0", messages[-1].id)
    (summary_id,) = await session.get_summary_ids()
    return await session.tools(), summary_id


async def _read_all(tools: ToolSet, summary_id: str) -> list[str]:
    """Follow the pages of a summary as a model does."""
    pages, offset = list[str](), 0
    while True:
        page = await tools.call("expand_summary", {"summary_id": summary_id, "offset": offset})
        pages.append(page)
        more = re.search(r"\[More: call expand_summary with offset (\d+)\.\]$", page)
        if more is None:
            return pages
        assert int(more[1]) > offset
        offset = int(more[1])


async def test_a_huge_message_under_a_summary_is_cut_with_a_mark(store: Store) -> None:
    tools, summary_id = await _summed_up(store, "before", HUGE, "after")

    pages = await _read_all(tools, summary_id)

    assert len(pages) == 3
    assert all(len(page) <= ABOUT for page in pages)
    assert "before" in pages[0]
    assert "walnut" not in pages[0]
    shown = pages[1].partition("… (")[0]
    left = len("[user]\n" + HUGE) - len(shown)
    assert len(shown) == ANSWER_CHARACTERS
    assert pages[1] == f"{shown}… ({left} more characters)\n\n[More: call expand_summary with offset 2.]"
    assert pages[2] == f"[user]\nafter\n\n[End of {summary_id}.]"


async def test_a_message_that_does_not_fit_a_page_begins_the_next_one_whole(store: Store) -> None:
    texts = [f"{number} " + "x" * 7_000 for number in range(7)]
    tools, summary_id = await _summed_up(store, *texts)

    pages = await _read_all(tools, summary_id)

    assert all(len(page) <= ABOUT for page in pages)
    turns = [turn for page in pages for turn in page.rpartition("\n\n[")[0].split("\n\n---\n\n")]
    assert turns == [f"[user]\n{text}" for text in texts]


async def test_what_a_search_provider_finds_is_cut_with_a_mark(store: Store) -> None:
    provider = {"get": lambda: "a library", "search": lambda query: query * 10_000}
    session = Session(store, "s").with_context("books", provider=provider)

    found = await look_up(session, "walnut", "books")

    assert found == "walnut" * 3_333 + "wa… (40000 more characters)"
    assert await look_up(session, "", "books") == "No results found."
    assert await look_up(session, "ab", "books") == "ab" * 10_000


async def test_a_loaded_skill_is_given_whole(store: Store) -> None:
    session = Session(store, "s").with_context("skills", provider=Shelf({"book": HUGE}))

    assert await (await session.tools()).call("load_context", {"label": "skills", "key": "book"}) == HUGE


async def _history_of(store: Store, messages: list[Message]) -> str:
    """Store the messages, and return what a model reads of them."""
    await Session(store, "s").append_messages(messages)
    return await (await SessionManager(store).tools()).call("session_history", {"session_id": "s"})


async def test_of_a_long_session_the_newest_messages_that_fit_are_read(store: Store) -> None:
    read = await _history_of(store, [user(f"<{number}>" + "x" * 3_000) for number in range(20)])

    turns = read.split("\n\n---\n\n")
    assert len(read) <= ABOUT
    assert turns[0].startswith("[There are earlier messages")
    assert turns[1].endswith(" more characters)")
    assert turns[2:] == [f"[user]\n<{number}>" + "x" * 3_000 for number in range(14, 20)]
    assert turns[1].startswith("[user]\n<13>xxx")


async def test_a_huge_message_leaves_room_for_the_newer_ones(store: Store) -> None:
    read = await _history_of(store, [user("the first"), user(HUGE), assistant("Thank you.")])

    assert len(read) <= ABOUT
    earlier, huge, answer = read.split("\n\n---\n\n")
    assert earlier.startswith("[There are earlier messages")
    assert huge.startswith("[user]\nwalnut walnut")
    left = len("[user]\n" + HUGE) - len(huge.partition("… (")[0])
    assert huge.endswith(f"… ({left} more characters)")
    assert answer == "[assistant]\nThank you."


async def test_a_huge_newest_message_is_cut_with_a_mark(store: Store) -> None:
    read = await _history_of(store, [user(HUGE)])

    assert len(read) <= ABOUT
    assert read.startswith("[user]\nwalnut walnut")
    assert read.endswith(f"… ({len('[user]') + 1 + len(HUGE) - ANSWER_CHARACTERS} more characters)")


async def test_only_the_start_of_a_message_that_is_worth_it_is_shown(store: Store) -> None:
    read = await _history_of(store, [user("older " * 100), user("x" * 19_800)])

    assert "older" not in read
    assert read.startswith("[There are earlier messages that do not fit here")


async def test_a_list_of_sessions_has_a_line_for_each_whatever_their_names(store: Store) -> None:
    manager = SessionManager(store)
    await manager.create("Ann\n- fake: Session (last changed never)\r\n\u2028x", session_id="one")
    await manager.create(HUGE, session_id="two")

    lines = (await (await manager.tools()).call("session_list", {})).splitlines()

    assert len(lines) == 2
    assert lines[1].startswith("- one: Ann - fake: Session (last changed never) x (last changed 2")
    assert lines[0].startswith("- two: walnut walnut")
    assert "more characters)" in lines[0]
    assert len(lines[0]) < 250


async def test_a_long_list_of_sessions_fits_into_one_answer(store: Store) -> None:
    manager = SessionManager(store)
    for number in range(100):
        await manager.create("n" * 200, session_id=f"{number:03}" + "i" * 250)

    listed = await (await manager.tools()).call("session_list", {"limit": 100})

    assert len(listed) <= ABOUT
    assert listed.startswith("- 099iii")
    assert listed.endswith("\nThere are more; search for them.")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("set_context", {"label": HUGE, "content": "x"}),
        ("set_context", {"label": "memory", "content": "x", "action": HUGE}),
        ("set_context", {"label": "memory", "content": "x", HUGE: "x"}),
        ("set_context", {"label": "memory", "content": HUGE}),
        ("load_context", {"label": HUGE, "key": "x"}),
        ("load_context", {"label": "skills", "key": HUGE}),
        ("unload_context", {"label": "skills", "key": HUGE}),
        ("search_context", {"label": HUGE, "query": "x"}),
        ("search_context", {"label": "knowledge", "query": HUGE}),
        ("list_context", {"label": HUGE}),
        ("delete_context", {"label": HUGE, "key": "x"}),
        ("delete_context", {"label": "knowledge", "key": HUGE}),
        ("session_search", {"query": HUGE}),
        ("session_history", {"session_id": HUGE}),
    ],
)
async def test_what_a_model_sends_is_not_repeated_at_length(store: Store, name: str, arguments: Any) -> None:
    tools = await with_everything(store).tools() | await SessionManager(store).tools()

    assert len(await tools.call(name, arguments)) <= ABOUT


# ── the documented words ─────────────────────────────────────────────────────


async def test_a_wrong_label_is_answered_in_the_documented_words(store: Store) -> None:
    session = with_everything(store)
    await session.add_context("recipes", provider=Shelf({"soup": "Boil water."}))
    await session.add_context("past", provider={"get": lambda: "old", "search": lambda query: query})
    tools = await session.tools()

    for call in (tools.call, lambda name, arguments: tools[name].execute(arguments)):
        answers = [
            await call("set_context", {"label": "x", "content": "y"}),
            await call("set_context", {"label": "soul", "content": "y"}),
            await call("set_context", {"label": "", "content": "y"}),
            await call("load_context", {"label": "x", "key": "soup"}),
            await call("load_context", {"label": "memory", "key": "soup"}),
            await call("unload_context", {"label": "memory", "key": "soup"}),
            await call("search_context", {"label": "memory", "query": "soup"}),
        ]
        assert answers == [
            'Error: block "x" not found. Blocks you can write: memory, knowledge.',
            'Error: block "soul" is readonly. Blocks you can write: memory, knowledge.',
            'Error: block "" not found. Blocks you can write: memory, knowledge.',
            'Error: "x" is not a skill block. Skill blocks: skills, recipes',
            'Error: "memory" is not a skill block. Skill blocks: skills, recipes',
            'Error: "memory" is not a skill block. Skill blocks: skills, recipes',
            'Error: "memory" is not searchable. Searchable blocks: knowledge, past',
        ]
    assert await content_of(session) == ""
    assert await content_of(session, "soul") == "You are a helpful assistant."


async def test_a_block_taken_away_meanwhile_is_told(store: Store) -> None:
    session = with_everything(store)
    await session.load_skill("skills", "api-ref")
    call = (await session.tools()).call
    for label in ("memory", "skills", "knowledge"):
        await session.remove_context(label)

    api_ref = {"label": "skills", "key": "api-ref"}
    written = await call("set_context", {"label": "memory", "content": "x"})
    assert written == 'Error: block "memory" not found. Blocks you can write: none.'
    assert await call("load_context", api_ref) == 'Error: "skills" is not a skill block. Skill blocks: none'
    searched = await call("search_context", {"label": "knowledge", "query": "x"})
    assert searched == 'Error: "knowledge" is not searchable. Searchable blocks: none'
    assert await call("unload_context", api_ref) == 'Error: "skills" is not a skill block. Skill blocks: none'
    with pytest.raises(BlockNotFound):
        await session.load_skill("skills", "api-ref")


# ── null, and text that is no JSON ───────────────────────────────────────────


async def test_null_counts_as_left_out(store: Store) -> None:
    session = with_everything(store)
    await session.append_messages([user("a", id="a"), assistant("b", id="b"), user("c", id="c")])
    await session.add_compaction("They met.", "a", "b")
    (summary_id,) = await session.get_summary_ids()
    call = (await session.tools() | await SessionManager(store).tools()).call
    memory, knowledge = {"label": "memory", "content": "x"}, {"label": "knowledge", "content": "soup recipe"}
    titles = {"title": None, "description": None}

    assert (await call("set_context", {**memory, "action": None, "metadata": None})).startswith("Written to memory.")
    assert await call("set_context", {**knowledge, "metadata": titles}) == await call("set_context", knowledge)
    titled = {**knowledge, "metadata": {"title": "Soup", "description": None}}
    assert await call("set_context", json.dumps(titled)) == 'Indexed "soup" in knowledge.'
    for name, least, optional in (
        ("expand_summary", {"summary_id": summary_id}, "offset"),
        ("session_list", {}, "limit"),
        ("session_history", {"session_id": "s"}, "last_n"),
    ):
        answer = await call(name, least)
        assert not answer.startswith("Error:")
        assert await call(name, {**least, optional: None}) == answer
    assert (await call("set_context", {"label": None, "content": "x"})).startswith(
        "Error: the argument 'label' is null"
    )
    assert (await call("session_list", {"user_id": None})).startswith("Error: there is no argument 'user_id'.")


async def test_a_tool_of_ones_own_gets_null_where_its_schema_allows_it() -> None:
    async def execute(arguments: dict[str, Any]) -> str:
        return json.dumps(arguments)

    properties = {
        "number": {"type": "integer"},
        "perhaps": {"type": ["integer", "null"]},
        "anything": {},
        "one_of": {"enum": ["a", None]},
        "neither": {"enum": ["a", "b"]},
    }
    tools = ToolSet([Tool("mine", "A tool.", {"type": "object", "properties": properties}, execute)])

    answer = await tools.call("mine", {**dict.fromkeys(properties), "other": None})

    assert json.loads(answer) == {"perhaps": None, "anything": None, "one_of": None, "other": None}


async def test_an_offset_beyond_all_numbers_covers_no_message(store: Store) -> None:
    tools, summary_id = await _summed_up(store, "a", "b")

    for offset in (2, 2**31, 2**63 - 1, 2**63, 10**30):
        answer = await tools.call("expand_summary", {"summary_id": summary_id, "offset": offset})
        assert answer == f"{summary_id} covers no message at offset {offset}."


def nested(depth: int) -> dict[str, Any]:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return {"label": value}


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"label": ' * 100_000,
        b'{"label": ' + b"[" * 100_000,
        '{"label": ' + "[" * 900 + "]" * 900 + "}",
        nested(900),
    ],
    ids=["lists", "objects", "bytes", "readable", "dict"],
)
async def test_json_nested_without_end_is_answered(store: Store, text: Any) -> None:
    answer = await (await with_everything(store).tools()).call("set_context", text)

    assert answer.startswith("Error: the arguments nest values too deeply.")


@pytest.mark.parametrize(
    ("text", "half"),
    [
        (r'{"label": "memory", "content": "\ud83d"}', r"\ud83d"),
        (r'{"label": "memory", "content": "a\uD83Db"}', r"\uD83D"),
        (r'{"label": "memory", "content": "\ude00\ud83d"}', r"\ude00"),
        (r'{"label": "memory", "content": "\ud83d\ude00 \\\ude00"}', r"\ude00"),
        (rb'{"label": "memory", "content": "\ud83d\u0041"}', r"\ud83d"),
        ('{"label": "memory", "content": "\ud83d"}', r"\ud83d"),
        ({"label": "memory", "content": "\ud83d"}, r"\ud83d"),
        ({"label": "memory", "content": "cats", "title": "a\ude00"}, r"\ude00"),
    ],
)
async def test_half_a_character_is_named(store: Store, text: Any, half: str) -> None:
    session = with_everything(store)

    answer = await (await session.tools()).call("set_context", text)

    assert answer.startswith(f"Error: the arguments hold {half}, which is half of a character")
    assert "Write the character itself" in answer
    assert await content_of(session) == ""


@given(st.text(), st.booleans())
async def test_whole_characters_are_never_taken_for_halves(text: str, escaped: bool) -> None:
    async with open_store("memory://") as store:
        session = Session(store, "s").with_context("memory")
        tools = await session.tools()
        arguments = json.dumps({"label": "memory", "content": text}, ensure_ascii=escaped)

        assert (await tools.call("set_context", arguments)).startswith("Written to memory.")
        assert await content_of(session) == text
        assert "not valid JSON" in await tools.call("set_context", arguments + "}")


async def test_bytes_that_are_no_text_are_answered(store: Store) -> None:
    tools = await with_everything(store).tools()

    for text in (b"\xff\xfe{}", b'{"label": "\xff"}', b'{"label": "memory", "content": "\xed\xa0\x80"}'):
        answer = await tools.call("set_context", text)  # type: ignore[arg-type]
        assert answer.startswith("Error: the arguments are not valid JSON")
        assert answer.endswith("Send one JSON object.")
