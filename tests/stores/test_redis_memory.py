"""Of sessions for which memory does not suffice, what an append needs is kept; nothing else is noticed of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leafward import LeafwardError, Session, open_store, user
from leafward.core.ids import Scope, new_id
from leafward.stores import Store
from leafward.stores.guard import Guard
from leafward.stores.redis.opening import RedisStore
from leafward.stores.replicated import replica
from leafward.stores.replicated.ids import KnownIds
from leafward.stores.replicated.replicas import SHRUNK_PART, Replicas
from leafward.stores.replicated.running import ReplicatedRunner
from tests.servers.redis import Redis
from tests.stores.redis_store import command
from tests.stores.test_replicated import FakeServer, _told, carry_out, loaded, steps, told_lines

PrivateRedis = Callable[..., Redis]
JOURNAL = "leafward:{anonymous}:agent:default:journal:s"


def _replicas(store: Store) -> Replicas:
    assert isinstance(store, RedisStore)
    return store.runner._replicas


def _let_go(replicas: Replicas) -> None:
    for one in list(replicas._kept.values()):
        replicas._shelve(one)


def _read(url: str) -> int:
    return command(url, "INFO", "commandstats").get("cmdstat_lrange", {}).get("calls", 0)


async def test_appends_to_more_sessions_than_memory_has_room_for_read_none_again(private_redis: PrivateRedis) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store, open_store(server.url) as other:
            replicas = _replicas(store)
            replicas._budget = 4 * 1024 * 1024
            sessions = [Session(store, f"s{n}") for n in range(12)]
            for session in sessions:
                await session.append_messages([user("x" * 10_000, id=f"{n}") for n in range(50)])
                # What a session ends with is found out by the first append below it.
                await session.append_message(user("text", id="50"))
            read = _read(server.url)
            for n in range(51, 54):
                for session in sessions:
                    await session.append_message(user("text", id=f"{n}"))
                    assert replicas.size + replicas._shrunk_size <= replicas._budget
            assert _read(server.url) == read
            assert len(replicas._kept) < 12

            for session in sessions:
                found = [one.id for one in await Session(other, session.session_id).get_history()]
                assert found == [one.id for one in await session.get_history()] == [f"{n}" for n in range(54)]
            assert replicas._shrunk_size == sum(one.size for one in replicas._shrunk.values())
            assert replicas._shrunk_size <= replicas._budget * SHRUNK_PART


async def test_an_append_to_a_session_that_was_let_go_of_goes_below_what_others_wrote(
    private_redis: PrivateRedis,
) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store, open_store(server.url) as other:
            session = Session(store, "s")
            await session.append_message(user("text", id="a"))
            await session.append_message(user("text", id="b"))
            _let_go(_replicas(store))
            assert Scope.of("s") in _replicas(store)._shrunk
            await Session(other, "s").append_message(user("text", id="c"))
            await session.append_message(user("text", id="d"))

            assert [one.id for one in await Session(other, "s").get_history()] == ["a", "b", "c", "d"]


async def test_a_message_that_is_there_is_not_appended_again_to_a_session_that_was_let_go_of(
    private_redis: PrivateRedis,
) -> None:
    with private_redis() as server:
        async with open_store(server.url) as store:
            session = Session(store, "s")
            for known in ("a", "b", "c", "d"):
                for id in ("a", "b", "c"):
                    await session.append_message(user("text", id=id))
                _let_go(_replicas(store))
                await session.append_message(user("text", id="d"))
                written = command(server.url, "LLEN", JOURNAL)
                await session.append_message(user("text", id=known))

                assert command(server.url, "LLEN", JOURNAL) == written
                assert [one.id for one in await session.get_history()] == ["a", "b", "c", "d"]
                await session.clear_messages()


async def test_a_session_of_very_many_messages_is_let_go_of_altogether(
    private_redis: PrivateRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica, "MOST_SHRUNK", 3)
    with private_redis() as server:
        async with open_store(server.url) as store:
            for length, shrunk in ((3, True), (4, False)):
                for n in range(length):
                    await Session(store, f"{length}").append_message(user("text", id=f"{n}"))
                _let_go(_replicas(store))
                assert (Scope.of(f"{length}") in _replicas(store)._shrunk) is shrunk


@settings(max_examples=60)
@given(steps)
def test_a_session_that_is_let_go_of_before_each_write_is_told_as_one_that_is_kept(made: list[Any]) -> None:
    async def check() -> None:
        kept, own, told = await carry_out(made)
        server, told_shrunk = FakeServer(), []
        runner = ReplicatedRunner(server, Guard("a store"))  # pyright: ignore[reportArgumentType]
        for step in made:
            _let_go(runner._replicas)
            try:
                told_shrunk.append(await runner.write(step))
            except (LeafwardError, ValueError) as error:
                told_shrunk.append(str(error))
        await runner.close()

        assert told_lines(server) == told_lines(kept)
        assert [_told(one) for one in told_shrunk] == [_told(one) for one in told]
        found, _ = await loaded(server)
        assert {name: len(one) for name, one in found.items()} == {name: len(one) for name, one in own.items()}

    asyncio.run(check())


@given(st.sets(st.text()))
def test_an_id_that_was_there_is_never_denied(there: set[str]) -> None:
    known = KnownIds(there)

    assert all(known.knows([new_id(), one]) for one in there)
    assert not known.knows([new_id(), new_id()])
