"""How sessions lie in Redis: which keys there are, where, and what is left of them."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from leafward import LeaseLost, Session, SessionExists, SessionManager, open_store, user
from leafward.core.ids import Owner, Scope, new_id, refusal
from leafward.stores import Store
from leafward.stores.leases import Slot
from leafward.stores.redis.keys import Keys, escape
from leafward.stores.replicated.journals import Journal
from leafward.testing.ids import HOSTILE_IDS
from tests.servers.redis import Redis
from tests.stores.redis_store import command, forget, keys

IDS = st.one_of(
    st.sampled_from(HOSTILE_IDS), st.text("ab:{}%25BDu\n", min_size=1, max_size=8), st.text(min_size=1)
).filter(lambda text: refusal(text) is None)
USERS = st.one_of(st.none(), IDS)


def _all_keys(user_id: str | None, agent_id: str, session_id: str) -> list[bytes]:
    made, owner = Keys("p:"), Owner(agent_id, user_id)
    return [
        *made.journal(Journal(owner, session_id)),
        *made.journal(Journal(owner, None)),
        *made.listing(owner),
        *made.lease(Slot(user_id, session_id)),
        *made.texts(Slot(user_id, session_id)),
    ]


@given(USERS, IDS, IDS, IDS, IDS)
def test_all_keys_of_a_user_are_in_one_slot(
    user_id: str | None, agent: str, session: str, other_agent: str, other_session: str
) -> None:
    found = [*_all_keys(user_id, agent, session), *_all_keys(user_id, other_agent, other_session)]

    assert len({key_slot(key) for key in found}) == 1


@given(st.tuples(USERS, IDS, IDS), st.tuples(USERS, IDS, IDS))
def test_no_two_sessions_share_a_journal(one: tuple[str | None, str, str], other: tuple[str | None, str, str]) -> None:
    assert len(set(_all_keys(*one))) == 11
    shared = set(_all_keys(*one)) & set(_all_keys(*other))
    if one != other:
        # Sessions of one owner share what they list and what is theirs together; agents share leases.
        same_owner, same_slot = one[:2] == other[:2], (one[0], one[2]) == (other[0], other[2])
        assert len(shared) == 4 * same_owner + 5 * same_slot


@given(IDS)
def test_an_escaped_id_can_be_read_back(id: str) -> None:
    text = escape(id)

    assert not set(text) & set("{}:")
    assert re.sub("%(..)", lambda found: chr(int(found[1], 16)), text) == id


@pytest.fixture
async def store(redis_cluster_url: str) -> AsyncGenerator[Store]:
    prefix = f"{new_id()}:"
    async with open_store(redis_cluster_url, key_prefix=prefix) as store:
        yield store
    forget(redis_cluster_url, prefix)


class TestOnACluster:
    async def test_listing_search_fork_and_fencing_work_for_every_user(self, store: Store) -> None:
        slots: set[int] = set()
        for name in HOSTILE_IDS[::4]:
            manager = SessionManager(store, user_id=name).with_context("memory")
            await manager.create("first", session_id="one")
            session = manager.get_session("one")
            await session.append_messages([user("a walnut", id="m1"), user("two", id="m2")])
            await session.append_context_block("memory", "likes tea")
            copy = await manager.fork("one", "m1", "copy")

            assert {found.session_id for found in await manager.search("walnut")} == {"one", copy.id}
            assert {info.id for info in await manager.list()} == {"one", copy.id}
            async with store.leases.acquire("one", name) as lease:
                stale = session.with_lease(lease)
                await stale.append_message(user("held"))
            with pytest.raises(LeaseLost):
                await stale.append_message(user("late"))
            slots.add(key_slot(Keys("").listing(Owner("default", name))[0]))
        assert len({slot * 3 // 16384 for slot in slots}) == 3, "these users are on all three nodes"

    async def test_a_fork_to_a_session_that_is_there_changes_neither(self, store: Store) -> None:
        manager = SessionManager(store)
        for name in ("one", "two"):
            await manager.create(name, session_id=name)
            await manager.get_session(name).append_message(user(f"of {name}", id="m"))

        with pytest.raises(SessionExists):
            await store.registry.fork(Scope.of("one"), "m", Scope.of("two"), "copy")

        assert [one.text for one in await manager.get_session("two").get_history()] == ["of two"]


class TestErased:
    async def test_sessions_leave_no_key_and_no_byte_in_the_file_once_it_is_written_anew(
        self, private_redis: Callable[..., Redis]
    ) -> None:
        with private_redis() as server:
            async with open_store(server.url) as store:
                manager = SessionManager(store)
                await manager.create("wpmxgkvbdzcf name", session_id="s")
                await manager.get_session("s").append_message(user("the secret wpmxgkvbdzcf"))
                assert _files_hold(server.directory, b"wpmxgkvbdzcf")

                report = await manager.erase("s")

                assert report.erased
                assert any("append-only file" in one for one in report.not_reached)
                assert keys(server.url, "leafward:") == []
                while command(server.url, "INFO", "persistence")["aof_rewrite_in_progress"]:
                    pass
                assert not _files_hold(server.directory, b"wpmxgkvbdzcf")

    async def test_sessions_are_told_of_also_where_the_server_does_not_write_anew(
        self, private_redis: Callable[..., Redis]
    ) -> None:
        settings = ["user bob on >pw ~* +@all -bgrewriteaof"]
        with private_redis(settings=settings) as server:
            async with open_store(f"redis://bob:pw@127.0.0.1:{server.port}/0") as store:
                await Session(store, "s").append_message(user("text"))

                report = await SessionManager(store).erase("s")

                assert report.erased
                assert keys(server.url, "leafward:") == []

    async def test_deleted_sessions_leave_nothing_but_what_is_shared(self, redis_url: str) -> None:
        prefix = f"{new_id()}:"
        async with open_store(redis_url, key_prefix=prefix) as store:
            manager = SessionManager(store, user_id="u")
            for n in range(3):
                await manager.get_session(f"s{n}").append_message(user("text"))
                await manager.delete(f"s{n}")
        assert keys(redis_url, prefix) == []


def _files_hold(directory: Path, word: bytes) -> bool:
    return any(word in file.read_bytes() for file in directory.rglob("*") if file.is_file() and file.suffix != ".log")


async def test_a_leased_store_lists_sessions_like_the_store_it_is_of(redis_url: str) -> None:
    prefix = f"{new_id()}:"
    async with open_store(redis_url, key_prefix=prefix) as store:
        await Session(store, "s").append_message(user("text"))
        async with store.leases.acquire("s") as lease:
            listed = await store.fenced(lease).registry.list(Owner("default", None), limit=None, cursor=None)
            assert [info.id for info in listed] == ["s"]
    forget(redis_url, prefix)
