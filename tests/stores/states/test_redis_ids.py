"""Ids with separators are on Redis where Java has them."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import redis

from leafward import SessionKey, StoreError
from leafward.stores import RedisAgentStateStore, RedisSession
from leafward.testing.ids import HOSTILE_IDS
from tests.stores.redis_store import keys
from tests.stores.states.redis_states import Java, OldLeafward, noted

CUSTOM = '{"tenantId":"acme","sessionId":"s:1"}'
"""What a key of a user's own is in 1.x."""
OF_2X = [
    (SessionKey("tenant:user:1"), "__anon__/tenant:user:1"),
    (SessionKey("a:b", "alice"), "alice/a:b"),
    (SessionKey("s1", "acme:alice"), "acme:alice/s1"),
    (SessionKey("a:b/c", "x:y"), "x:y/a:b/c"),
    (SessionKey(CUSTOM), f"__anon__/{CUSTOM}"),
    (SessionKey("a%3Ab"), "__anon__/a%3Ab"),
    (SessionKey("a%2Fb%25", "al%3Aice"), "al%3Aice/a%2Fb%25"),
    (SessionKey("a:_keys"), "__anon__/a:_keys"),
]
OF_1X = [
    (SessionKey(id), id)
    for id in ("tenant:user:1", "al/ice", "a%2Fb", "a%3Ab", "a%25", CUSTOM, "a:_keys", "x:list", "a:b/c:d")
]
EVERY = [*((RedisAgentStateStore, *one) for one in OF_2X), *((RedisSession, *one) for one in OF_1X)]

Kind = type[RedisAgentStateStore]


@pytest.fixture
async def states(redis_url: str, prefix: str) -> AsyncGenerator[RedisAgentStateStore]:
    async with RedisAgentStateStore(redis_url, prefix) as states:
        yield states


class TestWhatJavaHas:
    @pytest.fixture(params=EVERY, ids=lambda case: f"{case[0].__name__} {case[2]}")
    def case(self, request: pytest.FixtureRequest) -> tuple[Kind, SessionKey, str]:
        return request.param

    @pytest.fixture
    def key(self, case: tuple[Kind, SessionKey, str]) -> SessionKey:
        return case[1]

    @pytest.fixture
    async def states(
        self, redis_url: str, prefix: str, case: tuple[Kind, SessionKey, str]
    ) -> AsyncGenerator[RedisAgentStateStore]:
        async with case[0](redis_url, prefix) as states:
            yield states

    @pytest.fixture
    def java(self, client: redis.Redis, prefix: str, case: tuple[Kind, SessionKey, str]) -> Java:
        return Java(client, f"{prefix}{case[2]}")

    async def test_is_found(self, states: RedisAgentStateStore, java: Java, key: SessionKey) -> None:
        java.save("agent_state", b'{"n":1}', versions=False)
        java.save_list("memory_messages", [b'{"n":2}'], "1:49")

        assert await states.get(key, "agent_state") == {"n": 1}
        assert await states.get_versioned(key, "agent_state") == ({"n": 1}, 1)
        assert await states.get_list(key, "memory_messages") == [{"n": 2}]
        assert await states.exists(key)
        assert await states.list_session_keys(key.user_id) == {key}

    async def test_is_written_to(self, states: RedisAgentStateStore, java: Java, key: SessionKey) -> None:
        java.save("agent_state", b'{"n":1}', versions=False)
        java.save_list("memory_messages", [b'{"n":1}'], "1:49")
        await states.save(key, "agent_state", {"n": 2})
        await states.save_list(key, "memory_messages", [{"n": 1}, {"n": 2}])
        assert java.all() == {
            "agent_state": b'{"n":2}',
            "agent_state:ver": b"2",
            "agent_state:sum": noted(2, b'{"n":2}'),
            "memory_messages:list": [b'{"n":1}', b'{"n":2}'],
            "memory_messages:list:_hash": b"py:list",
            "_keys": {b"agent_state", b"memory_messages:list"},
        }

    async def test_is_deleted(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey, redis_url: str, prefix: str
    ) -> None:
        java.save("agent_state", b'{"n":1}', versions=False)
        java.save_list("memory_messages", [b'{"n":2}'], "1:49")
        await states.get_versioned(key, "agent_state")
        await states.delete(key, "agent_state")
        assert await states.get(key, "agent_state") is None
        assert await states.exists(key)
        await states.delete(key)
        assert not await states.exists(key)
        assert keys(redis_url, prefix) == []

    async def test_is_begun_here_as_well(self, states: RedisAgentStateStore, java: Java, key: SessionKey) -> None:
        await states.save(key, "agent_state", {"n": 1})
        assert java.all()["agent_state"] == b'{"n":1}'
        assert java.all()["_keys"] == {b"agent_state"}
        assert await states.list_session_keys(key.user_id) == {key}


