"""The store behind a store of states: opened when it is asked for, and the one that `open_store` opens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leafward import ConfigurationError, Session, SessionKey, SessionManager, StoreError, open_store, user
from leafward.core.ids import new_id
from leafward.stores import (
    InMemoryAgentStateStore,
    InMemorySession,
    JsonFileAgentStateStore,
    JsonSession,
    MysqlAgentStateStore,
    MysqlSession,
    PostgresAgentStateStore,
    RedisAgentStateStore,
    RedisSession,
    SqliteAgentStateStore,
    StateStore,
    WorkspaceSession,
)
from tests.servers.mariadb import MariaDB
from tests.stores.both_servers import Kind, OnBothServers
from tests.stores.redis_store import forget

ALICE = SessionKey("s", "alice")
ALL: dict[str, Callable[[Path], StateStore]] = {
    "InMemoryAgentStateStore": lambda _: InMemoryAgentStateStore(),
    "InMemorySession": lambda _: InMemorySession(),
    "SqliteAgentStateStore": lambda path: SqliteAgentStateStore(path / "states.db"),
    "JsonFileAgentStateStore": JsonFileAgentStateStore,
    "JsonSession": JsonSession,
    "WorkspaceSession": lambda path: WorkspaceSession(path, "helper"),
    "RedisAgentStateStore": lambda _: RedisAgentStateStore("redis://localhost"),
    "RedisSession": lambda _: RedisSession("redis://localhost"),
    "MysqlAgentStateStore": lambda _: MysqlAgentStateStore("mysql://app@localhost/chat"),
    "MysqlSession": lambda _: MysqlSession("mysql://app@localhost/chat"),
    "PostgresAgentStateStore": lambda _: PostgresAgentStateStore("postgresql://app@localhost/chat"),
}


@pytest.mark.parametrize("name", ALL)
async def test_a_store_that_is_not_open_says_how_to_open_it(tmp_path: Path, name: str) -> None:
    states = ALL[name](tmp_path)
    with pytest.raises(StoreError, match=r"is not open yet: `await states.open\(\)` opens it"):
        _ = states.store
    await states.close()
    with pytest.raises(StoreError, match="is closed: make another"):
        _ = states.store
    with pytest.raises(StoreError, match="is closed: make another"):
        await states.open()
    assert list(tmp_path.iterdir()) == []


async def test_saving_alone_does_not_open_the_store(tmp_path: Path) -> None:
    async with SqliteAgentStateStore(tmp_path / "states.db") as states:
        await states.save("s", "a", {})
        with pytest.raises(StoreError, match=r"await states\.open"):
            _ = states.store
        async with states.leases.acquire("s") as lease:
            with pytest.raises(StoreError, match=r"await states\.open"):
                _ = states.with_lease(lease).store
            assert (await states.with_lease(lease).open()).states.store is not await states.open()
        assert states.store is await states.open()


@pytest.mark.parametrize("name", ["InMemoryAgentStateStore", "SqliteAgentStateStore", "JsonFileAgentStateStore"])
async def test_a_store_that_is_closed_takes_the_states_along(tmp_path: Path, name: str) -> None:
    states = ALL[name](tmp_path)
    store = await states.open()
    await states.save("s", "a", {})
    await store.close()
    with pytest.raises(StoreError, match="is closed"):
        await states.save("s", "a", {})
    await states.close()


def made(kind: Kind, url: str, **options: Any) -> StateStore:
    return (PostgresAgentStateStore if kind.name == "postgres" else MysqlAgentStateStore)(url, **options)


class TestOnADatabaseServer(OnBothServers):
    @pytest.fixture
    def own(self, prefix: str) -> dict[str, Any]:
        """Names that only this test uses: those of a store with this prefix."""
        return {"table": f"{prefix}agentscope_sessions", "table_prefix": prefix}

    async def test_tables_of_sessions_are_made_only_when_the_store_is_asked_for(
        self, kind: Kind, url: str, prefix: str, own: dict[str, Any]
    ) -> None:
        async with made(kind, url, **own) as states:
            await states.save(ALICE, "a", {"n": 1})
            await states.save_list(ALICE, "b", [{"n": 1}])
            await states.delete(ALICE, "b")
            assert await states.get(ALICE, "a") == {"n": 1}
            assert await kind.tables(url, prefix) == []
            await states.open()
            assert f"{prefix}message" in await kind.tables(url, prefix)

    async def test_a_table_of_states_that_is_not_to_be_made_is_not_made_with_the_others(
        self, kind: Kind, url: str, prefix: str, own: dict[str, Any]
    ) -> None:
        async with made(kind, url, create=False, **own) as states:
            with pytest.raises(ConfigurationError, match="create=True"):
                await states.get(ALICE, "a")
            assert await kind.tables(url, prefix) == []
            store = await states.open()
            await Session(store, "s").append_message(user("hi"))
            with pytest.raises(ConfigurationError, match="create=True"):
                await store.states.get(ALICE, "a")
            # Where there is no table of states, none is needed to end a session.
            assert await SessionManager(store).delete("s")

    async def test_it_is_the_store_that_has_this_prefix(
        self, kind: Kind, url: str, prefix: str, own: dict[str, Any]
    ) -> None:
        async with made(kind, url, **own) as states, open_store(url, table_prefix=prefix) as store:
            await states.save(ALICE, "a", {"n": 1})
            stored = await Session(await states.open(), "s", user_id="alice").append_message(user("walnut"))
            assert await Session(store, "s", user_id="alice").get_history() == [stored]
            assert await store.states.get(ALICE, "a") == {"n": 1}
            async with store.leases.acquire("s", "alice") as lease:
                held = await states.with_lease(lease).open()
                await Session(held, "s", user_id="alice").append_message(user("held"))
            assert await SessionManager(store, user_id="alice").delete("s")
            assert await Session(states.store, "s", user_id="alice").get_history() == []
            assert not await states.exists(ALICE)

    async def test_with_a_table_of_its_own_it_has_the_sessions_of_the_usual_store(
        self, kind: Kind, url: str, prefix: str
    ) -> None:
        session_id = new_id()
        async with made(kind, url, table=f"{prefix}agentscope_sessions") as states, open_store(url) as store:
            stored = await Session(await states.open(), session_id).append_message(user("walnut"))
            assert await Session(store, session_id).get_history() == [stored]
            assert await SessionManager(store).delete(session_id)

    async def test_what_cannot_be_a_prefix_is_refused_at_once(self, kind: Kind, url: str) -> None:
        with pytest.raises(ConfigurationError, match="a table prefix is"):
            made(kind, url, table_prefix="No good")


async def test_a_mariadb_that_takes_too_little_at_once_keeps_states_and_leases_only(
    private_mariadb: Callable[..., MariaDB],
) -> None:
    with private_mariadb(settings=["max_allowed_packet = 2M"]) as server:
        async with MysqlAgentStateStore(server.url) as states:
            await states.save("s", "a", {"n": 1})
            for _ in range(2):
                with pytest.raises(ConfigurationError, match="max_allowed_packet"):
                    await states.open()
            async with states.leases.acquire("s") as lease:
                await states.with_lease(lease).save("s", "a", {"n": 2})
            assert await states.get("s", "a") == {"n": 2}


class TestOnRedis:
    async def test_with_the_prefix_of_a_store_it_has_the_sessions_of_that_store(
        self, redis_url: str, prefix: str
    ) -> None:
        async with (
            RedisAgentStateStore(redis_url, f"{prefix}agentscope:session:") as states,
            open_store(redis_url, key_prefix=prefix) as store,
        ):
            stored = await Session(await states.open(), "s").append_message(user("walnut"))
            assert await Session(store, "s").get_history() == [stored]
            await states.save("s", "a", {"n": 1})
            assert await store.states.get("s", "a") == {"n": 1}

    async def test_with_a_prefix_of_its_own_its_sessions_are_apart(self, redis_url: str, prefix: str) -> None:
        async with (
            RedisAgentStateStore(redis_url, prefix) as states,
            open_store(redis_url, key_prefix=f"leafward:{prefix}") as store,
            open_store(redis_url) as usual,
        ):
            stored = await Session(await states.open(), prefix).append_message(user("walnut"))
            assert await Session(store, prefix).get_history() == [stored]
            assert await Session(usual, prefix).get_history() == []

    async def test_without_one_it_has_those_of_the_usual_store(self, redis_url: str) -> None:
        session_id = new_id()
        async with RedisAgentStateStore(redis_url) as states, open_store(redis_url) as store:
            stored = await Session(await states.open(), session_id).append_message(user("walnut"))
            assert await Session(store, session_id).get_history() == [stored]
            assert await SessionManager(store).delete(session_id)

    async def test_in_a_cluster_too(self, redis_cluster_url: str) -> None:
        prefix = f"{new_id()}:"
        async with RedisAgentStateStore(redis_cluster_url, prefix) as states:
            store = await states.open()
            stored = await Session(store, "s").append_message(user("walnut"))
            await states.save("s", "a", {"n": 1})
            assert await Session(store, "s").get_history() == [stored]
            assert await SessionManager(store).delete("s")
            assert not await states.exists("s")
        forget(redis_cluster_url, prefix)
        forget(redis_cluster_url, f"leafward:{prefix}")
