"""What compaction costs, and what two processes that compact one session do to each other."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leafward import Message, Session, create_compact_function, open_store, user
from leafward.stores.memory import MemoryRunner
from leafward.stores.sql import reads
from leafward.testing.speaking import said, texts
from leafward.testing.summarising import Slow, covering


@contextmanager
def counted_statements(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect the statements that stores in memory run."""
    seen: list[str] = []
    execute = MemoryRunner._execute  # pyright: ignore[reportPrivateUsage]

    def counting(runner: MemoryRunner, statement: str, parameters: tuple[object, ...]) -> list[object]:
        seen.append(statement)
        return execute(runner, statement, parameters)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryRunner, "_execute", counting)
        yield seen


async def test_an_append_with_a_threshold_costs_the_same_however_long_the_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compact = create_compact_function(summarize=lambda prompt: "so far", protect_head=1, tail_token_budget=200)
    costs: list[list[str]] = []

    async with open_store("memory://") as store:
        session = Session(store, "s", on_compaction=compact, compact_after=2_000)
        for size in (500, 5_000):
            await Session(store, "s").append_messages([user(f"{size} {n}") for n in range(size)])
            await session.append_message(user("this one compacts"))
            await session.append_message(user("this one sums up what is left"))
            with counted_statements(monkeypatch) as seen:
                await session.append_message(user("this one does not"))
            costs.append(seen)

    assert costs[0] == costs[1]
    assert len(costs[0]) < 12


async def test_only_what_is_visible_is_read_from_a_compacted_history(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    decode = reads.decode_body

    def counting(body: bytes) -> Any:
        decoded.append(body)
        return decode(body)

    async with open_store("memory://") as store:
        session = Session(store, "s")
        await session.append_messages(said(3_000))
        await session.add_compaction("in short", "10", "2989")
        monkeypatch.setattr(reads, "decode_body", counting)
        history = await session.get_history()
        newest = [message async for message in session.iter_history(newest_first=True)]
        recent = await session.get_recent_history(max_messages=15)

    assert len(history) == len(newest) == 21
    assert len(recent.messages) == 15
    assert len(decoded) <= 3 * 21


async def test_two_processes_that_compact_at_once_leave_one_summary(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    async with open_store(url) as here, open_store(url) as there, asyncio.timeout(30):
        functions = [Slow(covering("1", "5", "here")), Slow(covering("3", "7", "there"))]
        sessions = [
            Session(store, "s", on_compaction=function)
            for store, function in zip((here, there), functions, strict=True)
        ]
        await sessions[0].append_messages(said(10))
        running = [asyncio.create_task(session.compact()) for session in sessions]
        for function in functions:
            await function.asked.wait()
        functions[0].go_on.set()
        first = await running[0]
        functions[1].go_on.set()
        second = await running[1]

        assert first is not None
        assert second is None
        for session in sessions:
            assert texts(await session.get_history()) == ["m0", "here", "m6", "m7", "m8", "m9"]
            assert await session.get_compactions() == [first]


async def test_what_a_summary_covers_is_read_back_a_page_at_a_time() -> None:
    async with open_store("memory://") as store:
        session = Session(store, "s")
        await session.append_messages(said(10))
        await session.append_messages([user(f"b{n}", id=f"b{n}") for n in range(10)], parent_id="5")
        await session.delete_messages(["3"])
        made = await session.add_compaction("in short", "2", "b4")

        pages: list[Message] = []
        while page := await session.get_covered(made.id, offset=len(pages), limit=3):
            assert len(page) <= 3
            pages += page

        assert [message.id for message in pages] == ["2", "4", "5", "b0", "b1", "b2", "b3", "b4"]
        assert await session.get_covered(f"compaction_{made.id}", limit=100) == pages