async def test_2x_finds_a_session_of_1x_with_colons(
    states: RedisAgentStateStore, client: redis.Redis, prefix: str
) -> None:
    java = Java(client, f"{prefix}tenant:7")
    java.save_list("memory_messages", [b'{"n":1}'], "1:49")
    before = java.all()
    assert await states.get_list("tenant:7", "memory_messages") == [{"n": 1}]
    assert await states.list_session_keys() == {SessionKey("tenant:7")}
    await states.save_list("tenant:7", "memory_messages", [{"n": 2}])
    assert java.all() == before
    assert Java(client, f"{prefix}__anon__/tenant:7").all()["memory_messages:list"] == [b'{"n":2}']
    await states.delete("tenant:7")
    assert java.all() == {}


class TestNamesOfStatesWithColons:
    @pytest.fixture(params=["s", "s:t"])
    def id(self, request: pytest.FixtureRequest) -> str:
        return request.param

    @pytest.fixture
    def java(self, client: redis.Redis, prefix: str, id: str) -> Java:
        return Java(client, f"{prefix}__anon__/{id}")

    async def test_are_found_as_java_writes_them_until_they_are_saved(
        self, states: RedisAgentStateStore, java: Java, id: str
    ) -> None:
        java.save("of:a:tool", b'{"n":1}')
        java.save_list("a:list:of", [b'{"n":2}'], "1:49")
        assert await states.get_versioned(id, "of:a:tool") == ({"n": 1}, 1)
        assert await states.get_list(id, "a:list:of") == [{"n": 2}]
        assert await states.save_if_version(id, "of:a:tool", {"n": 3}, 1) == 2
        await states.save_list(id, "a:list:of", [{"n": 2}, {"n": 4}])
        assert java.all() == {
            "of%3Aa%3Atool": b'{"n":3}',
            "of%3Aa%3Atool:ver": b"2",
            "of%3Aa%3Atool:sum": noted(2, b'{"n":3}'),
            "a%3Alist%3Aof:list": [b'{"n":2}', b'{"n":4}'],
            "a%3Alist%3Aof:list:_hash": b"py:list",
            "_keys": {b"of%3Aa%3Atool", b"a%3Alist%3Aof:list"},
        }
        assert await states.get(id, "of:a:tool") == {"n": 3}
        assert await states.get_list(id, "a:list:of") == [{"n": 2}, {"n": 4}]

    async def test_what_java_saves_afterwards_is_the_newer(
        self, states: RedisAgentStateStore, java: Java, id: str
    ) -> None:
        await states.save(id, "a:b", {"n": 1})
        java.save("a:b", b'{"n":2}', versions=False)
        assert await states.get(id, "a:b") == {"n": 2}
        await states.save(id, "a:b", {"n": 3})
        assert await states.get(id, "a:b") == {"n": 3}
        java.save_list("a:b", [b'{"n":4}'], "1:49")
        assert await states.get_list(id, "a:b") == [{"n": 4}]
        await states.save_list(id, "a:b", [{"n": 5}])
        assert await states.get_list(id, "a:b") == [{"n": 5}]

    async def test_are_deleted_as_java_writes_them(self, states: RedisAgentStateStore, java: Java, id: str) -> None:
        java.save("a:b", b'{"n":1}')
        java.save("x", b"{}")
        await states.delete(id, "a:b")
        assert java.all() == {"x": b"{}", "x:ver": b"1", "_keys": {b"x"}}


class TestAKeyThatCouldBeTwoSessions:
    """Java keeps the state `b:c` of session `a`, and the state `c` of session `a:b`, under one key."""

    @pytest.fixture
    def java(self, client: redis.Redis, prefix: str) -> Java:
        java = Java(client, f"{prefix}__anon__/a")
        java.save("b:c", b'{"of":"a"}')
        java.save_list("b:d", [b'{"of":"a"}'], "1:49")
        java.save_list("b", [b'{"of":"a"}'], "1:49")
        return java

    async def test_is_that_ones_whose_set_names_it(self, states: RedisAgentStateStore, java: Java) -> None:
        before = java.all()
        assert await states.get("a:b", "c") is None
        assert await states.get_list("a:b", "c") == []
        assert await states.get_list("a:b", "d") == []
        assert await states.get("a:b", "list") is None
        assert not await states.exists("a:b")
        assert await states.list_session_keys() == {SessionKey("a")}
        await states.delete("a:b", "c")
        await states.delete("a:b", "d")
        await states.delete("a:b", "list")
        await states.delete("a:b")
        assert java.all() == before

    async def test_is_not_written_over(self, states: RedisAgentStateStore, java: Java) -> None:
        before = java.all()
        for write in (states.save("a:b", "c", {}), states.save_list("a:b", "d", [{}])):
            with pytest.raises(StoreError, match="another session"):
                await write
        assert java.all() == before
        await states.save("a:b", "list", {"of": "a:b"})
        await states.save_list("a:b", "c", [{"of": "a:b"}])
        assert await states.get("a", "b:c") == {"of": "a"}
        assert await states.get_list("a", "b") == [{"of": "a"}]
        assert await states.get("a:b", "list") == {"of": "a:b"}

    async def test_is_free_once_the_state_is_saved_here(self, states: RedisAgentStateStore, java: Java) -> None:
        await states.save("a", "b:c", {"of": "a"})
        await states.save("a:b", "c", {"of": "a:b"})
        assert await states.get("a", "b:c") == {"of": "a"}
        assert await states.get("a:b", "c") == {"of": "a:b"}


