"""How leases are waited for, kept and let go, where that can be seen without a second process."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest

import leafward
from leafward import ConfigurationError, LeaseBusy, LeaseLost, OutcomeUnknown, Session, StoreError, open_store, user
from leafward.stores import Lease, LeaseTable, Renewed, Slot, Store, TableLeases
from leafward.stores.leases.document_leases import Document, DocumentLeases
from leafward.stores.leases.forwarding_table import ForwardingLeaseTable
from leafward.stores.sql import operations
from leafward.stores.sqlite import SqliteStore
from leafward.testing.elsewhere import elsewhere
from leafward.testing.leases import queued, until_given_up
from tests.sessions.dict_storage import DictStorage

T = TypeVar("T")


class Table(DocumentLeases):
    """A table in memory that counts what it is asked, and does what it is told to instead."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.fails: dict[str, list[Exception]] = {}
        self.delays: list[float] = []
        self._changed = asyncio.Event()
        self._leases: dict[Slot, Document] = {}

    async def read_lease(self, slot: Slot) -> Document:
        return self._leases.setdefault(slot, {})

    async def change_lease(self, slot: Slot, change: Callable[[Document], T]) -> T:
        lease = self._leases.setdefault(slot, {})
        try:
            return change(lease)
        finally:
            # A store of JSON need not keep the order of keys.
            self._leases[slot] = json.loads(json.dumps(lease, sort_keys=True))

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        if self.delays:
            await asyncio.sleep(self.delays.pop(0))
        token = await super().take(slot, holder, ttl, label)
        await self._answer("take")
        return token

    async def renew(self, slot: Slot, holder: str, ttl: float) -> Renewed:
        renewed = await super().renew(slot, holder, ttl)
        await self._answer("renew")
        return renewed

    async def leave(self, slot: Slot, holder: str) -> None:
        await super().leave(slot, holder)
        await self._answer("leave")

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        await super().received(slot, holder, number)
        await self._answer("received")

    async def reached(self, what: str, times: int) -> None:
        """Return when it was asked so many times."""
        async with asyncio.timeout(20):
            while self.asked[what] < times:
                self._changed.clear()
                await self._changed.wait()

    async def _answer(self, what: str) -> None:
        self.asked[what] += 1
        self._changed.set()
        await asyncio.sleep(0)
        if self.fails.get(what):
            raise self.fails[what].pop(0)


@pytest.fixture
def table() -> Table:
    return Table()


async def test_a_lost_answer_is_asked_for_again(table: Table) -> None:
    table.fails = {"take": [OutcomeUnknown("the server")], "leave": [OutcomeUnknown("the server")]}
    leases = TableLeases(table)

    async with leases.acquire("s"):
        with pytest.raises(LeaseBusy):
            await elsewhere(leases.acquire("s", wait=0))

    await (await leases.acquire("s", wait=0)).release()


async def test_a_store_that_fails_says_so_and_keeps_no_place(table: Table) -> None:
    leases = TableLeases(table)
    table.fails = {"take": [StoreError("the server is gone")]}

    with pytest.raises(StoreError, match="gone"):
        await leases.acquire("s")

    await (await leases.acquire("s", wait=0)).release()


async def test_a_release_that_failed_can_be_repeated(table: Table) -> None:
    leases = TableLeases(table)
    lease = await leases.acquire("s")
    table.fails = {"leave": [StoreError("the server is gone")]}

    with pytest.raises(StoreError, match="gone"):
        await lease.release()
    assert not lease.held
    await lease.release()
    await lease.release()

    assert table.asked["leave"] == 2


async def test_one_who_is_cancelled_is_told_so_also_when_the_store_fails(table: Table) -> None:
    leases = TableLeases(table)
    lease = await leases.acquire("s")
    waiting = elsewhere(leases.acquire("s"))
    await asyncio.sleep(0)
    table.fails = {"leave": [StoreError("the server is gone")]}

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    await lease.release()


