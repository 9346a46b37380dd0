"""What a compaction shortens or summarises, a model was not shown; what it wrote or its prompt shows, it was."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

from leafward import (
    Message,
    Session,
    StoredSearchProvider,
    assistant,
    create_compact_function,
    open_store,
    tool_result,
    user,
)
from leafward.sessions.waiting_reply import RECENT
from leafward.stores import Store

LONG = "".join(f"fact {n}: something\n" for n in range(1_500)) + "ALLERGIC TO PEANUTS"
"""So long that a compaction shortens a refusal that gives it."""
MEMORY = {"label": "memory", "content": "coffee"}
FOOD = {"label": "facts", "content": "coffee", "metadata": {"title": "food"}}


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


@pytest.fixture
def session(store: Store) -> Session:
    """Return a chat that compacts, and that shares a block of one text and a block of entries with others."""
    compact = create_compact_function(summarize=lambda prompt: "so far")
    return chat(store, "s", on_compaction=compact, compact_after=6_000, cached_prompt=True)


def chat(store: Store, name: str, **options: Any) -> Session:
    session = Session(store, name, user_id="alice", **options)
    return session.with_context("memory", shared=True).with_context(
        "facts", provider=StoredSearchProvider(), shared=True
    )


def called(call_id: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a call of `set_context`, or without arguments of another tool."""
    if arguments is None:
        return {"type": "tool_use", "id": call_id, "name": "fetch", "input": {}}
    return {"type": "tool_use", "id": call_id, "name": "set_context", "input": dict(arguments)}


async def run(session: Session, arguments: Mapping[str, Any]) -> str:
    return await (await session.tools()).call("set_context", dict(arguments))


async def set_in_a_reply(session: Session, arguments: Mapping[str, Any], call_id: str, *, stored_first: bool) -> str:
    """Store a reply that calls `set_context`, before or after the call is made, and the answer."""
    reply = assistant([called(call_id, arguments)])
    if stored_first:
        await session.append_message(reply)
    answer = await run(session, arguments)
    result = tool_result(call_id, answer, name="set_context")
    await session.append_messages([result] if stored_first else [reply, result])
    return answer


async def is_kept(store: Store, text: str) -> bool:
    """Tell whether the text that another chat wrote is still there."""
    block = await chat(store, "other").get_context_block("memory")
    entries = await chat(store, "other").list_context_entries("facts")
    return text in [*(entry.content for entry in entries), block.content if block else None]


# ── what a refusal gave ──────────────────────────────────────────────────────


@pytest.mark.parametrize("stored_first", [True, False])
async def test_a_refusal_that_a_compaction_shortened_was_not_seen(
    store: Store, session: Session, stored_first: bool
) -> None:
    await session.freeze_system_prompt()
    await chat(store, "other").replace_context_block("memory", LONG)

    for n in range(3):
        answer = await set_in_a_reply(session, MEMORY, f"c{n}", stored_first=stored_first)
        assert answer.startswith("Error: nothing was written")
        assert "PEANUTS" not in str(await session.get_history())

    assert await is_kept(store, LONG)


