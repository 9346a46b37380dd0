"""What a model was not shown it does not overwrite, wherever a block is kept.

What every store promises of this is in `leafward.testing.unseen`, the law in `test_unseen_law.py`, and what compaction
changes in `test_unseen_compacted.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import (
    ContextError,
    Message,
    Session,
    StorageFull,
    assistant,
    open_store,
    tool_result,
    user,
)
from leafward.core.errors import LeaseLost
from leafward.sessions.shown import MOST
from leafward.sessions.waiting_reply import NEWEST, RECENT
from leafward.stores import Store
from leafward.stores.entries import NAMES, SHOWN, Edit, EntryIndex, Shelf
from leafward.testing.keyed import look_up, note, with_facts
from leafward.testing.unseen import chat, put, replace, was_shown
from leafward.tools.answers import ANSWER_CHARACTERS
from tests.sessions.dict_storage import DictStorage


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


class Notes:
    """A block kept by the program."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    async def get(self) -> str:
        await asyncio.sleep(0)
        return self.text

    async def set(self, content: str) -> None:
        await asyncio.sleep(0)
        self.text = content


# ── blocks of a user's provider, and custom storages ─────────────────────────


async def test_a_block_of_a_users_provider_is_not_overwritten_unseen(store: Store) -> None:
    notes = Notes("by hand")

    def opened() -> Session:
        return Session(store, "s").with_context("notes", provider=notes)

    assert was_shown(await replace(opened(), "new", "notes"), "by hand")
    notes.text = "by hand again"
    assert was_shown(await replace(opened(), "new", "notes"), "by hand again")
    assert (await replace(opened(), "new", "notes")).startswith("Written")
    notes.text = "once more"
    assert "once more" in await opened().freeze_system_prompt()

    assert (await replace(opened(), "newer", "notes")).startswith("Written")
    assert notes.text == "newer"
    with pytest.raises(ContextError, match="no longer holds"):
        await opened().replace_context_block("notes", "x", expected="new")
    assert (await opened().replace_context_block("notes", "x", expected="newer")).content == "x"


async def test_chats_that_merge_into_a_users_provider_at_once_lose_nothing(store: Store) -> None:
    notes = Notes("start")

    async def add(number: int) -> None:
        session, held = Session(store, f"s{number}").with_context("notes", provider=notes), "start"
        while (answer := await replace(session, f"{held}\n{number}", "notes")).startswith("Error: "):
            held = answer.partition("\n\n")[2]

    await asyncio.gather(*(add(number) for number in range(6)))

    assert sorted(notes.text.split("\n")) == sorted(["start", *map(str, range(6))])


async def test_with_a_custom_storage_the_handle_remembers_what_was_shown() -> None:
    notes = Notes("by hand")
    storage = DictStorage()
    session = Session(storage).with_context("notes", provider=notes)

    assert was_shown(await replace(session, "new", "notes"), "by hand")
    assert (await replace(session, "new", "notes")).startswith("Written")
    assert (await replace(session, "newer", "notes")).startswith("Written")

    assert was_shown(await replace(Session(storage).with_context("notes", provider=notes), "x", "notes"), "newer")
    await session.clear_messages()
    assert was_shown(await replace(session, "x", "notes"), "newer")


# ── what counts as shown ─────────────────────────────────────────────────────


async def test_a_refusal_gives_the_whole_text_however_long(store: Store) -> None:
    long = "walnut " * ANSWER_CHARACTERS
    await chat(store, "other").replace_context_block("memory", long)

    assert was_shown(await replace(chat(store, "s"), "short"), long)

    assert (await replace(chat(store, "s"), "short")).startswith("Written")


async def test_an_entry_that_a_search_cut_off_was_not_shown(store: Store) -> None:
    other = with_facts(store, "other", shared=True)
    await note(other, "Long", "walnut " * 2_000)
    await note(other, "Longer", "walnut walnut " * 2_000)
    session = with_facts(store, "s", shared=True)

    found = await look_up(session, "walnut")

    whole, cut = (("long", "Longer"), ("longer", "Long"))[found.startswith("[longer]")], found.partition("… (")[1]
    assert cut
    assert len(found) < ANSWER_CHARACTERS + 100
    assert (await put(session, whole[1], "short", "facts")).startswith("Error: ")


