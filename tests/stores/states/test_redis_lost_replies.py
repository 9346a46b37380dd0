"""A connection to Redis that ends anywhere, before or after the server acted, leaves one effect on a state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

import pytest

from leafward import LeaseLost, OutcomeUnknown, SessionKey, StaleState
from leafward.stores import RedisAgentStateStore
from leafward.stores.redis import calls, states
from leafward.stores.redis.urls import read_url
from tests.stores.proxy import Fault, Proxy
from tests.stores.states.redis_states import own_prefix

FAULTS = [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY]
KEY = SessionKey("s", "alice")
CALL = b"EVALSHA"
ITEMS = [{"n": n} for n in range(5)]

Do = Callable[[RedisAgentStateStore], Awaitable[object]]


async def _save(states: RedisAgentStateStore) -> None:
    # The same as is there: only its version tells that it was saved again.
    await states.save(KEY, "a", {"n": 0})


async def _save_if_version(states: RedisAgentStateStore) -> None:
    assert await states.save_if_version(KEY, "a", {"n": 0}, 2) == 3


async def _save_in_place_of_a_list(states: RedisAgentStateStore) -> None:
    assert await states.save_if_version(KEY, "b", {"n": 0}, -1) == 1


DEEDS: dict[str, tuple[Do, tuple[object, int], Sequence[object] | None]] = {
    "save": (_save, ({"n": 0}, 3), ITEMS),
    "save at a version": (_save_if_version, ({"n": 0}, 3), ITEMS),
    "save in place of a list": (_save_in_place_of_a_list, ({"n": 0}, 2), None),
    "append": (lambda one: one.save_list(KEY, "b", [*ITEMS, {"n": 0}]), ({"n": 0}, 2), [*ITEMS, {"n": 0}]),
    "rewrite": (lambda one: one.save_list(KEY, "b", [{"n": 0}, *ITEMS]), ({"n": 0}, 2), [{"n": 0}, *ITEMS]),
    "empty": (lambda one: one.save_list(KEY, "b", []), ({"n": 0}, 2), []),
    "delete a name": (lambda one: one.delete(KEY, "a"), (None, 0), ITEMS),
    "delete all": (lambda one: one.delete(KEY), (None, 0), []),
}


@pytest.fixture
async def proxy(redis_url: str) -> AsyncGenerator[Proxy]:
    async with Proxy(*read_url(redis_url).hosts[0]) as proxy:
        yield proxy


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    yield from own_prefix(redis_url)


@pytest.fixture
async def ours(redis_url: str, prefix: str, proxy: Proxy) -> AsyncGenerator[RedisAgentStateStore]:
    url = f"redis://:{read_url(redis_url).password}@127.0.0.1:{proxy.port}/0"
    async with RedisAgentStateStore(url, prefix) as ours:
        yield ours
        proxy.spare()


@pytest.fixture
async def theirs(redis_url: str, prefix: str) -> AsyncGenerator[RedisAgentStateStore]:
    async with RedisAgentStateStore(redis_url, prefix) as theirs:
        await theirs.save(KEY, "a", {"n": 0})
        await theirs.save(KEY, "a", {"n": 0})
        await theirs.save_list(KEY, "b", ITEMS)
        # The server knows all scripts by name then.
        await theirs.delete(KEY, "c")
        yield theirs


@pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
@pytest.mark.parametrize("deed", DEEDS)
async def test_each_change_is_made_once(
    ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, deed: str, fault: Fault
) -> None:
    do, value, items = DEEDS[deed]
    await ours.exists(KEY)
    for packet in range(1, 10):
        await theirs.delete(KEY)
        for _ in range(2):
            await theirs.save(KEY, "a", {"n": 0})
        await theirs.save_list(KEY, "b", ITEMS)
        proxy.strike(fault, packet=packet)
        await do(ours)
        struck = proxy.struck
        proxy.spare()
        assert await theirs.get_versioned(KEY, "a") == value
        if items is None:
            assert await theirs.get_versioned(KEY, "b") == ({"n": 0}, 1)
        else:
            assert await theirs.get_list(KEY, "b") == items
        if not struck:
            assert packet > 1
            return
    pytest.fail(f"{deed} takes many packets")


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Awaitable[object]]], None]:
    """A call that lets others do something between a call that fails and its repetition."""
    sleep = asyncio.sleep
    waiting: list[Callable[[], Awaitable[object]]] = []

    async def sleep_after_them(seconds: float) -> None:
        if waiting and seconds:
            await waiting.pop()()
        await sleep(seconds)

    monkeypatch.setattr(calls.asyncio, "sleep", sleep_after_them)
    return waiting.append


class TestWhenOthersWriteBeforeTheRepetition:
    async def test_a_save_that_was_made_is_not_made_again(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        await ours.exists(KEY)
        for expected in (-1, 4):
            proxy.strike(Fault.LOSE_REPLY, CALL)
            meanwhile(lambda: theirs.save(KEY, "a", {"theirs": True}))
            version = await ours.save_if_version(KEY, "a", {"ours": True}, expected)
            found = await theirs.get_versioned(KEY, "a")
            assert found == ({"theirs": True}, version + 1)

    async def test_a_save_that_never_arrived_is_made_after_theirs(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        await ours.exists(KEY)
        proxy.strike(Fault.CUT_BEFORE, CALL)
        meanwhile(lambda: theirs.save(KEY, "a", {"theirs": True}))
        assert await ours.save_if_version(KEY, "a", {"ours": True}, -1) == 4
        assert await theirs.get_versioned(KEY, "a") == ({"ours": True}, 4)

    async def test_or_refused_if_it_was_for_another_version(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        await ours.exists(KEY)
        proxy.strike(Fault.CUT_BEFORE, CALL)
        meanwhile(lambda: theirs.save(KEY, "a", {"ours": True}))
        with pytest.raises(StaleState):
            await ours.save_if_version(KEY, "a", {"ours": True}, 2)
        assert await theirs.get_versioned(KEY, "a") == ({"ours": True}, 3)

    async def test_a_list_that_was_stored_is_not_stored_again(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        await ours.exists(KEY)
        proxy.strike(Fault.LOSE_REPLY, CALL, packet=2)
        meanwhile(lambda: theirs.save_list(KEY, "b", [{"theirs": True}]))
        await ours.save_list(KEY, "b", [*ITEMS, {"ours": True}])
        assert proxy.struck
        assert await theirs.get_list(KEY, "b") == [{"theirs": True}]

    async def test_a_list_that_changed_since_its_length_was_asked_for_is_replaced_as_a_whole(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        await ours.exists(KEY)
        for others in ([{"n": 9}, *ITEMS[1:]], [{"theirs": True}]):
            await theirs.save_list(KEY, "b", ITEMS)
            proxy.strike(Fault.CUT_BEFORE, CALL, packet=2)
            meanwhile(lambda others=others: theirs.save_list(KEY, "b", others))
            await ours.save_list(KEY, "b", [*ITEMS, {"ours": True}])
            assert proxy.struck
            assert await theirs.get_list(KEY, "b") == [*ITEMS, {"ours": True}]

    async def test_a_delete_does_not_take_what_was_saved_after_it(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        await ours.exists(KEY)
        for name in ("a", None):
            proxy.strike(Fault.LOSE_REPLY, CALL)
            meanwhile(lambda: theirs.save(KEY, "a", {"theirs": True}))
            await ours.delete(KEY, name)
            assert await theirs.get_versioned(KEY, "a") == ({"theirs": True}, 1)

    async def test_a_lease_that_was_lost_since_is_told_only_if_nothing_was_written(
        self, ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, meanwhile: Callable[..., None]
    ) -> None:
        for fault in (Fault.LOSE_REPLY, Fault.CUT_BEFORE):
            lease = await theirs.leases.acquire("s", "alice")
            held = ours.with_lease(lease)
            await ours.exists(KEY)
            proxy.strike(fault, CALL)
            meanwhile(lease.release)
            if fault is Fault.LOSE_REPLY:
                await held.save(KEY, "a", {"ours": True})
            else:
                with pytest.raises(LeaseLost):
                    await held.save(KEY, "a", {"too late": True})
            assert await theirs.get_versioned(KEY, "a") == ({"ours": True}, 3)


async def test_what_was_on_its_way_when_it_was_repeated_changes_nothing(
    theirs: RedisAgentStateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def send(write: Awaitable[object], *, name: int) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(states.os, "urandom", lambda length: bytes([name]) * length)
            await write

    await send(theirs.save(KEY, "a", {"n": 1}), name=1)
    await theirs.save(KEY, "a", {"n": 2})
    await send(theirs.save(KEY, "a", {"n": 1}), name=1)
    assert await theirs.get_versioned(KEY, "a") == ({"n": 2}, 4)

    await send(theirs.delete(KEY), name=2)
    await theirs.save(KEY, "a", {"n": 3})
    await send(theirs.delete(KEY), name=2)
    assert await theirs.get_versioned(KEY, "a") == ({"n": 3}, 1)


async def test_a_server_that_stays_away_leaves_the_outcome_unknown(
    ours: RedisAgentStateStore, theirs: RedisAgentStateStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PATIENCE_S", 0.3)
    monkeypatch.setattr(calls, "DOUBT_S", 0.6)
    # Another would still be connected.
    monkeypatch.setattr(calls, "WIRES", 1)
    await ours.exists(KEY)
    proxy.strike(Fault.LOSE_REPLY, CALL, and_then_unreachable=True)
    with pytest.raises(OutcomeUnknown):
        await ours.save_if_version(KEY, "a", {"ours": True}, 2)
    assert await theirs.get_versioned(KEY, "a") == ({"ours": True}, 3)
