"""Writers of one session in several stores take turns, and one that does not come holds nobody up for long."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from leafward import LeaseBusy, MessageNotFound, Session, SessionKey, SessionManager, open_store, user
from leafward.core.ids import Owner, Scope
from leafward.stores import Store
from leafward.stores.redis.opening import RedisStore
from leafward.stores.redis.server import TURN_MS, RedisServer
from leafward.stores.replicated.journals import Journal, Mark, Outcome, Write
from leafward.testing.elsewhere import elsewhere
from tests.servers.redis import Redis
from tests.stores.redis_store import command, run_appenders

PrivateRedis = Callable[..., Redis]
TURN = "leafward:{anonymous}:agent:default:mark:s:turn"
PROCESSES = 4
EACH = 100


def _server(store: Store) -> RedisServer:
    assert isinstance(store, RedisStore)
    assert isinstance(store._server, RedisServer)
    return store._server


def _calls(url: str) -> int:
    return command(url, "INFO", "commandstats")["cmdstat_evalsha"]["calls"]


class TestATurn:
    @pytest.mark.parametrize("deed", ["append", "delete"])
    async def test_that_nobody_takes_is_waited_for_in_few_calls(self, private_redis: PrivateRedis, deed: str) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                await session.append_message(user("before"))
                before = _calls(server.url)
                command(server.url, "SET", TURN, "one that died", "PX", TURN_MS)
                await (session.append_message(user("after")) if deed == "append" else SessionManager(store).delete("s"))

                assert command(server.url, "GET", TURN) is None
                assert 5 < _calls(server.url) - before < 150
                assert await session.get_path_length() == (2 if deed == "append" else 0)

    async def test_is_given_back_by_one_that_finds_it_has_nothing_to_write(self, private_redis: PrivateRedis) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                await session.append_message(user("text"))
                command(server.url, "SET", TURN, _server(store)._writer, "PX", 60_000)
                with pytest.raises(MessageNotFound):
                    await session.update_message(user("text", id="missing"))

                assert command(server.url, "GET", TURN) is None

    async def test_of_another_is_left_to_it_by_one_that_has_nothing_to_write(self, private_redis: PrivateRedis) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                await session.append_message(user("text"))
                command(server.url, "SET", TURN, "another", "PX", 60_000)
                with pytest.raises(MessageNotFound):
                    await session.update_message(user("text", id="missing"))

                assert command(server.url, "GET", TURN) == b"another"

    async def test_is_not_asked_for_by_one_that_will_not_come_back(self, private_redis: PrivateRedis) -> None:
        journal, late = Journal(Owner("default", None), "s"), Mark("late", 1, 0)
        with private_redis() as server:
            async with open_store(server.url) as store:
                await Session(store, "s").append_message(user("text"))
                for anew, asked_for in ((True, 0), (False, 1)):
                    written = Write(journal, late, late._replace(length=2), b"{}", anew=anew)
                    assert await _server(store).commit([written], None) is Outcome.REFUSED
                    assert command(server.url, "EXISTS", TURN) == asked_for


async def test_processes_that_append_to_one_session_get_fair_shares(private_redis: PrivateRedis) -> None:
    with private_redis() as server:
        names = [f"p{n}" for n in range(PROCESSES)]
        await run_appenders(server.url, "leafward:", names, tasks=1, each=EACH)

        async with open_store(server.url) as store:
            ids = [one.id.split(".") for one in await Session(store, "s").get_history()]
    # The first message of each comes before all begin.
    order = [name for name, _, number in ids if number != "0"]
    assert Counter(order) == dict.fromkeys(names, EACH - 1)
    first_end = min(len(order) - order[::-1].index(name) for name in names)
    together = order[max(order.index(name) for name in names) : first_end]
    shares = Counter(together)
    assert len(together) >= EACH
    assert min(shares[name] for name in names) >= len(together) / PROCESSES / 4


async def test_a_user_who_may_use_what_is_documented_can_do_everything(private_redis: PrivateRedis) -> None:
    page = (Path(__file__).parents[2] / "docs" / "formats" / "redis.md").read_text(encoding="utf-8")
    told = page[page.index("The user of the store may be restricted") :].split("\n\n")[0]
    allowed = " ".join(f"+{one.lower().replace(' ', '|')}" for one in re.findall("`([A-Z ]+)`", told))
    with private_redis(settings=[f"user bob on >pw ~leafward:* ~agentscope:session:* {allowed}"]) as server:
        async with open_store(f"redis://bob:pw@127.0.0.1:{server.port}/0") as store:
            assert store.durability() == "power"
            session, manager = Session(store, "s"), SessionManager(store)
            await session.append_messages([user("walnut", id="m1"), user("text")])
            command(server.url, "SET", TURN, _server(store)._writer, "PX", 60_000)
            await session.append_message(user("in turn"))
            assert not command(server.url, "EXISTS", TURN)
            async with store.leases.acquire("s") as lease:
                await session.with_lease(lease).append_message(user("held"))
                with pytest.raises(LeaseBusy):
                    await elsewhere(store.leases.acquire("s", wait=0))
            copy = await store.registry.fork(Scope.of("s"), "m1", Scope.of("copy"), "copy")
            assert {one.id for one in await manager.list(limit=5)} == {"s", copy.id}
            assert len(await manager.search("walnut")) == 2
            await store.states.save("s", "a", {"n": 1})
            await store.states.save_list("s", "b", [{"n": 1}])
            assert await store.states.get("s", "a") == {"n": 1}
            assert await store.states.get_list("s", "b") == [{"n": 1}]
            assert await store.states.list_session_keys() == {SessionKey("s")}
            assert (await manager.erase("s")).erased
            assert not await store.states.exists("s")
