"""States in rows that AgentScope for Java reads and writes too: its table, its names, its rules."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import (
    AgentState,
    ConfigurationError,
    OutcomeUnknown,
    SessionKey,
    SessionManager,
    StaleState,
    StateDecodeError,
    open_store,
    user,
)
from leafward.stores import MysqlAgentStateStore, PostgresAgentStateStore, Slot
from leafward.stores.servers import running
from leafward.stores.servers.states import ServerStates
from leafward.stores.states import row_names
from leafward.stores.states.store import StateStore
from tests.stores.both_servers import KINDS, BehindAProxy, Kind, OnBothServers
from tests.stores.proxy import Fault, Proxy
from tests.stores.states.java_rows import NEXT, RELEASED, Java

ALICE = SessionKey("s1", "alice")
MSG = (
    '{"id":"m1","name":"user","role":"USER","content":[{"type":"text","text":"Hello 你好"}],"metadata":{},'
    '"timestamp":"2026-08-22 23:15:56.123","usage":null}'
)
FRESH = (
    '{"session_id":"session-001","user_id":"alice","summary":"","context":[],'
    '"reply_id":"0123456789abcdef0123456789abcdef","cur_iter":0,"shutdown_interrupted":false,'
    '"permission_context":{"mode":"default","working_directories":{},"allow_rules":{},"deny_rules":{},"ask_rules":{}},'
    '"tool_context":{"max_cache_files":100,"max_cache_bytes":25000.0,"activated_groups":[],"spawn_registry":{}},'
    '"tasks_context":{"tasks":[]},"plan_mode_context":{"plan_active":false,"current_plan_file":null}}'
)
OLD_TABLE = (
    "CREATE TABLE {} (session_id VARCHAR(255) PRIMARY KEY, state_data JSON NOT NULL, created_at TIMESTAMP NULL, "
    "updated_at TIMESTAMP NULL)"
)


def made(kind: Kind, url: str, prefix: str, **options: Any) -> StateStore:
    """Make a store of states on a table of this test's own."""
    table = f"{prefix}states"
    if kind.name == "postgres":
        return PostgresAgentStateStore(url, table=table, **options)
    return MysqlAgentStateStore(url, table, **options)


def where(kind: Kind, prefix: str) -> str:
    return f"agentscope.{prefix}states" if kind.name == "postgres" else f"{prefix}states"


