"""What a Redis store keeps when servers die, fail over or forget, and when many processes write."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable

import pytest

from leafward import CorruptStore, Session, SessionManager, StoreError, open_store, user
from leafward.core.ids import Scope, new_id
from leafward.stores.redis import calls
from leafward.stores.redis.opening import RedisStore
from tests.servers.redis import Redis
from tests.servers.redis_sentinel import RedisSentinel
from tests.stores.redis_store import command, forget, run_appenders

PrivateRedis = Callable[..., Redis]
SHARED = "leafward:{anonymous}:agent:default:shared"
JOURNAL, MARK = (f"leafward:{{anonymous}}:agent:default:{part}:s" for part in ("journal", "mark"))


async def _ids(session: Session) -> list[str]:
    return [message.id for message in await session.get_history()]


class TestAServerThatDies:
    async def test_has_all_that_was_acknowledged_when_it_is_back_and_the_store_goes_on(
        self, private_redis: PrivateRedis
    ) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                acknowledged: list[str] = []
                underway = asyncio.Event()

                async def write() -> None:
                    while len(acknowledged) < 150:
                        acknowledged.append((await session.append_message(user("text"))).id)
                        if len(acknowledged) == 50:
                            underway.set()

                writing = asyncio.ensure_future(write())
                await underway.wait()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
                await asyncio.wait_for(writing, 30)

                stored = await _ids(session)
                assert stored == acknowledged

    async def test_is_told_when_it_stays_away_and_used_again_when_it_is_back(
        self, private_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(calls, "PATIENCE_S", 0.2)
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                manager = SessionManager(store)
                stored = await session.append_message(user("text"))
                await asyncio.to_thread(server.kill)

                for call in (session.get_history, lambda: session.append_message(user("late")), manager.list):
                    with pytest.raises(StoreError, match="cannot be reached") as caught:
                        await call()
                    assert server.password not in str(caught.value)

                await asyncio.to_thread(server.start)
                assert await session.get_history() == [stored]


class TestAFailover:
    async def test_keeps_what_the_replica_had_and_the_store_goes_on(self, redis_sentinel: RedisSentinel) -> None:
        async with open_store(redis_sentinel.url) as store:
            session = Session(store, "s")
            for n in range(20):
                await session.append_message(user("text", id=f"before {n}"))
            command(redis_sentinel.master.url, "WAIT", 1, 5000)

            failing = asyncio.ensure_future(asyncio.to_thread(redis_sentinel.failover))
            during = 0
            while not failing.done():
                try:
                    await session.append_message(user("text", id=f"during {during}"))
                except StoreError:
                    continue
                during += 1
            await failing
            for n in range(5):
                await session.append_message(user("text", id=f"after {n}"))

            ids = await _ids(session)
            assert ids[:20] == [f"before {n}" for n in range(20)]
            assert ids[-5:] == [f"after {n}" for n in range(5)]
            assert len(ids) == len(set(ids))

    async def test_that_lost_acknowledged_writes_is_warned_of_and_what_is_left_is_served(
        self, private_redis: PrivateRedis, caplog: pytest.LogCaptureFixture
    ) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                await session.append_message(user("a", id="a"))
                mark = command(server.url, "GET", MARK)
                await session.append_messages([user("lost", id="lost")])
                # What a replica would have that was not told of the last write.
                command(server.url, "RPOP", JOURNAL)
                command(server.url, "SET", MARK, mark)

                assert await _ids(session) == ["a"]
                await session.append_message(user("b", id="b"))
                assert await _ids(session) == ["a", "b"]
        assert [one.levelno for one in caplog.records if "lost acknowledged writes" in one.getMessage()] == [
            logging.WARNING
        ]

    async def test_whose_new_server_was_written_to_since_is_noticed(self, private_redis: PrivateRedis) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store, open_store(server.url) as other:
                session = Session(store, "s")
                await session.append_message(user("a", id="a"))
                mark = command(server.url, "GET", MARK)
                await session.append_message(user("lost", id="lost"))
                command(server.url, "RPOP", JOURNAL)
                command(server.url, "SET", MARK, mark)
                await Session(other, "s").append_messages([user("b", id="b")])
                await Session(other, "s").append_messages([user("c", id="c")])

                assert await _ids(session) == ["a", "b", "c"]


class TestDamage:
    @pytest.mark.parametrize(
        "harm",
        [
            ("LSET", JOURNAL, 1, b'{"type":"message","crc":"00000000"}'),
            ("LREM", JOURNAL, 1, "the second"),
            ("RPUSH", JOURNAL, b"{}"),
            ("DEL", JOURNAL),
        ],
        ids=lambda harm: harm[0],
    )
    async def test_of_a_journal_is_found_and_nothing_is_written_to_it(
        self, private_redis: PrivateRedis, harm: tuple[str, ...]
    ) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                for n in range(3):
                    await Session(store, "s").append_message(user("text", id=f"{n}"))
            second = command(server.url, "LINDEX", JOURNAL, 1)
            command(server.url, *(second if one == "the second" else one for one in harm))
            left = command(server.url, "LRANGE", JOURNAL, 0, -1)
            async with open_store(server.url) as store:
                with pytest.raises(CorruptStore):
                    await Session(store, "s").get_history()
                with pytest.raises(CorruptStore):
                    await Session(store, "s").append_message(user("text"))
                # Others are not harmed.
                await Session(store, "other").append_message(user("text"))
            assert command(server.url, "LRANGE", JOURNAL, 0, -1) == left

    async def test_of_one_session_is_logged_by_a_search_that_finds_the_others(
        self, private_redis: PrivateRedis, caplog: pytest.LogCaptureFixture
    ) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                for name in ("s", "other"):
                    await Session(store, name).append_message(user("a walnut"))
            command(server.url, "LSET", JOURNAL, 0, b"{}")
            async with open_store(server.url) as store:
                found = await SessionManager(store).search("walnut")

        assert [one.session_id for one in found] == ["other"]
        logged = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
        assert len(logged) == 1
        assert "the journal of session 's'" in logged[0]

    async def test_done_while_a_session_is_open_is_found_by_the_next_write(self, private_redis: PrivateRedis) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                session = Session(store, "s")
                await session.append_message(user("text"))
                command(server.url, "DEL", JOURNAL)

                with pytest.raises(CorruptStore):
                    await session.append_message(user("text"))


class TestAJournalThatOutgrowsItsSession:
    async def test_is_written_anew_and_nobody_notices(
        self, private_redis: PrivateRedis, caplog: pytest.LogCaptureFixture
    ) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store, open_store(server.url) as other:
                session = Session(store, "s")
                await session.append_messages([user("kept", id="kept"), user("", id="m")])
                await session.label("kept", "a label")
                tree = (await other.messages.view(Scope.of("s"), None)).tree
                incarnation = (await other.messages.revision(Scope.of("s"))).incarnation
                for n in range(250):
                    await session.update_message(user(f"{n} " + "x" * 20_000, id="m"))

                # Five million bytes were written, and a reader sees what they amount to.
                assert sum(map(len, command(server.url, "LRANGE", JOURNAL, 0, -1))) < 2_500_000
                history = await session.get_history()
                assert [one.text[:4] for one in history] == ["kept", "249 "]
                for where in (other, await open_store(server.url)):
                    found = Session(where, "s")
                    assert await found.get_history() == history
                    assert await found.get_labels() == {"kept": "a label"}
                    assert await found.get_version() == await session.get_version() == 252
                    assert (await where.messages.view(Scope.of("s"), None)).tree == tree
                    assert await where.messages.revision(Scope.of("s")) == (incarnation, 252)
                    await where.close()
                await session.append_message(user("after", id="after"))
                assert await _ids(session) == ["kept", "m", "after"]
        assert caplog.records == []

    async def test_is_written_anew_also_where_sessions_share_it(self, private_redis: PrivateRedis) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store, open_store(server.url) as other:
                one = Session(store, "s").with_context("notes", shared=True)
                two = Session(other, "two").with_context("notes", shared=True)
                for n in range(150):
                    await one.replace_context_block("notes", f"{n} " + "x" * 20_000)

                assert sum(map(len, command(server.url, "LRANGE", SHARED, 0, -1))) < 2_500_000
                for session in (one, two):
                    block = await session.get_context_block("notes")
                    assert block is not None
                    assert block.content.startswith("149 ")

    async def test_is_left_as_it_is_where_all_it_tells_is_still_so(self, private_redis: PrivateRedis) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                for _ in range(5):
                    await Session(store, "s").append_message(user("x" * 1_000_000))
                assert command(server.url, "LLEN", JOURNAL) == 5


class TestManyWriters:
    async def test_two_processes_of_four_tasks_each_write_one_unbroken_chain(self, redis_url: str) -> None:
        prefix = f"{new_id()}:"
        await run_appenders(redis_url, prefix, ["a", "b"], tasks=4, each=25)

        async with open_store(redis_url, key_prefix=prefix) as store:
            session = Session(store, "s")
            history = await session.get_history()
            ids = [message.id for message in history]
            assert sorted(ids) == sorted(f"{p}.{t}.{n}" for p in "ab" for t in range(4) for n in range(25))
            assert [await session.get_parent(m.id) for m in history] == [None, *history[:-1]]
            for one in (f"{p}.{t}." for p in "ab" for t in range(4)):
                assert [id for id in ids if id.startswith(one)] == [f"{one}{n}" for n in range(25)]
            assert {id[0] for id in ids[:100]} == {"a", "b"}, "both wrote at the same time"
        forget(redis_url, prefix)


class TestMemory:
    @pytest.fixture
    async def store(self, redis_url: str) -> AsyncGenerator[RedisStore]:
        prefix = f"{new_id()}:"
        async with open_store(redis_url, key_prefix=prefix) as store:
            assert isinstance(store, RedisStore)
            yield store
        forget(redis_url, prefix)

    async def test_of_replicas_stays_within_its_budget_and_nothing_is_lost(self, store: RedisStore) -> None:
        replicas = store.runner._replicas
        replicas._budget = 4 * 1024 * 1024
        sessions = [Session(store, f"s{n}") for n in range(12)]
        for session in sessions:
            await session.append_message(user("walnut " + "x" * 1_000_000, id="m"))
            assert replicas.size <= replicas._budget

        assert all(await asyncio.gather(*(session.get_message("m") for session in sessions)))
        assert len(await SessionManager(store).search("walnut")) == 12
        assert replicas.size <= replicas._budget
        assert replicas.size == sum(replica.size for replica in replicas._kept.values())

    async def test_of_a_session_larger_than_the_budget_does_not_keep_it_from_being_used(
        self, store: RedisStore
    ) -> None:
        store.runner._replicas._budget = 1024
        session = Session(store, "s")

        await asyncio.gather(*(session.append_message(user("x" * 10_000)) for _ in range(10)))

        assert await session.get_path_length() == 10
        assert store.runner._replicas.size == 0
