"""Compaction of a session in a storage of one's own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import ConfigurationError, Message, Session, create_compact_function, open_store, user
from leafward.core import Compaction
from tests.sessions.dict_storage import AppliedStorage, DictStorage, make_async


@pytest.fixture
def storage() -> DictStorage:
    return DictStorage()


@pytest.fixture(params=["plain", "async"])
def session(request: pytest.FixtureRequest, storage: DictStorage) -> Session:
    return Session(storage if request.param == "plain" else make_async(storage))


def ids(messages: list[Message]) -> list[str]:
    return [message.id for message in messages]


def said(count: int, start: int = 0) -> list[Message]:
    return [user(f"walnut {n}", id=f"m{n}") for n in range(start, start + count)]


class Summariser:
    """Answers with a number, and keeps what it was asked."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def __call__(self, prompt: str) -> str:
        self.prompts.append(prompt)
        return f"summary {len(self.prompts)}"


async def test_summaries_are_laid_over_the_raw_path(session: Session, storage: DictStorage) -> None:
    await session.append_messages(said(8))
    await session.append_message(user("aside", id="aside"), parent_id="m2")

    made = await session.add_compaction("inner", "m1", "m3")
    shown = f"compaction_{made.id}"

    assert (made.from_message_id, made.to_message_id) == ("m1", "m3")
    assert ids(await session.get_history("m5")) == ["m0", shown, "m4", "m5"]
    assert ids(await session.get_history()) == ["m0", "m1", "m2", "aside"]
    assert ids(await session.get_raw_history("m5")) == [f"m{n}" for n in range(6)]
    assert await session.get_history("m5") == await session.get_history("m5")
    with pytest.raises(ValueError, match="cross"):
        await session.add_compaction("crossing", "m2", "m5")
    with pytest.raises(ValueError, match="path"):
        await session.add_compaction("upwards", "m5", "m4")
    outer = await session.add_compaction("outer", shown, "m4")
    assert ids(await session.get_history("m5")) == ["m0", f"compaction_{outer.id}", "m5"]
    assert [one.summary for one in await session.get_compactions()] == ["inner", "outer"]
    assert len(storage.messages) == 9


@pytest.mark.parametrize("kind", [DictStorage, AppliedStorage])
async def test_compacting_again_and_again_loses_nothing(kind: type[DictStorage]) -> None:
    storage, model = kind(), Summariser()
    compact = create_compact_function(summarize=model, protect_head=1, tail_token_budget=40)
    session = Session(storage).on_compaction(compact).compact_after(120)

    for message in said(60):
        await session.append_message(message)

    history = await session.get_history()
    summaries = [message for message in history if message.id.startswith("compaction_")]
    assert len(model.prompts) > 2
    assert len(summaries) == 1
    assert summaries[0].text == f"summary {len(model.prompts)}"
    assert f"summary {len(model.prompts) - 1}" in model.prompts[-1]
    shown = " ".join([*model.prompts, *(message.text for message in history)])
    assert [n for n in range(60) if f"walnut {n}" not in shown] == []
    assert await session.estimate_tokens() <= 120
    assert list(storage.messages) == [f"m{n}" for n in range(60)]


async def test_a_failing_summariser_fails_no_append(session: Session) -> None:
    told: list[Exception] = []

    def fail(prompt: str) -> str:
        raise RuntimeError("no model")

    compact = create_compact_function(summarize=fail, protect_head=1, tail_token_budget=10)
    session.on_compaction(compact).compact_after(50).on_compaction_error(told.append)

    await session.append_messages(said(10))

    assert [str(error) for error in told] == ["no model"]
    assert len(await session.get_history()) == 10
    with pytest.raises(RuntimeError, match="no model"):
        await session.compact()


async def test_a_summary_of_what_changed_meanwhile_is_not_applied(session: Session, storage: DictStorage) -> None:
    async def summarise(prompt: str) -> str:
        await Session(storage).update_message(user("changed", id="m2"))
        return "outdated"

    session.on_compaction(create_compact_function(summarize=summarise, protect_head=1, tail_token_budget=10))
    await session.append_messages(said(10))

    assert await session.compact() is None
    assert storage.compactions == []
    assert "changed" in session.compaction_log[-1].reason


