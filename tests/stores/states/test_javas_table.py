"""States in a table that AgentScope for Java made, which takes one id for another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from random import Random
from secrets import token_hex
from typing import Any

import pytest

from leafward import ConfigurationError, SessionKey, SessionManager, StateDecodeError, open_store, user
from leafward.stores import AgentStateStore, MysqlAgentStateStore, MysqlSession
from leafward.stores.leases import Slot
from leafward.stores.states import row_names
from leafward.stores.states.table import Layout
from tests.stores.both_servers import KINDS
from tests.stores.states.test_servers import JAVAS_TABLE

ALICE = SessionKey("s1", "alice")
LIKE_THE_HASH_OF_A = ["a:_HASH", "a:_hàsh", "a:_hash ", "A:_Hash", "a：_ha\u0336sh", "a:_h\u0363sh"]


async def save(states: AgentStateStore, key: SessionKey, name: str, content: Any) -> None:
    await (states.save_list if isinstance(content, list) else states.save)(key, name, content)


async def check(states: AgentStateStore, key: SessionKey, kept: dict[str, Any]) -> None:
    for name, content in kept.items():
        assert await (states.get_list if isinstance(content, list) else states.get)(key, name) == content, name


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
        async with MysqlAgentStateStore(url, table) as states:
            assert await states.get_versioned(SessionKey("s0", "alice"), "a") == ({"n": 1}, 1)
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

    async def test_of_1x_has_a_session_that_looks_like_a_name_of_ours(self, url: str, table: str) -> None:
        like_ours, twin = "~x61", row_names.own_name(Slot(None, "~x61"))
        into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
        await self.ask(url, f"""{into} ('{like_ours}', 'a', '{{"of":"java"}}')""")
        for layout in ("1.x", "2.x"):
            async with MysqlAgentStateStore(url, table, layout=layout) as states:
                assert await states.get(like_ours, "a") == {"of": "java"}
                assert await states.list_session_keys() == {SessionKey(like_ours)}
        async with MysqlSession(url, table=table) as session:
            await session.save(like_ours, "a", {"of": "us"})
            await session.save(twin, "a", {"of": "its twin"})
            assert await session.get(like_ours, "a") == {"of": "us"}
            assert await session.list_session_keys() == {SessionKey(like_ours), SessionKey(twin)}
            assert await self.ask(url, f"SELECT state_data FROM {table} WHERE session_id = '{like_ours}'") == [
                ('{"of":"us"}',)
            ]
            await session.delete(like_ours)
            assert await session.list_session_keys() == {SessionKey(twin)}

    async def test_is_what_mysql_session_goes_on_with(self, url: str, table: str) -> None:
        into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
        await self.ask(url, f"""{into} ('user123', 'agent_meta', '{{"id":"a"}}')""")
        async with MysqlSession(url, table=table) as session:
            assert await session.get("user123", "agent_meta") == {"id": "a"}
            await session.save_list("user123", "memory_messages", [{"n": 1}])
        rows = await self.ask(url, f"SELECT session_id, state_key FROM {table} ORDER BY state_key")
        assert [name for name, _ in rows] == ["user123"] * 3

    @pytest.mark.parametrize("layout", ["1.x", "2.x"])
    @pytest.mark.parametrize(
        "saves",
        [
            [("n", []), ("n ", {"x": 1}), ("n", [{"x": 2}])],
            [("n ", []), ("n", {"x": 1}), ("n ", [{"x": 2}])],
            [("n", []), ("n ", {"x": 1}), ("n", {"x": 2})],
            [("n ", []), ("n", {"x": 1}), ("n ", {"x": 2})],
            [("n", []), ("n\u3000", []), ("n", [{"x": 1}])],
            *([("a", {}), (like, {"x": 1}), ("a", [{"x": 2}])] for like in LIKE_THE_HASH_OF_A),
            *([(like, []), ("a", [{"x": 1}]), (like, {"x": 2})] for like in LIKE_THE_HASH_OF_A),
            # As the second of two such names is named.
            *([(like, {"x": 1}), ("N", {"x": 2}), ("n", {"x": 3})] for like in ("~X6e", "~x6e ", "～x6É")),
        ],
        ids=ascii,
    )
    async def test_lets_names_that_it_takes_for_one_be_saved_for_good(
        self, url: str, table: str, layout: Layout, saves: list[tuple[str, Any]]
    ) -> None:
        async with MysqlAgentStateStore(url, table, layout=layout) as states:
            for name, content in saves:
                await save(states, ALICE, name, content)
            kept = dict(saves)
            await check(states, ALICE, kept)
            for again in ([{"x": 3}], {"x": 4}, []):
                for name in kept:
                    kept[name] = again
                    await save(states, ALICE, name, again)
                    await check(states, ALICE, kept)

    async def test_gives_no_plain_name_to_what_it_may_take_for_the_hash_of_a_list(self, url: str, table: str) -> None:
        plain = ["content_hash", "HASH", "a:hash", "a:_hashes", "a:_日本:b", "~home"]
        async with MysqlAgentStateStore(url, table) as states:
            for name in (*plain, *LIKE_THE_HASH_OF_A):
                await states.save(ALICE, name, {})
            rows = {key for (key,) in await self.ask(url, f"SELECT state_key FROM {table}")}
            assert rows == {*plain, *map(row_names.own_key, LIKE_THE_HASH_OF_A)}
            # What Java named so is found all the same.
            into = f"INSERT INTO {table} (session_id, state_key, state_data) VALUES"
            await self.ask(url, f"""{into} ('alice:s1', 'b:_HASH', '{{"n":1}}')""")
            await states.save_list(ALICE, "b", [{}])
            await check(states, ALICE, {"b": [{}], "b:_HASH": {"n": 1}})

    async def test_takes_no_session_for_another_that_has_a_name_of_ours(self, url: str, table: str) -> None:
        like_alices = SessionKey(row_names.own_name(Slot(ALICE.user_id, ALICE.session_id)).upper())
        async with MysqlAgentStateStore(url, table, layout="1.x") as states:
            for key in (like_alices, ALICE) * 2:
                await states.save(key, "x", {"of": key.session_id})
            for key in (like_alices, ALICE):
                await check(states, key, {"x": {"of": key.session_id}})
                assert await states.list_session_keys(key.user_id) == {key}

    async def test_tells_a_name_that_it_ignores_from_the_ids_of_a_slot(self, url: str, table: str) -> None:
        long = SessionKey("s" * 255, "alice")
        async with MysqlAgentStateStore(url, table) as states:
            await states.save(long, "\u200b", {})
            await states.save_list(long, "\u200b", [{}])
            await check(states, long, {"\u200b": [{}]})

    @pytest.mark.parametrize("layout", ["1.x", "2.x"])
    async def test_keeps_what_any_saves_and_deletes_leave(self, url: str, table: str, layout: Layout) -> None:
        random = Random(7)
        names = ["n", "n ", "N", "ñ", "a", "á", "~X6e", *LIKE_THE_HASH_OF_A]
        kept: dict[str, Any] = {}
        async with MysqlAgentStateStore(url, table, layout=layout) as states:
            for number in range(150):
                name = random.choice(names)
                if random.random() < 0.25:
                    await states.delete(ALICE, name)
                    kept.pop(name, None)
                else:
                    kept[name] = random.choice([{"x": number}, [], [{"x": number}], [{"x": number}, {}]])
                    await save(states, ALICE, name, kept[name])
                assert await states.exists(ALICE) == bool(kept)
                await check(states, ALICE, dict.fromkeys(names) | kept)