@pytest.mark.parametrize("stored_first", [True, False])
@pytest.mark.parametrize(("turns", "words"), [(12, 300), (RECENT // 2 + 1, 2)])
async def test_a_shortened_refusal_does_not_count_as_seen_once_it_is_summarised_or_old(
    store: Store, session: Session, stored_first: bool, turns: int, words: int
) -> None:
    await run(chat(store, "other"), {**FOOD, "content": LONG})
    await session.freeze_system_prompt()
    await session.append_message(user("hi"))
    await set_in_a_reply(session, FOOD, "c0", stored_first=stored_first)
    await session.append_message(assistant("I cannot."))
    for _ in range(turns):
        await session.append_messages([user("word " * words), assistant("word " * words)])
    assert "PEANUTS" not in str(await session.get_history())

    answer = await set_in_a_reply(session, FOOD, "c1", stored_first=stored_first)

    assert answer.startswith("Error: nothing was written")
    assert await is_kept(store, LONG)


@pytest.mark.parametrize("stored_first", [True, False])
async def test_a_whole_refusal_no_longer_counts_as_seen_once_it_is_summarised(
    store: Store, session: Session, stored_first: bool
) -> None:
    await run(chat(store, "other"), {**FOOD, "content": "ALLERGIC TO PEANUTS"})
    question = await session.append_message(user("hi"))
    await set_in_a_reply(session, FOOD, "c0", stored_first=stored_first)
    said = await session.append_message(assistant("I cannot."))
    await session.append_message(user("Why?"))
    await session.add_compaction("so far", question.id, said.id)

    answer = await set_in_a_reply(session, FOOD, "c1", stored_first=stored_first)

    assert answer.startswith("Error: nothing was written")


@pytest.mark.parametrize("text", [LONG, "ALLERGIC TO PEANUTS"])
async def test_a_refusal_that_is_stored_after_a_later_reply_is_checked_too(
    store: Store, session: Session, text: str
) -> None:
    await run(chat(store, "other"), {**FOOD, "content": text})
    await session.append_messages([user("hi"), assistant([called("f", None), called("c0", FOOD)])])
    refused = await run(session, FOOD)
    later = [called("c1", FOOD)] if text != LONG else "One moment."
    await session.append_messages([tool_result("f", "done"), assistant(later)])
    await session.append_message(tool_result("c0", refused, name="set_context"))
    if text == LONG:
        await session.append_message(assistant([called("c1", FOOD)]))

    # The refusal was shortened, or the reply that calls now was made before it came.
    assert (await run(session, FOOD)).startswith("Error: nothing was written")
    assert await is_kept(store, text)


@pytest.mark.parametrize("text", [LONG, "ALLERGIC TO PEANUTS"])
async def test_a_reply_that_is_stored_as_several_messages_has_seen_the_results_of_all_its_calls(
    store: Store, session: Session, text: str
) -> None:
    await run(chat(store, "other"), {**FOOD, "content": text})
    await session.append_message(user("hi"))
    refused = await run(session, FOOD)
    await session.append_messages([assistant("Hm."), assistant([called("f", None)]), assistant([called("c0", FOOD)])])
    await session.append_message(tool_result("f", "done"))
    await session.append_message(tool_result("c0", refused, name="set_context"))

    assert (await run(session, FOOD)).startswith("Error" if text == LONG else "Indexed")


async def test_a_refusal_that_was_never_stored_was_not_seen_by_later_replies(store: Store, session: Session) -> None:
    await chat(store, "other").replace_context_block("memory", "by another chat")
    await session.append_message(user("hi"))
    assert (await run(session, MEMORY)).startswith("Error: nothing was written")

    await session.append_messages([assistant("I could not write it."), user("Try again.")])

    assert (await run(session, MEMORY)).startswith("Error: nothing was written")
    assert (await run(session, MEMORY)).startswith("Written")


async def test_a_refusal_in_a_message_of_its_call_is_seen_by_the_next_message(store: Store, session: Session) -> None:
    await chat(store, "other").replace_context_block("memory", "by another chat")
    part = {"type": "tool-set_context", "toolCallId": "c0", "state": "input-available", "input": MEMORY}
    await session.append_message(Message("assistant", [part], id="reply"))
    answer = await run(session, MEMORY)
    answered = {**part, "state": "output-available", "output": answer}
    await session.upsert_message(Message("assistant", [answered], id="reply"))

    await session.append_message(assistant([called("c1", MEMORY)]))

    assert (await run(session, MEMORY)).startswith("Written")


# ── what the model wrote, and what its prompt shows ──────────────────────────


@pytest.mark.parametrize("stored_first", [True, False])
async def test_what_a_model_wrote_it_knows_when_another_result_of_its_reply_is_shortened(
    session: Session, stored_first: bool
) -> None:
    await session.append_message(user("hi"))
    reply = assistant([called("c0", MEMORY), called("f", None)])
    if stored_first:
        await session.append_message(reply)
    written = await run(session, MEMORY)
    results = [tool_result("c0", written), tool_result("f", "word " * 20_000)]
    await session.append_messages(results if stored_first else [reply, *results])
    assert session.compaction_log[-1].reason == "1 tool result was shortened"

    assert (await run(session, {**MEMORY, "content": "tea"})).startswith("Written")


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("messages", [0, RECENT + 1])
async def test_what_a_prompt_renewed_in_a_turn_shows_stays_seen_when_a_result_is_shortened(
    store: Store, session: Session, refused: bool, messages: int
) -> None:
    await session.freeze_system_prompt()
    await session.append_messages([user("hi"), assistant([called("c0", MEMORY), called("f", None)])])
    await chat(store, "other").replace_context_block("memory", "TEA")
    answer = await run(session, MEMORY) if refused else "interrupted"
    assert "TEA" in await session.refresh_system_prompt()
    await session.append_messages([tool_result("c0", answer), tool_result("f", "word " * 20_000)])
    assert session.compaction_log[-1].reason == "1 tool result was shortened"
    await session.append_messages([user("go on") for _ in range(messages)])

    await session.append_message(assistant([called("c1", MEMORY)]))

    assert (await run(session, MEMORY)).startswith("Written")
