"""A save by any Java is a version more on Redis, also by one that knows no versions."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
import redis

from leafward import SessionKey, StaleState
from leafward.stores import RedisAgentStateStore, RedisSession
from leafward.stores.redis.calls import Calls
from leafward.stores.redis.urls import read_url
from tests.servers.redis import Redis
from tests.stores.redis_store import command, looking_at
from tests.stores.states.redis_states import Java, noted, own_prefix

NAME = "agent_state"
LAYOUTS = ["2.x", "2.x with a user", "2.x with colons", "1.x", "1.x with colons"]


@pytest.fixture(params=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def key(layout: str) -> SessionKey:
    return SessionKey("tenant:s1" if "colons" in layout else "s1", "alice" if "user" in layout else None)


@pytest.fixture
async def states(redis_url: str, prefix: str, layout: str) -> AsyncGenerator[RedisAgentStateStore]:
    kind = RedisSession if layout.startswith("1.x") else RedisAgentStateStore
    async with kind(redis_url, prefix) as states:
        yield states


@pytest.fixture
def java(client: redis.Redis, prefix: str, layout: str, key: SessionKey) -> Java:
    user = "" if layout.startswith("1.x") else f"{key.user_id or '__anon__'}/"
    return Java(client, f"{prefix}{user}{key.session_id}")


async def test_a_save_of_a_java_without_versions_counts_once(
    states: RedisAgentStateStore, java: Java, key: SessionKey
) -> None:
    assert await states.save_if_version(key, NAME, {"n": 1}, 0) == 1
    java.save(NAME, b'{"n":"java"}', versions=False)
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {"n": 2}, 1)
    assert await states.get_versioned(key, NAME) == ({"n": "java"}, 2)
    assert await states.save_if_version(key, NAME, {"n": 2}, 2) == 3
    assert java.all() == {
        NAME: b'{"n":2}',
        f"{NAME}:ver": b"3",
        f"{NAME}:sum": noted(3, b'{"n":2}'),
        "_keys": {b"agent_state"},
    }


async def test_each_that_was_read_counts(states: RedisAgentStateStore, java: Java, key: SessionKey) -> None:
    await states.save(key, NAME, {"n": 1})
    for number in range(2, 6):
        java.save(NAME, b'{"java":%d}' % number, versions=False)
        assert await states.get_versioned(key, NAME) == ({"java": number}, number)
        with pytest.raises(StaleState):
            await states.save_if_version(key, NAME, {}, number - 1)
    assert java.all()[f"{NAME}:ver"] == b"1"
    assert await states.save_if_version(key, NAME, {}, 5) == 6


async def test_a_save_of_a_java_with_versions_counts_once(
    states: RedisAgentStateStore, java: Java, key: SessionKey
) -> None:
    await states.save(key, NAME, {"n": 1})
    java.save(NAME, b'{"n":2}')
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {}, 1)
    assert await states.get_versioned(key, NAME) == ({"n": 2}, 2)
    java.save(NAME, b'{"n":2}')
    assert await states.get_versioned(key, NAME) == ({"n": 2}, 3)
    assert await states.save_if_version(key, NAME, {}, 3) == 4


@pytest.mark.parametrize("first", [True, False])
async def test_saves_of_both_count_twice(
    states: RedisAgentStateStore, java: Java, key: SessionKey, first: bool
) -> None:
    await states.save(key, NAME, {"n": 1})
    java.save(NAME, b'{"n":2}', versions=first)
    assert await states.get_versioned(key, NAME) == ({"n": 2}, 2)
    java.save(NAME, b'{"n":3}', versions=not first)
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {}, 2)
    assert await states.get_versioned(key, NAME) == ({"n": 3}, 3)
    assert await states.save_if_version(key, NAME, {}, 3) == 4


@pytest.mark.parametrize("first", [True, False])
async def test_of_saves_that_nobody_read_the_last_is_found(
    states: RedisAgentStateStore, java: Java, key: SessionKey, first: bool
) -> None:
    await states.save(key, NAME, {"n": 1})
    java.save(NAME, b'{"n":2}', versions=first)
    java.save(NAME, b'{"n":3}', versions=not first)
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {}, 1)
    value, version = await states.get_versioned(key, NAME)
    assert value == {"n": 3}
    assert await states.save_if_version(key, NAME, {}, version) == version + 1


@pytest.mark.parametrize("versions", [True, False])
async def test_a_value_that_only_java_saved_is_noticed_too(
    states: RedisAgentStateStore, java: Java, key: SessionKey, versions: bool
) -> None:
    java.save(NAME, b'{"n":1}', versions=False)
    assert await states.get_versioned(key, NAME) == ({"n": 1}, 1)
    java.save(NAME, b'{"n":2}', versions=versions)
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {}, 1)
    assert await states.get_versioned(key, NAME) == ({"n": 2}, 2)
    assert await states.save_if_version(key, NAME, {}, 2) == 3


@pytest.mark.parametrize("versions", [True, False])
async def test_a_value_that_java_made_since_is_not_overwritten(
    states: RedisAgentStateStore, java: Java, key: SessionKey, versions: bool
) -> None:
    assert await states.get_versioned(key, NAME) == (None, 0)
    java.save(NAME, b'{"n":"java"}', versions=versions)
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {"n": 1}, 0)
    assert await states.get_versioned(key, NAME) == ({"n": "java"}, 1)
    assert await states.save_if_version(key, NAME, {"n": 1}, 1) == 2


@pytest.mark.parametrize("items", [[], [b"{}"]])
async def test_a_list_that_java_made_since_is_not_overwritten(
    states: RedisAgentStateStore, java: Java, key: SessionKey, items: list[bytes]
) -> None:
    assert await states.get_versioned(key, NAME) == (None, 0)
    java.save_list(NAME, items, "1:49" if items else "empty:0")
    before = java.all()
    with pytest.raises(StaleState):
        await states.save_if_version(key, NAME, {"n": 1}, 0)
    assert java.all() == before


@pytest.mark.parametrize(("ending", "rest"), [("ver", ""), ("sum", " 0 ab")])
async def test_what_is_not_a_count_counts_nothing(
    states: RedisAgentStateStore, java: Java, client: redis.Redis, key: SessionKey, ending: str, rest: str
) -> None:
    for odd in ("nan", "inf", "-3", "0x10", "1.5", "1e3", " 7", "", "9" * 400):
        java.save(NAME, b'{"n":1}', versions=False)
        client.set(f"{java.slot}:{NAME}:{ending}", f"{odd}{rest}")
        assert await states.get_versioned(key, NAME) == ({"n": 1}, 1)
        assert await states.save_if_version(key, NAME, {"n": 2}, 1) == 2
        assert java.all()[f"{NAME}:ver"] == b"2"
        await states.delete(key)


async def test_a_value_that_a_leafward_without_checksums_saved_keeps_its_version(
    states: RedisAgentStateStore, java: Java, client: redis.Redis, key: SessionKey
) -> None:
    java.save("other", b'{"n":1}', versions=False)
    java.save(NAME, b'{"n":1}', versions=False)
    client.set(f"{java.slot}:{NAME}:ver", 5)
    assert await states.get_versioned(key, NAME) == ({"n": 1}, 5)
    assert await states.save_if_version(key, NAME, {"n": 2}, 5) == 6
    # That one saves again, while both are in use.
    java.save(NAME, b'{"n":3}')
    assert await states.get_versioned(key, NAME) == ({"n": 3}, 7)


async def test_who_does_not_ask_for_a_version_leaves_no_trace(
    states: RedisAgentStateStore, java: Java, key: SessionKey
) -> None:
    java.save(NAME, b'{"n":1}', versions=False)
    java.save_list("memory_messages", [b'{"n":1}'], "1:5")
    before = java.all()
    assert await states.get(key, NAME) == {"n": 1}
    assert await states.get_list(key, "memory_messages") == [{"n": 1}]
    assert await states.exists(key)
    assert await states.list_session_keys(key.user_id) == {key}
    assert java.all() == before


class TestAfterADeleteByJava:
    @pytest.fixture(params=["released", "main"])
    def delete(self, request: pytest.FixtureRequest, java: Java, client: redis.Redis) -> Callable[[], Any]:
        """What it does: the keys that the set names, and `:ver` if it knows it, but never `:sum`."""
        versions = [f"{java.slot}:{NAME}:ver"] if request.param == "main" else []
        return lambda: client.delete(f"{java.slot}:{NAME}", f"{java.slot}:_keys", *versions)

    async def test_there_is_nothing(
        self, states: RedisAgentStateStore, key: SessionKey, delete: Callable[[], Any]
    ) -> None:
        for n in range(3):
            await states.save(key, NAME, {"n": n})
        delete()
        assert await states.get_versioned(key, NAME) == (None, 0)
        with pytest.raises(StaleState):
            await states.save_if_version(key, NAME, {}, 3)
        assert await states.save_if_version(key, NAME, {"n": 1}, 0) == 1
        assert await states.get_versioned(key, NAME) == ({"n": 1}, 1)

    @pytest.mark.parametrize("versions", [True, False])
    @pytest.mark.parametrize("saves", [1, 3])
    async def test_a_version_of_before_is_stale(
        self,
        states: RedisAgentStateStore,
        java: Java,
        key: SessionKey,
        delete: Callable[[], Any],
        versions: bool,
        saves: int,
    ) -> None:
        for n in range(saves):
            await states.save(key, NAME, {"n": n})
        delete()
        java.save(NAME, b'{"n":"java"}', versions=versions)
        with pytest.raises(StaleState):
            await states.save_if_version(key, NAME, {}, saves)
        value, version = await states.get_versioned(key, NAME)
        assert value == {"n": "java"}
        assert await states.save_if_version(key, NAME, {}, version) == version + 1


async def test_whatever_is_done_no_save_of_java_is_overwritten_unseen(
    states: RedisAgentStateStore, java: Java, key: SessionKey
) -> None:
    chance = random.Random(7)
    await states.save(key, NAME, {"n": 0})
    held = (await states.get_versioned(key, NAME)).version
    seen, latest = True, held
    for number in range(1, 300):
        match chance.choice(["read", "save", "released", "main"]):
            case "read":
                held = (await states.get_versioned(key, NAME)).version
                assert held >= latest
                seen, latest = True, held
            case "save" if seen:
                held = await states.save_if_version(key, NAME, {"n": number}, held)
                assert held == latest + 1
                latest = held
            case "save":
                with pytest.raises(StaleState):
                    await states.save_if_version(key, NAME, {"n": number}, held)
            case one:
                java.save(NAME, b'{"java":%d}' % number, versions=one == "main")
                seen = False


async def test_a_version_takes_no_further_round_trip(
    states: RedisAgentStateStore, java: Java, key: SessionKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await states.save(key, NAME, {"n": 1})
    await states.get_versioned(key, NAME)
    sent: list[Any] = []
    send = Calls.send

    def count(self: Calls, command: Any) -> Any:
        sent.append(command)
        return send(self, command)

    monkeypatch.setattr(Calls, "send", count)
    java.save(NAME, b'{"n":2}', versions=False)
    await states.get_versioned(key, NAME)
    await states.save_if_version(key, NAME, {"n": 3}, 2)
    await states.save(key, NAME, {"n": 4})
    assert len(sent) == 3


async def test_who_may_only_read_is_given_versions_too(private_redis: Callable[..., Redis]) -> None:
    with private_redis() as server:
        allowed = "+@read +eval +evalsha +info +config|get +script|load +client +hello +ping"
        command(server.url, "ACL", "SETUSER", "reader", "on", ">sesame", "~*", *allowed.split())
        with looking_at(server.url) as [client]:
            java = Java(client, "agentscope:session:__anon__/s1")
            java.save(NAME, b'{"n":1}')
            host, port = read_url(server.url).hosts[0]
            async with RedisAgentStateStore(f"redis://reader:sesame@{host}:{port}/0") as states:
                before = java.all()
                assert await states.get_versioned("s1", NAME) == ({"n": 1}, 1)
                assert java.all() == before


async def test_in_a_cluster_a_value_that_another_wrote_is_a_version_more(redis_cluster_url: str) -> None:
    from redis.cluster import ClusterNode, RedisCluster

    address = read_url(redis_cluster_url)
    nodes = [ClusterNode(host, port) for host, port in address.hosts]
    for prefix in own_prefix(redis_cluster_url):
        async with RedisAgentStateStore(redis_cluster_url, prefix) as states:
            key = SessionKey("a:b", "alice")
            await states.save(key, "x:y", {"n": 1})
            with RedisCluster(startup_nodes=nodes, password=address.password) as client:
                client.set(f"{prefix}{{u:alice}}:state:a%3Ab:x:y", b'{"n":2}')
            with pytest.raises(StaleState):
                await states.save_if_version(key, "x:y", {}, 1)
            assert await states.get_versioned(key, "x:y") == ({"n": 2}, 2)
            assert await states.save_if_version(key, "x:y", {}, 2) == 3