@pytest.mark.parametrize("kind", [DictStorage, AppliedStorage])
async def test_summaries_that_the_storage_applied_are_left_alone(kind: type[DictStorage]) -> None:
    storage = kind()
    session = Session(storage)
    await session.append_messages(said(8))
    first = await session.add_compaction("first", "m1", "m3")

    assert [message.text for message in await session.get_history()] == [
        "walnut 0",
        "first",
        *(f"walnut {n}" for n in range(4, 8)),
    ]
    second = await session.add_compaction("second", f"compaction_{first.id}", "m5")
    assert (second.from_message_id, second.to_message_id) == ("m1", "m5")
    assert [message.text for message in await session.get_history()] == ["walnut 0", "second", "walnut 6", "walnut 7"]
    assert await session.get_summary_ids() == [f"compaction_{second.id}"]


async def test_a_model_reads_what_a_summary_stands_for(session: Session) -> None:
    assert "expand_summary" not in await session.tools()
    await session.append_messages(said(8))
    made = await session.add_compaction("summary", "m1", "m5")

    tools = await session.tools()
    told = await tools.call("expand_summary", {"summary_id": f"compaction_{made.id}"})
    page = await session.get_covered(made.id, offset=1, limit=2)

    assert set(tools) == {"expand_summary"}
    assert [n for n in range(8) if f"walnut {n}" in told] == [1, 2, 3, 4, 5]
    assert ids(page) == ["m2", "m3"]
    assert (await tools.call("expand_summary", {"summary_id": "never"})).startswith("Error:")


async def test_what_a_storage_does_not_show_cannot_be_read_back() -> None:
    session = Session(AppliedStorage())
    await session.append_messages(said(8))
    made = await session.add_compaction("summary", "m1", "m5")

    with pytest.raises(ConfigurationError, match="get_history"):
        await session.get_covered(made.id)


async def test_summaries_are_read_in_the_words_of_the_seed(storage: DictStorage) -> None:
    plain = DictStorage.get_compactions

    class Camel(DictStorage):
        def add_compaction(self, summary: str, from_message_id: str, to_message_id: str) -> None:  # type: ignore[override]
            super().add_compaction(summary, from_message_id, to_message_id)

        def get_compactions(self) -> list[Any]:
            return [
                {
                    "id": one.id,
                    "summary": one.summary,
                    "fromMessageId": one.from_message_id,
                    "toMessageId": one.to_message_id,
                    "createdAt": "2026-08-20T10:00:00Z",
                }
                for one in plain(self)
            ]

    session = Session(Camel())
    await session.append_messages(said(4))

    made = await session.add_compaction("summary", "m1", "m2")

    assert made == Compaction("c0", "summary", "m1", "m2", datetime(2026, 8, 20, 10, tzinfo=UTC))
    assert ids(await session.get_history()) == ["m0", "compaction_c0", "m3"]


# ── the same as a store ──────────────────────────────────────────────────────


@settings(max_examples=30)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "append", "branch", "update", "summary"]), st.integers(0, 30)),
        max_size=25,
    )
)
async def test_a_storage_of_ones_own_shows_what_a_store_shows(steps: list[tuple[str, int]]) -> None:
    async with open_store("memory://") as store:
        sessions = Session(DictStorage()), Session(store)
        known: list[str] = []
        for number, (what, chosen) in enumerate(steps):
            target = known[chosen % len(known)] if known else None
            outcomes = [await lead(session, what, number, target, chosen) for session in sessions]
            assert outcomes[0] == outcomes[1]
            if what in ("append", "branch"):
                known.append(f"m{number}")
        for leaf in [None, *known]:
            shown = [[message.text for message in await session.get_history(leaf)] for session in sessions]
            assert shown[0] == shown[1]
            assert len({await session.get_path_length(leaf) for session in sessions}) == 1


async def lead(session: Session, what: str, number: int, target: str | None, chosen: int) -> str:
    """Take one step; return what came of it."""
    if what == "append" or target is None:
        return (await session.append_message(user(f"text {number}", id=f"m{number}"))).id
    if what == "branch":
        return (await session.append_message(user(f"text {number}", id=f"m{number}"), parent_id=target)).id
    if what == "update":
        return (await session.update_message(user(f"changed {number}", id=target))).text
    path = ids(await session.get_raw_history(target))
    try:
        return (await session.add_compaction(f"summary {number}", path[chosen % len(path)], target)).summary
    except ValueError:
        return "refused"


def test_compactions_wait_for_each_other_in_one_event_loop_after_another(storage: DictStorage) -> None:
    asked: list[int] = []

    async def summarise(messages: list[Message]) -> None:
        asked.append(len(messages))
        await asyncio.sleep(0)

    async def compact_twice() -> None:
        session = Session(storage, on_compaction=summarise)
        await asyncio.gather(session.compact(), session.compact())

    asyncio.run(Session(storage).append_messages(said(8)))
    for _ in range(2):
        asyncio.run(compact_twice())

    assert asked == [8, 8, 8, 8]