async def test_estimating_tokens_shows_nothing(store: Store) -> None:
    await chat(store, "other").replace_context_block("memory", "unseen")
    session = chat(store, "s")

    await session.estimate_tokens()
    await session.get_context_block("memory")
    await session.is_prompt_stale(content=True)

    assert was_shown(await replace(session, "new"), "unseen")


async def test_of_two_chats_that_freeze_at_once_what_the_first_rendered_was_shown(store: Store) -> None:
    contents = iter(["first", "second", "second", "second", "second"])
    provider = {"get": lambda: next(contents), "set": lambda _: None}

    def opened() -> Session:
        return Session(store, "s", cached_prompt=True).with_context("notes", provider=provider)

    one, other = opened(), opened()
    frozen = await asyncio.gather(one.freeze_system_prompt(), other.freeze_system_prompt())

    assert frozen[0] == frozen[1]
    assert "first" in frozen[0]
    assert was_shown(await replace(opened(), "new", "notes"), "second")


async def test_a_prompt_that_came_from_elsewhere_shows_nothing(store: Store) -> None:
    cache = Notes("a prompt made by another program")
    session = Session(store, "s", cached_prompt=cache).with_context("memory")
    await session.replace_context_block("memory", "unseen")

    assert await session.freeze_system_prompt() == "a prompt made by another program"

    assert was_shown(await replace(session, "new"), "unseen")


async def test_a_users_prompt_provider_shows_what_is_rendered_for_it(store: Store) -> None:
    def opened() -> Session:
        return Session(store, "s", cached_prompt=cache).with_context("memory")

    cache = Notes()
    await opened().append_messages([user("a", id="a"), user("b", id="b")])
    await opened().replace_context_block("memory", "one")
    await opened().refresh_system_prompt()
    assert (await replace(opened(), "two")).startswith("Written")
    await opened().replace_context_block("memory", "three")

    await opened().add_compaction("short", "a", "b")

    assert "three" in cache.text
    assert (await replace(opened(), "four")).startswith("Written")


@pytest.mark.parametrize("renewed_by", ["a refresh", "a compaction"])
async def test_a_prompt_that_is_renewed_in_a_turn_was_not_seen_by_the_reply_that_waits(
    store: Store, renewed_by: str
) -> None:
    def opened() -> Session:
        return Session(store, "s", cached_prompt=cache).with_context("memory")

    cache = Notes()
    await opened().append_messages([user("a", id="a"), user("b", id="b")])
    await opened().freeze_system_prompt()
    await opened().replace_context_block("memory", "unseen")
    await opened().append_message(assistant(CALLS[:1]))

    if renewed_by == "a refresh":
        await opened().refresh_system_prompt()
    else:
        await opened().add_compaction("short", "a", "b")

    assert "unseen" in cache.text
    assert not (await replace(opened(), "new")).startswith("Written")
    await opened().append_messages([tool_result("c0", "refused"), assistant(CALLS[1:])])
    assert (await replace(opened(), "new")).startswith("Written")


async def test_what_a_prompt_that_was_renewed_in_a_turn_shows_is_seen_by_the_next_reply(store: Store) -> None:
    session = chat(store, "s")
    await session.freeze_system_prompt()
    await session.replace_context_block("memory", "unseen")
    await session.append_message(assistant(CALLS[:1]))
    await session.refresh_system_prompt()

    await session.append_messages([tool_result("c0", "no such tool"), assistant(CALLS[1:])])

    assert (await replace(chat(store, "s"), "new")).startswith("Written")


async def test_what_a_model_wrote_it_knows_also_when_the_prompt_is_renewed_in_its_turn(store: Store) -> None:
    session = chat(store, "s")
    await session.append_message(assistant(CALLS))
    await replace(session, "written")
    await session.append_message(tool_result("c0", "Written."))

    assert "written" in await session.refresh_system_prompt()

    assert (await replace(chat(store, "s"), "new")).startswith("Written")


async def test_of_many_entries_those_shown_last_count(store: Store) -> None:
    session = with_facts(store)
    for number in range(MOST + 1):
        await note(session, f"n{number}", "old")

    assert was_shown(await put(with_facts(store), "n0", "new", "facts"), "old")
    assert await note(with_facts(store), "n2", "new") == "n2"


async def test_what_cannot_be_read_shows_nothing(store: Store) -> None:
    session = chat(store, "s")
    await replace(session, "known")
    await store.entries.edit(Shelf(session._scope, NAMES), SHOWN, lambda _: "[1]")

    assert was_shown(await replace(session, "new"), "known")
    assert (await replace(session, "new")).startswith("Written")


