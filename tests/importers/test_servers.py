"""What is particular to tables and to keys: names that are taken, pages, kinds of keys, and secrets."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import redis

from leafward import ConfigurationError, LeafwardError, SessionKey, open_store
from leafward.importers.agentscope import migrate
from leafward.stores import (
    InMemoryAgentStateStore,
    MysqlAgentStateStore,
    MysqlSession,
    RedisAgentStateStore,
    RedisSession,
    Slot,
)
from leafward.stores.redis.legacy import open_older_keys
from leafward.stores.servers import legacy
from tests.importers.contract import COUNTS, Failing, Stopped, counts, everything
from tests.importers.left import DOCUMENTS, USER123, LeftInFiles, LeftInRedis, LeftInTables
from tests.servers.redis import Redis
from tests.stores.both_servers import elsewhere
from tests.stores.redis_store import command, forget
from tests.stores.states.redis_states import OldLeafward

T, B = "agentscope_sessions", "agentscope_sessions_backup"


LOOK_ALIKES = ["acme", "1440", "User", "a:b", "O'Neil", "客服:7"]
"""Ids that Java has in directories whose names are valid base64url."""


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


async def left_look_alikes(tmp_path: Path) -> LeftInFiles:
    left = LeftInFiles(tmp_path / "sessions")
    for id in LOOK_ALIKES:
        await left.states(id, USER123)
    return left


class TestAnOldTable:
    """It has the name of the new one."""

    @pytest.fixture
    async def left(self, mysql_url: str) -> AsyncGenerator[LeftInTables]:
        left = LeftInTables(mysql_url)
        await left.make(rows=False, documents=T)
        for session_id, text in DOCUMENTS.items():
            await left.document(session_id, text)
        yield left
        await left.drop()

    async def tables(self, left: LeftInTables) -> list[str]:
        return sorted(name for (name,) in await left.ask("SHOW TABLES"))

    async def test_makes_way(self, left: LeftInTables) -> None:
        before = await left.ask(f"SELECT * FROM {T}")
        dry = await migrate(left.named, left.named, dry_run=True)
        assert await self.tables(left) == [T]

        report = await migrate(left.named, left.named)

        assert (report.renamed, dry.renamed, report.written, dry.written) == (B, B, 7, 7)
        assert await self.tables(left) == [T, B]
        assert await left.ask(f"SELECT * FROM {B}") == before
        async with MysqlAgentStateStore(left.named) as states:
            assert await states.list_session_keys() == {SessionKey("seed"), SessionKey("real")}
        again = await migrate(left.named, left.named)
        assert (again.renamed, again.written, again.already_there) == (None, 0, 7)

    async def test_makes_way_for_a_store_that_is_open(self, left: LeftInTables) -> None:
        async with open_store(left.named) as store:
            with pytest.raises(ConfigurationError, match="leafward migrate"):
                await store.states.exists("seed")

            assert (await migrate(left.named, store)).written == 7

            assert await store.states.exists("seed")

    async def test_is_gone_on_with_from_its_backup(self, left: LeftInTables, target: Path) -> None:
        async with Failing(target) as states:
            states.writes = 2
            with pytest.raises(Stopped):
                await migrate(left.named, states)
        assert await self.tables(left) == [B]

        report = await migrate(left.named, target)

        assert (report.sessions, report.written, report.already_there) == (2, 5, 2)

    @pytest.mark.parametrize("dry_run", [False, True])
    async def test_whose_other_name_is_taken_is_left(self, left: LeftInTables, target: Path, dry_run: bool) -> None:
        await left.ask(f"CREATE TABLE {B} (anything INT)")

        with pytest.raises(ConfigurationError, match=B):
            await migrate(left.named, target, dry_run=dry_run)

        assert len(await left.ask(f"SELECT * FROM {T}")) == 2

    async def test_is_read_in_pages(self, left: LeftInTables, monkeypatch: pytest.MonkeyPatch) -> None:
        await left.ask(
            f"INSERT INTO {T} (session_id, state_data) "
            """SELECT CONCAT('s', seq), CONCAT('{"memory":{"messages":[{"role":"user","content":"', seq, '"}]}}') """
            "FROM seq_1_to_2500"
        )
        pages: list[int] = []
        ask = legacy.OlderRows._ask

        async def note(self: legacy.OlderRows, statement: str, table: str, *parameters: str) -> list[object]:
            rows = await ask(self, statement, table, *parameters)
            pages.append(len(rows))
            return rows

        monkeypatch.setattr(legacy.OlderRows, "_ask", note)

        report = await migrate(left.named, left.named)

        assert (report.sessions, report.messages, report.failed) == (2502, 2505, [])
        assert (max(pages), pages.count(1000)) == (1000, 2)
        async with MysqlAgentStateStore(left.named) as states:
            assert len(await states.list_session_keys()) == 2502
            [message] = await states.get_list("s2500", "memory_messages")
            assert message["content"] == [{"type": "text", "text": "2500"}]


class TestTables:
    @pytest.fixture
    async def left(self, mysql_url: str) -> AsyncGenerator[LeftInTables]:
        left = LeftInTables(mysql_url)
        await left.make(documents=None)
        yield left
        await left.drop()

    async def test_that_are_missing_or_somebody_elses(self, left: LeftInTables, target: Path) -> None:
        await left.ask(f"DROP TABLE {T}")
        with pytest.raises(ConfigurationError, match="there is no table"):
            await migrate(left.named, target)
        await left.ask(f"CREATE TABLE {T} (anything INT)")
        with pytest.raises(ConfigurationError, match="not AgentScope's"):
            await migrate(left.named, target)

    async def test_of_many_sessions_are_read_in_pages(self, left: LeftInTables, target: Path) -> None:
        columns = "(session_id, state_key, item_index, state_data)"
        for state, index in (("'a'", 0), ("'l'", 0), ("'l'", 1)):
            rows = f"SELECT CONCAT('S', seq), {state}, {index}, CONCAT('{{\"n\":', seq, '}}') FROM seq_1_to_2100"
            await left.ask(f"INSERT INTO {T} {columns} {rows}")
        told: list[tuple[int, int | None, str]] = []

        report = await migrate(left.named, target, dry_run=True, progress=lambda *all: told.append(all))

        assert (report.sessions, report.values, report.lists, report.failed) == (2100, 2100, 2100, [])
        assert (told[-1][:2], len({what for _, _, what in told})) == ((2100, 2100), 2100)

    async def test_that_fold_case_keep_sessions_apart(self, left: LeftInTables, target: Path) -> None:
        for session_id, name in (("alice", "a"), ("Alice", "b"), ("ALICE ", "c"), ("älice", "d")):
            await left.states(session_id, {name: {"of": session_id}})

        report = await migrate(left.named, left.named)
        assert (report.sessions, report.written) == (4, 4)

        async with MysqlAgentStateStore(left.named) as states:
            for session_id, name in (("alice", "a"), ("Alice", "b"), ("ALICE ", "c"), ("älice", "d")):
                assert await states.get(session_id, name) == {"of": session_id}
        assert (await migrate(left.named, left.named)).written == 0

    async def test_rows_with_a_colon_that_2x_cannot_have_written_are_left_out_with_the_reason(
        self, left: LeftInTables, target: Path
    ) -> None:
        await left.states("a:b", {"memory_messages": [], "agent_meta": {}})
        await left.states("alice:s1", {"agent_state": {}, "agent_meta": {}})
        await left.states("__anon__:s1", {"agent_meta": {}})

        for dry_run in (True, False):
            report = await migrate(left.named, target, dry_run=dry_run)
            assert report.sessions == 0
            [(what, why)] = report.left_out
            assert "'a:b'" in what
            assert why == "it may be session 'b' of user 'a' in 2.x, and is not moved"

    async def test_of_a_target_have_the_ids_that_java_gave_to_directories(
        self, left: LeftInTables, tmp_path: Path
    ) -> None:
        files = await left_look_alikes(tmp_path)

        report = await migrate(files.root, left.named)

        assert (report.sessions, report.failed, report.left_out) == (len(LOOK_ALIKES), [], [])
        slots = {slot for (slot,) in await left.ask(f"SELECT DISTINCT session_id FROM {T}")}
        assert slots == {f"__anon__:{id}" for id in LOOK_ALIKES}

    async def test_users_of_ours_keep_their_sessions(self, left: LeftInTables, target: Path) -> None:
        keys = [SessionKey("s1", "alice"), SessionKey("x" * 200, "y" * 200), SessionKey("~x00")]
        async with MysqlSession(left.named) as states:
            for key in keys:
                await states.save(key, "a", {"of": key.session_id})

        report = await migrate(left.named, f"sqlite:///{target}")

        assert (report.sessions, report.failed) == (3, [])
        async with open_store(f"sqlite:///{target}") as store:
            for key in keys:
                assert await store.states.get(key, "a") == {"of": key.session_id}

    async def test_of_a_target_are_not_made_to_look(self, left: LeftInTables, mysql_url: str) -> None:
        await left.states("user123", USER123)
        other = LeftInTables(mysql_url)
        await other.make(rows=False, documents=None)
        try:
            assert (await migrate(left.named, other.named, dry_run=True)).written == 4
            assert await other.ask("SHOW TABLES") == []
            assert (await migrate(left.named, other.named)).written == 4
            assert (await migrate(left.named, other.named, dry_run=True)).already_there == 4
        finally:
            await other.drop()

    async def test_tell_no_secrets(self, left: LeftInTables, target: Path) -> None:
        secret = urlsplit(left.named).password or ""
        await left.states("bad", {"a": "{"})
        told: list[str] = []

        report = await migrate(left.named, target, progress=lambda *all: told.append(str(all)))

        assert secret
        assert len(report.failed) == 1
        assert secret not in f"{report}{report!r}{told}"
        for url in (elsewhere(left.named, user="nobody:sesame"), left.named + "_none", elsewhere(left.named, port=1)):
            with pytest.raises(LeafwardError) as raised:
                await migrate(url, target)
            assert secret not in str(raised.value)
            assert "sesame" not in str(raised.value)


class TestKeys:
    @pytest.fixture(scope="class")
    @classmethod
    def server(cls, private_redis: Callable[[], Redis]) -> Iterator[Redis]:
        with private_redis() as server:
            yield server

    @pytest.fixture
    def left(self, server: Redis) -> LeftInRedis:
        command(server.url, "FLUSHALL")
        return LeftInRedis(server.url)

    async def test_that_are_no_sessions_are_left_out(self, left: LeftInRedis, target: Path) -> None:
        await left.fill()
        command(left.named, "HSET", f"{left.prefix}hash", "a", "b")
        command(left.named, "SET", f"{left.prefix}odd:_keys", "no set")
        command(left.named, "SET", f"{left.prefix}alice/s1:agent_state", "{}")
        command(left.named, "SADD", f"{left.prefix}alice/s1:_keys", "agent_state")
        command(left.named, "SET", f"{left.prefix}lonely:state", "{}")
        command(left.named, "SET", "another:key", "{}")

        report = await migrate(left.named, target)

        assert (counts(report), report.failed) == (COUNTS, [])

    async def test_with_colons_in_ids(self, left: LeftInRedis, target: Path) -> None:
        await left.document("old:one", DOCUMENTS["seed"])
        await left.states("tenant:7", USER123)

        report = await migrate(left.named, left.named)

        assert (report.sessions, report.failed) == (2, [])
        async with RedisAgentStateStore(left.named) as states:
            assert await states.list_session_keys() >= {SessionKey("old:one"), SessionKey("tenant:7")}
            assert await states.get_list("tenant:7", "memory_messages") == USER123["memory_messages"]
            assert len(await states.get_list("old:one", "memory_messages")) == 2
        # Where Java looks for it in 2.x.
        assert command(left.named, "LLEN", f"{left.prefix}__anon__/tenant:7:memory_messages:list") == 2

    @pytest.mark.parametrize("id", ["a:b", "a%2Fb", "a%3Ab", "100%25", '{"tenantId":"t","sessionId":"s"}'])
    async def test_of_every_id_arrive_where_java_looks_for_them(self, left: LeftInRedis, id: str) -> None:
        await left.states(id, USER123)

        report = await migrate(left.named, left.named)

        assert (report.sessions, report.written, report.failed) == (1, len(USER123), [])
        assert command(left.named, "LLEN", f"{left.prefix}__anon__/{id}:memory_messages:list") == 2
        async with RedisAgentStateStore(left.named) as states:
            assert await states.list_session_keys() == {SessionKey(id)}
        assert (await migrate(left.named, left.named)).written == 0

    async def test_of_a_target_have_the_ids_that_java_gave_to_directories(
        self, left: LeftInRedis, tmp_path: Path
    ) -> None:
        files = await left_look_alikes(tmp_path)

        report = await migrate(files.root, left.named)

        assert (report.sessions, report.failed, report.left_out) == (len(LOOK_ALIKES), [], [])
        for id in LOOK_ALIKES:
            assert command(left.named, "LLEN", f"{left.prefix}__anon__/{id}:memory_messages:list") == 2

    async def test_that_may_be_of_2x_are_left_out_with_the_reason(self, left: LeftInRedis) -> None:
        await left.states("al/ice", USER123)
        await left.states("alice/s1", {"agent_state": {}})
        await left.states("__anon__/s1", USER123)
        await left.states("s1", USER123)
        older = await open_older_keys(left.named)
        try:
            assert [place.at async for place in older.places()] == ["s1"]
            [(shown, reason)] = await older.left_out()
        finally:
            await older.close()
        assert shown == f"key '{left.prefix}al/ice:_keys' on {older._calls.where}"
        assert reason == "it may be session 'ice' of user 'al' in 2.x, and is not moved"
        for dry_run in (True, False):
            report = await migrate(left.named, InMemoryAgentStateStore(), dry_run=dry_run)
            assert report.left_out == [(shown, reason)]

    async def test_that_are_documents_with_slashes_are_moved_or_named(self, left: LeftInRedis) -> None:
        for id in ("al/ice", "al/ice:b"):
            await left.document(id, DOCUMENTS["seed"])
        command(left.named, "SET", f"{left.prefix}bo/b", DOCUMENTS["seed"])
        command(left.named, "HSET", f"{left.prefix}ha/sh", "a", "b")
        command(left.named, "SET", f"{left.prefix}alice/s1:meta", "{}")
        command(left.named, "SADD", f"{left.prefix}alice/s1:_keys", "meta", "agent_state")

        report = await migrate(left.named, left.named)

        assert (report.sessions, report.failed) == (2, [])
        async with RedisAgentStateStore(left.named) as states:
            assert await states.list_session_keys() == {SessionKey("al/ice"), SessionKey("al/ice:b")}
            assert len(await states.get_list("al/ice", "memory_messages")) == 2
        older = await open_older_keys(left.named)
        try:
            [(shown, reason)] = await older.left_out()
        finally:
            await older.close()
        assert shown == f"key '{left.prefix}bo/b' on {older._calls.where}"
        assert reason == "it may be the document of session 'bo/b', but has no ':meta' beside it, and is not moved"

    async def test_that_an_earlier_leafward_named_are_of_its_sessions(self, left: LeftInRedis) -> None:
        for name in ("a%3Ab", "al%2Fice", "both%3A"):
            old = OldLeafward(redis.Redis.from_url(left.named), f"{left.prefix}{name}")
            old.save("a", b'{"n":1}')
            old.save_list("l", [b"{}"])
        await left.states("both:", {"a": {"n": 2}})
        older = await open_older_keys(left.named)
        try:
            slots = [(await older.read(place))[0] async for place in older.places()]
            [(shown, reason)] = await older.left_out()
        finally:
            await older.close()
        assert slots == [Slot(None, "a:b"), Slot(None, "al/ice"), Slot(None, "both:")]
        assert "both%3A" in shown
        assert reason == "session 'both:' is also kept as AgentScope names it, and that one is moved"

        assert (await migrate(left.named, left.named)).written == 5
        async with RedisAgentStateStore(left.named) as states:
            assert await states.get("al/ice", "a") == {"n": 1}
            assert await states.get("both:", "a") == {"n": 2}

    async def test_of_states_with_colons_keep_their_names(self, left: LeftInRedis) -> None:
        await left.states("s", {"of:a:tool": {"n": 1}, "l:m": [{"n": 2}]})
        async with RedisSession(left.named) as states:
            await states.save("t:u", "of:a:tool", {"n": 3})

        assert (await migrate(left.named, left.named)).failed == []

        async with RedisAgentStateStore(left.named) as states:
            assert await states.get("s", "of:a:tool") == {"n": 1}
            assert await states.get_list("s", "l:m") == [{"n": 2}]
            assert await states.get("t:u", "of:a:tool") == {"n": 3}

    async def test_that_hold_something_else_are_told(self, left: LeftInRedis, target: Path) -> None:
        await left.states("kind", {"a": {"n": 1}})
        command(left.named, "DEL", f"{left.prefix}kind:a")
        command(left.named, "RPUSH", f"{left.prefix}kind:a", "{}")
        await left.states("two", {"a": {"n": 1}})
        await left.states("two", {"a": [{"n": 1}]})
        await left.states("gone", {"a": {"n": 1}, "b": {"n": 2}, "c": []})
        command(left.named, "DEL", f"{left.prefix}gone:b")
        command(left.named, "SET", left.prefix.encode() + b"\xff", "{}")
        command(left.named, "SADD", left.prefix.encode() + b"\xfe:_keys", "a")
        command(left.named, "SET", left.prefix.encode() + b"\xfe:a", "{}")

        report = await migrate(left.named, target)

        assert (report.sessions, report.values, report.lists) == (5, 1, 1)
        wanted = ("kind", "two", "udcfe", "udcff")
        assert len(report.failed) == len(wanted)
        assert all(part in what for part, (what, _) in zip(wanted, report.failed, strict=True))

    async def test_of_users_of_ours_keep_their_sessions(self, left: LeftInRedis, target: Path) -> None:
        keys = [SessionKey("s1", "alice"), SessionKey("a:b/c~d", "%7E:/"), SessionKey("a:b")]
        async with RedisSession(left.named) as states:
            for key in keys:
                await states.save(key, "a", {"of": key.session_id})

        assert (await migrate(left.named, left.named)).sessions == 3

        async with RedisAgentStateStore(left.named) as states:
            for key in keys:
                assert await states.get(key, "a") == {"of": key.session_id}

    async def test_in_a_cluster(self, redis_cluster_url: str) -> None:
        await put_in_cluster(redis_cluster_url)
        try:
            report = await migrate(redis_cluster_url, redis_cluster_url)
            # What is there now is not taken for sessions of 1.x.
            assert counts(await migrate(redis_cluster_url, redis_cluster_url)) == COUNTS
            async with RedisAgentStateStore(redis_cluster_url) as states:
                found = await everything(states)
                for session in found:
                    await states.delete(session)
        finally:
            forget(redis_cluster_url, LeftInRedis.prefix)
        assert (counts(report), report.written, found["user123"]) == (COUNTS, 11, USER123)

    async def test_tell_no_secrets(self, left: LeftInRedis, server: Redis, target: Path) -> None:
        secret = server.password
        await left.states("bad", {"a": "{"})

        report = await migrate(left.named, target)

        assert secret in left.named
        assert len(report.failed) == 1
        assert secret not in f"{report}{report!r}"
        for url in (left.named.replace(secret, "sesame"), f"redis://:sesame@127.0.0.1:1/{server.port}"):
            with pytest.raises(LeafwardError) as raised:
                await migrate(url, target)
            assert "sesame" not in str(raised.value)


async def put_in_cluster(url: str) -> None:
    """Put the same as elsewhere, each key on the server that is to have it."""
    from redis.cluster import ClusterNode, RedisCluster

    from leafward.stores.redis.urls import read_url

    address = read_url(url)
    nodes = [ClusterNode(host, port) for host, port in address.hosts]
    with RedisCluster(startup_nodes=nodes, password=address.password) as client:

        class InCluster(LeftInRedis):
            def _do(self, *command: object) -> object:
                return client.execute_command(*command)  # pyright: ignore[reportArgumentType]

        await InCluster(url).fill()
