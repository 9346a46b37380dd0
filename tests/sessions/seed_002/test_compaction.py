"""Seed 002's examples of compaction."""

from __future__ import annotations

from leafward import Message, Session, assistant, create_compact_function, user
from leafward.sessions import estimate_tokens
from leafward.stores import Store
from tests.sessions.seed_002.examples import Summariser, ids, said


def compacted(store: Store, model: Summariser, *, head: int = 3, tail: int = 14) -> Session:
    """Return a session that summarises with `model`; of the messages here two cost 14 tokens."""
    function = create_compact_function(summarize=model, protect_head=head, tail_token_budget=tail, min_tail_messages=2)
    return Session.create(store).with_context("memory", max_tokens=1100).on_compaction(function)


async def test_the_middle_becomes_a_summary_and_nothing_stored_changes(store: Store) -> None:
    model = Summariser()
    session = compacted(store, model)
    await session.append_messages(said(10))

    result = await session.compact()

    assert result is not None
    assert (result.summary, result.from_message_id, result.to_message_id) == ("summary 1", "msg-4", "msg-8")
    seen = await session.get_history()
    assert ids(seen) == ["msg-1", "msg-2", "msg-3", f"compaction_{result.id}", "msg-9", "msg-10"]
    assert (seen[3].role, seen[3].text) == ("assistant", "summary 1")
    assert [message.text for message in await session.get_raw_history()] == [message.text for message in said(10)]


async def test_head_and_tail_are_kept_by_default(store: Store) -> None:
    model = Summariser()
    session = Session.create(store).on_compaction(create_compact_function(summarize=model))
    # Each costs some 5,000 tokens, so that four of them fit into the tail.
    await session.append_messages([user("x" * 19_900, id=f"msg-{n}") for n in range(1, 11)])

    result = await session.compact()

    assert result is not None
    assert (result.from_message_id, result.to_message_id) == ("msg-4", "msg-6")


async def test_a_call_is_never_parted_from_its_result(store: Store) -> None:
    session = compacted(store, Summariser(), tail=0)
    call = {"type": "tool_use", "id": "c1", "name": "weather", "input": {}}
    result = {"type": "tool_result", "id": "c1", "name": "weather", "output": "sunny"}
    await session.append_messages(said(6))
    await session.append_messages([Message("assistant", [call], id="call"), Message("tool", [result], id="result")])
    await session.append_message(assistant("It is sunny.", id="answer"))

    await session.compact()

    assert ids(await session.get_history())[-3:] == ["call", "result", "answer"]


async def test_the_model_is_asked_for_four_sections(store: Store) -> None:
    model = Summariser()
    session = compacted(store, model)
    await session.append_messages(said(10))

    await session.compact()

    (prompt,) = model.prompts
    headings = [line for line in prompt.splitlines() if line.startswith("## ")]
    assert headings == ["## Topic", "## Key Points", "## Current State", "## Open Items"]
    assert [f"message {n}\n" in prompt for n in range(1, 11)] == [4 <= n <= 8 for n in range(1, 11)]


async def test_a_second_compaction_updates_the_first_summary(store: Store) -> None:
    model = Summariser()
    session = compacted(store, model)
    await session.append_messages(said(10))
    first = await session.compact()
    await session.append_messages(said(6, start=11))

    second = await session.compact()

    assert first is not None
    assert second is not None
    assert "summary 1" in model.prompts[1]
    assert [f"message {n}\n" in model.prompts[1] for n in range(1, 17)] == [9 <= n <= 14 for n in range(1, 17)]
    assert (second.from_message_id, second.to_message_id) == ("msg-4", "msg-14")
    assert [message.text for message in await session.get_history()] == [
        *(f"message {n}" for n in (1, 2, 3)),
        "summary 2",
        *(f"message {n}" for n in (15, 16)),
    ]
    assert await session.get_compactions() == [first, second]


async def test_overlays_are_added_and_listed_by_hand(store: Store) -> None:
    session = Session(store)
    await session.append_messages(said(60))

    overlay = await session.add_compaction("Summary of messages 1-50", "msg-1", "msg-50")

    assert await session.get_compactions() == [overlay]
    seen = await session.get_history()
    assert seen[0].text == "Summary of messages 1-50"
    assert ids(seen)[1:] == [f"msg-{n}" for n in range(51, 61)]


async def test_an_append_that_exceeds_the_threshold_compacts(store: Store) -> None:
    model = Summariser()
    session = compacted(store, model, head=1).compact_after(120)
    for message in said(30):
        await session.append_message(message)
        assert await session.estimate_tokens() <= 120

    assert model.prompts
    assert await session.get_path_length() == 30


async def test_a_summariser_that_fails_loses_no_message(store: Store) -> None:
    told: list[Exception] = []
    session = compacted(store, Summariser(fails=True), head=1).compact_after(120).on_compaction_error(told.append)

    for message in said(30):
        await session.append_message(message)

    assert ids(await session.get_history()) == ids(said(30))
    assert {type(error) for error in told} == {TimeoutError}


async def test_tokens_are_estimated_by_characters_and_words_and_four_for_a_message(store: Store) -> None:
    session = Session(store)
    await session.append_message(user("a" * 400))
    await session.append_message(user("word " * 50))

    assert (estimate_tokens("a" * 400), estimate_tokens("word " * 50)) == (100, 65)
    assert await session.estimate_tokens() == 100 + 4 + 65 + 4
