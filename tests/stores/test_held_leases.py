"""A task that holds a lease is refused it, instead of waiting for itself; others wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextvars import Context

import pytest

from leafward import ConfigurationError, LeaseBusy, Session, open_store
from leafward.stores import Lease, Store
from leafward.testing.elsewhere import elsewhere
from leafward.testing.leases import until_given_up

PATIENCE = 20


@pytest.fixture
async def store() -> AsyncGenerator[Store]:
    async with open_store("memory://") as store, asyncio.timeout(PATIENCE):
        yield store


async def test_one_who_holds_a_lease_is_refused_it(store: Store) -> None:
    async with store.leases.acquire("s", "alice"):
        for wait in (None, 0, 5):
            with pytest.raises(ConfigurationError, match=r"'s' of user 'alice'.*wait for itself"):
                await store.leases.acquire("s", "alice", wait=wait)
        with pytest.raises(ConfigurationError):
            async with Session(store, "s", user_id="alice").lease():
                pass
        async with store.leases.acquire("s"), store.leases.acquire("t", "alice"), store.leases.acquire("s", "bob"):
            pass


async def test_a_task_started_within_is_refused_it(store: Store) -> None:
    async def deeper() -> None:
        await asyncio.create_task(ask())

    async def ask() -> None:
        await (await store.leases.acquire("s")).release()

    async with store.leases.acquire("s"):
        for task in (asyncio.create_task(ask()), asyncio.create_task(deeper())):
            with pytest.raises(ConfigurationError):
                await task
        with pytest.raises(ConfigurationError):
            await asyncio.wait_for(ask(), 5)
        with pytest.raises(ConfigurationError):
            await asyncio.gather(ask(), ask())
        following = asyncio.create_task(ask(), context=Context())
        await asyncio.sleep(0.02)
        assert not following.done()
    await following


async def test_two_who_ask_at_once_queue(store: Store) -> None:
    served: list[int] = []

    async def serve(number: int) -> None:
        async with store.leases.acquire("s"):
            served.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(serve(number) for number in range(5)))

    assert served == list(range(5))
    leases = await asyncio.gather(store.leases.acquire("s"), store.leases.acquire("t"))
    for lease in leases:
        await lease.release()


async def test_after_a_release_it_is_had_again(store: Store) -> None:
    for _ in range(3):
        async with store.leases.acquire("s"):
            pass
        lease = await store.leases.acquire("s", wait=0)
        await lease.release()


async def test_one_that_another_task_released_is_had_again(store: Store) -> None:
    lease = await store.leases.acquire("s")
    await asyncio.create_task(lease.release())
    again = await store.leases.acquire("s", wait=0)
    await elsewhere(again.release())
    await (await store.leases.acquire("s", wait=0)).release()


async def test_a_task_that_outlives_the_lease_it_was_started_in_may_have_it(store: Store) -> None:
    ended = asyncio.Event()

    async def later() -> Lease:
        await ended.wait()
        return await store.leases.acquire("s", wait=0)

    async with store.leases.acquire("s"):
        task = asyncio.create_task(later())
    ended.set()
    lease = await task
    with pytest.raises(LeaseBusy):
        await store.leases.acquire("s", wait=0)
    await lease.release()


async def test_one_that_was_lost_is_had_again(store: Store) -> None:
    lost = await store.leases.acquire("s", ttl=0.2)
    assert await store.leases.release("s", token=lost.token)
    await until_given_up(lost)
    async with store.leases.acquire("s", wait=0) as lease:
        assert lease.token > lost.token


async def test_one_that_is_dropped_runs_out_and_is_had_again(store: Store) -> None:
    lease = await store.leases.acquire("s", ttl=0.1)
    del lease
    gc.collect()
    async with store.leases.acquire("s"):
        pass


async def test_one_that_is_blocked_for_longer_than_it_lasts_is_still_refused(store: Store) -> None:
    async with store.leases.acquire("s", ttl=0.05) as lease:
        lease._until = 0
        with pytest.raises(ConfigurationError):
            await store.leases.acquire("s")


async def test_another_open_store_is_another_caller() -> None:
    name = f"memory://{test_another_open_store_is_another_caller.__name__}"
    async with open_store(name) as one, open_store(name) as other, one.leases.acquire("s"):
        with pytest.raises(LeaseBusy):
            await other.leases.acquire("s", wait=0)


async def test_a_hundred_leases_in_one_task_leave_nothing_behind(store: Store) -> None:
    from leafward.stores.leases.held_leases import _held

    for number in range(100):
        async with store.leases.acquire(f"s{number}"):
            pass
    assert len(_held.get()) <= 1
