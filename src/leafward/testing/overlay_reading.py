"""What reading a path with summaries promises: the same from either end, a piece at a time, and told to who listens."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from leafward import Message, Session, assistant, tool_result
from leafward.core.tokens import count_tokens
from leafward.testing.changes import changes_until
from leafward.testing.speaking import calling, said, spoken, texts

if TYPE_CHECKING:
    from leafward.stores import Store


class OverlayReadingContract:
    """Reading a path that has summaries, a piece at a time. Part of `CompactionContract`."""

    async def test_iterating_shows_what_the_history_shows_from_either_end(self, store: Store) -> None:
        session = await spoken(store, 1500)
        await session.append_messages(said(300, start=1500), parent_id="900")
        for first, last in ((3, 3), (10, 420), (600, 899), (1500, 1502), (1700, 1799)):
            await session.add_compaction(f"{first} to {last}", f"{first}", f"{last}")

        for leaf_id in (None, "1499", "1700", "300", "0"):
            history = await session.get_history(leaf_id)
            assert [m async for m in session.iter_history(leaf_id)] == history
            assert [m async for m in session.iter_history(leaf_id, newest_first=True)] == history[::-1]

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_a_summary_made_meanwhile_does_not_disturb_who_is_iterating(
        self, store: Store, newest_first: bool
    ) -> None:
        session = await spoken(store, 900)
        await session.add_compaction("before", "100", "199")
        history = await session.get_history()
        seen: list[Message] = []

        async for message in session.iter_history(newest_first=newest_first):
            seen.append(message)
            if len(seen) == 150:
                await Session(store, "s").add_compaction("meanwhile", "20", "880")

        assert seen == history[:: -1 if newest_first else 1]
        assert texts(await session.get_history())[20] == "meanwhile"

    async def test_recent_history_counts_a_summary_as_one_message(self, store: Store) -> None:
        session = await spoken(store, 50)
        await session.add_compaction("in short", "1", "47")

        three = await session.get_recent_history(max_messages=3)
        four = await session.get_recent_history(max_messages=4)
        tokens = sum(count_tokens(message) for message in three.messages)

        assert (texts(three.messages), three.truncated) == (["in short", "m48", "m49"], True)
        assert (texts(four.messages), four.truncated) == (["m0", "in short", "m48", "m49"], False)
        assert await session.get_recent_history(max_tokens=tokens) == three
        assert texts((await session.get_recent_history(max_tokens=tokens - 1)).messages) == ["m48", "m49"]
        assert texts((await session.get_recent_history(max_bytes=1)).messages) == ["m49"]

    async def test_recent_history_counts_the_bytes_of_a_summary_as_of_a_message(self, store: Store) -> None:
        session = await spoken(store, 6)
        await session.add_compaction('in "short"\n\x00', "1", "4")
        messages = await session.get_history()
        sizes = [len(json.dumps(message.to_dict(), separators=(",", ":"), ensure_ascii=False)) for message in messages]

        for count in (1, 2, 3):
            fits = await session.get_recent_history(max_bytes=sum(sizes[-count:]))
            less = await session.get_recent_history(max_bytes=sum(sizes[-count:]) - 1)
            assert fits.messages == messages[-count:]
            assert less.messages == messages[-max(1, count - 1) :]

    async def test_recent_history_ends_with_a_summary_when_that_is_the_newest(self, store: Store) -> None:
        session = await spoken(store, 5)
        await session.add_compaction("in short", "2", "4")

        recent = await session.get_recent_history(max_messages=1)

        assert (texts(recent.messages), recent.truncated) == (["in short"], True)

    async def test_a_result_whose_call_is_summarised_does_not_drag_the_window_along(self, store: Store) -> None:
        session = await spoken(store, 3)
        await session.append_message(calling("c"))
        await session.append_message(tool_result("c", "seen", name="look", id="result"))
        await session.append_message(assistant("done", id="done"))

        kept = await session.get_recent_history(max_messages=2)
        await session.add_compaction("in short", "1", "call")
        cut = await session.get_recent_history(max_messages=2)

        assert [message.id for message in kept.messages] == ["call", "result", "done"]
        assert [message.id for message in cut.messages] == ["result", "done"]
        assert cut.truncated

    async def test_a_summary_is_told_as_a_compaction(self, store: Store) -> None:
        session = await spoken(store, 5)
        since = await session.get_version()

        await session.add_compaction("in short", "1", "3")
        await session.add_compaction("one", "4", "4")

        version = await session.get_version()
        told = await changes_until(Session(store, "s"), version, since=since)
        assert [(change.kind, list(change.message_ids)) for change in told] == [
            ("compaction", ["1", "3"]),
            ("compaction", ["4"]),
        ]
        assert since < told[0].version < told[1].version == version

    async def test_summaries_made_at_once_never_come_to_cross(self, store: Store) -> None:
        session = await spoken(store, 30)
        wanted = [(start, start + length) for start in range(0, 20, 3) for length in (2, 5, 9)]

        results = await asyncio.gather(
            *(Session(store, "s").add_compaction("x", f"{first}", f"{last}") for first, last in wanted),
            return_exceptions=True,
        )

        assert all(isinstance(result, ValueError) for result in results if isinstance(result, BaseException))
        ranges = [(int(c.from_message_id), int(c.to_message_id)) for c in await session.get_compactions()]
        assert len(ranges) == sum(not isinstance(result, BaseException) for result in results) > 0
        for later, (low, high) in enumerate(ranges):
            for first, last in ranges[:later]:
                assert (low <= first and last <= high) or last < low or high < first
