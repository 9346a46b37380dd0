"""What `session.lease()` promises: the lease and the handle that it fences, for the length of a block."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from leafward import ConfigurationError, LeaseBusy, LeaseLost, Session, assistant, user
from leafward.testing.durable import PATIENCE, Reopen
from leafward.testing.elsewhere import elsewhere

if TYPE_CHECKING:
    from leafward.stores import Store


class SessionLeasing:
    """A session leases itself. Part of `LeaseContract`."""

    async def test_a_leased_session_writes_until_the_block_ends(self, store: Store) -> None:
        session = Session(store, "s", user_id="alice", agent_id="support").with_context("memory")

        async with session.lease() as leased:
            await leased.append_message(user("mine"))
            await leased.replace_context_block("memory", "Likes tea.")
            assert (leased.session_id, leased.user_id, leased.agent_id) == ("s", "alice", "support")
            with pytest.raises(LeaseBusy):
                await elsewhere(store.leases.acquire("s", user_id="alice", wait=0))
        async with store.leases.acquire("s", user_id="alice", wait=0):
            with pytest.raises(LeaseLost):
                await leased.append_message(user("late"))

        assert leased is not session
        assert [m.text for m in await session.get_history()] == ["mine"]
        assert [block.content for block in await session.get_context_blocks()] == ["Likes tea."]

    async def test_a_session_that_is_leased_elsewhere_is_busy(self, store: Store, reopen: Reopen) -> None:
        here, there = Session(store, "s"), Session(await reopen(), "s")

        async with here.lease():
            for wait in (0, 0.05):
                with pytest.raises(LeaseBusy, match="'s'"):
                    async with there.lease(wait=wait):
                        raise AssertionError("two hold one session")
            async with Session(store, "s", user_id="alice").lease(wait=0), Session(store, "other").lease(wait=0):
                pass
        async with there.lease(wait=5) as leased:
            await leased.append_message(user("now"))

    async def test_a_session_is_released_however_its_block_ends(self, store: Store) -> None:
        session = Session(store, "s")

        with pytest.raises(RuntimeError, match="in the middle"):
            async with session.lease():
                raise RuntimeError("in the middle")
        async with session.lease(wait=0):
            pass
        entered = asyncio.Event()

        async def hold() -> None:
            async with session.lease():
                entered.set()
                await asyncio.Event().wait()

        async with asyncio.timeout(PATIENCE):
            holding = asyncio.ensure_future(hold())
            await entered.wait()
            holding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holding
            async with session.lease(wait=0) as leased:
                await leased.append_message(user("free"))

    async def test_workers_that_lease_a_session_answer_one_after_the_other(self, store: Store, reopen: Reopen) -> None:
        stores = [store, await reopen()]

        async def work(number: int) -> None:
            async with Session(stores[number % 2], "s").lease() as leased:
                await leased.append_message(user(f"question {number}"))
                await asyncio.sleep(0)
                await leased.append_message(assistant(f"answer {len(await leased.get_history())}"))

        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*map(work, range(6)))

        history = await Session(store, "s").get_history()
        assert [m.role for m in history] == ["user", "assistant"] * 6
        assert [m.text for m in history[1::2]] == [f"answer {2 * n + 1}" for n in range(6)]

    async def test_a_wrong_length_of_time_is_refused_at_once(self, store: Store) -> None:
        session = Session(store, "s")

        for ttl in (0, -1, float("nan")):
            with pytest.raises(ConfigurationError, match="ttl"):
                session.lease(ttl=ttl)
        with pytest.raises(ConfigurationError, match="wait"):
            session.lease(wait=-1)