class InATable(OnBothServers):
    """Gives each test a table of its own, and its rows."""

    @pytest.fixture
    async def states(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[StateStore]:
        async with made(kind, url, prefix) as states:
            yield states
        await kind.ask(url, f"DROP TABLE IF EXISTS {where(kind, prefix)}")

    async def rows(self, kind: Kind, url: str, prefix: str) -> list[tuple[Any, ...]]:
        columns = "session_id, state_key, item_index, state_data, version"
        found = await kind.ask(url, f"SELECT {columns} FROM {where(kind, prefix)}")
        return sorted(found)

    async def put(self, kind: Kind, url: str, prefix: str, *rows: tuple[Any, ...]) -> None:
        """Write as Java does up to 2.0.2, which knows no versions."""
        into = f"INSERT INTO {where(kind, prefix)} (session_id, state_key, item_index, state_data) VALUES"
        await kind.ask(url, *(f"{into} ('{a}', '{b}', {c}, '{d}')" for a, b, c, d in rows))


class TestRows(InATable):
    async def test_are_those_of_agentscope(self, states: StateStore, kind: Kind, url: str, prefix: str) -> None:
        await states.save(ALICE, "agent_state", AgentState.from_json(FRESH))
        await states.save("s1", "agent_meta", {"id": "a"})
        await states.save("s1", "agent_meta", {"id": "b"})
        await states.save_list(ALICE, "memory_messages", [{"n": 1}, {"n": 2}])
        await states.save_list(ALICE, "empty", [])
        assert await self.rows(kind, url, prefix) == [
            ("__anon__:s1", "agent_meta", 0, '{"id":"b"}', 2),
            ("alice:s1", "agent_state", 0, FRESH, 1),
            ("alice:s1", "empty:_hash", 0, "empty:0", 0),
            ("alice:s1", "memory_messages", 0, '{"n":1}', 0),
            ("alice:s1", "memory_messages", 1, '{"n":2}', 0),
            ("alice:s1", "memory_messages:_hash", 0, "py:content", 0),
        ]

    async def test_that_java_wrote_are_read(self, states: StateStore, kind: Kind, url: str, prefix: str) -> None:
        await states.exists("s1")
        await self.put(
            kind,
            url,
            prefix,
            ("alice:s1", "agent_state", 0, FRESH),
            ("alice:s1", "memory_messages", 0, MSG),
            ("alice:s1", "memory_messages", 1, MSG.replace("m1", "m2")),
            ("alice:s1", "memory_messages:_hash", 0, "76dead55"),
        )
        state = await states.get(ALICE, "agent_state", AgentState)
        assert state is not None
        assert state.to_json() == FRESH
        assert [one["id"] for one in await states.get_list(ALICE, "memory_messages")] == ["m1", "m2"]
        assert await states.list_session_keys("alice") == {ALICE}
        with pytest.raises(StateDecodeError):
            await states.get(ALICE, "memory_messages")

    async def test_of_a_list_that_java_wrote_stay_when_it_grows(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.exists("s1")
        # With spaces, as somebody else may write.
        await self.put(kind, url, prefix, ("alice:s1", "l", 0, '{"n" : 1}'), ("alice:s1", "l:_hash", 0, "76dead55"))
        await states.save_list(ALICE, "l", [{"n": 1}, {"n": 2}])
        assert await self.rows(kind, url, prefix) == [
            ("alice:s1", "l", 0, '{"n" : 1}', 0),
            ("alice:s1", "l", 1, '{"n":2}', 0),
            ("alice:s1", "l:_hash", 0, "py:content", 0),
        ]

    async def test_of_a_value_without_a_version_are_at_version_1(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.exists("s1")
        await self.put(kind, url, prefix, ("alice:s1", "a", 0, '{"n":1}'))
        assert await states.get_versioned(ALICE, "a") == ({"n": 1}, 1)
        assert await states.save_if_version(ALICE, "a", {"n": 2}, 1) == 2
        for expected in (0, 1):
            with pytest.raises(StaleState):
                await states.save_if_version(ALICE, "a", {"n": 3}, expected)

    async def test_that_java_saved_meanwhile_are_not_overwritten(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.save(ALICE, "a", {"n": 1})
        await kind.ask(url, f"UPDATE {where(kind, prefix)} SET state_data = '{{\"n\":2}}', version = version + 1")
        with pytest.raises(StaleState):
            await states.save_if_version(ALICE, "a", {"n": 3}, 1)
        assert await states.get_versioned(ALICE, "a") == ({"n": 2}, 2)

    async def test_a_list_whose_hash_is_gone_is_still_read(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.exists("s1")
        await self.put(kind, url, prefix, ("alice:s1", "l", 0, '{"n":1}'))
        assert await states.get_list(ALICE, "l") == [{"n": 1}]

    async def test_of_a_value_that_java_saved_over_a_list_are_that_value(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        for key in ("s1", "s2", "s3"):
            await states.save_list(key, "x", [{"n": 1}, {"n": 2}])
            where_it_is = f"WHERE session_id = '__anon__:{key}' AND state_key = 'x' AND item_index = 0"
            await kind.ask(url, f"UPDATE {where(kind, prefix)} SET state_data = '{{}}', version = 1 {where_it_is}")
            assert await states.get_versioned(key, "x") == ({}, 1)
            with pytest.raises(StateDecodeError):
                await states.get_list(key, "x")
            assert await (await states._table()).names(Slot(None, key)) == {"x": False}
        await states.save_list("s1", "x", [{"n": 3}])
        assert await states.get_list("s1", "x") == [{"n": 3}]
        assert await states.save_if_version("s2", "x", {"n": 4}, 1) == 2
        assert await states.get("s2", "x") == {"n": 4}
        await states.delete("s3", "x")
        assert not await states.exists("s3")

    async def test_a_list_with_a_gap_is_written_anew(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.save_list(ALICE, "l", [{"n": n} for n in range(4)])
        await kind.ask(url, f"DELETE FROM {where(kind, prefix)} WHERE item_index = 1")
        await states.save_list(ALICE, "l", [{"n": 0}, {"n": 2}, {"n": 3}, {"n": 4}])
        assert await states.get_list(ALICE, "l") == [{"n": 0}, {"n": 2}, {"n": 3}, {"n": 4}]

    async def test_an_edit_past_us_is_overwritten_by_the_whole_list(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        items = [{"n": n} for n in range(8)]
        await states.save_list(ALICE, "l", items)
        edit = 'SET state_data = \'{"n":"edited"}\' WHERE item_index = 3'
        await kind.ask(url, f"UPDATE {where(kind, prefix)} {edit}")
        await states.save_list(ALICE, "l", [*items, {"n": 8}])
        assert await states.get_list(ALICE, "l") == [*items, {"n": 8}]

    async def test_that_are_no_json_are_told_with_their_place(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.exists("s1")
        await self.put(
            kind,
            url,
            prefix,
            ("alice:s1", "a", 0, '{"n":'),
            ("alice:s1", "l", 0, "{}"),
            ("alice:s1", "l", 1, "[1]"),
            ("alice:s1", "l:_hash", 0, "1"),
        )
        for reading in (states.get(ALICE, "a"), states.get(ALICE, "a", AgentState), states.get_list(ALICE, "l")):
            with pytest.raises(StateDecodeError) as told:
                await reading
            assert (told.value.user_id, told.value.session_id) == ("alice", "s1")

    async def test_of_a_long_name_go_with_the_last_state(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        key = SessionKey("s" * 255, "u" * 255)
        await states.save(key, "a", {})
        await states.save_list(key, "b", [{}])
        assert len(await self.rows(kind, url, prefix)) == 4
        await states.delete(key, "a")
        assert len(await self.rows(kind, url, prefix)) == 3
        await states.delete(key, "b")
        assert await self.rows(kind, url, prefix) == []

    async def test_of_sandboxes_are_no_sessions(self, states: StateStore, kind: Kind, url: str, prefix: str) -> None:
        await states.save("s", "a", {})
        await self.put(kind, url, prefix, ("__anon__:sandbox/session/s", "_sandbox_state", 0, '{"json":""}'))
        assert await states.list_session_keys() == {SessionKey("s")}
        assert await states.exists("sandbox/session/s")

    async def test_of_ids_that_are_refused_are_in_no_listing(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.save(SessionKey("s", "alice"), "a", {})
        await states.save("s", "a", {})
        slots = ("alice:a\nb", "alice:..", "al\tice:s", "__anon__:a\nb", "__anon__:__anon__", "a\nb")
        await self.put(kind, url, prefix, *((slot, "a", 0, "{}") for slot in slots))
        assert await states.list_session_keys("alice") == {SessionKey("s", "alice")}
        assert await states.list_session_keys() == {SessionKey("s")}

    async def test_names_that_would_be_ambiguous_are_escaped(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        for user_id, session_id in (("a:b", "c"), ("a%3Ab", "c"), ("50%", "c:d/e"), ("ü" * 200, "s" * 100)):
            await states.save(SessionKey(session_id, user_id), "x", {})
        slots = {row[0] for row in await self.rows(kind, url, prefix)}
        assert {"a%3Ab:c", "a%253Ab:c", "50%:c:d/e"} < slots
        (hashed,) = slots - {"a%3Ab:c", "a%253Ab:c", "50%:c:d/e"}
        assert hashed.startswith("~h")
        assert await states.list_session_keys("ü" * 200) == {SessionKey("s" * 100, "ü" * 200)}

    async def test_of_a_user_with_a_colon_are_read_as_java_lists_them(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.exists("s1")
        await self.put(kind, url, prefix, ("a:b:s1", "x", 0, '{"by":"java"}'))
        assert await states.list_session_keys("a") == {SessionKey("b:s1", "a")}
        assert await states.get(SessionKey("b:s1", "a"), "x") == {"by": "java"}
        assert await states.get(SessionKey("s1", "a:b"), "x") is None
        await states.save(SessionKey("s1", "a:b"), "x", {"by": "python"})
        assert await states.get(SessionKey("b:s1", "a"), "x") == {"by": "java"}


class TestTheOldLayout(InATable):
    async def test_is_that_of_1x(self, kind: Kind, url: str, prefix: str) -> None:
        async with made(kind, url, prefix, layout="1.x") as states:
            await states.save("user123", "agent_meta", {"id": "a"})
            await states.save_list("user123", "memory_messages", [{"n": 1}])
            assert [row[:4] for row in await self.rows(kind, url, prefix)] == [
                ("user123", "agent_meta", 0, '{"id":"a"}'),
                ("user123", "memory_messages", 0, '{"n":1}'),
                ("user123", "memory_messages:_hash", 0, "py:content"),
            ]
        await kind.ask(url, f"DROP TABLE {where(kind, prefix)}")

    @pytest.mark.parametrize("session_id", ["~x61", "~x", "~xff", "~x5b6e756c6c5d", "~x5b312c2273225d"])
    async def test_names_a_session_literally_though_it_looks_like_a_name_of_ours(
        self, kind: Kind, url: str, prefix: str, session_id: str
    ) -> None:
        async with made(kind, url, prefix, layout="1.x") as states:
            await states.exists("s")
            twin = row_names.own_name(Slot(None, session_id))
            # As leafward named it before.
            await self.put(kind, url, prefix, (twin, "a", 0, '{"of":"us, before"}'))
            assert await states.get(session_id, "a") == {"of": "us, before"}
            assert await states.list_session_keys() == {SessionKey(session_id)}
            await states.delete(session_id)
            await self.put(kind, url, prefix, (session_id, "a", 0, '{"of":"java"}'))
            await states.save(twin, "a", {"of": "its twin"})
            assert await states.get(session_id, "a") == {"of": "java"}
            await states.save(session_id, "b", {"of": "us"})
            assert await states.list_session_keys() == {SessionKey(session_id), SessionKey(twin)}
            rows = [row[:2] for row in await self.rows(kind, url, prefix)]
            assert {(session_id, "a"), (session_id, "b")} < {*rows}
            await states.delete(session_id)
            assert await states.list_session_keys() == {SessionKey(twin)}
            await kind.ask(url, f"DROP TABLE {where(kind, prefix)}")

    async def test_is_found_by_who_reads_the_new_one(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        await states.exists("s")
        await self.put(
            kind,
            url,
            prefix,
            ("user123", "agent_meta", 0, '{"id":"a"}'),
            ("user123", "l", 0, '{"n":1}'),
            ("user123", "l:_hash", 0, "1"),
        )
        assert await states.exists("user123")
        assert await states.get_versioned("user123", "agent_meta") == ({"id": "a"}, 0)
        assert await states.get_list("user123", "l") == [{"n": 1}]
        assert await states.list_session_keys() == {SessionKey("user123")}
        assert not await states.exists(SessionKey("user123", "alice"))
        # What is saved goes to the new place, and is then what is read.
        assert await states.save_if_version("user123", "agent_meta", {"id": "b"}, 0) == 1
        assert await states.get("user123", "agent_meta") == {"id": "b"}
        assert ("user123", "agent_meta", 0, '{"id":"a"}', 0) in await self.rows(kind, url, prefix)
        await states.delete("user123")
        assert await self.rows(kind, url, prefix) == []

    async def test_of_a_user_is_no_session_of_the_new_one(
        self, states: StateStore, kind: Kind, url: str, prefix: str
    ) -> None:
        async with made(kind, url, prefix, layout="1.x") as older:
            await older.save(SessionKey("s", "bob"), "a", {})
            assert await older.list_session_keys("bob") == {SessionKey("s", "bob")}
        assert await states.list_session_keys("bob") == set()

    async def test_is_not_taken_for_a_users_slot(self, states: StateStore, kind: Kind, url: str, prefix: str) -> None:
        await states.save(SessionKey("b", "a"), "x", {"n": 1})
        assert await states.get("a:b", "x") is None
        assert not await states.exists("a:b")
        await states.delete("a:b")
        assert await states.get(SessionKey("b", "a"), "x") == {"n": 1}
        assert await states.list_session_keys() == set()


class TestTheTable(InATable):
    async def test_is_not_made_unless_it_may_be(self, kind: Kind, url: str, prefix: str) -> None:
        async with made(kind, url, prefix, create=False) as states:
            with pytest.raises(ConfigurationError, match="create=True"):
                await states.get("s", "a")

    async def test_is_made_once_by_many(self, kind: Kind, url: str, prefix: str) -> None:
        stores = [made(kind, url, prefix) for _ in range(6)]
        await asyncio.gather(*(store.save(f"s{n}", "a", {"n": n}) for n, store in enumerate(stores)))
        assert len(await stores[0].list_session_keys()) == 6
        for store in stores:
            await store.close()
        await kind.ask(url, f"DROP TABLE {where(kind, prefix)}")

    async def test_of_an_old_shape_is_told_with_what_to_do(self, kind: Kind, url: str, prefix: str) -> None:
        async with made(kind, url, prefix) as states:
            await states.exists("s")
        await kind.ask(url, f"DROP TABLE {where(kind, prefix)}", OLD_TABLE.format(where(kind, prefix)))
        async with made(kind, url, prefix) as states:
            for call in (states.get("s", "a"), states.save("s", "a", {}), states.delete("s")):
                with pytest.raises(ConfigurationError, match="leafward migrate"):
                    await call
        await kind.ask(url, f"DROP TABLE {where(kind, prefix)}")

    async def test_of_somebody_else_is_left_alone(self, kind: Kind, url: str, prefix: str) -> None:
        async with made(kind, url, prefix) as states:
            await states.exists("s")
        table = where(kind, prefix)
        await kind.ask(url, f"DROP TABLE {table}", f"CREATE TABLE {table} (session_id INT)")
        async with made(kind, url, prefix) as states:
            with pytest.raises(ConfigurationError, match="somebody else"):
                await states.save("s", "a", {})
        await kind.ask(url, f"DROP TABLE {table}")

    async def test_of_an_old_shape_does_not_keep_sessions_from_being_deleted(
        self, kind: Kind, url: str, prefix: str
    ) -> None:
        async with open_store(url, table_prefix=prefix) as store:
            await store.states.exists("s")
            table = f"{prefix}agentscope_sessions"
            table = f"agentscope.{table}" if kind.name == "postgres" else table
            await kind.ask(url, f"DROP TABLE {table}", OLD_TABLE.format(table))
        async with open_store(url, table_prefix=prefix) as store:
            manager = SessionManager(store)
            await manager.get_session("s").append_message(user("hi"))
            assert await manager.delete("s")
            with pytest.raises(ConfigurationError, match="leafward migrate"):
                await store.states.exists("s")
        await kind.ask(url, f"DROP TABLE {table}")

    async def test_is_not_made_by_who_deletes_a_session(self, kind: Kind, url: str, prefix: str) -> None:
        async with open_store(url, table_prefix=prefix) as store:
            manager = SessionManager(store)
            await manager.get_session("s").append_message(user("hi"))
            assert await manager.delete("s")
        there = "SELECT table_name FROM information_schema.tables"
        assert (f"{prefix}agentscope_sessions",) not in await kind.ask(url, there)

    @pytest.mark.parametrize("name", ["", "a b", "x;", "1a", "a" * 65, None, 'a"b', "a`b"])
    async def test_has_no_name_that_could_be_more(self, kind: Kind, url: str, name: Any) -> None:
        with pytest.raises(ConfigurationError):
            PostgresAgentStateStore(url, table=name) if kind.name == "postgres" else MysqlAgentStateStore(url, name)

    async def test_of_a_store_is_set_apart_by_its_prefix(self, kind: Kind, url: str, prefix: str) -> None:
        async with open_store(url, table_prefix=prefix) as one, open_store(url, table_prefix=f"{prefix}x_") as other:
            await one.states.save("s", "a", {"n": 1})
            assert await other.states.get("s", "a") is None
        for table in (f"{prefix}agentscope_sessions", f"{prefix}x_agentscope_sessions"):
            await kind.ask(url, f"DROP TABLE {'agentscope.' if kind.name == 'postgres' else ''}{table}")

    async def test_whose_collation_takes_one_id_for_another_is_refused_by_postgres(self, postgres_url: str) -> None:
        kind, table = KINDS["postgres"], "agentscope.folding_states"
        columns = "state_key TEXT {0}, item_index INT, state_data TEXT, version BIGINT, updated_at TIMESTAMP"
        await kind.ask(
            postgres_url,
            "CREATE SCHEMA IF NOT EXISTS agentscope",
            "CREATE COLLATION IF NOT EXISTS folding (provider = icu, locale = 'und', deterministic = false)",
        )
        for collation, refused in (('COLLATE "en-US-x-icu"', False), ("COLLATE folding", True)):
            await kind.ask(
                postgres_url,
                f"DROP TABLE IF EXISTS {table}",
                f"CREATE TABLE {table} (session_id TEXT {collation}, {columns.format(collation)})",
            )
            async with PostgresAgentStateStore(postgres_url, table="folding_states") as states:
                if refused:
                    with pytest.raises(ConfigurationError, match="folding"):
                        await states.save("s", "a", {})
                else:
                    await states.save("s", "a", {"n": 1})
                    await states.save("S", "a", {"n": 2})
                    assert await states.get("s", "a") == {"n": 1}
        await kind.ask(postgres_url, f"DROP TABLE {table}", "DROP COLLATION folding")

    async def test_whose_texts_change_when_they_are_stored_has_versions_all_the_same(
        self, postgres_url: str, prefix: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        kind = KINDS["postgres"]
        async with made(kind, postgres_url, prefix) as states:
            await states.exists("s")
        table = where(kind, prefix)
        changed = "ALTER COLUMN state_data TYPE JSONB USING CAST(state_data AS JSONB)"
        await kind.ask(postgres_url, f"ALTER TABLE {table} {changed}")
        async with made(kind, postgres_url, prefix) as states:
            assert await states.save_if_version("s", "a", {"n": 1, "a": 2}, 0) == 1
            assert await states.save_if_version("s", "a", {"n": 2, "a": 2}, 1) == 2
            assert ["the type jsonb" in text for text in caplog.messages] == [True]
            assert await states.get_versioned("s", "a") == ({"n": 2, "a": 2}, 2)
            with pytest.raises(StaleState):
                await states.save_if_version("s", "a", {"n": 3}, 1)
            java = Java(kind, postgres_url, table, NEXT)
            await Java(kind, postgres_url, table, RELEASED).save("__anon__:s", "b", '{"n":"java", "a":2}')
            assert await states.get_versioned("s", "b") == ({"n": "java", "a": 2}, 1)
            await java.save("__anon__:s", "b", '{"n":"java", "a":3}')
            for expected in (0, 1):
                with pytest.raises(StaleState):
                    await states.save_if_version("s", "b", {"n": 4, "a": 2}, expected)
            assert await states.get_versioned("s", "b") == ({"n": "java", "a": 3}, 2)
            assert await states.save_if_version("s", "b", {"n": 4, "a": 2}, 2) == 3
            assert await states.save_if_version("s", "b", {"n": 5, "a": 2}, 3) == 4
        await kind.ask(postgres_url, f"DROP TABLE {table}")

    async def test_an_unknown_layout_is_refused(self, kind: Kind, url: str, prefix: str) -> None:
        with pytest.raises(ConfigurationError, match="layout"):
            made(kind, url, prefix, layout="3.x")


class TestAConnectionThatEnds(BehindAProxy):
    @pytest.fixture
    async def states(self, kind: Kind, url: str, through: str, prefix: str) -> AsyncGenerator[StateStore]:
        async with made(kind, through, prefix) as states:
            await states.exists("s")
            yield states
        await kind.ask(url, f"DROP TABLE {where(kind, prefix)}")

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY])
    async def test_at_any_packet_of_a_save_leaves_one_effect(
        self, states: StateStore, proxy: Proxy, fault: Fault
    ) -> None:
        for packet in range(1, 50):
            key = f"s{packet}"
            await states.save(key, "a", {"n": 0})
            proxy.strike(fault, packet=packet)
            version = await states.save_if_version(key, "a", {"n": 1}, 1)
            struck = proxy.struck
            proxy.spare()
            assert version == 2
            assert await states.get_versioned(key, "a") == ({"n": 1}, 2)
            if not struck:
                assert packet > 1
                return

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY])
    async def test_at_any_packet_of_a_list_leaves_the_list(
        self, states: StateStore, proxy: Proxy, fault: Fault
    ) -> None:
        for packet in range(1, 50):
            key = f"s{packet}"
            await states.save_list(key, "l", [{"n": 0}, {"n": 1}])
            proxy.strike(fault, packet=packet)
            await states.save_list(key, "l", [{"n": 0}, {"n": 2}, {"n": 3}])
            struck = proxy.struck
            proxy.spare()
            assert await states.get_list(key, "l") == [{"n": 0}, {"n": 2}, {"n": 3}]
            if not struck:
                assert packet > 3
                return

    async def test_and_what_others_saved_since_leave_the_outcome_unknown(
        self, states: StateStore, kind: Kind, url: str, prefix: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "PATIENCE_S", 10.0)
        await states.save("s", "a", {"n": 0})
        # MySQL's driver escapes quotes.
        text = b'{"n":1}' if kind.name == "postgres" else b'{\\"n\\":1}'
        proxy.strike(Fault.LOSE_REPLY, text, and_then_unreachable=True)
        saving = asyncio.ensure_future(states.save_if_version("s", "a", {"n": 1}, 1))
        await proxy.wait_until_struck()
        async with made(kind, url, prefix) as other:
            await other.save("s", "a", {"n": 2})
        proxy.spare()
        with pytest.raises(OutcomeUnknown):
            await saving
        with pytest.raises(StaleState):
            await states.save_if_version("s", "a", {"n": 1}, 1)
        assert await states.get("s", "a") == {"n": 2}

    @pytest.mark.parametrize("same", [True, False])
    async def test_before_a_new_list_was_made_lets_nobody_elses_be_overwritten(
        self, states: StateStore, kind: Kind, url: str, prefix: str, same: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = await states._table()
        assert isinstance(table, ServerStates)
        server = table._server
        commit = server.commit
        other = [{"of": "the migration" if same else "a user, meanwhile"}]

        async def lose(connection: Any) -> None:
            monkeypatch.setattr(server, "commit", commit)
            server.abandon(connection)
            async with made(kind, url, prefix) as others:
                await others.save_list("s", "l", other)
            raise ConnectionResetError

        monkeypatch.setattr(server, "commit", lose)
        migrating = table.put_list(Slot(None, "s"), "l", ['{"of":"the migration"}'], None, fresh=True)
        if same:
            await migrating
        else:
            with pytest.raises(OutcomeUnknown):
                await migrating
        assert await states.get_list("s", "l") == other
