"""A connection to Redis that ends anywhere, before or after the server acted, leaves one effect."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from leafward import OutcomeUnknown, Session, SessionManager, StoreError, open_store, user
from leafward.core.ids import new_id
from leafward.stores import Slot, Store
from leafward.stores.redis import calls, wires
from leafward.stores.redis.urls import read_url
from leafward.testing.lease_messages import table_of
from tests.stores.proxy import Fault, Proxy
from tests.stores.redis_store import forget
from tests.stores.test_servers_lost_replies import DEEDS, World

MOST_PACKETS = 50
FAULTS = [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY]


class _BehindAProxy:
    @pytest.fixture
    async def proxy(self, redis_url: str) -> AsyncGenerator[Proxy]:
        async with Proxy(*read_url(redis_url).hosts[0]) as proxy:
            yield proxy

    @pytest.fixture
    def prefix(self, redis_url: str):
        prefix = f"{new_id()}:"
        yield prefix
        forget(redis_url, prefix)

    @pytest.fixture
    async def store(self, redis_url: str, prefix: str, proxy: Proxy) -> AsyncGenerator[Store]:
        url = f"redis://:{read_url(redis_url).password}@127.0.0.1:{proxy.port}/0"
        async with open_store(url, key_prefix=prefix) as store:
            yield store
            proxy.spare()

    @pytest.fixture
    async def other(self, redis_url: str, prefix: str) -> AsyncGenerator[Store]:
        async with open_store(redis_url, key_prefix=prefix) as other:
            yield other

    @pytest.fixture
    def world(self, store: Store) -> World:
        return World(store)  # pyright: ignore[reportArgumentType]  (any store will do)


class TestAConnectionThatEnds(_BehindAProxy):
    @pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
    @pytest.mark.parametrize("deed", DEEDS)
    async def test_at_any_packet_of_a_write_leaves_one_effect(
        self, world: World, proxy: Proxy, deed: str, fault: Fault
    ) -> None:
        do, check = DEEDS[deed]
        for packet in range(1, MOST_PACKETS):
            await world.begin()
            proxy.strike(fault, packet=packet)
            result = await do(world)
            struck = proxy.struck
            proxy.spare()
            await check(world, result)
            if not struck:
                assert packet > 1
                return
        pytest.fail(f"{deed} takes more than {MOST_PACKETS} packets")

    async def test_when_others_write_before_the_commit_is_repeated_it_is_still_done_once(
        self, world: World, proxy: Proxy, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.begin()
        number = str(world.number)

        async with _others_first(monkeypatch, lambda: SessionManager(other).add_usage(number, 100, 0, 0)):
            proxy.strike(Fault.LOSE_REPLY)
            await world.manager.add_usage(number, 7, 3, 0.5)

        assert proxy.struck
        info = await world.manager.get(number)
        assert info is not None
        assert (info.input_tokens, info.output_tokens) == (107, 3)

    async def test_and_was_cut_before_the_server_got_it_is_done_after_what_others_wrote(
        self, world: World, proxy: Proxy, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.begin()
        theirs = Session(other, str(world.number))

        async with _others_first(monkeypatch, lambda: theirs.append_message(user("theirs", id="theirs"))):
            proxy.strike(Fault.CUT_BEFORE)
            await world.session.append_message(user("ours", id="ours"))

        assert proxy.struck
        assert [one.id for one in await theirs.get_history()] == ["m0", "m1", "m2", "theirs", "ours"]

    async def test_when_others_delete_the_session_before_the_commit_is_repeated_the_outcome_is_unknown(
        self, world: World, proxy: Proxy, other: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.begin()
        number = str(world.number)

        async with _others_first(monkeypatch, lambda: SessionManager(other).delete(number)):
            proxy.strike(Fault.LOSE_REPLY)
            with pytest.raises(OutcomeUnknown, match="was not answered"):
                await world.manager.add_usage(number, 7, 3, 0.5)

        assert proxy.struck
        assert await world.manager.get(number) is None

    async def test_when_the_server_is_gone_before_it_can_be_looked_for_the_outcome_is_unknown(
        self, world: World, proxy: Proxy, other: Store, store: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await world.begin()
        number = str(world.number)

        async def fail(wanted: object) -> None:
            raise StoreError("the server is gone")

        async with _others_first(monkeypatch, lambda: SessionManager(other).add_usage(number, 100, 0, 0)):
            proxy.strike(Fault.LOSE_REPLY)
            monkeypatch.setattr(store._server, "fetch", fail)
            with pytest.raises(OutcomeUnknown, match="was not answered"):
                await world.manager.add_usage(number, 7, 3, 0.5)

        assert proxy.struck

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
    async def test_under_the_writes_of_many_sessions_leaves_one_effect_of_each(
        self, store: Store, other: Store, proxy: Proxy, fault: Fault
    ) -> None:
        async def write(name: str) -> None:
            for n in range(5):
                await Session(store, name).append_message(user("text", id=f"{n}"))

        for packet in (4, 9):
            proxy.strike(fault, packet=packet)
            names = [f"{packet}.{n}" for n in range(16)]
            await asyncio.gather(*map(write, names))
            assert proxy.struck

            for name in names:
                assert [one.id for one in await Session(other, name).get_history()] == ["0", "1", "2", "3", "4"]
                assert await Session(store, name).get_version() == 5

    async def test_acquire_renew_and_release_are_one_round_trip_each(self, store: Store, proxy: Proxy) -> None:
        table = table_of(store)
        trips: dict[str, list[int]] = {"acquire": [], "renew": [], "send": [], "waiting": [], "release": []}

        async def counted(what: str, call: Awaitable[Any]) -> Any:
            before = proxy.packets
            result = await call
            trips[what].append(proxy.packets - before)
            return result

        for number in range(6):
            lease = await counted("acquire", store.leases.acquire(f"s{number // 2}"))
            assert await counted("renew", table.renew(lease.fence.slot, lease._holder, 30)) == (True, False)
            assert await counted("send", store.leases.send(lease.session_id, None, "text"))
            users = [Slot(name, "s") for name in ("alice", "bob")]
            assert await counted("waiting", table.waiting([lease.fence.slot, *users])) == {lease.fence.slot}
            assert await lease.receive() == ["text"]
            await counted("release", lease.release())
        # The first time a script is not known to the server.
        assert {what: found[1:] for what, found in trips.items()} == dict.fromkeys(trips, [1] * 5)

    @pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
    async def test_at_any_packet_of_a_text_s_way_loses_and_doubles_none(
        self, store: Store, proxy: Proxy, fault: Fault
    ) -> None:
        received: list[str] = []
        async with asyncio.timeout(60), store.leases.acquire("s") as lease:
            for packet in range(1, 12):
                proxy.strike(fault, packet=packet)
                assert await store.leases.send("s", None, f"{packet}")
                received += await lease.receive()
                proxy.spare()
            received += await lease.receive()
        assert received == [f"{packet}" for packet in range(1, 12)]

    async def test_while_a_lease_is_taken_gives_the_lease_that_was_given(self, store: Store, proxy: Proxy) -> None:
        proxy.strike(Fault.LOSE_REPLY)

        async with asyncio.timeout(20), store.leases.acquire("s", ttl=60) as lease:
            assert proxy.struck
            session = Session(store, "s").with_lease(lease)
            await session.append_message(user("held"))


class TestAServerThatFallsSilent(_BehindAProxy):
    @pytest.mark.parametrize("deed", ["an append", "usage"])
    async def test_for_as_long_as_we_have_patience_is_asked_once_more_and_the_write_is_done_once(
        self, world: World, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, deed: str
    ) -> None:
        do, check = DEEDS[deed]
        await world.begin()
        for time in ("PATIENCE_S", "DOUBT_S"):
            monkeypatch.setattr(calls, time, 0.5)
        monkeypatch.setattr(wires, "SILENCE_S", 0.5)
        proxy.strike(Fault.SILENCE)

        result = await do(world)

        assert proxy.struck
        await check(world, result)


class TestAServerThatStaysAway(_BehindAProxy):
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(calls, "PATIENCE_S", 0.3)
        monkeypatch.setattr(calls, "DOUBT_S", 0.6)

    async def test_after_a_reply_was_lost_leaves_the_outcome_unknown_until_the_call_is_repeated(
        self, world: World, proxy: Proxy
    ) -> None:
        do, check = DEEDS["an append"]
        await world.begin()
        proxy.strike(Fault.LOSE_REPLY, b"new", and_then_unreachable=True)

        with pytest.raises(OutcomeUnknown, match="was not answered"):
            await asyncio.wait_for(do(world), 20)

        proxy.spare()
        await check(world, await do(world))

    async def test_does_not_keep_one_who_is_cancelled_from_being_told_so(self, world: World, proxy: Proxy) -> None:
        do, check = DEEDS["an append"]
        await world.begin()
        proxy.strike(Fault.LOSE_REPLY, b"new", and_then_unreachable=True)
        writing = asyncio.ensure_future(do(world))
        await proxy.wait_until_struck()
        writing.cancel()

        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(writing, 20)

        proxy.spare()
        await check(world, await do(world))

    async def test_from_the_start_is_told_as_an_error_that_nothing_was_written(
        self, world: World, proxy: Proxy
    ) -> None:
        do, check = DEEDS["an append"]
        await world.begin()
        proxy.unreachable = True
        proxy.cut()

        for call in (world.session.get_history, lambda: do(world)):
            with pytest.raises(StoreError, match="cannot be reached") as caught:
                await asyncio.wait_for(call(), 20)
            assert not isinstance(caught.value, OutcomeUnknown)

        proxy.spare()
        await check(world, await do(world))


@asynccontextmanager
async def _others_first(monkeypatch: pytest.MonkeyPatch, theirs) -> AsyncGenerator[None]:
    """Let others write between a call that fails and its repetition."""
    sleep = asyncio.sleep
    wrote: list[bool] = []

    async def sleep_after_them(seconds: float) -> None:
        if not wrote:
            wrote.append(True)
            await theirs()
        await sleep(seconds)

    monkeypatch.setattr(calls.asyncio, "sleep", sleep_after_them)
    yield
    assert wrote
    monkeypatch.undo()
