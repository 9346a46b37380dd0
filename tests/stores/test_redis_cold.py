"""A process that has not read a session appends to it, and reads its head, in one round trip each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import pytest

from leafward import LATEST_LEAF, LeaseLost, Session, SessionManager, StaleSession, assistant, user
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Scope
from leafward.stores import Draft, Head, Usage
from leafward.stores.redis import calls
from leafward.stores.redis.opening import RedisStore
from leafward.stores.redis.urls import read_url
from leafward.stores.sql.store import SqlStore
from tests.stores.cold_redis import OnRedis, S, cool, draft, fill, is_cold, opened
from tests.stores.proxy import Fault, Proxy
from tests.stores.redis_store import command, keys

PLAN, TURN = AttachedState("plan", '{"goal":"walnuts"}'), AttachedState("leafward.turn", '{"n":1}')
LARGE = 20_000
FAULTS = [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY]


class _BehindAProxy(OnRedis):
    @pytest.fixture
    async def proxy(self, redis_url: str) -> AsyncGenerator[Proxy]:
        async with Proxy(*read_url(redis_url).hosts[0]) as proxy:
            yield proxy

    @pytest.fixture
    async def behind(self, redis_url: str, prefix: str, proxy: Proxy) -> AsyncGenerator[RedisStore]:
        url = f"redis://:{read_url(redis_url).password}@127.0.0.1:{proxy.port}/0"
        async with opened(url, prefix) as behind:
            yield behind
            proxy.spare()


class TestRoundTrips(_BehindAProxy):
    async def counted(self, behind: RedisStore, proxy: Proxy, call: Callable[[], Awaitable[Any]]) -> int:
        """Return how many round trips a call of a process takes that has never seen the session."""
        # The server knows the scripts, and there is a connection.
        elsewhere = Scope.of("elsewhere")
        await behind.messages.append(elsewhere, [draft("first")], LATEST_LEAF)
        cool(behind)
        await behind.messages.append(elsewhere, [draft("second")], LATEST_LEAF)
        await behind.messages.head(elsewhere, [])
        cool(behind)
        before = proxy.packets
        await call()
        assert is_cold(behind)
        return proxy.packets - before

    @pytest.mark.parametrize("count", [1, LARGE])
    async def test_of_appends_and_heads(self, store: RedisStore, behind: RedisStore, proxy: Proxy, count: int) -> None:
        await fill(store, count)
        await store.messages.append(S, [draft("leaf")], LATEST_LEAF, state=[PLAN])
        number = 0

        def appending(target: SqlStore = behind, **extras: Any) -> Callable[[], Awaitable[Any]]:
            async def append() -> None:
                nonlocal number
                number += 1
                above = extras.pop("parent", LATEST_LEAF)
                done = await target.messages.append(S, [draft(f"new{number}")], above, **extras)
                assert done.inserted == 1

            return append

        step: dict[str, Any] = {"state": [PLAN, TURN], "usage": Usage(3, 2, 0.5, "model", "call"), "weigh": True}
        assert await self.counted(behind, proxy, appending()) == 1
        assert await self.counted(behind, proxy, appending(parent="new1", **step)) == 1
        assert await self.counted(behind, proxy, appending(expected_version=(await self.version(store)))) == 1
        assert await self.counted(behind, proxy, lambda: Session(behind, "s").set_state("plan", {"n": 2})) == 1
        async with store.leases.acquire("s") as lease:
            leased = behind.fenced(lease)
            assert isinstance(leased, SqlStore)
            assert await self.counted(behind, proxy, appending(leased, **step)) == 1
        heads: list[Head] = []

        async def look() -> None:
            heads.append(await behind.messages.head(S, ["plan", "leafward.turn", "never"], ids=["leaf", "no such"]))

        assert await self.counted(behind, proxy, look) == 1
        assert await self.counted(behind, proxy, lambda: Session(behind, "s").get_state("plan")) == 1
        assert heads == [await store.messages.head(S, ["plan", "leafward.turn", "never"], ids=["leaf", "no such"])]
        assert heads[0].known == {"leaf": True}
        assert (heads[0].leaf_id, heads[0].states["leafward.turn"]) == ("new4", {"n": 1})

    async def version(self, store: RedisStore) -> int:
        return (await store.messages.revision(S)).version

    async def test_of_a_head_of_a_session_that_was_never_written_to(self, behind: RedisStore, proxy: Proxy) -> None:
        assert await self.counted(behind, proxy, lambda: behind.messages.head(S, ["plan"], ids=["a"])) == 1
        assert await behind.messages.head(S, []) == Head(0, None, {}, {})

    async def test_of_the_first_append_ever_are_two(self, behind: RedisStore, proxy: Proxy) -> None:
        await behind.messages.append(Scope.of("elsewhere"), [draft("first")], LATEST_LEAF)
        before = proxy.packets
        await behind.messages.append(S, [draft("first")], LATEST_LEAF)
        assert proxy.packets - before == 2


class TestAStepOfAColdProcess(_BehindAProxy):
    @pytest.mark.parametrize("fault", FAULTS, ids=lambda one: one.name)
    async def test_whose_connection_ends_is_done_once(
        self, store: RedisStore, behind: RedisStore, proxy: Proxy, fault: Fault
    ) -> None:
        await fill(store, 3)
        cool(behind)
        proxy.strike(fault)
        usage = Usage(3, 2, 0.5)
        done = await behind.messages.append(S, [draft("new")], "m2", state=[PLAN], usage=usage, weigh=True)

        assert proxy.struck
        assert (done.inserted, done.version, list(done.states), done.counted) == (1, 2, [PLAN], True)
        assert done.weight is not None
        assert (done.weight.window, done.attached_to) == (12, "new")
        await self.check(store)

    async def check(self, store: RedisStore) -> None:
        assert [one.id for one in await store.messages.path(S, None)] == ["m0", "m1", "m2", "new"]
        assert await store.messages.states(S, "new") == {"plan": {"goal": "walnuts"}}
        info = await store.registry.get(S)
        assert info is not None
        assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (3, 2, 0.5)

    async def test_whose_reply_is_lost_before_others_write_is_done_once(
        self, store: RedisStore, behind: RedisStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await fill(store, 3)
        cool(behind)
        send, sent = calls.Calls.send, 0

        def send_after_others(self: calls.Calls, packet: Any) -> Any:
            async def others_first() -> Any:
                await store.messages.append(S, [draft("theirs")], LATEST_LEAF, state=[TURN])
                return await send(self, packet)

            nonlocal sent
            sent += self is server._calls
            return asyncio.ensure_future(others_first()) if sent == 2 and self is server._calls else send(self, packet)

        server: Any = behind._server
        monkeypatch.setattr(calls.Calls, "send", send_after_others)
        proxy.strike(Fault.LOSE_REPLY)
        done = await behind.messages.append(S, [], LATEST_LEAF, state=[PLAN, TURN])

        assert (proxy.struck, sent) == (True, 2)
        assert (list(done.states), done.version, done.attached_to) == ([PLAN, TURN], 2, "m2")
        assert (await store.messages.revision(S)).version == 3
        assert [one.kind for one in (await store.messages.changes(S, 1)).records] == ["state", "append"]

    async def test_behind_a_lost_lease_writes_nothing(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)
        lease = await store.leases.acquire("s")
        await lease.release()
        async with store.leases.acquire("s"):
            leased = other.fenced(lease)
            with pytest.raises(LeaseLost):
                await leased.messages.append(S, [draft("new")], LATEST_LEAF)
        assert is_cold(other)
        assert (await store.messages.head(S, [])).leaf_id == "m2"

    async def test_at_another_version_than_expected_writes_nothing(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)

        with pytest.raises(StaleSession) as raised:
            await other.messages.append(S, [draft("new")], LATEST_LEAF, expected_version=7)

        assert is_cold(other)
        assert (raised.value.expected, raised.value.found) == (7, 1)
        assert (await store.messages.revision(S)).version == 1

    async def test_with_a_known_id_writes_nothing_and_returns_what_is_stored(
        self, store: RedisStore, other: RedisStore
    ) -> None:
        await fill(store, 3)
        stored = await store.messages.get(S, "m1")
        again = Draft(*user("another text", id="m1").sealed(), 9)
        usage = Usage(1, 1, 0.1, usage_id="call")

        done = await other.messages.append(S, [again], LATEST_LEAF, expected_version=7, usage=usage)

        assert (done.messages, done.inserted, done.version, done.counted) == ([stored], 0, 1, True)
        cool(other)
        done = await other.messages.append(S, [draft("m3"), again], LATEST_LEAF, usage=usage)
        assert (done.inserted, done.counted) == (1, False)

    async def test_counts_usage_once_per_name(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 1)
        manager = SessionManager(store)
        await manager.add_usage("s", 10, 10, 1.0, usage_id="by the manager")
        await store.messages.append(S, [draft("a")], LATEST_LEAF, usage=Usage(1, 1, 0.1, usage_id="warm"))
        for n, name in enumerate(["by the manager", "warm", "cold", "cold", None, None]):
            cool(other)
            done = await other.messages.append(S, [draft(f"b{n}")], LATEST_LEAF, usage=Usage(1, 2, 0.1, "m", name))
            assert is_cold(other)
            assert done.counted is (n in (2, 4, 5))
        await manager.add_usage("s", 1, 1, 0.1, usage_id="cold")
        for one in (store, other):
            info = await one.registry.get(S)
            assert info is not None
            assert (info.input_tokens, info.output_tokens) == (14, 17)
            assert info.estimated_cost == pytest.approx(1.4)

    async def test_is_seen_by_those_who_follow_the_session(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)
        revision = await store.messages.revision(S)
        cool(other)
        await other.messages.append(S, [draft("new")], LATEST_LEAF, state=[PLAN])
        await other.messages.append(S, [], LATEST_LEAF, state=[TURN])

        assert is_cold(other)
        await store.messages.wait(S, revision)
        changes = await store.messages.changes(S, revision.version)
        assert [(one.version, one.kind, one.message_ids) for one in changes.records] == [
            (2, "append", ["new"]),
            (3, "state", ["new"]),
        ]
        found = await SessionManager(store).search("new")
        assert [one.id for one in found] == ["new"]
        assert changes == await other.messages.changes(S, revision.version)

    async def test_takes_what_a_message_may_hold(self, store: RedisStore, other: RedisStore) -> None:
        parts = [
            {"type": "text", "text": 'a "quoted" \\ text, "timestamp": \x00 汉 😀'},
            {"type": "tool_use", "id": "call/1", "name": "look", "input": {"a": [1, 2.5, None]}},
        ]
        odd = 'an "odd" id, "timestamp":汉/\\'
        await fill(store, 1)
        messages = [assistant(parts, id=odd), user("text"), user("x" * 100_000), assistant(parts)]
        for message in messages:
            cool(other)
            given = Draft(*message.sealed(), 3)
            await other.messages.append(S, [given, draft(f"after {message.id}")], LATEST_LEAF, state=[PLAN])
            assert is_cold(other)
            cool(other)
            await other.messages.append(
                S, [], LATEST_LEAF, state=[AttachedState("odd", f'{{"of":"{message.id[:2]}"}}')]
            )
            assert is_cold(other)

        path = await store.messages.path(S, None)
        assert [one.id for one in path[1::2]] == [one.id for one in messages]
        assert [one.parts for one in path[1::2]] == [one.parts for one in messages]

    async def test_leaves_ids_of_deleted_messages_free(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)
        for forgotten in (
            lambda: store.messages.delete(S, ["m1", "m2", "never there"]),
            lambda: store.messages.clear(S),
        ):
            await forgotten()
            cool(other)
            assert "m1" not in (await other.messages.head(S, [], ids=["m0", "m1"])).known
            assert (await other.messages.append(S, [draft("m1")], LATEST_LEAF)).inserted == 1
            assert is_cold(other)
            assert [one.id for one in await store.messages.path(S, None)][-1] == "m1"


class TestKeysOfASession(OnRedis):
    async def test_are_there_from_its_first_message_and_gone_with_it(self, url: str, store: RedisStore) -> None:
        prefix = store._server._keys._prefix  # pyright: ignore[reportAttributeAccessIssue]
        await store.messages.append(S, [draft("a")], LATEST_LEAF, usage=Usage(1, 1, 0.1, usage_id="call"))
        names = {key.decode().removeprefix(f"{prefix}{{anonymous}}:agent:default:") for key in keys(url, prefix)}
        assert {"head:s", "ids:s", "used:s"} <= names

        await SessionManager(store).delete("s")

        assert keys(url, prefix) == []

    @pytest.mark.parametrize("key", ["head", "ids", "used"])
    async def test_that_hold_other_data_are_left_alone(
        self, url: str, store: RedisStore, prefix: str, key: str
    ) -> None:
        name = f"{prefix}{{anonymous}}:agent:default:{key}:s"
        command(url, "SET", name, "mine")

        with pytest.raises(Exception, match="key_prefix"):
            await store.messages.append(S, [draft("a")], LATEST_LEAF)

        assert command(url, "GET", name) == b"mine"