# ── bookkeeping that costs little, and fails safely ──────────────────────────


class Watched:
    """The entries of a store, which count the writes of what was shown, or refuse them, and note all reads."""

    def __init__(self, entries: EntryIndex) -> None:
        self._entries = entries
        self.reads: list[str] = []
        self.writes = 0
        self.failure: Exception | None = None

    def __getattr__(self, name: str) -> Any:
        self.reads.append(name)
        return getattr(self._entries, name)

    async def edit(self, shelf: Shelf, key: str, change: Edit, **options: Any) -> str | None:
        if key == SHOWN and self.failure is not None:
            raise self.failure

        def counted(old: str | None) -> str | None:
            new = change(old)
            self.writes += key == SHOWN and new != old
            return new

        return await self._entries.edit(shelf, key, counted, **options)


@pytest.fixture
def watched(store: Store, monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched(store.entries)
    monkeypatch.setattr(store, "entries", watched)
    return watched


async def test_showing_the_same_again_writes_nothing(store: Store, watched: Watched) -> None:
    await chat(store, "other").replace_context_block("memory", "Likes tea.")
    await note(with_facts(store, "other", shared=True), "Drinks", "tea")
    watched.writes = 0
    for cached in (True, False):
        for _ in range(3):
            await chat(store, f"s{cached}", cached=cached).freeze_system_prompt()
    for _ in range(3):
        await look_up(with_facts(store, "s", shared=True), "tea")

    assert watched.writes == 3
    await Session(store, "empty").with_context("memory").with_context("soul", provider="You.").freeze_system_prompt()
    await look_up(with_facts(store, "s", shared=True), "nothing")
    assert watched.writes == 3


@pytest.mark.parametrize("failure", [StorageFull("the file"), LeaseLost("s")])
async def test_what_could_not_be_noted_is_shown_again(store: Store, watched: Watched, failure: Exception) -> None:
    await note(with_facts(store, "other", shared=True), "Drinks", "tea")
    watched.failure = failure

    # What was asked for is done; only that it was shown is not known.
    assert await look_up(with_facts(store, "s", shared=True), "tea") == "[drinks]\ntea"
    assert (await replace(chat(store, "s"), "written")).startswith("Written")
    assert "written" in await chat(store, "s").freeze_system_prompt()

    assert was_shown(await put(with_facts(store, "s", shared=True), "Drinks", "milk", "facts"), "tea")
    assert was_shown(await replace(chat(store, "s"), "new"), "written")
    watched.failure = None
    assert was_shown(await replace(chat(store, "s"), "new"), "written")
    assert (await replace(chat(store, "s"), "new")).startswith("Written")


CALLS: list[dict[str, Any]] = [
    {"type": "tool_use", "id": f"c{number}", "name": "set_context", "input": {"label": "memory", "content": words}}
    for number, words in enumerate(("Allergic to peanuts.", "Allergic to peanuts. Lives in Ghent."))
]


async def content(session: Session) -> str:
    block = await session.get_context_block("memory")
    assert block is not None
    return block.content


async def test_a_refusal_is_not_seen_by_the_other_calls_of_the_same_reply(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    await tuesday.append_messages([user("I moved."), assistant(CALLS)])

    answers: list[str] = []
    for call in CALLS:
        answers.append(await (await tuesday.tools()).call("set_context", call["input"]))
        await tuesday.append_message(tool_result(call["id"], answers[-1]))

    assert [answer.startswith("Error:") for answer in answers] == [True, True]
    assert await content(monday) == "Takes coffee black."


@pytest.mark.parametrize("role", ["tool", "user"])
@pytest.mark.parametrize("answered", [1, NEWEST, RECENT])
async def test_a_refusal_is_not_seen_by_a_reply_some_of_whose_results_are_stored(
    store: Store, role: str, answered: int
) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    others = [{"type": "tool_use", "id": f"o{number}", "name": "look", "input": {}} for number in range(answered)]
    await tuesday.append_messages([user("I moved."), assistant([*others, *CALLS])])
    for other in others:
        result = {"type": "tool_result", "tool_use_id": other["id"], "content": "ok"}
        await tuesday.append_message(Message(role, [result]))

    for call in CALLS:
        answer = await (await tuesday.tools()).call("set_context", call["input"])
        assert was_shown(answer, "Takes coffee black.")

    assert await content(monday) == "Takes coffee black."


async def test_a_refusal_is_seen_when_the_model_replies_again(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    await tuesday.append_message(assistant(CALLS[:1]))
    answer = await (await tuesday.tools()).call("set_context", CALLS[0]["input"])
    await tuesday.append_message(tool_result("c0", answer))

    merged = {"label": "memory", "content": "Takes coffee black. Allergic to peanuts."}
    await tuesday.append_message(assistant([{**CALLS[1], "input": merged}]))

    assert (await (await chat(store, "tuesday").tools()).call("set_context", merged)).startswith("Written")


async def call_in_a_step(session: Session, parts: list[dict[str, Any]], *, new_step: bool = True) -> str:
    """Go on in an AI SDK reply, which is stored before and after it replaces the block, and return the answer."""
    call = {"type": "tool-set_context", "toolCallId": f"c{len(parts)}", "state": "input-available", "input": {}}
    parts += [{"type": "step-start"}, call] if new_step else [call]
    await session.upsert_message(Message("assistant", parts, id="reply"))
    answer = await replace(session, "Takes coffee black. Lives in Ghent.")
    parts[-1] = {**call, "state": "output-available", "output": answer}
    await session.upsert_message(Message("assistant", parts, id="reply"))
    return answer


async def test_a_refusal_is_seen_by_the_next_step_of_the_same_message(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    parts: list[dict[str, Any]] = []

    assert was_shown(await call_in_a_step(tuesday, parts), "Takes coffee black.")
    assert was_shown(await call_in_a_step(tuesday, parts, new_step=False), "Takes coffee black.")
    assert (await call_in_a_step(tuesday, parts)).startswith("Written")


async def test_a_refusal_is_not_seen_by_the_next_step_as_long_as_it_is_not_stored(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    parts: list[dict[str, Any]] = []
    await call_in_a_step(tuesday, parts)
    parts[-1] = {**parts[-1], "state": "input-available"}
    del parts[-1]["output"]

    assert was_shown(await call_in_a_step(tuesday, parts), "Takes coffee black.")


async def test_a_refusal_is_seen_after_the_results_in_the_same_message(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    reply = Message("assistant", CALLS, id="reply")
    await tuesday.append_message(reply)
    assert was_shown(await replace(tuesday, "new"), "Takes coffee black.")
    results = [{"type": "tool_result", "id": call["id"], "output": "refused"} for call in CALLS]

    await tuesday.upsert_message(Message("assistant", [*CALLS, *results[:1]], id="reply"))
    assert was_shown(await replace(tuesday, "new"), "Takes coffee black.")

    again = {**CALLS[0], "id": "again"}
    await tuesday.upsert_message(Message("assistant", [*CALLS, *results, again], id="reply"))
    assert (await replace(tuesday, "new")).startswith("Written")


async def test_a_refusal_on_another_branch_was_not_seen_on_this_one(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    question = await tuesday.append_message(user("I moved."))
    await tuesday.append_message(assistant(CALLS[:1]))
    answer = await (await tuesday.tools()).call("set_context", CALLS[0]["input"])
    await tuesday.append_messages([tool_result("c0", answer), assistant("I noted it.")])

    await tuesday.append_message(assistant([CALLS[1]]), parent_id=question.id)

    assert (await (await tuesday.tools()).call("set_context", CALLS[1]["input"])).startswith("Error:")


async def test_a_refusal_that_was_lost_in_a_crash_was_not_seen(store: Store) -> None:
    monday, tuesday = chat(store, "monday"), chat(store, "tuesday")
    await tuesday.freeze_system_prompt()
    await monday.append_context_block("memory", "Takes coffee black.")
    await tuesday.append_message(assistant(CALLS[:1]))
    await (await tuesday.tools()).call("set_context", CALLS[0]["input"])

    again = await (await chat(store, "tuesday").tools()).call("set_context", CALLS[0]["input"])

    assert again.startswith("Error:")


@pytest.fixture
async def asked(store: Store) -> Session:
    """Return a chat whose prompt shows a text, and whose user asked something."""
    session = chat(store, "s")
    await session.replace_context_block("memory", "v1")
    await session.freeze_system_prompt()
    await session.append_message(user("I am allergic to nuts.", id="question"))
    return session


async def write_in_a_reply(session: Session, text: str, reply_id: str, *, stored_first: bool) -> str:
    """Write the block as a model does whose reply is stored before its calls are made, or after them."""
    call = {"type": "tool_use", "id": "c", "name": "set_context", "input": {"label": "memory", "content": text}}
    reply = assistant([call], id=reply_id)
    if stored_first:
        await session.append_message(reply)
        answer = await replace(session, text)
    else:
        answer = await replace(session, text)
        await session.append_message(reply)
    await session.append_message(tool_result("c", answer))
    return answer


@pytest.mark.parametrize("stored_first", [True, False])
async def test_what_was_written_on_another_branch_was_not_seen_on_this_one(asked: Session, stored_first: bool) -> None:
    assert (await write_in_a_reply(asked, "v2", "a", stored_first=stored_first)).startswith("Written")

    await asked.checkout("question")

    assert was_shown(await write_in_a_reply(asked, "v3", "b", stored_first=stored_first), "v2")
    # On the new branch it was shown now, and on the old one it was written.
    assert (await write_in_a_reply(asked, "v2", "c", stored_first=stored_first)).startswith("Written")
    await asked.checkout("a", tip=True)
    assert was_shown(await write_in_a_reply(asked, "v4", "d", stored_first=stored_first), "v2")
    assert (await write_in_a_reply(asked, "v4", "e", stored_first=stored_first)).startswith("Written")


@pytest.mark.parametrize("stored_first", [True, False])
async def test_what_the_prompt_shows_is_known_on_all_branches_also_when_a_model_writes_it_again(
    asked: Session, stored_first: bool
) -> None:
    assert (await write_in_a_reply(asked, "v1", "a", stored_first=stored_first)).startswith("Written")

    await asked.checkout("question")

    assert (await write_in_a_reply(asked, "v2", "b", stored_first=stored_first)).startswith("Written")


@pytest.mark.parametrize("stored_first", [True, False])
async def test_what_a_model_wrote_it_may_replace_later_on_its_branch(
    store: Store, asked: Session, stored_first: bool
) -> None:
    await write_in_a_reply(asked, "v2", "a", stored_first=stored_first)
    await asked.append_messages([assistant("Noted."), *(user(f"{number}") for number in range(300))])
    await asked.add_compaction("short", "question", "a")

    assert (await replace(chat(store, "s"), "v3")).startswith("Written")


async def test_a_reply_that_is_made_again_and_not_stored_yet_is_refused_once(asked: Session) -> None:
    await write_in_a_reply(asked, "v2", "a", stored_first=False)
    await asked.checkout("question")

    assert was_shown(await replace(asked, "v3"), "v2")
    assert (await replace(asked, "v3")).startswith("Written")
    assert (await replace(asked, "v4")).startswith("Written")


async def test_what_was_written_for_a_reply_that_was_never_stored_is_not_known(asked: Session) -> None:
    assert (await replace(asked, "v2")).startswith("Written")

    await asked.append_message(user("Are you there?"))

    assert was_shown(await replace(asked, "v3"), "v2")


async def test_a_refusal_whose_answer_was_not_stored_was_not_seen_by_the_next_reply(
    store: Store, asked: Session
) -> None:
    await chat(store, "s").replace_context_block("memory", "by the program")
    await asked.append_message(assistant(CALLS[:1]))
    assert was_shown(await replace(asked, "v2"), "by the program")

    await asked.append_messages([user("Are you there?"), assistant(CALLS[1:])])

    assert was_shown(await replace(asked, "v2"), "by the program")


async def test_when_messages_are_cleared_so_is_what_was_shown_whatever_fails_next(
    store: Store, watched: Watched, asked: Session
) -> None:
    watched.failure = StorageFull("the file")

    await asked.clear_messages()

    assert await asked.get_history() == []
    assert was_shown(await replace(chat(store, "s"), "v2"), "v1")


async def test_searching_again_in_a_turn_costs_only_the_search(
    store: Store, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = with_facts(store)
    await note(session, "Drinks", "tea")
    tools = await session.tools()
    tea, nothing = ({"label": "facts", "query": query} for query in ("tea", "nothing"))
    assert await tools.call("search_context", tea) == "[drinks]\ntea"
    watched.reads.clear()
    watched.failure = AssertionError("this writes what was shown")
    monkeypatch.setattr(session, "get_raw_history", None)

    assert await tools.call("search_context", tea, raise_errors=True) == "[drinks]\ntea"
    assert await tools.call("search_context", nothing, raise_errors=True) == "No results found."

    assert watched.reads == ["search", "search"]
