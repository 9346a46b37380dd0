"""What reading a path promises: all of it, a piece at a time, or its newest part."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leafward import Message, MessageNotFound, Session, assistant, tool_result, user

if TYPE_CHECKING:
    from leafward.stores import Store


def _call(*call_ids: str) -> Message:
    parts: list[dict[str, Any]] = [{"type": "tool_use", "id": c, "name": "look", "input": {}} for c in call_ids]
    return Message("assistant", parts, id=f"call {' '.join(call_ids)}")


def _answer(call_id: str) -> Message:
    return tool_result(call_id, "seen", name="look", id=f"result {call_id}")


class HistoryContract:
    """Paths come back whole, and windows keep what belongs together. Part of `TreeContract`."""

    async def test_history_has_no_depth_cap(self, store: Store) -> None:
        session = Session(store, "s")

        stored = await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(10_500)])

        history = await session.get_history()
        assert [m.id for m in history] == [m.id for m in stored]
        assert await session.get_path_length() == 10_500
        assert [m.id for m in await session.get_history("10200")] == [f"{n}" for n in range(10_201)]
        assert len([m async for m in session.iter_history()]) == 10_500

    async def test_iterating_gives_the_same_path_from_either_end(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(700)])
        await session.append_messages([user(f"b{n}", id=f"b{n}") for n in range(40)], parent_id="300")

        for leaf_id in (None, "699", "b3", "0"):
            path = await session.get_history(leaf_id)
            assert [m async for m in session.iter_history(leaf_id)] == path
            assert [m async for m in session.iter_history(leaf_id, newest_first=True)] == path[::-1]

    async def test_an_iteration_can_stop_anywhere(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"m{n}") for n in range(300)])

        async for message in session.iter_history(newest_first=True):
            assert message.text == "m299"
            break
        last = await session.append_message(user("after"))

        assert await session.get_latest_leaf() == last

    async def test_raw_history_is_history_when_nothing_is_compacted(self, store: Store) -> None:
        session = Session(store, "s")
        a, b, _ = await session.append_messages([user("a"), assistant("b"), user("c")])

        assert await session.get_raw_history() == await session.get_history()
        assert await session.get_raw_history(b.id) == [a, b]

    async def test_raw_history_is_read_upwards_a_page_at_a_time(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(20)])
        # Three lanes: the pages cross from one to the other.
        await session.append_messages([user(f"b{n}", id=f"b{n}") for n in range(7)], parent_id="12")
        await session.append_messages([user(f"c{n}", id=f"c{n}") for n in range(5)], parent_id="b3")
        await session.delete_messages(["b1", "10"])
        path = await session.get_raw_history()

        for size in (1, 2, 5, 100):
            pages = [await session.get_raw_history(limit=size)]
            while pages[0] and pages[0][0] != path[0]:
                pages.insert(0, await session.get_raw_history(limit=size, before=pages[0][0].id))
            assert [len(page) for page in pages[1:]] == [size] * (len(pages) - 1)
            assert [message for page in pages for message in page] == path
        assert await session.get_raw_history(limit=3, before=path[0].id) == []
        assert await session.get_raw_history(before=path[4].id) == path[:4]
        assert [m.id for m in await session.get_raw_history("15", limit=2, before="12")] == ["9", "11"]

    async def test_a_raw_page_has_the_stored_messages_under_a_summary(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user(f"m{n}", id=f"{n}") for n in range(8)])
        await session.add_compaction("what was said", "1", "5")

        assert await session.get_raw_history(limit=4) == stored[4:]
        assert await session.get_raw_history(limit=10**30) == stored
        assert await session.get_raw_history(limit=4, before="4") == stored[:4]

    async def test_a_raw_page_above_a_message_of_another_branch_is_refused(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_messages([user(name, id=name) for name in ("a", "b", "c")])
        await session.append_message(user("d", id="d"), parent_id="a")

        for leaf_id, before in ((None, "c"), ("b", "c"), ("c", "d")):
            with pytest.raises(ValueError, match=f"'{before}' is not on the path to"):
                await session.get_raw_history(leaf_id, limit=1, before=before)
        for leaf_id, before in ((None, "nowhere"), ("nowhere", "a"), (None, ""), (None, "compaction_1")):
            with pytest.raises(MessageNotFound):
                await session.get_raw_history(leaf_id, limit=1, before=before)
        with pytest.raises(MessageNotFound):
            await Session(store, "empty").get_raw_history(limit=1, before="a")
        assert await Session(store, "empty").get_raw_history(limit=1) == []

    async def test_recent_history_of_an_empty_session_is_empty(self, store: Store) -> None:
        recent = await Session(store, "s").get_recent_history(max_messages=3)

        assert (list(recent.messages), recent.truncated) == ([], False)

    async def test_recent_history_without_limits_is_everything(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user(f"m{n}") for n in range(30)])

        recent = await session.get_recent_history()

        assert (list(recent.messages), recent.truncated) == (stored, False)

    async def test_recent_history_keeps_the_newest_and_says_if_it_cut(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user(f"m{n}") for n in range(30)])

        for count in (1, 2, 29, 30, 31, 10_000):
            recent = await session.get_recent_history(max_messages=count)
            assert (list(recent.messages), recent.truncated) == (stored[-count:], count < 30)

    async def test_recent_history_is_limited_by_tokens(self, store: Store) -> None:
        session = Session(store, "s")
        # 400 characters without a space are 100 tokens, and 4 for the message.
        stored = await session.append_messages([user("x" * 400) for _ in range(6)])

        for tokens, count in ((104, 1), (207, 1), (208, 2), (400, 3), (10_000, 6)):
            recent = await session.get_recent_history(max_tokens=tokens)
            assert (list(recent.messages), recent.truncated) == (stored[-count:], count < 6)

    async def test_recent_history_is_limited_by_bytes(self, store: Store) -> None:
        session = Session(store, "s")
        # 3,000 bytes of text each, 1,000 characters; the JSON around them adds less than 400.
        stored = await session.append_messages([user("漢" * 1000) for _ in range(6)])

        for size, count in ((3_500, 1), (7_000, 2), (11_000, 3), (1_000_000, 6)):
            recent = await session.get_recent_history(max_bytes=size)
            assert (list(recent.messages), recent.truncated) == (stored[-count:], count < 6)

    async def test_the_tightest_limit_wins(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user("x" * 400) for _ in range(6)])

        by_count = await session.get_recent_history(max_messages=2, max_tokens=10_000, max_bytes=1_000_000)
        by_tokens = await session.get_recent_history(max_messages=5, max_tokens=320, max_bytes=1_000_000)
        by_bytes = await session.get_recent_history(max_messages=5, max_tokens=10_000, max_bytes=700)

        assert [list(recent.messages) for recent in (by_count, by_tokens, by_bytes)] == [
            stored[-2:],
            stored[-3:],
            stored[-1:],
        ]

    async def test_recent_history_always_holds_the_newest_message(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("small"))
        newest = await session.append_message(user("words " * 5_000))

        for limits in ({"max_tokens": 1}, {"max_bytes": 1}, {"max_messages": 1}):
            recent = await session.get_recent_history(**limits)
            assert (list(recent.messages), recent.truncated) == ([newest], True)

    async def test_recent_history_never_cuts_between_a_call_and_its_result(self, store: Store) -> None:
        session = Session(store, "s")
        question, call, one, two, reply = await session.append_messages(
            [user("look twice"), _call("c1", "c2"), _answer("c1"), _answer("c2"), assistant("done")]
        )
        whole = [call, one, two, reply]

        for count in (2, 3, 4):
            recent = await session.get_recent_history(max_messages=count)
            assert (list(recent.messages), recent.truncated) == (whole, True)
        assert list((await session.get_recent_history(max_messages=1)).messages) == [reply]
        assert list((await session.get_recent_history(max_messages=5)).messages) == [question, *whole]
        await session.checkout(one.id)
        assert list((await session.get_recent_history(max_tokens=1)).messages) == [call, one]

    async def test_recent_history_keeps_pairs_that_messages_stand_between(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages(
            [
                user("start"),
                _call("c1"),
                user("meanwhile"),
                _call("c2"),
                _answer("c1"),
                _answer("c2"),
                user("end"),
            ]
        )

        recent = await session.get_recent_history(max_messages=3)

        assert list(recent.messages) == stored[1:]

    async def test_recent_history_takes_a_result_without_its_call(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user("a"), _call("c1"), user("b"), _answer("c1"), user("c")])
        await session.delete_messages([stored[1].id])

        recent = await session.get_recent_history(max_messages=2)

        assert (list(recent.messages), recent.truncated) == (stored[-2:], True)

    async def test_a_result_without_its_call_does_not_part_another_pair(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages(
            [user("start"), _call("c1"), _answer("c1"), _call("c2"), _answer("c2"), user("end")]
        )
        await session.delete_messages([stored[3].id])
        pair = [stored[1], stored[2], stored[4], stored[5]]

        for count in (3, 4):
            recent = await session.get_recent_history(max_messages=count)
            assert (list(recent.messages), recent.truncated) == (pair, True)
        recent = await session.get_recent_history(max_messages=2)
        assert (list(recent.messages), recent.truncated) == (stored[4:], True)

    async def test_recent_history_understands_anthropic_results(self, store: Store) -> None:
        session = Session(store, "s")
        result = Message("user", [{"type": "tool_result", "tool_use_id": "c1", "content": "seen"}])
        stored = await session.append_messages([user("look"), _call("c1"), result])

        recent = await session.get_recent_history(max_messages=1)

        assert list(recent.messages) == stored[1:]

    async def test_recent_history_follows_the_leaf(self, store: Store) -> None:
        session = Session(store, "s")
        stored = await session.append_messages([user(f"m{n}") for n in range(10)])
        await session.checkout(stored[4].id)

        recent = await session.get_recent_history(max_messages=2)

        assert (list(recent.messages), recent.truncated) == (stored[3:5], True)
