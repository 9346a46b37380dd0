"""What leases promise: one holder at a time for a user's session, in the order they came, however holders end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from leafward import ConfigurationError, InvalidId, LeaseBusy, Session, StoreError, user
from leafward.testing.durable import PATIENCE, Reopen
from leafward.testing.elsewhere import elsewhere
from leafward.testing.fencing import Fencing
from leafward.testing.ids import HOSTILE_IDS, REFUSED_IDS
from leafward.testing.session_leases import SessionLeasing

if TYPE_CHECKING:
    from leafward.stores import Lease, Store

T = TypeVar("T")

SHORT = 0.3
"""Seconds that the lease of one who is to die lasts."""
LIVELY = 2.0
"""Seconds in which a living holder gets to renew its lease, also on a busy machine."""
PROMPT = 2.0
"""Seconds in which one who is woken has the lease, and one who asks only now and then has not."""


async def soon(awaited: Awaitable[T], seconds: float = PATIENCE) -> T:
    """Return what comes of it; fail when it takes too long."""
    async with asyncio.timeout(seconds):
        return await awaited


async def queued(store: Store, session_id: str = "s", **options: Any) -> asyncio.Future[Lease]:
    """Begin to wait for a lease that is taken; return when one has a place in the queue."""
    waiting = elsewhere(store.leases.acquire(session_id, **options))
    await asyncio.sleep(0)
    with pytest.raises(LeaseBusy):
        # Asked later at the same store, so answered later.
        await elsewhere(store.leases.acquire(session_id, wait=0))
    assert not waiting.done()
    return waiting


async def holder_gone(reopen: Reopen, session_id: str = "s", *, ttl: float = SHORT) -> Lease:
    """Return the lease of a holder that went away without a word, whose store renews it no more."""
    other = await reopen()
    lease = await soon(other.leases.acquire(session_id, ttl=ttl))
    await other.close()
    return lease


async def until_given_up(lease: Lease) -> None:
    """Wait until a lease that was lost is no longer renewed, and raise what its last renewal raised."""
    async with asyncio.timeout(PATIENCE):
        while not lease.is_over:  # noqa: ASYNC110  (what ends it is between a timer and a task)
            await asyncio.sleep(0.005)
        if isinstance(lease._renewing, asyncio.Task):  # pyright: ignore[reportPrivateUsage]
            await lease._renewing  # pyright: ignore[reportPrivateUsage]


class _Holding:
    """Acquire, hold, release."""

    async def test_a_lease_says_what_it_is_for(self, store: Store) -> None:
        lease = await store.leases.acquire("s", user_id="alice")

        assert (lease.session_id, lease.user_id, lease.held) == ("s", "alice", True)
        assert isinstance(lease.token, int)
        assert "'alice'" in repr(lease)
        await lease.release()
        assert not lease.held

    async def test_never_two_hold_it_at_once(self, store: Store, reopen: Reopen) -> None:
        inside: list[str] = []
        most = 0

        async def work(where: Store, name: str) -> None:
            nonlocal most
            for _ in range(4):
                async with where.leases.acquire("s"):
                    inside.append(name)
                    most = max(most, len(inside))
                    await Session(where, "s").append_message(user(name))
                    inside.remove(name)

        other = await reopen()
        await soon(asyncio.gather(*(work(where, f"{n}") for n, where in enumerate((store, other, store)))))

        assert most == 1
        assert await Session(store, "s").get_path_length() == 12

    async def test_leaving_the_block_releases(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        async with store.leases.acquire("s") as lease:
            with pytest.raises(LeaseBusy):
                await other.leases.acquire("s", wait=0)
        assert not lease.held
        async with await other.leases.acquire("s", wait=0) as awaited:
            assert awaited.held
        with pytest.raises(KeyError):
            async with store.leases.acquire("s", wait=0):
                raise KeyError
        await (await other.leases.acquire("s", wait=0)).release()

    async def test_a_second_release_takes_nothing_from_the_next_holder(self, store: Store) -> None:
        first = await store.leases.acquire("s")
        await first.release()
        second = await store.leases.acquire("s")

        await first.release()

        with pytest.raises(LeaseBusy):
            await elsewhere(store.leases.acquire("s", wait=0))
        await Session(store, "s").with_lease(second).append_message(user("held"))
        await second.release()

    async def test_a_release_lets_the_next_one_in_at_once(self, store: Store, reopen: Reopen) -> None:
        for where in (store, await reopen()):
            lease = await store.leases.acquire("s")
            waiting = await queued(where)

            await lease.release()

            await (await soon(waiting, PROMPT)).release()

    async def test_one_waits_as_long_as_one_says(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        lease = await store.leases.acquire("s")
        for wait in (0, 0.05, 0.2):
            with pytest.raises(LeaseBusy, match="'s'"):
                await soon(other.leases.acquire("s", wait=wait))
        waiting = [await queued(other), await queued(other, wait=PATIENCE)]

        await lease.release()

        for one in waiting:
            await (await soon(one)).release()

    async def test_one_who_would_not_wait_keeps_no_place(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        async with store.leases.acquire("s"):
            with pytest.raises(LeaseBusy):
                await other.leases.acquire("s", wait=0.05)

        await (await store.leases.acquire("s", wait=0)).release()

    async def test_a_lease_is_renewed_for_as_long_as_it_is_held(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        async with store.leases.acquire("s", ttl=LIVELY) as lease:
            with pytest.raises(LeaseBusy):
                await other.leases.acquire("s", wait=1.25 * LIVELY)

            assert lease.held
            await Session(store, "s").with_lease(lease).append_message(user("still"))

    async def test_tokens_only_grow(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        tokens: list[int] = []
        for where in (store, store, other, store):
            async with where.leases.acquire("s", wait=PATIENCE) as lease:
                tokens.append(lease.token)
        tokens.append((await holder_gone(reopen)).token)
        async with store.leases.acquire("s", wait=PATIENCE) as lease:
            tokens.append(lease.token)

        assert tokens == sorted(set(tokens))

    async def test_tokens_grow_over_a_session_that_was_deleted(self, store: Store) -> None:
        tokens: list[int] = []
        for remove in (store.registry.delete, store.registry.erase):
            session = Session(store, "s")
            async with store.leases.acquire("s") as lease:
                tokens.append(lease.token)
                await session.with_lease(lease).append_message(user("text"))
            await remove(session._scope)  # pyright: ignore[reportPrivateUsage]
        async with store.leases.acquire("s") as lease:
            tokens.append(lease.token)

        assert tokens == sorted(set(tokens))

    async def test_a_slot_is_a_user_and_a_session(self, store: Store) -> None:
        pairs = [("s", None), ("a", "b:c"), ("b:c", "a"), ("a:b", "c"), ("c", "a:b")]
        slots: set[tuple[str, str | None]] = {*pairs}
        for name in HOSTILE_IDS:
            slots |= {(name, None), ("s", name)}

        async with AsyncExitStack() as held:
            for session_id, user_id in slots:
                await held.enter_async_context(store.leases.acquire(session_id, user_id=user_id, wait=0))
            for session_id, user_id in pairs:
                with pytest.raises(LeaseBusy):
                    await elsewhere(store.leases.acquire(session_id, user_id, wait=0))

    async def test_a_bad_id_is_refused(self, store: Store) -> None:
        for name in REFUSED_IDS:
            with pytest.raises(InvalidId):
                await store.leases.acquire(name)
            with pytest.raises(InvalidId):
                await store.leases.acquire("s", user_id=name)

    @pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), "30", None, True])
    async def test_a_lease_lasts_some_time(self, store: Store, wrong: Any) -> None:
        with pytest.raises(ConfigurationError, match="ttl"):
            await store.leases.acquire("s", ttl=wrong)

    @pytest.mark.parametrize("wrong", [-1, float("nan"), "5", True])
    async def test_one_waits_some_time(self, store: Store, wrong: Any) -> None:
        with pytest.raises(ConfigurationError, match="wait"):
            await store.leases.acquire("s", wait=wrong)


class _Queueing:
    """First come, first served."""

    async def test_those_who_wait_are_served_in_the_order_they_came(self, store: Store, reopen: Reopen) -> None:
        stores = [store, await reopen()]
        served: list[int] = []

        async def serve(number: int, waiting: asyncio.Future[Lease]) -> None:
            async with await waiting:
                served.append(number)

        first = await store.leases.acquire("s")
        turns = [
            asyncio.ensure_future(serve(n, await queued(stores[which])))
            for n, which in enumerate([0, 1, 1, 0, 1, 0, 0, 0, 1, 1])
        ]
        await first.release()
        await soon(asyncio.gather(*turns))

        assert served == list(range(10))

    async def test_a_newcomer_does_not_overtake_one_who_waits(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        for _ in range(10):
            lease = await store.leases.acquire("s")
            waiting = await queued(store)

            await lease.release()

            with pytest.raises(LeaseBusy):
                await other.leases.acquire("s", wait=0)
            await (await soon(waiting)).release()

    @pytest.mark.parametrize("which", [0, 1, 2])
    async def test_one_who_is_cancelled_leaves_the_queue_as_it_was(
        self, store: Store, reopen: Reopen, which: int
    ) -> None:
        other = await reopen()
        lease = await store.leases.acquire("s")
        waiting = [await queued(where) for where in (store, other, store)]

        gone = waiting.pop(which)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await lease.release()

        first = await soon(waiting[0])
        assert not waiting[1].done()
        await first.release()
        await (await soon(waiting[1])).release()

    async def test_one_who_is_cancelled_at_any_step_keeps_nothing(self, store: Store) -> None:
        for steps in range(16):
            acquiring = asyncio.ensure_future(store.leases.acquire("s"))
            for _ in range(steps):
                await asyncio.sleep(0)
            acquiring.cancel()
            with suppress(asyncio.CancelledError):
                await (await acquiring).release()

            await (await soon(store.leases.acquire("s", wait=0))).release()

    async def test_a_release_that_is_cancelled_at_any_step_releases(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        for steps in range(1, 8):
            releasing = asyncio.ensure_future((await store.leases.acquire("s")).release())
            for _ in range(steps):
                await asyncio.sleep(0)
            releasing.cancel()
            await asyncio.sleep(0)
            releasing.cancel()
            with suppress(asyncio.CancelledError):
                await releasing

            await (await other.leases.acquire("s", wait=0)).release()


class _Endings:
    """Holders and waiters that go away without a word."""

    async def test_a_holder_that_is_gone_is_followed_when_its_time_is_up(self, store: Store, reopen: Reopen) -> None:
        gone = await holder_gone(reopen)

        async with asyncio.timeout(PATIENCE), store.leases.acquire("s") as lease:
            assert lease.token > gone.token

    async def test_a_holder_that_is_gone_is_not_followed_before(self, store: Store, reopen: Reopen) -> None:
        await holder_gone(reopen, ttl=100 * PATIENCE)

        with pytest.raises(LeaseBusy):
            await store.leases.acquire("s", wait=SHORT)

    async def test_a_waiter_that_is_gone_is_skipped(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        lease = await store.leases.acquire("s")
        gone = await queued(other, ttl=SHORT)
        waiting = await queued(store)
        await other.close()
        with pytest.raises(StoreError, match="closed"):
            await soon(gone)

        await lease.release()

        await (await soon(waiting)).release()

    async def test_a_store_that_is_closed_ends_its_leases_quietly(
        self, store: Store, reopen: Reopen, caplog: pytest.LogCaptureFixture
    ) -> None:
        gone = await holder_gone(reopen)

        await until_given_up(gone)

        assert not gone.held
        assert caplog.records == []
        with pytest.raises(StoreError, match="closed"):
            await gone.release()

    async def test_a_lease_that_nobody_has_runs_out(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        lease = await store.leases.acquire("s", ttl=SHORT)
        del lease
        gc.collect()

        await (await soon(other.leases.acquire("s"))).release()

    async def test_a_lease_that_only_a_handle_has_is_renewed(self, store: Store, reopen: Reopen) -> None:
        other = await reopen()
        # What is there already is left out: a look through all of a large process may take longer than the lease.
        gc.freeze()
        session = Session(store, "s").with_lease(await store.leases.acquire("s", ttl=LIVELY))
        gc.collect()
        gc.unfreeze()

        with pytest.raises(LeaseBusy):
            await other.leases.acquire("s", wait=1.25 * LIVELY)

        await session.append_message(user("still"))


@pytest.mark.asyncio
class LeaseContract(_Holding, _Queueing, _Endings, Fencing, SessionLeasing):
    """A session has one leased writer at a time, and one who lost the lease writes nothing more.

    Subclasses define the fixtures `store` and `reopen` as `DurableContract` tells.
    """
