"""What an automatic compaction that fails promises: it is told, the append is unharmed, and the next ones wait."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from leafward import Message, Session, assistant, user
from leafward.core.tokens import count_tokens
from leafward.testing.speaking import said
from leafward.testing.summarising import Failing, all_but_the_last, answering, ignore

if TYPE_CHECKING:
    from leafward.stores import Store


class FailingContract:
    """What happens when it fails. Part of `CompactionContract`."""

    async def test_a_failure_is_told_and_the_append_is_unharmed(self, store: Store) -> None:
        told: list[Exception] = []
        session = Session(store, "s", on_compaction=Failing(), compact_after=10, on_compaction_error=told.append)

        stored = await session.append_messages(said(4))

        assert [str(error) for error in told] == ["the model is away"]
        assert isinstance(told[0], ConnectionError)
        assert await session.get_history() == stored
        assert session.compaction_log[-1].error is told[0]

    async def test_a_function_that_is_cancelled_from_within_has_failed_like_any_other(self, store: Store) -> None:
        told: list[Exception] = []

        async def gives_up(messages: list[Message]) -> None:
            asking = asyncio.ensure_future(asyncio.Event().wait())
            asking.cancel()
            await asking

        session = Session(store, "s", on_compaction=gives_up, compact_after=10, on_compaction_error=told.append)

        stored = await session.append_messages(said(4))

        assert await session.get_history() == stored
        assert len(told) == 1
        with pytest.raises(RuntimeError, match="raised CancelledError although its caller was not cancelled"):
            await session.compact()

    async def test_a_handler_that_is_cancelled_from_within_does_not_fail_the_append(self, store: Store) -> None:
        async def gives_up(error: Exception) -> None:
            asking = asyncio.get_running_loop().create_future()
            asking.cancel()
            await asking

        session = Session(store, "s", on_compaction=Failing(), compact_after=10, on_compaction_error=gives_up)

        stored = await session.append_messages(said(4))

        assert await session.get_history() == stored

    async def test_whoever_is_told_may_be_async_or_fail(self, store: Store) -> None:
        told: list[Exception] = []

        async def tell(error: Exception) -> None:
            told.append(error)
            raise RuntimeError("nor can I")

        session = Session.create(store).on_compaction(Failing()).compact_after(10).on_compaction_error(tell)

        await session.append_messages(said(4))

        assert len(told) == 1
        assert len(await session.get_history()) == 4

    @pytest.mark.parametrize("answer", ["a text", {}, {"summary": "x", "from_message_id": "a", "to_message_id": "b"}])
    async def test_a_wrong_answer_is_told_too(self, store: Store, answer: Any) -> None:
        told: list[Exception] = []
        session = Session(
            store, "s", on_compaction=answering(answer), compact_after=10, on_compaction_error=told.append
        )

        await session.append_messages(said(4))

        assert [isinstance(error, ValueError) for error in told] == [True]
        assert len(await session.get_history()) == 4

    @pytest.mark.parametrize("answer", [None, answering(None)], ids=["failing", "answering nothing"])
    async def test_it_backs_off_until_it_succeeds(self, store: Store, answer: Any) -> None:
        function = Failing(answer)
        handles = [
            Session(store, "s", on_compaction=function, compact_after=40, on_compaction_error=ignore) for _ in range(2)
        ]

        for n in range(200):
            await handles[n % 2].append_message(user(f"m{n}", id=f"{n}"))
        # Spaced out, and once more whenever it has grown by half.
        assert 2 <= function.calls <= 12

        function.fails = False
        tried = function.calls
        for n in range(200, 300):
            await handles[n % 2].append_message(user(f"m{n}", id=f"{n}"))
        assert await handles[0].estimate_tokens() <= 40
        assert function.calls > tried + 5

    async def test_a_block_that_cannot_be_read_is_not_asked_at_every_append(self, store: Store) -> None:
        asked: list[None] = []

        def away() -> str:
            asked.append(None)
            raise ConnectionError("the block is away")

        session = Session(
            store,
            "s",
            context=[{"label": "far", "provider": {"get": away}}],
            on_compaction=all_but_the_last,
            compact_after=10_000,
            on_compaction_error=ignore,
        )
        for message in said(100):
            await session.append_message(message)

        assert 2 <= len(asked) <= 10
        assert len(await session.get_history()) == 100

    async def test_a_manual_compaction_that_succeeds_ends_the_back_off(self, store: Store) -> None:
        function = Failing()
        session = Session(store, "s", on_compaction=function, compact_after=30, on_compaction_error=ignore)
        for message in said(40):
            await session.append_message(message)
        function.fails = False
        await session.compact()

        for message in said(20, start=40):
            await session.append_message(message)
            assert await session.estimate_tokens() <= 30

    @pytest.mark.parametrize("count", [-1, "many", None, float("nan")])
    async def test_a_counter_that_gives_no_number_is_told_and_the_message_kept(self, store: Store, count: Any) -> None:
        told: list[Exception] = []
        session = Session(
            store,
            "s",
            on_compaction=answering(None),
            compact_after=1000,
            token_counter=answering(count),
            on_compaction_error=told.append,
        )

        stored = await session.append_message(assistant("kept"))

        assert await session.get_history() == [stored]
        assert await session.estimate_tokens() == count_tokens(stored)
        assert [type(error).__name__ for error in told] == ["ConfigurationError"]
