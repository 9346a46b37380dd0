"""What automatic compaction promises: it fires in time, holds nobody up, and never fails an append."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from leafward import Message, Session, assistant, create_compact_function, user
from leafward.core.tokens import count_tokens
from leafward.sessions import estimate_tokens
from leafward.testing.failing import FailingContract
from leafward.testing.speaking import said, texts
from leafward.testing.summarising import Failing, Slow, all_but_the_last, answering, covering, so_far

if TYPE_CHECKING:
    from leafward.stores import Store

PATIENCE = 20.0
"""Seconds after which something that should have happened counts as missing."""


class _Firing:
    """When it fires."""

    async def test_it_fires_in_the_append_that_crosses_the_threshold(self, store: Store) -> None:
        threshold = sum(map(count_tokens, said(6)))
        session = Session(store, "s", on_compaction=all_but_the_last, compact_after=threshold)

        for message in said(6):
            await session.append_message(message)
        at_it = texts(await session.get_history())
        last = await session.append_message(user("m6", id="6"))

        assert at_it == [f"m{n}" for n in range(6)]
        assert texts(await session.get_history()) == ["so far", "m6"]
        assert last == (await session.get_history())[-1]
        assert len(await session.get_raw_history()) == 7

    async def test_a_reply_that_grows_by_replacing_it_fires_it(self, store: Store) -> None:
        session = Session(store, "s", on_compaction=all_but_the_last, compact_after=100)
        await session.append_messages(said(6))

        for words in (1, 20, 80):
            await session.upsert_message(assistant("word " * words, id="reply"))

        history = await session.get_history()
        assert texts(history)[0] == "so far"
        assert (history[-1].id, history[-1].text) == ("reply", "word " * 80)
        assert len(history) == 2

    @pytest.mark.parametrize(("role", "end"), [("user", "3"), ("assistant", "2")])
    async def test_a_message_that_is_replaced_by_the_same_one_is_not_being_written(
        self, store: Store, role: str, end: str
    ) -> None:
        session = Session(store, "s", on_compaction=covering("0", "3"))
        facts: dict[str, Any] = {"metadata": {"n": [1, 0.5, None, {}]}, "name": "北京"}
        await session.append_messages([Message("user", "word 北京 " * 9, id=f"{n}", **facts) for n in range(6)])

        await session.upsert_message(Message(role, "word 北京 " * 9, id="3", **facts))
        made = await session.compact()

        assert made is not None
        assert made.to_message_id == end

    async def test_the_threshold_counts_what_estimate_tokens_counts(self, store: Store) -> None:
        text = "You are helpful. " * 20
        session = Session(store, "s", context=[{"label": "soul", "provider": text}])
        await session.append_messages(said(5))
        full = await session.estimate_tokens()
        prompt = estimate_tokens(await session.freeze_system_prompt())
        assert full == prompt + sum(map(count_tokens, said(5)))

        for spare, fired in ((0, False), (-1, True)):
            other = Session(
                store,
                f"with {spare} to spare",
                context=[{"label": "soul", "provider": text}],
                on_compaction=all_but_the_last,
                compact_after=full + spare,
            )
            await other.append_messages(said(5))
            assert bool(await other.get_compactions()) == fired

    async def test_batches_and_upserts_fire_it_and_what_adds_nothing_does_not(self, store: Store) -> None:
        function = Failing(answering(None))
        session = Session(store, "s", on_compaction=function, compact_after=1)

        await session.append_messages(said(3))
        assert function.calls == 1
        await session.append_message(user("known", id="1"))
        await session.update_message(user("changed", id="1"))
        await session.checkout("1")
        await session.delete_messages(["2"])
        assert function.calls == 1
        await session.upsert_message(user("word " * 50, id="new"))
        assert function.calls == 2
        await session.upsert_message(user("word " * 100, id="new"))
        assert function.calls == 3

    async def test_one_counter_serves_trigger_and_cut(self, store: Store) -> None:
        def count(message: Message) -> int:
            return 100 if message.id.isdigit() else 1

        compact = create_compact_function(summarize=so_far, protect_head=0, tail_token_budget=200)
        session = Session.create(store).for_session("s").on_compaction(compact).compact_after(500, token_counter=count)
        for message in said(6):
            assert len(await session.get_history()) == int(message.id)
            await session.append_message(message)

        assert texts(await session.get_history()) == ["so far", "m4", "m5"]
        assert await session.estimate_tokens() == 201

    async def test_rows_keep_the_count_they_were_written_with(self, store: Store) -> None:
        counted = Session(store, "s", token_counter=answering(1000))
        await counted.append_messages(said(2))

        plain = Session(store, "s", on_compaction=all_but_the_last, compact_after=2000)
        assert await plain.estimate_tokens() == 2000
        await plain.append_message(user("m2", id="2"))

        assert texts(await plain.get_history()) == ["so far", "m2"]

    async def test_a_session_that_only_grows_stays_within_its_window(self, store: Store) -> None:
        given: list[str] = []

        def summarize(prompt: str) -> str:
            given.append(prompt)
            return "so far"

        compact = create_compact_function(summarize=summarize, protect_head=1, tail_token_budget=60)
        session = Session(store, "s", on_compaction=compact, compact_after=200)
        for n in range(150):
            await session.append_message(user(f"text-{n}."))
            assert await session.estimate_tokens() <= 200

        seen = " ".join([*given, *texts(await session.get_history())])
        assert all(f"text-{n}." in seen for n in range(150))
        assert len(await session.get_raw_history()) == 150

    async def test_the_log_tells_why(self, store: Store) -> None:
        session = Session(store, "s", on_compaction=all_but_the_last, compact_after=30)
        await session.append_messages(said(2))
        await session.append_messages(said(4, start=2))

        (record,) = session.compaction_log
        assert record.automatic
        assert record.compaction == (await session.get_compactions())[0]
        assert record.tokens == sum(map(count_tokens, said(6)))
        assert record.threshold == 30


class _Waiting:
    """Who waits for whom."""

    async def test_other_appends_do_not_wait_for_it(self, store: Store) -> None:
        function = Slow()
        one, two = (Session(store, "s", on_compaction=function, compact_after=10) for _ in range(2))

        async with asyncio.timeout(PATIENCE):
            crossing = asyncio.create_task(one.append_messages(said(4)))
            await function.asked.wait()
            for session in (one, two, Session(store, "s")):
                for _ in range(5):
                    await session.append_message(user("more"))
            assert not crossing.done()
            assert (function.calls, function.running) == (1, 1)
            function.go_on.set()
            await crossing

        assert texts(await two.get_history()) == ["so far", "m3", *["more"] * 15]

    async def test_manual_and_automatic_ones_take_turns(self, store: Store) -> None:
        function = Slow()
        handles = [Session(store, "s", on_compaction=function, compact_after=10) for _ in range(3)]

        async with asyncio.timeout(PATIENCE):
            running: list[asyncio.Task[Any]] = [asyncio.create_task(handles[0].append_messages(said(6)))]
            await function.asked.wait()
            running += [asyncio.create_task(session.compact()) for session in handles]
            running.append(asyncio.create_task(handles[1].append_message(user("m6", id="6"))))
            await running[-1]
            function.go_on.set()
            await asyncio.gather(*running)

        assert function.most == 1
        assert function.calls >= 2
        assert len(await handles[0].get_summary_ids()) == 1

    async def test_an_append_does_not_queue_behind_those_who_wait_their_turn(self, store: Store) -> None:
        def one_at_a_time(messages: list[Message]) -> Any:
            # The next one takes its time, whenever it begins.
            function.go_on.clear()
            return all_but_the_last(messages)

        function = Slow(one_at_a_time)
        session = Session(store, "s", on_compaction=function, compact_after=10)
        await Session(store, "s").append_messages(said(6))

        async def compact_and_append() -> None:
            await session.compact()
            await session.append_message(user("more"))

        async with asyncio.timeout(PATIENCE):
            first = asyncio.create_task(compact_and_append())
            await function.asked.wait()
            # Without a threshold it need not look at the prompt first, so that it waits at once.
            second = asyncio.create_task(Session(store, "s", on_compaction=function).compact())
            await asyncio.sleep(0)
            function.go_on.set()
            await first
            assert not second.done()
            function.go_on.set()
            await second

        assert texts(await session.get_raw_history())[-1] == "more"

    async def test_sessions_do_not_wait_for_each_other(self, store: Store) -> None:
        functions = [Slow(), Slow()]
        one, two = (
            Session(store, f"{n}", on_compaction=function, compact_after=10) for n, function in enumerate(functions)
        )

        async with asyncio.timeout(PATIENCE):
            running = [asyncio.create_task(session.append_messages(said(4))) for session in (one, two)]
            for function in functions:
                await function.asked.wait()
            functions[1].go_on.set()
            await running[1]
            assert not running[0].done()
            functions[0].go_on.set()
            await running[0]

    async def test_cancelling_it_leaves_the_message_stored(self, store: Store) -> None:
        function = Slow()
        session = Session(store, "s", on_compaction=function, compact_after=10)

        async with asyncio.timeout(PATIENCE):
            crossing = asyncio.create_task(session.append_messages(said(4)))
            await function.asked.wait()
            crossing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await crossing

        assert texts(await session.get_history()) == ["m0", "m1", "m2", "m3"]
        assert await session.get_compactions() == []
        function.go_on.set()
        async with asyncio.timeout(PATIENCE):
            await session.compact()
        assert texts(await session.get_history()) == ["so far", "m3"]


class _Weighing:
    """What a session weighs."""

    async def test_the_estimate_is_what_a_recount_gives_after_any_write(self, store: Store) -> None:
        session = Session(store, "s", on_compaction=answering(None), compact_after=100_000)
        await session.append_messages([user("word " * n, id=f"{n}") for n in range(12)])
        made = await session.add_compaction("in short", "2", "6")
        writes: list[Callable[[], Any]] = [
            lambda: session.append_message(user("one more", id="12")),
            lambda: session.update_message(user("changed " * 30, id="9")),
            lambda: session.update_message(user("changed " * 30, id="4")),
            lambda: session.upsert_message(user("changed again " * 30, id="11")),
            lambda: session.upsert_message(user("changed again " * 30, id="5")),
            lambda: session.delete_messages(["2", "8"]),
            lambda: session.append_message(user("a branch", id="b"), parent_id="5"),
            lambda: session.append_message(user("on it", id="b2")),
            lambda: session.checkout("12"),
            lambda: session.append_messages([user("known", id="12"), user("new", id="13")]),
            lambda: session.add_compaction("shorter", f"compaction_{made.id}", "10"),
            lambda: session.append_message(user("京都", id="14")),
            lambda: session.delete_messages([f"{n}" for n in range(2, 11)]),
            lambda: session.checkout(None),
            lambda: session.append_message(user("a root", id="r")),
            session.clear_messages,
            lambda: session.append_message(user("afresh", id="0")),
        ]

        for write in writes:
            await write()
            assert await session.estimate_tokens() == sum(map(count_tokens, await session.get_history()))


class AutomaticContract(_Firing, _Waiting, FailingContract, _Weighing):
    """Compaction that nobody asks for. Part of `CompactionContract`."""
