"""States in a table that AgentScope for Java made, which takes one id for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from secrets import token_hex

import pytest

from leafward import ConfigurationError, SessionKey, SessionManager, StateDecodeError, open_store, user
from leafward.stores import MysqlAgentStateStore, MysqlSession
from tests.stores.both_servers import KINDS
from tests.stores.states.test_servers import JAVAS_TABLE

ALICE = SessionKey("s1", "alice")


class TestATableThatJavaMade:
    @pytest.fixture
    def url(self, mysql_url: str) -> str:
        return mysql_url

    @pytest.fixture
    async def table(self, url: str) -> AsyncGenerator[str]:
        table = f"javas_{token_hex(8)}"
        await KINDS["mysql"].ask(url, JAVAS_TABLE.format(table))
        self.ask = KINDS["mysql"].ask
        yield table
        await KINDS["mysql"].ask(url, f"DROP TABLE {table}")

    async def test_gets_versions_when_something_is_saved(self, url: str, table: str) -> None:
        into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
        await self.ask(url, f"""{into} ('alice:s0', 'a', '{{"n":1}}')""")
        async with MysqlAgentStateStore(url, table, create=False) as states:
            assert await states.get_versioned(SessionKey("s0", "alice"), "a") == ({"n": 1}, 0)
            assert await states.get_list(SessionKey("s0", "alice"), "a") == [{"n": 1}]
            await states.delete(SessionKey("s0", "alice"))
            assert ("version",) not in await self.ask(
                url, f"SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'"
            )
            assert await states.save_if_version(ALICE, "a", {}, 0) == 1
            assert await states.get_versioned(ALICE, "a") == ({}, 1)
        assert await self.ask(url, f"SELECT version FROM {table}") == [(1,)]

    async def test_keeps_the_plain_name_for_the_first_of_two_that_it_takes_for_one(self, url: str, table: str) -> None:
        async with MysqlAgentStateStore(url, table) as states:
            for user_id in ("Alice", "alice", "álice"):
                await states.save(SessionKey("s1", user_id), "x", {"of": user_id})
            for name in ("Notes", "notes"):
                await states.save("s", name, {"of": name})
            rows = await self.ask(url, f"SELECT session_id, state_key FROM {table}")
            assert ("Alice:s1", "x") in rows
            assert not {("alice:s1", "x"), ("álice:s1", "x")} & set(rows)
            assert ("__anon__:s", "Notes") in rows
            assert ("__anon__:s", "notes") not in rows
            for user_id in ("Alice", "alice", "álice"):
                assert await states.get(SessionKey("s1", user_id), "x") == {"of": user_id}
                assert await states.list_session_keys(user_id) == {SessionKey("s1", user_id)}
            await states.delete(SessionKey("s1", "Alice"))
            assert await states.get(SessionKey("s1", "alice"), "x") == {"of": "alice"}
            assert not await states.exists(SessionKey("s1", "Alice"))

    async def test_deletes_one_of_two_names_that_it_takes_for_one(self, url: str, table: str) -> None:
        async with MysqlAgentStateStore(url, table) as states:
            for name in ("Note", "note", "nóte"):
                await states.save("s", name, {"of": name})
                await states.save_list("s", f"{name}s", [{"of": name}])
            for gone, left in (("note", ["Note", "nóte"]), ("Note", ["nóte"])):
                await states.delete("s", gone)
                await states.delete("s", f"{gone}s")
                assert await states.get("s", gone) is None
                for name in left:
                    assert await states.get("s", name) == {"of": name}
                    assert await states.get_list("s", f"{name}s") == [{"of": name}]

    @pytest.mark.parametrize("charset", ["latin1", "utf8mb3", "binary"])
    async def test_that_cannot_keep_every_id_is_refused(self, url: str, table: str, charset: str) -> None:
        await self.ask(url, f"ALTER TABLE {table} CONVERT TO CHARACTER SET {charset}")
        async with MysqlAgentStateStore(url, table) as states:
            for call in (states.exists("s"), states.get("s", "a"), states.save("s", "a", {})):
                with pytest.raises(ConfigurationError, match="utf8mb4"):
                    await call

    @pytest.mark.parametrize("charset", ["latin1", "utf8mb3", "binary"])
    async def test_that_cannot_keep_every_id_does_not_keep_sessions_from_being_deleted(
        self, url: str, charset: str
    ) -> None:
        prefix = f"{charset}_"
        table = f"{prefix}agentscope_sessions"
        into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
        await KINDS["mysql"].ask(
            url,
            JAVAS_TABLE.format(table),
            f"ALTER TABLE {table} CONVERT TO CHARACTER SET {charset}",
            f"{into} ('__anon__:é', 'a', '{{}}'), ('__anon__:f', 'b', '{{}}')",
            f"{into} ('é', 'c', '{{}}'), ('bob:é', 'd', '{{}}')",
        )
        async with open_store(url, table_prefix=prefix) as store:
            manager, other = SessionManager(store), SessionManager(store, user_id="😀")
            for session in (manager.get_session("é"), other.get_session("𠮷野")):
                await session.append_message(user("hi"))
            assert await manager.delete("é")
            assert await other.delete("𠮷野")
        left = [key for (key,) in await KINDS["mysql"].ask(url, f"SELECT state_key FROM {table}")]
        assert {key.decode() if isinstance(key, bytes) else key for key in left} == {"b", "d"}
        await KINDS["mysql"].ask(url, f"DROP TABLE {table}")

    async def test_is_used_as_it_is_from_the_first_call_on(self, url: str, table: str) -> None:
        async with MysqlAgentStateStore(url, table) as states:
            await states.save(SessionKey("s", "alice"), "a", {"of": "alice"})
        for number in range(30):
            async with MysqlAgentStateStore(url, table) as states:
                looking = asyncio.ensure_future(states.exists("s"))
                await asyncio.sleep(number / 20_000)
                await states.save(SessionKey("s", "Alice"), "a", {"of": "Alice"})
                await looking
                assert await states.get(SessionKey("s", "alice"), "a") == {"of": "alice"}
                await states.delete(SessionKey("s", "Alice"))

    async def test_tells_colons_from_what_it_takes_for_colons(self, url: str, table: str) -> None:
        into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
        await self.ask(url, f"{into} ('会话：1', 'a', '{{}}')")
        async with MysqlAgentStateStore(url, table) as states:
            assert await states.exists("会话：1")
            assert await states.list_session_keys() == {SessionKey("会话：1")}

    async def test_that_others_give_versions_has_them_for_who_only_reads(self, url: str, table: str) -> None:
        async with MysqlAgentStateStore(url, table) as reader, MysqlAgentStateStore(url, table) as writer:
            assert await reader.get_versioned("s", "a") == (None, 0)
            await writer.save("s", "a", {"n": 1})
            await writer.save("s", "a", {"n": 2})
            assert await reader.get_versioned("s", "a") == ({"n": 2}, 2)
            with pytest.raises(StateDecodeError):
                await reader.get_list("s", "a")

    async def test_that_two_write_at_once_keeps_them_apart(self, url: str, table: str) -> None:
        async with MysqlAgentStateStore(url, table) as one, MysqlAgentStateStore(url, table) as other:
            users = ["Alice", "alice", "ALICE", "aLICE"] * 2
            stores = [one, other] * 4
            names = [f"n{number % 3}" for number in range(8)]
            await asyncio.gather(
                *(
                    store.save(SessionKey("s", user_id), name, {"of": [user_id, name]})
                    for store, user_id, name in zip(stores, users, names, strict=True)
                )
            )
            for user_id, name in zip(users, names, strict=True):
                assert await one.get(SessionKey("s", user_id), name) == {"of": [user_id, name]}

    async def test_is_what_mysql_session_goes_on_with(self, url: str, table: str) -> None:
        into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
        await self.ask(url, f"""{into} ('user123', 'agent_meta', '{{"id":"a"}}')""")
        async with MysqlSession(url, table=table) as session:
            assert await session.get("user123", "agent_meta") == {"id": "a"}
            await session.save_list("user123", "memory_messages", [{"n": 1}])
        rows = await self.ask(url, f"SELECT session_id, state_key FROM {table} ORDER BY state_key")
        assert [name for name, _ in rows] == ["user123"] * 3
