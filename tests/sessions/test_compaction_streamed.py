"""What is upserted may be a reply that is being streamed: no summary covers it before it is complete."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from leafward import CompactionFailed, Message, Session, assistant, create_compact_function, open_store, user
from leafward.stores import Store
from leafward.testing.summarising import covering, ignore
from tests.sessions.dict_storage import DictStorage


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store:
        yield store


@pytest.fixture
def errors() -> list[Exception]:
    return []


def compacting(store: Store, errors: list[Exception], threshold: int) -> Session:
    function = create_compact_function(summarize=lambda prompt: "so far")
    return Session(store, on_compaction=function, compact_after=threshold, on_compaction_error=errors.append)


async def test_a_reply_is_not_summarised_while_it_is_streamed(store: Store, errors: list[Exception]) -> None:
    session = compacting(store, errors, 4_000)
    await session.append_messages([user("word " * 300) for _ in range(5)])

    for length in range(100, 5_000, 300):
        reply = await session.upsert_message(assistant("word " * length, id="reply"))
        assert (await session.get_history())[-1] == reply

    assert len(await session.get_history()) < 6
    assert isinstance(errors[-1], CompactionFailed)
    assert "message 'reply' is still being written and takes 5,594 tokens" in str(errors[-1])
    # The reply may go on while the user writes; after one more message it is complete.
    await session.append_message(user("thanks"))
    assert (await session.get_history())[-2].id == "reply"
    await session.append_message(assistant("You are welcome."))
    assert await session.estimate_tokens() <= 4_000


async def test_a_function_that_wants_to_summarise_a_streamed_reply_is_answered_with_that(
    store: Store, errors: list[Exception]
) -> None:
    session = Session(store, on_compaction=covering("reply", "reply"), compact_after=20)
    session.on_compaction_error(errors.append)

    await session.upsert_message(assistant("word " * 20, id="reply"))

    assert str(errors[0]) == (
        "session 'default' takes 30 tokens, its threshold is 20: the range begins with a message that is still being "
        "written; message 'reply' is still being written and takes 30 tokens"
    )


@pytest.mark.parametrize("manually", [False, True])
async def test_a_reply_is_not_summarised_by_others_while_it_is_streamed(
    store: Store, errors: list[Exception], manually: bool
) -> None:
    session = compacting(store, errors, 4_000)
    await session.append_messages([user("word " * 300, id=f"q{n}") for n in range(5)])
    await session.upsert_message(assistant("word " * 3_000, id="reply"))

    if manually:
        await session.compact()
    else:
        await session.upsert_message(user("word " * 400, id="q1"))
    await session.upsert_message(assistant("word " * 3_000 + "and that is 42", id="reply"))

    assert (await session.get_history())[-1].text.endswith("42")


@pytest.mark.parametrize("upserted", [False, True])
async def test_a_reply_is_not_summarised_when_the_user_writes_while_it_is_streamed(
    store: Store, errors: list[Exception], upserted: bool
) -> None:
    session = compacting(store, errors, 2_000)
    for _ in range(4):
        await session.append_messages([user("word " * 100), assistant("ok")])
    await session.upsert_message(assistant("word " * 300, id="reply"))

    await (session.upsert_message if upserted else session.append_message)(user("word " * 1_000))
    await session.upsert_message(assistant("word " * 300 + "and that is 42", id="reply"))

    assert any(message.text.endswith("42") for message in await session.get_history())
    assert [record.compaction is not None for record in session.compaction_log] == [True]
    assert errors == []


async def test_a_manual_compaction_says_that_a_message_is_still_being_written(store: Store) -> None:
    session = Session(store, on_compaction=covering("reply", "reply"))
    await session.upsert_message(assistant("word " * 20, id="reply"))

    assert await session.compact() is None

    assert session.compaction_log[-1].reason == "the range begins with a message that is still being written"


async def test_a_function_that_summarises_beyond_a_streamed_reply_leaves_it_out(store: Store) -> None:
    session = Session(store, on_compaction=covering("q", "u"))
    await session.append_message(user("word " * 50, id="q"))
    await session.upsert_message(assistant("word " * 50, id="reply"))
    await session.append_message(user("word " * 50, id="u"))

    assert await session.compact() is not None
    await session.upsert_message(assistant("word " * 50 + "and that is 42", id="reply"))

    _, reply, last = await session.get_history()
    assert reply.text.endswith("42")
    assert last.id == "u"


async def test_a_function_may_say_that_it_covers_a_streamed_reply(store: Store) -> None:
    def everything(messages: list[Message]) -> dict[str, object]:
        ends = {"from_message_id": messages[0].id, "to_message_id": messages[-1].id}
        return {"summary": "so far", **ends, "covers_being_written": True}

    session = Session(store, on_compaction=everything)
    await session.upsert_message(assistant("word " * 50, id="reply"))
    await session.append_message(user("word " * 50, id="u"))

    made = await session.compact()

    assert made is not None
    assert (made.from_message_id, made.to_message_id) == ("reply", "u")


@pytest.mark.parametrize(("words", "left"), [(500, ["reply", "u"]), (1_400, [])])
async def test_a_streamed_reply_is_summarised_only_with_a_message_that_is_too_large_to_stay(
    store: Store, errors: list[Exception], words: int, left: list[str]
) -> None:
    session = compacting(store, errors, 2_000)
    await session.append_messages([user("word " * 300, id=f"q{n}") for n in range(3)])
    await session.upsert_message(assistant("word " * 300, id="reply"))

    await session.append_message(assistant("word " * words, id="u"))

    shown = [message.id for message in await session.get_history()]
    assert [message_id for message_id in shown if message_id in ("reply", "u")] == left
    assert await session.estimate_tokens() <= 2_000
    assert errors == []


async def test_a_streamed_reply_stays_below_the_messages_that_were_appended_together_after_it(
    store: Store, errors: list[Exception]
) -> None:
    session = compacting(store, errors, 2_000)
    await session.append_messages([user("word " * 300, id=f"q{n}") for n in range(3)])
    await session.upsert_message(assistant("word " * 300, id="reply"))

    await session.append_messages([user("word " * 150, id=f"u{n}") for n in range(3)])

    assert [message.id for message in (await session.get_history())[-4:]] == ["reply", "u0", "u1", "u2"]
    assert await session.estimate_tokens() <= 2_000
    assert errors == []


async def test_an_upsert_that_changes_nothing_is_not_streaming_in_a_custom_storage() -> None:
    session = Session(DictStorage(), on_compaction=covering("m0", "m3"))
    messages = [user("word " * 20, id=f"m{n}") for n in range(6)]
    await session.append_messages(messages)
    for message in messages:
        await session.upsert_message(message)

    assert await session.compact() is not None


async def test_a_session_whose_whole_history_is_upserted_every_time_is_compacted(
    store: Store, errors: list[Exception]
) -> None:
    session, history = compacting(store, errors, 2_000), list[Message]()
    for n in range(25):
        for message in (user("word " * 60, id=f"q{n}"), assistant("word " * 60, id=f"a{n}")):
            history.append(message)
            for one in history:
                await session.upsert_message(one)
            assert await session.estimate_tokens() <= 2_000

    assert errors == []


async def test_a_session_that_is_only_upserted_is_compacted(store: Store, errors: list[Exception]) -> None:
    session = compacting(store, errors, 2_000)
    for n in range(60):
        await session.upsert_message(user("word " * 100, id=f"m{n}"))
        assert await session.estimate_tokens() <= 2_000

    assert errors == []


@pytest.mark.parametrize("ids", [60, 10, 1])
@pytest.mark.parametrize("threshold", [10, 60, 400])
async def test_upserting_backs_off_like_appending(store: Store, ids: int, threshold: int) -> None:
    asked: list[str] = []

    def session(name: str) -> Session:
        def nothing(messages: list[Message]) -> None:
            asked.append(name)

        return Session(store, name, on_compaction=nothing, compact_after=threshold, on_compaction_error=ignore)

    appending, upserting = session("appending"), session("upserting")
    for n in range(60):
        await appending.append_message(user("word " * 10))
        await upserting.upsert_message(assistant("word " * 10, id=f"m{n % ids}"))

    # A message that was complete got one more attempt.
    assert asked.count("upserting") <= asked.count("appending") + 1
