"""What leafward kept on Redis when it escaped ids is found and moved, and told from what Java has under such names."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from typing import Any

import pytest
import redis

from leafward import SessionKey, StaleState, StoreError
from leafward.stores import RedisAgentStateStore, RedisSession
from tests.stores.redis_store import keys
from tests.stores.states.redis_states import Java, OldLeafward, noted

Kind = type[RedisAgentStateStore]


@pytest.fixture
async def states(redis_url: str, prefix: str) -> AsyncGenerator[RedisAgentStateStore]:
    async with RedisAgentStateStore(redis_url, prefix) as states:
        yield states


@pytest.fixture
async def session(redis_url: str, prefix: str) -> AsyncGenerator[RedisSession]:
    async with RedisSession(redis_url, prefix) as session:
        yield session


OLD = [
    (RedisAgentStateStore, SessionKey("tenant:user:1"), "__anon__/tenant%3Auser%3A1", "__anon__/tenant:user:1"),
    (RedisAgentStateStore, SessionKey("a:b", "alice"), "alice/a%3Ab", "alice/a:b"),
    (RedisAgentStateStore, SessionKey("s", "a:b"), "a%3Ab/s", "a:b/s"),
    (RedisAgentStateStore, SessionKey("a%3Ab"), "__anon__/a%253Ab", "__anon__/a%3Ab"),
    (RedisAgentStateStore, SessionKey("a%25"), "__anon__/a%2525", "__anon__/a%25"),
    (RedisSession, SessionKey("a:b"), "a%3Ab", "a:b"),
    (RedisSession, SessionKey("al/ice"), "al%2Fice", "al/ice"),
    (RedisSession, SessionKey("a%2Fb"), "a%252Fb", "a%2Fb"),
]


class TestWhatLeafwardKeptUnderTheOldRule:
    @pytest.fixture(params=OLD, ids=lambda case: f"{case[0].__name__} {case[2]}")
    def case(self, request: pytest.FixtureRequest) -> tuple[Kind, SessionKey, str, str]:
        return request.param

    @pytest.fixture
    def key(self, case: tuple[Kind, SessionKey, str, str]) -> SessionKey:
        return case[1]

    @pytest.fixture
    async def states(
        self, redis_url: str, prefix: str, case: tuple[Kind, SessionKey, str, str]
    ) -> AsyncGenerator[RedisAgentStateStore]:
        async with case[0](redis_url, prefix) as states:
            yield states

    @pytest.fixture
    def old(self, client: redis.Redis, prefix: str, case: tuple[Kind, SessionKey, str, str]) -> OldLeafward:
        old = OldLeafward(client, f"{prefix}{case[2]}")
        old.save("agent_state", b'{"n":1}')
        old.save("agent_state", b'{"n":2}')
        old.save_list("memory_messages", [b'{"n":3}'])
        old.save_list("empty", [])
        old.save("of:a:tool", b'{"n":4}')
        old.save("of%3Aa", b'{"n":5}')
        return old

    @pytest.fixture
    def java(self, client: redis.Redis, prefix: str, case: tuple[Kind, SessionKey, str, str]) -> Java:
        return Java(client, f"{prefix}{case[3]}")

    async def test_is_found(self, states: RedisAgentStateStore, old: OldLeafward, key: SessionKey) -> None:
        before = old.all()
        assert await states.get(key, "agent_state") == {"n": 2}
        assert await states.get_versioned(key, "agent_state") == ({"n": 2}, 2)
        assert await states.get_list(key, "memory_messages") == [{"n": 3}]
        assert await states.get_list(key, "empty") == []
        assert await states.get(key, "of:a:tool") == {"n": 4}
        assert await states.get(key, "of%3Aa") == {"n": 5}
        assert await states.get(key, "of:a") is None
        assert await states.exists(key)
        assert await states.list_session_keys(key.user_id) == {key}
        assert old.all() == before

    async def test_is_moved_as_a_whole_when_something_is_saved(
        self, states: RedisAgentStateStore, old: OldLeafward, java: Java, key: SessionKey
    ) -> None:
        assert await states.save_if_version(key, "agent_state", {"n": 5}, 2) == 3
        assert old.all() == {}
        assert java.all() == {
            "agent_state": b'{"n":5}',
            "agent_state:ver": b"3",
            "agent_state:sum": noted(3, b'{"n":5}'),
            "memory_messages:list": [b'{"n":3}'],
            "memory_messages:list:_hash": b"py:list",
            "empty:list:_hash": b"empty:0",
            "of%3Aa%3Atool": b'{"n":4}',
            "of%3Aa%3Atool:ver": b"1",
            "of%3Aa%3Atool:sum": noted(1, b'{"n":4}'),
            "of%253Aa": b'{"n":5}',
            "of%253Aa:ver": b"1",
            "of%253Aa:sum": noted(1, b'{"n":5}'),
            "_keys": {b"agent_state", b"memory_messages:list", b"empty:list", b"of%3Aa%3Atool", b"of%253Aa"},
        }
        assert await states.list_session_keys(key.user_id) == {key}
        assert await states.get(key, "of:a:tool") == {"n": 4}
        assert await states.get(key, "of%3Aa") == {"n": 5}
        assert await states.get_versioned(key, "of:a:tool") == ({"n": 4}, 1)
        assert await states.get_list(key, "memory_messages") == [{"n": 3}]

    async def test_is_moved_by_a_list_too(
        self, states: RedisAgentStateStore, old: OldLeafward, java: Java, key: SessionKey
    ) -> None:
        await states.save_list(key, "memory_messages", [{"n": 3}, {"n": 4}])
        assert old.all() == {}
        assert java.all()["memory_messages:list"] == [b'{"n":3}', b'{"n":4}']
        assert await states.get_versioned(key, "agent_state") == ({"n": 2}, 2)

    async def test_is_not_overwritten_by_one_who_comes_too_late(
        self, states: RedisAgentStateStore, old: OldLeafward, key: SessionKey
    ) -> None:
        with pytest.raises(StaleState):
            await states.save_if_version(key, "agent_state", {"n": 5}, 0)
        assert await states.get_versioned(key, "agent_state") == ({"n": 2}, 2)

    async def test_is_deleted(
        self, states: RedisAgentStateStore, old: OldLeafward, key: SessionKey, redis_url: str, prefix: str
    ) -> None:
        await states.delete(key, "agent_state")
        await states.delete(key, "of:a:tool")
        assert await states.get(key, "agent_state") is None
        assert await states.get(key, "of:a:tool") is None
        assert await states.get_list(key, "memory_messages") == [{"n": 3}]
        await states.delete(key)
        assert not await states.exists(key)
        assert await states.list_session_keys(key.user_id) == set()
        assert keys(redis_url, prefix) == []

    async def test_is_gone_with_a_delete_after_a_save(
        self, states: RedisAgentStateStore, old: OldLeafward, key: SessionKey, redis_url: str, prefix: str
    ) -> None:
        await states.save(key, "agent_state", {"n": 5})
        await states.delete(key)
        assert not await states.exists(key)
        assert keys(redis_url, prefix) == []

    async def test_stays_where_java_has_the_session_too_and_is_reported_once(
        self,
        states: RedisAgentStateStore,
        old: OldLeafward,
        java: Java,
        key: SessionKey,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        java.save("agent_state", b'{"java":1}', versions=False)
        before = old.all()
        with caplog.at_level(logging.WARNING, "leafward.stores.redis"):
            assert await states.get(key, "agent_state") == {"java": 1}
            assert await states.get_list(key, "memory_messages") == []
            assert await states.exists(key)
            assert await states.list_session_keys(key.user_id) == {key}
            await states.save(key, "agent_state", {"n": 5})
        assert old.all() == before
        assert java.all()["agent_state"] == b'{"n":5}'
        [record] = caplog.records
        assert f"{old.slot}:_keys" in record.getMessage()
        await states.delete(key, "of%3Aa")
        left = {name: kept for name, kept in before.items() if not name.startswith(("of%3Aa", "_keys"))}
        assert {name: kept for name, kept in old.all().items() if name != "_keys"} == left
        await states.delete(key)
        assert not await states.exists(key)
        assert (old.all(), java.all()) == ({}, {})


class TestNamesThatAreAlsoOldNames:
    """`a%3Ab` is what Java calls a session of this id, and what leafward called `a:b`."""

    async def test_javas_is_taken_literally(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        java = Java(client, f"{prefix}__anon__/a%3Ab")
        java.save("agent_state", b'{"n":1}', versions=False)
        java.save_list("memory_messages", [b"{}"], "1:49")
        assert await states.list_session_keys() == {SessionKey("a%3Ab")}
        assert not await states.exists("a:b")
        assert await states.get("a:b", "agent_state") is None
        await states.save("a:b", "agent_state", {"n": 2})
        await states.delete("a:b")
        assert await states.get("a%3Ab", "agent_state") == {"n": 1}

    async def test_both_may_be_used(self, states: RedisAgentStateStore, session: RedisSession) -> None:
        for store in (states, session):
            for id in ("a:b", "a%3Ab", "a%253Ab", "a%25253Ab"):
                await store.save_list(id, "list", [{"of": id}])
                await store.save(id, "value", {"of": id})
            for id in ("a:b", "a%3Ab", "a%253Ab", "a%25253Ab"):
                assert await store.get_list(id, "list") == [{"of": id}]
                assert await store.get(id, "value") == {"of": id}

    async def test_leafwards_are_not_given_to_another(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        old = OldLeafward(client, f"{prefix}__anon__/a%3Ab")
        old.save("agent_state", b'{"n":1}')
        before = old.all()
        assert await states.get("a%3Ab", "agent_state") is None
        assert await states.get_list("a%3Ab", "agent_state") == []
        assert not await states.exists("a%3Ab")
        assert await states.list_session_keys() == {SessionKey("a:b")}
        await states.delete("a%3Ab")
        assert old.all() == before

    @pytest.mark.parametrize("value", [{"n": 3}, [{"n": 3}]])
    async def test_leafwards_make_way_for_another(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str, value: Any
    ) -> None:
        old = OldLeafward(client, f"{prefix}__anon__/a%3Ab")
        old.save("agent_state", b'{"n":1}')
        old.save_list("memory_messages", [b"{}"])
        await states.save("a%3Ab", "x", value)
        assert await states.get_versioned("a:b", "agent_state") == ({"n": 1}, 1)
        assert await states.get("a%3Ab", "agent_state") is None
        assert await states.list_session_keys() == {SessionKey("a:b"), SessionKey("a%3Ab")}

    async def test_leafwards_are_not_given_to_another_in_either_layout(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        old = [OldLeafward(client, f"{prefix}{name}") for name in ("__anon__/a%3Ab", "a%3Ab")]
        for one in old:
            one.save("agent_state", b'{"n":1}')
            one.save_list("memory_messages", [b"{}"])
        assert not await states.exists("a%3Ab")
        await states.save("a%3Ab", "x", {})
        assert await states.get("a%3Ab", "agent_state") is None
        await states.delete("a%3Ab")
        # Java has both sessions too.
        for name in ("__anon__/c:d", "c:d"):
            Java(client, f"{prefix}{name}").save("agent_state", b'{"n":2}')
            OldLeafward(client, f"{prefix}{name.replace(':', '%3A')}").save("agent_state", b'{"n":1}')
        assert await states.get("c:d", "agent_state") == {"n": 2}
        assert len(caplog.records) == 2
        await states.delete("c:d")
        assert not await states.exists("c:d")
        assert await states.list_session_keys() == {SessionKey("a:b")}

    async def test_a_state_that_is_deleted_does_not_come_back_from_a_place_that_is_not_used(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        old = OldLeafward(client, f"{prefix}__anon__/a%3Ab")
        old.save("agent_state", b'{"n":1}')
        old.save_list("memory_messages", [b"{}"])
        Java(client, f"{prefix}__anon__/a:b").save("agent_state", b'{"n":2}')
        await states.delete("a:b", "agent_state")
        assert await states.get("a:b", "agent_state") is None
        assert await states.get_list("a:b", "memory_messages") == [{}]

    async def test_but_not_where_java_has_the_session_too(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        old = OldLeafward(client, f"{prefix}__anon__/a%3Ab")
        old.save("agent_state", b'{"n":1}')
        old.save_list("memory_messages", [b"{}"])
        Java(client, f"{prefix}__anon__/a:b").save("agent_state", b'{"n":2}')
        before = old.all()
        for write in (states.save("a%3Ab", "x", {}), states.save_list("a%3Ab", "x", [{}])):
            with pytest.raises(StoreError, match="another session"):
                await write
        assert old.all() == before


class TestNamesThatAJavaWithVersionsAlsoHas:
    """Java 2.0.3 counts versions as leafward did under the old rule: `:ver` alone does not say whose a slot is."""

    @pytest.mark.parametrize("name", ["__anon__/a%3Ab", "__anon__/a%25", "u%3Av/s", "u%3Av/a%3Ab"])
    @pytest.mark.parametrize("form", ["{%s,%s}", '{ %s ,\n %s, "context": [] }'])
    async def test_the_state_of_an_agent_says_it(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str, name: str, form: str
    ) -> None:
        user, _, id = name.partition("/")
        key = SessionKey(id, None if user == "__anon__" else user)
        java = Java(client, f"{prefix}{name}")
        user_id = "null" if key.user_id is None else f'"{user}"'
        java.save("agent_state", (form % (f'"session_id":"{id}"', f'"user_id":{user_id}')).encode())
        java.save("notes", b"{}")
        before = java.all()
        decoded = [text.replace("%3A", ":").replace("%25", "%") for text in (id, user)]
        other = SessionKey(decoded[0], None if key.user_id is None else decoded[1])

        assert await states.get(key, "notes") == {}
        assert await states.get(other, "notes") is None
        assert await states.list_session_keys(key.user_id) == {key}
        assert not await states.exists(other)
        await states.save(other, "x", {})
        await states.delete(other)
        assert java.all() == before
        await states.save(key, "x", {})
        assert java.all()["x"] == b"{}"

    @pytest.mark.parametrize(("name", "id", "user"), [("__anon__/a%3Ab", "a:b", None), ("u%3Av/s", "s", "u:v")])
    async def test_also_when_it_is_leafwards(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str, name: str, id: str, user: str | None
    ) -> None:
        old = OldLeafward(client, f"{prefix}{name}")
        user_id = "null" if user is None else f'"{user}"'
        old.save("agent_state", f'{{"session_id":"{id}","user_id":{user_id}}}'.encode())
        await states.save(SessionKey(id, user), "x", {})
        assert (await states.get_versioned(SessionKey(id, user), "agent_state")).version == 1
        assert old.all() == {}

    async def test_a_list_of_javas_says_it_too(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        java = Java(client, f"{prefix}__anon__/a%3Ab")
        java.save("notes", b"{}")
        java.save_list("todo", [b"{}"], "1:49")
        assert await states.list_session_keys() == {SessionKey("a%3Ab")}

    @pytest.mark.parametrize("name", ["__anon__/a%3Ab", "a%3Ab", "al%2Fice"])
    async def test_where_nothing_says_it_the_slot_is_copied_and_stays(
        self, redis_url: str, client: redis.Redis, prefix: str, name: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        unsure = Java(client, f"{prefix}{name}")
        unsure.save("notes", b'{"n":1}')
        unsure.save("notes", b'{"n":2}')
        unsure.save("other", b"{}")
        unsure.save_list("todo", [], "empty:0")
        before = unsure.all()
        literal = name.removeprefix("__anon__/")
        id = literal.replace("%3A", ":").replace("%2F", "/")
        kind = RedisSession if literal == name else RedisAgentStateStore
        async with kind(redis_url, prefix) as states:
            assert await states.get_versioned(id, "notes") == ({"n": 2}, 2)
            with pytest.raises(StoreError, match="another session"):
                await states.save(literal, "x", {})
            assert not await states.exists(literal)

            assert await states.save_if_version(id, "notes", {"n": 3}, 2) == 3
            assert unsure.all() == before
            assert await states.get(id, "other") == {}
            assert await states.list_session_keys() == {SessionKey(id)}
            assert f"{unsure.slot}:_keys" in caplog.text
            with pytest.raises(StoreError, match="another session"):
                await states.save_list(literal, "x", [])