class TestAStateOfJavaWhereAVersionWouldBe:
    """Java keeps the state `sum` of session `a:b` where the checksum of the state `b` of session `a` would be."""

    @pytest.fixture(params=[("a:b", "sum"), ("a:b", "ver"), ("a", "b:sum"), ("a", "b:ver")], ids=":".join)
    def java(self, client: redis.Redis, prefix: str, request: pytest.FixtureRequest) -> Java:
        id, name = request.param
        Java(client, f"{prefix}__anon__/{id}").save(name, b'{"of":"java"}', versions=False)
        java = Java(client, f"{prefix}__anon__/a")
        java.save("b", b'{"n":1}', versions=False)
        return java

    async def test_is_not_written_over(self, states: RedisAgentStateStore, java: Java) -> None:
        before = java.all()
        assert await states.get("a", "b") == {"n": 1}
        assert (await states.get_versioned("a", "b"))[0] == {"n": 1}
        with pytest.raises(StoreError, match="another session"):
            await states.save("a", "b", {"n": 2})
        found = java.all()
        assert {name: found[name] for name in before} == before

    async def test_is_not_removed_with_the_other(self, states: RedisAgentStateStore, java: Java) -> None:
        before = java.all()
        await states.save_list("a", "b", [{"n": 1}])
        await states.delete("a", "b")
        found = java.all()
        for name in before.keys() & {"b:sum", "b:ver", "b:_keys"}:
            assert found[name] == before[name]

    async def test_does_not_keep_a_session_from_being_deleted(
        self, states: RedisAgentStateStore, java: Java, redis_url: str, prefix: str
    ) -> None:
        await states.get_versioned("a", "b")
        for id in ("a", "a:b"):
            await states.delete(id)
        assert keys(redis_url, prefix) == []


async def test_the_hash_of_a_list_is_not_written_over_a_state_of_java(
    states: RedisAgentStateStore, client: redis.Redis, prefix: str
) -> None:
    java = Java(client, f"{prefix}__anon__/a:b")
    java.save("list:_hash", b'{"of":"java"}', versions=False)
    before = java.all()
    with pytest.raises(StoreError, match="another session"):
        await states.save_list("a", "b", [{}])
    await states.save("a", "b", {})
    await states.delete("a")
    assert java.all() == before


async def test_a_slot_that_would_get_a_version_at_a_state_of_java_is_not_moved_over_it(
    states: RedisAgentStateStore, client: redis.Redis, prefix: str
) -> None:
    java = Java(client, f"{prefix}__anon__/a:b:c")
    java.save("ver", b'{"of":"java"}', versions=False)
    old = OldLeafward(client, f"{prefix}__anon__/a%3Ab")
    old.save("c", b'{"n":1}')
    old.save_list("memory_messages", [b"{}"])
    with pytest.raises(StoreError, match="another session"):
        await states.save("a:b", "c", {"n": 2})
    assert java.all() == {"ver": b'{"of":"java"}', "_keys": {b"ver"}}
    assert old.all()["c"] == b'{"n":1}'


@pytest.mark.parametrize("kind", [RedisAgentStateStore, RedisSession])
async def test_whatever_ids_and_names_are_no_two_states_meet(redis_url: str, prefix: str, kind: Kind) -> None:
    chance = random.Random(11)
    parts = [*"ab::/%~", "%3A", "%25", "%2F", "%7E", "list", ":list", "ver", "_keys", "_hash", "sum"]

    def text() -> str:
        return "".join(chance.choices(parts, k=chance.randint(1, 4)))

    ids = [*HOSTILE_IDS, *(text() for _ in range(150))]
    found: dict[tuple[SessionKey, str], Any] = {}
    async with kind(redis_url, prefix) as states:
        for number in range(400):
            user = chance.choice([None, None, "alice", chance.choice(ids)])
            key = SessionKey(chance.choice(ids), user)
            name = chance.choice(["a", "list", "sum", "ver", "_hash", "b:a", f"{text()}n"])
            value: Any = [{"n": number}] if chance.random() < 0.5 else {"n": number}
            await states.save(key, name, value)
            found[key, name] = value
        for (key, name), value in found.items():
            read = states.get_list if isinstance(value, list) else states.get
            assert await read(key, name) == value
        for user in {key.user_id for key, _ in found}:
            wanted = {key for key, _ in found if key.user_id == user}
            assert await states.list_session_keys(user) == wanted
        gone = chance.sample(sorted({key for key, _ in found}, key=repr), 100)
        for key in gone:
            await states.delete(key)
        for (key, name), value in found.items():
            if key not in gone:
                read = states.get_list if isinstance(value, list) else states.get
                assert await read(key, name) == value