async def test_a_store_that_does_not_answer_is_waited_for_no_longer_than_one_would_wait(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leafward.stores.leases.acquisition.GRACE_S", 0.05)
    leases = TableLeases(table)
    table.delays = [3600]

    async with asyncio.timeout(20):
        with pytest.raises(StoreError, match=r"does not answer.*'s'"):
            await leases.acquire("s", wait=0.05)

    assert table.asked["leave"] == 1
    await (await leases.acquire("s", wait=0)).release()


async def test_a_lease_is_busy_once_the_store_said_so_to_anybody_who_waits(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leafward.stores.leases.acquisition.GRACE_S", 0.05)
    leases = TableLeases(table)
    async with asyncio.timeout(20), leases.acquire("s"):
        table.delays = [0, 3600]
        first, second = elsewhere(leases.acquire("s", wait=0.05)), elsewhere(leases.acquire("s", wait=0.05))
        told = await asyncio.gather(first, second, return_exceptions=True)
        assert [type(one) for one in told] == [LeaseBusy, LeaseBusy]

        table.delays = [0, 3600]
        with pytest.raises(LeaseBusy):
            await elsewhere(leases.acquire("s", wait=0.05))


async def test_one_who_is_cancelled_at_any_moment_keeps_no_lease(table: Table) -> None:
    leases = TableLeases(table)
    acquiring: asyncio.Future[Lease] = asyncio.Future()
    for turns in range(20):
        acquiring = asyncio.ensure_future(leases.acquire("s"))
        for _ in range(turns):
            await asyncio.sleep(0)
        acquiring.cancel()
        with suppress(asyncio.CancelledError):
            await (await acquiring).release()

        await (await leases.acquire("s", wait=0)).release()
    assert not acquiring.cancelled()


async def test_a_lease_outlives_a_short_failure_of_its_store(table: Table) -> None:
    lease = await TableLeases(table).acquire("s", ttl=0.3)
    table.fails = {"renew": [StoreError("the server is gone")]}

    await table.reached("renew", 4)

    assert lease.held
    await lease.release()


async def test_a_lease_is_no_longer_held_when_its_store_fails_for_longer_than_it_lasts(table: Table) -> None:
    lease = await TableLeases(table).acquire("s", ttl=0.06)
    table.fails = {"renew": [StoreError("the server is gone")] * 1000}

    await until_given_up(lease)

    assert not lease.held


async def test_a_hundred_who_wait_ask_little_and_are_served_in_turn(table: Table) -> None:
    leases = TableLeases(table)
    served: list[int] = []

    async def wait(number: int) -> None:
        async with leases.acquire("s"):
            served.append(number)

    lease = await leases.acquire("s")
    waiting = [elsewhere(wait(n)) for n in range(100)]
    await table.reached("take", 101)
    await asyncio.sleep(0.5)
    assert table.asked["take"] == 101, "nobody can be served while the holder is at the same store"
    await lease.release()
    async with asyncio.timeout(5):
        await asyncio.gather(*waiting)

    assert served == list(range(100))
    assert table.asked["take"] <= 301


async def test_those_of_one_process_are_served_as_they_came_also_where_a_later_call_may_end_first(table: Table) -> None:
    leases = TableLeases(table)
    served: list[int] = []

    async def wait(number: int) -> None:
        async with leases.acquire("s"):
            served.append(number)

    async with leases.acquire("s"):
        table.delays = [0.05, 0.02, 0.0]
        waiting = [elsewhere(wait(n)) for n in range(3)]
        await table.reached("take", 4)
    await asyncio.gather(*waiting)

    assert served == [0, 1, 2]


async def test_slots_that_nobody_uses_are_forgotten(table: Table) -> None:
    leases = TableLeases(table)

    for n in range(50):
        async with leases.acquire(f"s{n}"):
            pass
    await asyncio.sleep(0)

    assert len(leases._queues) <= 1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[Store]:
    async with open_store(f"sqlite:///{path}") as store:
        yield store


class Deaf(ForwardingLeaseTable):
    """A store's table behind a line on which every first answer is lost."""

    def __init__(self, table: LeaseTable) -> None:
        self._table = table
        self._heard: set[tuple[str, str]] = set()

    async def on_table(self, call: Callable[[LeaseTable], Awaitable[T]]) -> T:
        return await call(self._table)

    async def take(self, slot: Slot, holder: str, ttl: float, label: str | None = None) -> int | None:
        return self._hear("take", holder, await super().take(slot, holder, ttl, label))

    async def leave(self, slot: Slot, holder: str) -> None:
        self._hear("leave", holder, await super().leave(slot, holder))

    async def received(self, slot: Slot, holder: str, number: int) -> None:
        self._hear("received", f"{number}", await super().received(slot, holder, number))

    def _hear(self, what: str, holder: str, answer: T) -> T:
        if (what, holder) not in self._heard:
            self._heard.add((what, holder))
            raise OutcomeUnknown("the server")
        return answer


async def test_a_lease_whose_answer_was_lost_is_had_at_once(store: Store) -> None:
    assert isinstance(store.leases, TableLeases)
    leases = TableLeases(Deaf(store.leases._table))
    tokens: list[int] = []

    for _ in range(3):
        async with leases.acquire("s", wait=0) as lease:
            tokens.append(lease.token)
            await Session(store, "s").with_lease(lease).append_message(user("held"))
            with pytest.raises(LeaseBusy):
                await elsewhere(leases.acquire("s", wait=0))

    assert tokens == sorted(set(tokens))


async def test_waiting_for_another_process_writes_nothing(store: Store, path: Path) -> None:
    async with open_store(f"sqlite:///{path}") as other, store.leases.acquire("s"):
        waiting = await queued(other)
        assert isinstance(other, SqliteStore)
        before = other._connection.total_changes
        await asyncio.sleep(0.5)
        assert other._connection.total_changes == before
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_texts_whose_answer_was_lost_are_had_once(store: Store) -> None:
    assert isinstance(store.leases, TableLeases)
    received: list[str] = []

    async with TableLeases(Deaf(store.leases._table)).acquire("s") as lease:
        for n in range(5):
            await store.leases.send("s", None, f"{n}")
            received += await lease.receive()

    assert received == ["0", "1", "2", "3", "4"]


async def test_texts_that_could_not_be_received_are_received_later(table: Table) -> None:
    leases = TableLeases(table)
    async with leases.acquire("s") as lease:
        await leases.send("s", None, "one")
        table.fails = {"received": [OutcomeUnknown("the server"), StoreError("the server is gone")]}
        with pytest.raises(StoreError, match="gone"):
            await lease.receive()
        await leases.send("s", None, "two")

        assert await lease.receive() == ["one", "two"]
        assert await lease.receive() == []


async def test_a_text_that_a_receive_deleted_and_did_not_return_outlives_an_acknowledgement(table: Table) -> None:
    leases = TableLeases(table)
    async with leases.acquire("s") as lease:
        await leases.send("s", None, "one")
        table.fails = {"received": [OutcomeUnknown("the server"), StoreError("the server is gone")]}
        with pytest.raises(StoreError, match="gone"):
            await lease.receive()
        await leases.send("s", None, "two")
        (second,) = await lease.peek()
        await lease.acknowledge(second.number)

        assert await lease.receive() == ["one"]


async def test_a_lease_that_is_lost_after_an_acknowledgement_leaves_its_texts_to_the_next(table: Table) -> None:
    leases = TableLeases(table)
    lease = await leases.acquire("s")
    await leases.send("s", None, "one")
    received = table.received
    table.received = AsyncMock(side_effect=StoreError("the server is gone"))
    with pytest.raises(StoreError, match="gone"):
        await lease.receive()
    table.received = received
    (first,) = await lease.peek()
    await lease.acknowledge(first.number)
    await leases.send("s", None, "two")

    async def lost(slot: Slot, holder: str, number: int) -> None:
        await leases.release("s", token=lease.token)
        await received(slot, holder, number)

    table.received = lost
    with pytest.raises(LeaseLost):
        await lease.receive()
    await lease.release()


async def test_whether_texts_were_received_is_not_known_when_the_lease_is_lost_meanwhile(table: Table) -> None:
    leases = TableLeases(table)
    lease = await leases.acquire("s")
    await leases.send("s", None, "one")
    received = table.received

    async def lost(slot: Slot, holder: str, number: int) -> None:
        await received(slot, holder, number)
        await leases.release("s", token=lease.token)
        raise OutcomeUnknown("the server")

    table.received = lost
    with pytest.raises(OutcomeUnknown):
        await lease.receive()
    await lease.release()


@pytest.mark.parametrize("back", [1, 86_400 * 365])
async def test_tokens_grow_when_the_clock_goes_back(store: Store, monkeypatch: pytest.MonkeyPatch, back: int) -> None:
    async with store.leases.acquire("s") as lease:
        before = lease.token
    now = operations.now_micros
    monkeypatch.setattr(operations, "now_micros", lambda: now() - back * 1_000_000)

    async with store.leases.acquire("s", wait=0) as lease:
        assert lease.token > before


async def test_an_event_loop_that_was_blocked_keeps_its_lease_when_nobody_came(store: Store) -> None:
    async with store.leases.acquire("s", ttl=0.1) as lease:
        # The event loop is what is blocked.
        time.sleep(0.2)
        assert not lease.held

        async with asyncio.timeout(20):
            while not lease.held:
                await Session(store, "s").with_lease(lease).append_message(user("still"))


async def test_an_event_loop_that_was_blocked_loses_its_lease_to_who_came(store: Store, path: Path) -> None:
    taken, over = threading.Event(), threading.Event()

    def take() -> None:
        with leafward.blocking(f"sqlite:///{path}") as other, other.leases.acquire("s"):
            taken.set()
            assert over.wait(20)

    lease = await store.leases.acquire("s", ttl=0.2)
    session = Session(store, "s").with_lease(lease)
    taking = threading.Thread(target=take)
    taking.start()
    assert taken.wait(20), "nobody follows a holder that sleeps"

    with pytest.raises(LeaseLost):
        await session.append_message(user("late"))
    await until_given_up(lease)
    assert not lease.held
    over.set()
    await asyncio.to_thread(taking.join)


async def test_what_was_leased_leaves_no_trace_of_an_erased_session(store: Store, path: Path) -> None:
    name = "xkvbdzcfwpmg"
    session = Session(store, name)
    async with store.leases.acquire(name) as lease:
        await session.with_lease(lease).append_message(user("text"))

    await store.registry.erase(session._scope)
    await store.close()

    assert [file.name for file in path.parent.iterdir() if name.encode() in file.read_bytes()] == []


async def test_a_deleted_session_stays_leased_to_its_holder(store: Store) -> None:
    session = Session(store, "s")
    async with store.leases.acquire("s") as lease:
        leased = session.with_lease(lease)
        await leased.append_message(user("old"))
        await store.registry.delete(session._scope)

        await leased.append_message(user("new"))

    assert [message.text for message in await session.get_history()] == ["new"]


async def test_a_storage_of_ones_own_has_no_leases(store: Store) -> None:
    async with store.leases.acquire("default") as lease:
        with pytest.raises(ConfigurationError, match="no leases"):
            Session(DictStorage()).with_lease(lease)


async def test_stores_of_two_event_loops_share_a_lease() -> None:
    url = f"memory://{uuid4()}"
    order: list[str] = []

    def follow() -> None:
        with leafward.blocking(url) as other, other.leases.acquire("s") as lease:
            assert isinstance(lease.token, int)
            order.append("follower")

    async with open_store(url) as store:
        lease: Lease = await store.leases.acquire("s")
        following = asyncio.ensure_future(asyncio.to_thread(follow))
        await asyncio.sleep(0.05)
        order.append("holder")
        await lease.release()
        async with asyncio.timeout(20):
            await following

    assert order == ["holder", "follower"]


async def test_a_waiter_does_not_pass_a_holder_whose_name_sorts_after_its_own() -> None:
    table, slot = Table(), Slot(None, "s")
    token = await table.take(slot, "z", 30)

    assert token is not None
    assert [await table.take(slot, "a", 30) for _ in range(3)] == [None, None, None]
    assert (await table.renew(slot, "z", 30)).held


async def test_a_lost_lease_is_reported_as_lost_also_while_another_error_is_handled() -> None:
    table = Table()
    leases = TableLeases(table)
    lease = await leases.acquire("s")
    await leases.send("s", None, "text")
    held = await leases.holder("s")
    assert held is not None

    async def lose(slot: Slot, holder: str, number: int) -> None:
        await leases.release("s", token=held.token)
        raise LeaseLost("s")

    table.received = lose
    try:
        raise OutcomeUnknown("another call", unanswered=True)
    except OutcomeUnknown:
        with pytest.raises(LeaseLost):
            await lease.receive()
    await lease.release()
