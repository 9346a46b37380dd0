"""What is kept beside a journal is used only if it belongs to the journal as it is: the journal is the truth."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from leafward import LATEST_LEAF, CorruptStore, Session, SessionManager, StoreError, open_store
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Owner, Scope
from leafward.core.overlays import Compaction
from leafward.stores import Usage
from leafward.stores.redis import heads as redis_heads
from leafward.stores.redis.opening import RedisStore
from leafward.stores.replicated import heads
from leafward.stores.replicated.replica import Replica
from tests.servers.redis import Redis
from tests.stores.cold_redis import OnRedis, S, cool, draft, fill, is_cold
from tests.stores.redis_before import opened_before
from tests.stores.redis_store import command, looking_at

PLAN = AttachedState("plan", '{"n":1}')
ASKED = (["plan", "todo"], ["m0", "m1", "m2", "m3", "new", "on a branch"])


def name(prefix: str, key: str, session: str = "s") -> str:
    return f"{prefix}{{anonymous}}:agent:default:{key}:{session}"


async def check(store: RedisStore, other: RedisStore, *, kept: bool, scope: Scope = S) -> None:
    """See that a process that has not read the session finds what one does that has, without reading it if `kept`."""
    names, ids = ASKED
    before = await store.messages.path(scope, None, raw=True)
    expected = await store.messages.head(scope, names, ids=ids)
    assert not is_cold(store, scope)
    cool(other)
    assert await other.messages.head(scope, names, ids=ids) == expected
    assert is_cold(other, scope) is kept
    cool(other)
    number = len(before) + expected.version
    done = await other.messages.append(scope, [draft(f"added {number}")], LATEST_LEAF, state=[PLAN])
    assert (done.inserted, done.version) == (1, expected.version + 1)
    path = await store.messages.path(scope, None, raw=True)
    assert [one.id for one in path[-2:]] == [
        *([] if expected.leaf_id is None else [expected.leaf_id]),
        done.messages[0].id,
    ]
    weight = await store.messages.weigh(scope)
    cool(store)
    assert await store.messages.weigh(scope) == weight
    assert await store.messages.head(scope, names, ids=ids) == await other.messages.head(scope, names, ids=ids)


Deed = Callable[[RedisStore], Awaitable[Any]]


async def _branch(store: RedisStore) -> None:
    await store.messages.append(S, [draft("on a branch")], "m0", state=[AttachedState("todo", '{"n":2}')])


async def _leave_a_gap(store: RedisStore) -> None:
    await store.messages.append(S, [draft("m3")], LATEST_LEAF, state=[AttachedState("todo", '{"n":2}')])
    await store.messages.append(S, [draft("on a branch")], "m3")
    await store.messages.delete(S, ["m3"])
    await store.messages.checkout(S, "m2")


DEEDS: dict[str, Deed] = {
    "nothing": lambda store: store.messages.revision(S),
    "a branch": _branch,
    "a checkout": lambda store: store.messages.checkout(S, "m1"),
    "a checkout of the root": lambda store: store.messages.checkout(S, None),
    "a delete of the leaf": lambda store: store.messages.delete(S, ["m2"]),
    "a delete in between": lambda store: store.messages.delete(S, ["m1"]),
    "a delete of all": lambda store: store.messages.delete(S, ["m0", "m1", "m2"]),
    "deleted states": _leave_a_gap,
    "a clear": lambda store: store.messages.clear(S),
    "an update": lambda store: store.messages.update(S, draft("m2", 9)),
    "an upsert": lambda store: store.messages.upsert(S, draft("new"), LATEST_LEAF),
    "an upsert of a known one": lambda store: store.messages.upsert(S, draft("m1", 9), LATEST_LEAF),
    "a label": lambda store: store.messages.label(S, "m1", "here"),
    "a rename": lambda store: store.registry.rename(S, "name"),
    "usage": lambda store: SessionManager(store).add_usage("s", 1, 1, 0.1, usage_id="call"),
    "a state that is removed": lambda store: Session(store, "s").set_state("plan", None),
    "a context block": lambda store: Session(store, "s").with_context("memory").replace_context_block("memory", "x"),
    "known ids": lambda store: store.messages.append(S, [draft("m1"), draft("m3")], LATEST_LEAF),
}


class TestWhatIsKept(OnRedis):
    @pytest.mark.parametrize("deed", DEEDS)
    async def test_is_right_after(self, store: RedisStore, other: RedisStore, deed: str) -> None:
        await fill(store, 2)
        await store.messages.append(S, [draft("m2")], LATEST_LEAF, state=[PLAN])

        await DEEDS[deed](store)

        await check(store, other, kept=True)

    @pytest.mark.parametrize("deed", DEEDS)
    async def test_is_right_after_a_write_of_one_who_has_just_read_the_session(
        self, store: RedisStore, other: RedisStore, deed: str
    ) -> None:
        await fill(store, 2)
        await store.messages.append(S, [draft("m2")], LATEST_LEAF, state=[PLAN])
        await store.messages.append(S, [], LATEST_LEAF, state=[AttachedState("todo", '{"n":1}')])
        cool(store)

        await DEEDS[deed](store)

        await check(store, other, kept=True)

    async def test_is_right_after_a_summary(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)
        session = Session(store, "s")
        assert isinstance(await session.add_compaction("a summary", "m0", "m1"), Compaction)
        await check(store, other, kept=True)

    async def test_is_right_after_the_journal_was_written_anew(
        self, store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await fill(store, 3)
        with monkeypatch.context() as patch:

            async def always(self: Replica, journal: Any) -> bool:
                return journal == self.own

            patch.setattr(Replica, "is_outgrown", always)
            await store.messages.append(S, [draft("new")], LATEST_LEAF, state=[PLAN])
            await store.messages.label(S, "m1", "here")
        await check(store, other, kept=True)

    async def test_is_right_in_a_fork_a_split_and_an_import(self, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)
        await store.messages.append(S, [draft("new")], LATEST_LEAF, state=[PLAN])
        manager = SessionManager(store)
        fork = await manager.fork("s", "m1", "fork")
        exported = await manager.export_session("s")
        exported["session"]["id"] = "imported"
        await manager.import_session(exported)
        split = await manager.compact_and_split("s", "and so on")
        for session_id in (fork.id, split.id):
            # A copy is read once; then it is kept.
            assert (await other.messages.head(Scope.of(session_id), [])).version == 1
            assert not is_cold(other, Scope.of(session_id))
        for session_id in (fork.id, split.id, "imported", "s"):
            await check(store, other, kept=True, scope=Scope.of(session_id))

    async def test_is_left_out_where_it_would_be_large(
        self, store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(heads, "MOST_STATES", 3)
        await fill(store, 3)
        for number in range(3):
            await check(store, other, kept=True)
            await Session(store, "s").set_state(f"state {number}", {"n": number})
        await check(store, other, kept=False)


class TestWhatIsMissing(OnRedis):
    @pytest.mark.parametrize("key", ["head", "ids", "used"])
    async def test_is_noticed_and_kept_again_by_one_who_reads_the_session(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore, key: str
    ) -> None:
        await fill(store, 3)
        await store.messages.append(S, [draft("new")], LATEST_LEAF, usage=Usage(1, 1, 0.1, usage_id="call"))
        command(url, "DEL", name(prefix, key))

        cool(other)
        assert (await other.messages.append(S, [draft("m1")], LATEST_LEAF)).inserted == 0
        cool(other)
        usage = Usage(1, 1, 0.1, usage_id="call")
        assert not (await other.messages.append(S, [draft("newer")], LATEST_LEAF, usage=usage)).counted
        assert is_cold(other)
        await check(store, other, kept=True)

    @pytest.mark.parametrize("key", ["head", "ids", "used"])
    async def test_is_noticed_by_a_write_of_one_who_has_read_the_session(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore, key: str
    ) -> None:
        await fill(store, 3)
        await store.messages.append(S, [draft("new")], LATEST_LEAF, usage=Usage(1, 1, 0.1, usage_id="call"))
        command(url, "DEL", name(prefix, key))

        await store.messages.append(S, [draft("newer")], LATEST_LEAF, state=[PLAN])

        assert command(url, "EXISTS", *(name(prefix, one) for one in ("head", "ids", "used"))) == 0
        await check(store, other, kept=False)
        await check(store, other, kept=True)

    async def test_in_part_is_noticed(self, url: str, prefix: str, store: RedisStore, other: RedisStore) -> None:
        await fill(store, 3)
        command(url, "HDEL", name(prefix, "ids"), "m1")

        assert (await other.messages.append(S, [draft("m1")], LATEST_LEAF)).inserted == 0


class TestDamage(OnRedis):
    async def test_of_the_last_element_is_found_by_a_cold_append(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        await fill(store, 1)
        await store.messages.append(S, [draft("new")], LATEST_LEAF)
        command(url, "LSET", name(prefix, "journal"), -1, b'{"type":"message","crc":"00000000"}')

        with pytest.raises(CorruptStore):
            await other.messages.append(S, [draft("newer")], LATEST_LEAF)

        assert command(url, "LLEN", name(prefix, "journal")) == 2

    async def test_that_was_found_by_a_reader_keeps_all_from_appending(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        await fill(store, 1)
        await store.messages.append(S, [draft("new")], LATEST_LEAF)
        cool(store)
        sound = command(url, "LINDEX", name(prefix, "journal"), 0)
        command(url, "LSET", name(prefix, "journal"), 0, b'{"type":"session","crc":"00000000"}')
        with pytest.raises(CorruptStore):
            await store.messages.path(S, None)

        for one in (store, other):
            with pytest.raises(CorruptStore):
                await one.messages.append(S, [draft("newer")], LATEST_LEAF)
            with pytest.raises(CorruptStore):
                await one.messages.head(S, [])

        command(url, "LSET", name(prefix, "journal"), 0, sound)
        await store.messages.path(S, None)
        await check(store, other, kept=True)

    async def test_a_head_in_another_form_is_not_used(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        await fill(store, 3)
        command(url, "HSET", name(prefix, "head"), "format", 2)
        await other.messages.head(S, [])
        assert not is_cold(other)
        assert command(url, "HGET", name(prefix, "head"), "format") == b"1"


class TestAProcessOfTheVersionBefore(OnRedis):
    async def test_writes_and_what_is_kept_is_not_used(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        await fill(store, 3)
        async with opened_before(url, prefix) as before:
            for number in range(3):
                await before.messages.append(S, [draft(f"old {number}")], LATEST_LEAF, state=[PLAN])
                await check(store, other, kept=False)
                await check(store, other, kept=True)
            await before.messages.delete(S, ["old 0", "old 1"])
            assert (await other.messages.append(S, [draft("old 0")], LATEST_LEAF)).inserted == 1
            path = await before.messages.path(S, None)
        assert [one.id for one in path] == [one.id for one in await store.messages.path(S, None)]

    async def test_removes_a_session_and_makes_it_again(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        await fill(store, 3)
        async with opened_before(url, prefix) as before:
            await before.registry.delete(S)
            cool(other)
            assert (await other.messages.head(S, ["plan"], ids=["m1"])).known == {}
            await before.messages.append(S, [draft("m1")], LATEST_LEAF)
        cool(other)
        assert (await other.messages.head(S, [], ids=["m0", "m1"])).known == {"m1": True}
        assert (await other.messages.append(S, [draft("m0")], LATEST_LEAF)).inserted == 1

    async def test_left_sessions_that_are_kept_when_they_are_first_read(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        async with opened_before(url, prefix) as before:
            await fill(before, 2500)
            await before.messages.append(S, [draft("new")], LATEST_LEAF, state=[PLAN])
            await SessionManager(before).add_usage("s", 1, 1, 0.1, usage_id="call")
        assert command(url, "EXISTS", *(name(prefix, one) for one in ("head", "ids", "used"))) == 0

        assert len(await other.messages.path(S, None)) == 2501

        assert command(url, "HLEN", name(prefix, "ids")) == 2501
        assert command(url, "HKEYS", name(prefix, "used")) == [b"call"]
        assert command(url, "PTTL", name(prefix, "ids")) == -1
        await store.messages.path(S, None)
        await check(store, other, kept=True)

    async def test_has_its_sessions_read_by_appends_too(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore
    ) -> None:
        async with opened_before(url, prefix) as before:
            await fill(before, 3)
            await other.messages.append(S, [draft("new")], "m2", state=[PLAN], usage=Usage(1, 1, 0.1))
            assert [one.id for one in await before.messages.path(S, None)] == ["m0", "m1", "m2", "new"]
        await store.messages.path(S, None)
        await check(store, other, kept=True)


class TestKeepingIt(OnRedis):
    @pytest.mark.parametrize("failing", range(1, 6))
    async def test_may_fail_anywhere_and_is_done_by_the_next_one(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore, failing: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened_before(url, prefix) as before:
            await fill(before, 5)
            await SessionManager(before).add_usage("s", 1, 1, 0.1, usage_id="call")
        monkeypatch.setattr(redis_heads, "AT_ONCE", 2)
        calls: Any = other._server._calls  # pyright: ignore[reportAttributeAccessIssue]
        change, number = calls.change, 0

        async def fail(*given: Any) -> Any:
            nonlocal number
            number += 1
            if number == failing:
                raise StoreError("the process ends here")
            return await change(*given)

        with monkeypatch.context() as patch:
            patch.setattr(calls, "change", fail)
            assert len(await other.messages.path(S, None)) == 5
        assert number == failing
        cool(other)
        assert (await other.messages.head(S, [], ids=["m1"])).known == {"m1": True}
        assert not is_cold(other)
        with looking_at(url) as (client,):
            for key in client.scan_iter(f"{prefix}*:ids:s:*"):
                assert 0 < client.pttl(key) <= 60_000
        await store.messages.path(S, None)
        await check(store, other, kept=True)

    async def test_is_given_up_when_others_write_meanwhile(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened_before(url, prefix) as before:
            await fill(before, 5)
            calls: Any = other._server._calls  # pyright: ignore[reportAttributeAccessIssue]
            change, number = calls.change, 0

            async def others_first(*given: Any) -> Any:
                nonlocal number
                number += 1
                await before.messages.append(S, [draft(f"theirs {number}")], LATEST_LEAF)
                return await change(*given)

            with monkeypatch.context() as patch:
                patch.setattr(calls, "change", others_first)
                assert len(await other.messages.path(S, None)) == 5
        assert number == 2
        assert command(url, "EXISTS", name(prefix, "head")) == 0
        cool(other)
        assert (await other.messages.append(S, [draft("theirs 2")], LATEST_LEAF)).inserted == 0


class TestInACluster(OnRedis):
    @pytest.fixture
    def url(self, redis_cluster_url: str) -> str:
        return redis_cluster_url

    async def test_it_is_kept_and_used(self, url: str, prefix: str, store: RedisStore, other: RedisStore) -> None:
        for number in range(4):
            scope = Scope(Owner("agent", f"user {number}"), "s")
            async with opened_before(url, prefix) as before:
                await fill(before, 3, scope)
            assert len(await store.messages.path(scope, None)) == 3
            await check(store, other, kept=True, scope=scope)


async def test_a_killed_server_has_journals_and_heads_that_agree(private_redis: Callable[..., Redis]) -> None:
    with private_redis() as server:
        for turn in range(5):
            async with open_store(server.url) as warm, open_store(server.url) as cold:
                assert isinstance(cold, RedisStore)

                async def work(store: RedisStore, turn: int = turn) -> None:
                    for number in range(1000):
                        cool(store)
                        given = [draft(f"{turn}.{number}"), draft(f"{turn}.{number} and")]
                        state = [AttachedState("plan", f'{{"n":{number}}}')]
                        await store.messages.append(S, given, LATEST_LEAF, state=state, usage=Usage(1, 1, 0.0))

                working = asyncio.ensure_future(work(cold))
                revision = await warm.messages.revision(S)
                for _ in range(10):
                    await warm.messages.wait(S, revision)
                    revision = await warm.messages.revision(S)
                server.kill()
                server.start()
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)
            async with open_store(server.url) as warm, open_store(server.url) as cold:
                ids = [one.id for one in await warm.messages.path(S, None)]
                assert len(ids) % 2 == 0
                assert all(one == f"{above} and" for above, one in zip(ids[::2], ids[1::2], strict=True))
                expected = await warm.messages.head(S, ["plan"], ids=ids)
                assert await cold.messages.head(S, ["plan"], ids=ids) == expected
                info = await cold.registry.get(S)
                assert info is not None
                assert info.input_tokens == len(ids) // 2
                given = [draft(f"{turn}.on"), draft(f"{turn}.on and")]
                await cold.messages.append(S, given, LATEST_LEAF, usage=Usage(1, 1, 0.0))
