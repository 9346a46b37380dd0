"""States lie in Redis as AgentScope has them: what Java wrote is read, what is written Java finds, to the byte."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st
from redis.crc import key_slot

from leafward import ConfigurationError, InvalidId, SessionKey, StaleState, open_store
from leafward.core.ids import new_id, refusal
from leafward.stores import RedisAgentStateStore, RedisSession
from leafward.stores.leases import Slot
from leafward.stores.redis.keys import Keys
from leafward.stores.redis.state_keys import OfACluster, OfAgentScope
from leafward.stores.states.table import check_name
from leafward.testing.ids import HOSTILE_IDS
from tests.stores.redis_store import forget, keys
from tests.stores.states.redis_states import Java, noted

IDS = st.one_of(
    st.sampled_from(
        [*HOSTILE_IDS, "_keys", "a:_keys", "list", "a:list", "ver", "sum", "a:ver", "x:list:_hash", "_hash"]
    ),
    st.text("ab:/~%257EFA3", min_size=1, max_size=9),
    st.text(min_size=1),
).filter(lambda text: refusal(text) is None)
SLOTS = st.builds(Slot, st.one_of(st.none(), IDS), IDS)
NAMES = [OfAgentScope("p:", "2.x"), OfAgentScope("p:", "1.x"), OfACluster("p:")]


def is_name(text: str) -> bool:
    try:
        return bool(check_name(text))
    except InvalidId:
        return False


STATES = IDS.filter(is_name)


def all_keys(names: OfAgentScope | OfACluster, slot: Slot, name: str) -> set[str]:
    """Return all keys that are written for a state."""
    place = names.places(slot)[0]
    spelled = names.spelled(name, place)
    endings = "_keys", spelled, *(f"{spelled}:{ending}" for ending in ("ver", "sum", "list", "list:_hash"))
    return {f"{place.start}:{ending}" for ending in endings}


@pytest.mark.parametrize("names", NAMES)
@given(slot=SLOTS, other=SLOTS, name=STATES, other_name=STATES)
def test_no_two_states_share_a_key(
    names: OfAgentScope | OfACluster, slot: Slot, other: Slot, name: str, other_name: str
) -> None:
    if (slot, name) != (other, other_name):
        shared = all_keys(names, slot, name) & all_keys(names, other, other_name)
        assert shared == ({f"{names.places(slot)[0].start}:_keys"} if slot == other else set())


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", "b:c"), ("a:b", "c")),
        (("a", "b"), ("a:b", "list")),
        (("a", "b"), ("a:b", "ver")),
        (("a", "b"), ("a:b", "sum")),
        (("a", "b"), ("a:b:list", "_hash")),
        (("a", "x"), ("a:_keys", "x")),
        (("a%3Ab", "x"), ("a:b", "x")),
        (("a", "b%3Ac"), ("a", "b:c")),
        (("a:b", "%3Alist"), ("a:b", "list")),
    ],
)
def test_not_even_those_that_look_alike(
    names: OfAgentScope | OfACluster, one: tuple[str, str], other: tuple[str, str]
) -> None:
    shared = all_keys(names, Slot(None, one[0]), one[1]) & all_keys(names, Slot(None, other[0]), other[1])
    assert len(shared) == (one[0] == other[0])


@pytest.mark.parametrize("names", NAMES)
@given(slot=SLOTS, name=STATES)
def test_a_name_is_read_as_it_was_written(names: OfAgentScope | OfACluster, slot: Slot, name: str) -> None:
    assert names.read_name(names.spelled(name, names.places(slot)[0])) == name


@pytest.mark.parametrize("names", NAMES[:2])
@given(slot=SLOTS)
def test_each_slot_is_found_by_the_key_of_its_set(names: OfAgentScope, slot: Slot) -> None:
    for place in names.places(slot):
        assert names.read(place.set.decode(), old=place.kind == "old") == slot


@given(slot=SLOTS, session=IDS, name=STATES)
def test_in_a_cluster_all_of_a_user_is_in_one_slot(slot: Slot, session: str, name: str) -> None:
    names = OfACluster("agentscope:session:")
    found = [*all_keys(names, slot, name), *all_keys(names, Slot(slot.user_id, session), name)]
    of_a_user = [names.index(slot.user_id), *Keys("leafward:").lease(slot)]
    assert len({key_slot(key) for key in [*(one.encode() for one in found), *of_a_user]}) == 1


@pytest.mark.parametrize(
    ("user", "session", "wanted"),
    [
        ("alice", "s1", "alice/s1"),
        (None, "s1", "__anon__/s1"),
        ("al ice", "会话 100%", "al ice/会话 100%"),
        ("a*[x]?\\", "b/c*{}", "a*[x]?\\/b/c*{}"),
        ("a%2fb", "%41", "a%2fb/%41"),
        ("alice", "a%2Fb", "alice/a%2Fb"),
        ("a:b", "c:d", "a:b/c:d"),
        ("a%3Ab", "c%3Ad%", "a%3Ab/c%3Ad%"),
        ("a%25b", "c%25", "a%25b/c%25"),
        ("a/b", "c", "a%2Fb/c"),
        ("a%2Fb", "c", "a%252Fb/c"),
    ],
)
def test_an_id_has_the_name_that_java_gives_it_but_for_a_slash_in_a_user(
    user: str | None, session: str, wanted: str
) -> None:
    assert OfAgentScope("p:", "2.x").places(Slot(user, session))[0].start == f"p:{wanted}"


@pytest.mark.parametrize(
    ("user", "session", "wanted"),
    [
        (None, "s1", "s1"),
        (None, "~s 1%", "~s 1%"),
        (None, "a/b", "a/b"),
        (None, "a:b", "a:b"),
        (None, "a%3Ab%2F", "a%3Ab%2F"),
        (None, "a%7Eb", "a%257Eb"),
        ("alice", "s1", "alice%7Es1"),
        ("a:b", "c/d", "a%3Ab%7Ec%2Fd"),
    ],
)
def test_in_1x_a_session_has_its_own_name_unless_it_could_be_a_users(
    user: str | None, session: str, wanted: str
) -> None:
    assert OfAgentScope("p:", "1.x").places(Slot(user, session))[0].start == f"p:{wanted}"


@pytest.fixture
async def states(redis_url: str, prefix: str) -> AsyncGenerator[RedisAgentStateStore]:
    async with RedisAgentStateStore(redis_url, prefix) as states:
        yield states


@pytest.fixture
async def session(redis_url: str, prefix: str) -> AsyncGenerator[RedisSession]:
    async with RedisSession(redis_url, prefix) as session:
        yield session


class TestKeysOf2x:
    @pytest.fixture(params=["alice", None])
    def key(self, request: pytest.FixtureRequest) -> SessionKey:
        return SessionKey("s1", request.param)

    @pytest.fixture
    def java(self, client: redis.Redis, prefix: str, key: SessionKey) -> Java:
        return Java(client, f"{prefix}{key.user_id or '__anon__'}/s1")

    async def test_what_is_saved_lies_as_java_expects_it(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        await states.save(key, "agent_state", {"a": "é"})
        await states.save(key, "agent_state", {"a": "é", "b": 1.5})
        await states.save_list(key, "memory_messages", [{"n": 1}, {"n": "é"}])
        await states.save_list(key, "empty", [])

        assert java.all() == {
            "agent_state": '{"a":"é","b":1.5}'.encode(),
            "agent_state:ver": b"2",
            "agent_state:sum": noted(2, '{"a":"é","b":1.5}'.encode()),
            "memory_messages:list": [b'{"n":1}', '{"n":"é"}'.encode()],
            "memory_messages:list:_hash": b"py:list",
            "empty:list:_hash": b"empty:0",
            "_keys": {b"agent_state", b"memory_messages:list", b"empty:list"},
        }

    async def test_nothing_else_is_below_the_prefix(
        self, states: RedisAgentStateStore, java: Java, redis_url: str, prefix: str, key: SessionKey
    ) -> None:
        await states.save(key, "agent_state", {})
        async with states.leases.acquire(key.session_id, key.user_id):
            wanted = {
                f"{java.slot}:{name}".encode()
                for name in ("_keys", "agent_state", "agent_state:ver", "agent_state:sum")
            }
            assert set(keys(redis_url, prefix)) == wanted

    async def test_what_java_saved_is_got(self, states: RedisAgentStateStore, java: Java, key: SessionKey) -> None:
        java.save("agent_state", b'{ "a" : "\\u00e9" }')
        java.save("agent_state", b'{ "a" : "\\u00e9", "z" : null }')
        java.save_list("memory_messages", [b'{ "n" : 1 }', b'{"n":2}'], "2:12345")
        java.save_list("none", [], "empty:0")

        assert await states.get_versioned(key, "agent_state") == ({"a": "é", "z": None}, 2)
        assert await states.get_list(key, "memory_messages") == [{"n": 1}, {"n": 2}]
        assert await states.get_list(key, "none") == []
        assert await states.exists(key)
        assert await states.list_session_keys(key.user_id) == {key}

    async def test_who_saved_at_a_version_is_told_what_java_did_since(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        assert await states.save_if_version(key, "agent_state", {"n": 1}, 0) == 1
        java.save("agent_state", b'{"n":2}')
        with pytest.raises(StaleState):
            await states.save_if_version(key, "agent_state", {"n": 3}, 1)
        assert await states.save_if_version(key, "agent_state", {"n": 3}, 2) == 3
        assert java.all()["agent_state:ver"] == b"3"

    async def test_a_value_of_before_there_were_versions_is_at_1(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        java.save("agent_state", b'{"n":1}', versions=False)
        assert await states.get_versioned(key, "agent_state") == ({"n": 1}, 1)
        assert await states.save_if_version(key, "agent_state", {"n": 2}, 1) == 2
        java.save("agent_state", b'{"n":3}', versions=False)
        assert await states.get_versioned(key, "agent_state") == ({"n": 3}, 3)
        await states.save(key, "agent_state", {"n": 4})
        assert await states.get_versioned(key, "agent_state") == ({"n": 4}, 4)

    async def test_a_version_that_java_left_behind_counts_nothing(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        java.client.set(f"{java.slot}:agent_state:ver", 7)
        assert await states.get_versioned(key, "agent_state") == (None, 0)
        assert await states.save_if_version(key, "agent_state", {"n": 1}, 0) == 1

    async def test_after_a_change_of_a_list_no_hash_of_javas_is_left(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        for change in ([{"n": 1}, {"n": 2}], [{"n": 0}], [{"n": 1}]):
            java.save_list("list", [b'{"n":1}'], "1:49")
            await states.save_list(key, "list", change)
            assert await states.get_list(key, "list") == change
            assert java.all()["list:list:_hash"] == b"py:list"
        await states.save_list(key, "list", [])
        assert java.all() == {"list:list:_hash": b"empty:0", "_keys": {b"list:list"}}

    async def test_the_later_save_leaves_nothing_of_the_other_kind(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        java.save("x", b"{}")
        java.save_list("x", [b"{}"], "1:2")
        await states.save(key, "x", {})
        assert java.all() == {"x": b"{}", "x:ver": b"2", "x:sum": noted(2, b"{}"), "_keys": {b"x"}}
        await states.save_list(key, "x", [{}])
        assert java.all() == {"x:list": [b"{}"], "x:list:_hash": b"py:list", "_keys": {b"x:list"}}

    async def test_both_that_java_has_of_a_name_are_got(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        java.save("x", b'{"n":1}')
        java.save_list("x", [b'{"n":2}'], "1:2")
        assert await states.get(key, "x") == {"n": 1}
        assert await states.get_list(key, "x") == [{"n": 2}]

    async def test_one_who_saves_the_value_of_both_is_not_told_of_the_list(
        self, states: RedisAgentStateStore, java: Java, key: SessionKey
    ) -> None:
        java.save_list("x", [b'{"n":2}'], "1:2")
        java.save("x", b'{"n":1}', versions=False)
        assert await states.get_versioned(key, "x") == ({"n": 1}, 1)
        assert await states.save_if_version(key, "x", {"n": 3}, 1) == 2
        assert await states.get_versioned(key, "x") == ({"n": 3}, 2)

    async def test_a_delete_leaves_nothing(self, states: RedisAgentStateStore, java: Java, key: SessionKey) -> None:
        java.save("agent_state", b"{}")
        java.save("a:b", b"{}")
        java.save_list("list", [b"{}"], "1:2")
        await states.save(key, "x", {})
        await states.save_list(key, "y", [])
        await states.delete(key, "agent_state")
        await states.delete(key, "list")
        assert java.all()["_keys"] == {b"a:b", b"x", b"y:list"}
        await states.delete(key)
        assert java.all() == {}


class TestKeysOf1x:
    @pytest.fixture
    def java(self, client: redis.Redis, prefix: str) -> Java:
        return Java(client, f"{prefix}s1")

    async def test_what_is_saved_lies_as_java_expects_it(self, session: RedisSession, java: Java) -> None:
        await session.save("s1", "toolkit_activeGroups", {"a": 1})
        await session.save_list("s1", "memory_messages", [{"n": 1}])
        assert java.all() == {
            "toolkit_activeGroups": b'{"a":1}',
            "toolkit_activeGroups:ver": b"1",
            "toolkit_activeGroups:sum": noted(1, b'{"a":1}'),
            "memory_messages:list": [b'{"n":1}'],
            "memory_messages:list:_hash": b"py:list",
            "_keys": {b"toolkit_activeGroups", b"memory_messages:list"},
        }

    async def test_what_java_saved_is_got(self, session: RedisSession, java: Java) -> None:
        java.save("toolkit_activeGroups", b'{"a":1}', versions=False)
        java.save_list("memory_messages", [b'{ "n" : 1 }'], "1:5")
        assert await session.get("s1", "toolkit_activeGroups") == {"a": 1}
        assert await session.get_list("s1", "memory_messages") == [{"n": 1}]
        assert await session.list_session_keys() == {SessionKey("s1")}

    async def test_2x_finds_it_too_and_writes_beside_it(
        self, states: RedisAgentStateStore, java: Java, client: redis.Redis, prefix: str
    ) -> None:
        java.save("notes", b'{"n":1}')
        java.save_list("list", [b'{"n":1}'], "1:5")
        before = java.all()

        assert await states.exists("s1")
        assert await states.get_versioned("s1", "notes") == ({"n": 1}, 0)
        assert await states.get_list("s1", "list") == [{"n": 1}]
        assert await states.list_session_keys() == {SessionKey("s1")}
        assert not await states.exists(SessionKey("s1", "alice"))

        assert await states.save_if_version("s1", "notes", {"n": 2}, 0) == 1
        await states.save_list("s1", "list", [{"n": 1}, {"n": 2}])
        assert java.all() == before
        assert Java(client, f"{prefix}__anon__/s1").all()["list:list"] == [b'{"n":1}', b'{"n":2}']
        assert await states.get_versioned("s1", "notes") == ({"n": 2}, 1)

    async def test_a_delete_in_2x_removes_both(
        self, states: RedisAgentStateStore, java: Java, redis_url: str, prefix: str
    ) -> None:
        java.save("notes", b'{"n":1}')
        java.save("other", b'{"n":1}')
        await states.save("s1", "notes", {"n": 2})
        await states.delete("s1", "notes")
        assert await states.get("s1", "notes") is None
        assert await states.get("s1", "other") == {"n": 1}
        await states.delete("s1")
        assert keys(redis_url, prefix) == []

    async def test_2x_does_not_look_at_a_name_that_could_be_a_users_slot(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        java = Java(client, f"{prefix}alice/s1")
        java.save("notes", b'{"n":1}')
        assert await states.get("alice/s1", "notes") is None
        assert not await states.exists("alice/s1")
        await states.delete("alice/s1")
        assert await states.list_session_keys() == set()
        assert java.all() != {}

    async def test_a_slot_of_2x_is_a_session_with_its_whole_name_as_it_is_for_java(
        self, states: RedisAgentStateStore, session: RedisSession, redis_url: str, prefix: str
    ) -> None:
        await states.save(SessionKey("s1", "alice"), "a", {"n": 1})
        await states.save("s2", "a", {"n": 2})
        await session.save(SessionKey("s1", "alice"), "a", {"n": 3})
        assert await session.list_session_keys() == {SessionKey("alice/s1"), SessionKey("__anon__/s2")}
        assert await session.list_session_keys("alice") == {SessionKey("s1", "alice")}
        assert await states.list_session_keys() == {SessionKey("s2")}
        assert await states.get(SessionKey("s1", "alice"), "a") == {"n": 1}
        assert f"{prefix}alice%7Es1:a".encode() in keys(redis_url, prefix)


class TestListing:
    async def test_slots_of_sandboxes_are_nobodys_sessions(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        Java(client, f"{prefix}__anon__/sandbox/session/x").save("_sandbox_state", b"{}")
        Java(client, f"{prefix}__anon__/s1").save("_sandbox_state", b"{}")
        Java(client, f"{prefix}__anon__/s1").save("agent_state", b"{}")
        assert await states.list_session_keys() == {SessionKey("s1")}

    @pytest.mark.parametrize("user", ["*", "a?c", "[a-z]", "a\\", "a\\*", "[^x]", "%"])
    async def test_a_user_is_no_pattern(self, states: RedisAgentStateStore, user: str) -> None:
        for other in ("abc", "b", "x", user):
            await states.save(SessionKey(f"of {other}", other), "a", {})
        assert await states.list_session_keys(user) == {SessionKey(f"of {user}", user)}

    async def test_keys_of_others_below_the_prefix_are_let_be(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        await states.save("s1", "a", {})
        client.set(f"{prefix}__anon__/text:_keys", "text")
        client.hset(f"{prefix}hash:_keys", "a", "b")
        for refused in (".", "a\nb", "__anon__"):
            client.sadd(f"{prefix}__anon__/{refused}:_keys", "a")
        client.sadd(f"{prefix}:_keys", "a")
        client.sadd(prefix.encode() + b"__anon__/\xff:_keys", "a")
        found = await states.list_session_keys()
        assert {key.session_id for key in found} - {"\ufffd"} == {"s1"}

    async def test_thousands_are_all_found(
        self, states: RedisAgentStateStore, client: redis.Redis, prefix: str
    ) -> None:
        with client.pipeline() as many:
            for number in range(5000):
                many.sadd(f"{prefix}alice/s{number}:_keys", "a")
            many.execute()
        assert len(await states.list_session_keys("alice")) == 5000


class TestPrefixes:
    async def test_two_are_apart(self, states: RedisAgentStateStore, redis_url: str, prefix: str) -> None:
        async with RedisAgentStateStore(redis_url, f"{prefix}other:session:") as others:
            await others.save(SessionKey("s", "alice"), "a", {"n": 2})
            assert await states.list_session_keys("alice") == set()
            await states.save(SessionKey("s", "alice"), "a", {"n": 1})
            assert await others.get(SessionKey("s", "alice"), "a") == {"n": 2}
            async with states.leases.acquire("s", "alice"), others.leases.acquire("s", "alice", wait=0):
                pass

    async def test_of_two_stores_are_apart(self, redis_url: str, prefix: str) -> None:
        async with (
            open_store(redis_url, key_prefix=prefix) as one,
            open_store(redis_url, key_prefix=f"{prefix}2:") as two,
        ):
            await one.states.save("s", "a", {"n": 1})
            assert not await two.states.exists("s")
            assert await two.states.list_session_keys() == set()

    async def test_a_store_and_its_states_by_themselves_are_the_same(self, redis_url: str, prefix: str) -> None:
        async with (
            open_store(redis_url, key_prefix=prefix) as store,
            RedisAgentStateStore(redis_url, f"{prefix}agentscope:session:") as states,
        ):
            await store.states.save("s", "a", {"n": 1})
            assert await states.get_versioned("s", "a") == ({"n": 1}, 1)
            async with store.leases.acquire("s") as lease:
                await states.with_lease(lease).save("s", "a", {"n": 2})
            assert await store.states.get("s", "a") == {"n": 2}

    async def test_the_default_is_agentscopes_for_both(self, redis_url: str, client: redis.Redis) -> None:
        id = new_id()
        try:
            async with open_store(redis_url) as store, RedisAgentStateStore(redis_url) as states:
                await store.states.save(SessionKey(id, "alice"), "agent_state", {"n": 1})
                assert await states.get(SessionKey(id, "alice"), "agent_state") == {"n": 1}
            assert client.get(f"agentscope:session:alice/{id}:agent_state") == b'{"n":1}'
        finally:
            forget(redis_url, f"agentscope:session:alice/{id}")
            forget(redis_url, f"leafward:{{u:alice}}:lease:{id}")

    async def test_glob_characters_in_it_are_no_pattern(self, redis_url: str, prefix: str) -> None:
        async with RedisAgentStateStore(redis_url, f"{prefix}*[x]") as states:
            await states.save("s", "a", {})
            async with RedisAgentStateStore(redis_url, f"{prefix}yx") as others:
                await others.save("t", "a", {})
                assert await states.list_session_keys() == {SessionKey("s")}

    @pytest.mark.parametrize("bad", ["", "  ", None, 7, "a\n"])
    def test_what_is_none_is_refused(self, bad: Any) -> None:
        with pytest.raises(ConfigurationError):
            RedisAgentStateStore("redis://localhost", bad)

    def test_in_a_cluster_one_with_braces_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="braces"):
            RedisAgentStateStore("redis+cluster://localhost", "a{b}:")

    @pytest.mark.parametrize("bad", ["", "sqlite:///x", "localhost:6379", "://", 7, "redis://a,b"])
    def test_what_is_no_url_of_a_redis_is_refused(self, bad: Any) -> None:
        with pytest.raises(ConfigurationError, match="redis://"):
            RedisAgentStateStore(bad)


async def test_in_a_cluster_the_keys_are_those_of_the_docs(redis_cluster_url: str) -> None:
    prefix = f"{new_id()}:"
    try:
        async with RedisAgentStateStore(redis_cluster_url, prefix) as states:
            await states.save(SessionKey("chat:1", "alice"), "agent_state", {})
            await states.save_list("s", "notes", [{}])
            await states.delete(SessionKey("chat:1", "alice"))
            await states.save(SessionKey("chat:1", "alice"), "agent_state", {})
        alice, nobody = f"{prefix}{{u:alice}}", f"{prefix}{{anonymous}}"
        assert sorted(key.decode() for key in keys(redis_cluster_url, prefix)) == sorted(
            [
                f"{alice}:state:chat%3A1:_keys",
                f"{alice}:state:chat%3A1:agent_state",
                f"{alice}:state:chat%3A1:agent_state:ver",
                f"{alice}:state:chat%3A1:agent_state:sum",
                f"{alice}:states",
                f"{nobody}:state:s:_keys",
                f"{nobody}:state:s:notes:list",
                f"{nobody}:state:s:notes:list:_hash",
                f"{nobody}:states",
            ]
        )
    finally:
        forget(redis_cluster_url, prefix)

        forget(redis_cluster_url, f"leafward:{prefix}")
