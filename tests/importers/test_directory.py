"""Directories of AgentScope's that are somebody else's, damaged, or set as a trap."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leafward import ConfigurationError, Message, SessionKey, StoreError, open_store
from leafward.importers.agentscope import migrate
from leafward.stores import (
    InMemoryAgentStateStore,
    JsonFileAgentStateStore,
    JsonSession,
    PostgresAgentStateStore,
    RedisAgentStateStore,
    SqliteAgentStateStore,
)
from tests.importers.contract import Failing, Stopped, everything
from tests.importers.left import FIXTURES, USER123, LeftInFiles, files_in
from tests.servers.server import Server
from tests.stores.both_servers import KINDS


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES, tmp_path / "sessions"))


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


async def test_files_that_the_documents_name_otherwise_are_found(source: Path, target: Path) -> None:
    report = await migrate(source, target)

    assert (report.sessions, report.failed) == (4, [])
    async with JsonFileAgentStateStore(target) as states:
        [message] = await states.get_list("sess 1", "memory_messages", Message)
        assert message.text == "I am in a file that a document names."
        assert await states.get("sess 1", "planNotebook_state") == {"currentPlan": None}
    assert files_in(source) == files_in(FIXTURES)
    assert not [path for path in source.rglob("*") if path.name.startswith(".leafward")]


class TestNamesThatMayBeEncodings:
    @pytest.fixture
    async def left(self, tmp_path: Path) -> LeftInFiles:
        left = LeftInFiles(tmp_path / "java")
        for session_id in ("acme", "sess 1", "会话", "al/ice", "a:b", "user123"):
            await left.states(session_id, {"a": {"id": session_id}})
        return left

    @pytest.mark.parametrize(
        ("names", "found"),
        [
            ("guess", {"acme", "sess 1", "会话", "al/ice", "a:b", "user123"}),
            ("literal", {"acme", "c2VzcyAx", "5Lya6K-d", "YWwvaWNl", "YTpi", "user123"}),
            ("encoded", {"iɞ", "sess 1", "会话", "al/ice", "a:b", "user123"}),
        ],
    )
    async def test_are_taken_for_what_was_asked_for_and_reported(
        self, left: LeftInFiles, names: Any, found: set[str]
    ) -> None:
        states = InMemoryAgentStateStore()
        dry = await migrate(left.root, states, dry_run=True, names=names)
        report = await migrate(left.root, states, names=names)

        assert {key.session_id for key in await states.list_session_keys()} == found
        assert dry.unclear == report.unclear
        assert [Path(what).name for what, _ in report.unclear] == ["5Lya6K-d", "YTpi", "YWwvaWNl", "acme", "c2VzcyAx"]
        assert "Unclear: " in str(report)
        assert "'iɞ'" in str(report)

    async def test_each_is_decided_by_itself(self, tmp_path: Path) -> None:
        ids = {"acme", "1440", "User", "bd2f", "c2VzcyAx2", "chat-1", "a:b", "s:1", "客", "客服:7", "a%2Fb", "x%3Ay"}
        ids |= {"สวัสดีครับผม", "alice@example.com", '{"t":"1","id":"7"}', "Nguyễn", "👍", "it’s"}
        left, states = LeftInFiles(tmp_path / "java"), InMemoryAgentStateStore()
        for session_id in ids:
            await left.states(session_id, {"a": {"id": session_id}})
        await migrate(left.root, states)
        assert {key.session_id for key in await states.list_session_keys()} == ids

    async def test_another_way_is_refused(self, left: LeftInFiles) -> None:
        with pytest.raises(ConfigurationError, match="'guess', 'literal' or 'encoded'"):
            await migrate(left.root, InMemoryAgentStateStore(), names="both")  # type: ignore[arg-type]

    async def test_a_second_directory_of_one_session_is_left_out_and_named(self, left: LeftInFiles) -> None:
        (left.root / "~acme").mkdir()
        (left.root / "~acme" / "a.json").write_text('{"by": "leafward, before"}')
        states = InMemoryAgentStateStore()

        for dry_run in (True, False):
            report = await migrate(left.root, states, dry_run=dry_run)
            [(what, why)] = report.left_out
            assert Path(what).name == "~acme"
            assert "'acme' is also in" in why
            assert "Left out: " in str(report)
        assert await states.get("acme", "a") == {"id": "acme"}


@pytest.mark.parametrize("name", [b"alice/\xff\xfe", b"\xff\xfe/s1"])
async def test_a_directory_whose_name_is_not_text_does_not_stop_the_others(
    source: Path, target: Path, name: bytes
) -> None:
    os.makedirs(os.path.join(os.fsencode(source), name))

    report = await migrate(source, target)

    assert (report.sessions, report.failed, report.left_out) == (4, [], [])


async def test_a_url_names_one_file_for_a_migration_and_for_whoever_opens_it(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    url = "sqlite:///~/states.db"
    Path("~").mkdir()

    written = (await migrate(source, url)).written

    assert (await migrate(source, url, dry_run=True)).already_there == written
    async with open_store(url) as store:
        assert await store.states.get("sess 1", "planNotebook_state") == {"currentPlan": None}


async def test_one_that_may_only_be_read_is_enough(source: Path, target: Path) -> None:
    for path in (source, *source.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    source.chmod(0o777)

    report = await migrate(f"file://{source}", target)

    assert (report.sessions, report.failed) == (4, [])


async def test_users_of_ours_keep_their_sessions(source: Path, target: Path) -> None:
    keys = [SessionKey("s1", "alice"), SessionKey("s/1", "a b"), SessionKey("x" * 200, "y" * 200)]
    async with JsonSession(source) as states:
        for number, key in enumerate(keys):
            await states.save(key, "a", {"n": number})
            await states.save(key, "n" * 240, {"long": number})

    report = await migrate(source, target)

    assert (report.sessions, report.failed) == (7, [])
    async with JsonFileAgentStateStore(target) as states:
        for number, key in enumerate(keys):
            assert await states.list_session_keys(key.user_id) == {key}
            assert await states.get(key, "a") == {"n": number}
            assert await states.get(key, "n" * 240) == {"long": number}


async def test_no_link_is_followed_and_no_file_leads_out(tmp_path: Path, target: Path) -> None:
    left = LeftInFiles(tmp_path / "sessions")
    await left.fill()
    secret = tmp_path / "secret.json"
    secret.write_text('{"a": {"secret": true}}')
    (left.root / "link.json").symlink_to(secret)
    (left.root / "link").symlink_to(tmp_path)
    await left.states("inner", {"fine": {"a": 1}})
    (left.root / "inner" / "leak.json").symlink_to(secret)
    os.mkfifo(left.root / "pipe.json")
    for name in ("..json", "...json", ".json", " .json", "a\nb.json"):
        (left.root / name).write_text('{"a": {}}')
    os.mkdir(os.fsencode(left.root) + b"/\xff")
    (left.root / "folder.json").mkdir()
    Path(os.fsdecode(os.fsencode(left.root) + b"/\xfe.json")).write_text('{"a": {}}')
    Path(os.fsdecode(os.fsencode(left.root) + b"/\xff/a.json")).write_text("{}")

    report = await migrate(left.root, target)

    assert (report.sessions, report.written) == (4 + len(report.failed), 12)
    failed = {what.removeprefix(f"{left.root}/") for what, _ in report.failed}
    surrogates = {"\udcfe.json", "\udcff"}
    assert failed == {"link.json", "pipe.json", "..json", "...json", ".json", " .json", "a\nb.json"} | surrogates
    assert "\udcfe" not in str(report)
    assert len(str(report).splitlines()) == 3 + len(report.failed)
    assert b"secret" not in b"".join(files_in(target).values())


async def test_a_name_of_two_kinds_is_told(tmp_path: Path, target: Path) -> None:
    left = LeftInFiles(tmp_path / "sessions")
    await left.states("two", {"a": {"n": 1}})
    await left.states("two", {"a": [{"n": 1}]})

    assert [reason for _, reason in (await migrate(left.root, target)).failed] == [
        "there are a value and a list of this name"
    ]


async def test_a_torn_last_line_is_left_out_as_everywhere(tmp_path: Path, target: Path) -> None:
    left = LeftInFiles(tmp_path / "sessions")
    await left.states("torn", {"a": [{"n": 1}, {"n": 2}]})
    with (left.root / "torn" / "a.jsonl").open("a") as lines:
        lines.write('{"n":')

    assert (await migrate(left.root, target)).failed == []
    async with JsonFileAgentStateStore(target) as states:
        assert await states.get_list("torn", "a") == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize("writes", [1, 2, 3])
async def test_a_document_that_was_moved_in_part_beside_itself_is_moved_whole(source: Path, writes: int) -> None:
    async with Failing(source, layout="1.x") as states:
        states.writes = writes
        with pytest.raises(Stopped):
            await migrate(source, states)

    report = await migrate(source, source, layout="1.x")

    assert (report.sessions, report.superseded, report.failed) == (4, 0, [])
    async with JsonSession(source, legacy="ignore") as states:
        assert (await everything(states))["user123"] == USER123
        assert (await states.get("real", "moodTracker"), len(await states.get_list("seed", "memory_messages"))) == (
            {"mood": "fine"},
            2,
        )


async def test_what_killed_writers_left_is_told(source: Path, target: Path) -> None:
    (source / ".leafward.plan").write_text("{}")

    with pytest.raises(ConfigurationError, match="was killed"):
        await migrate(source, target)


class Plain:
    """A store of a user's own, without await."""

    def __init__(self) -> None:
        self.kept: dict[Any, Any] = {}

    def save(self, key: SessionKey, name: str, value: Any) -> None:
        self.kept[key, name] = value

    def get(self, key: SessionKey, name: str, type: Any = dict) -> Any:
        return self.kept.get((key, name))

    def save_list(self, key: SessionKey, name: str, values: list[Any]) -> None:
        self.kept[key, name] = list(values)

    def get_list(self, key: SessionKey, name: str, type: Any = dict) -> list[Any]:
        return self.kept.get((key, name), [])

    def exists(self, key: SessionKey) -> bool:
        return any(key == one for one, _ in self.kept)

    def delete(self, key: SessionKey, name: str | None = None) -> None: ...

    def list_session_keys(self, user_id: str | None = None) -> set[SessionKey]:
        return {key for key, _ in self.kept}

    def close(self) -> None: ...


class Forgetful(Plain):
    def save(self, key: SessionKey, name: str, value: Any) -> None:
        super().save(key, name, {})


class Overtaken(JsonFileAgentStateStore):
    """Somebody else saves first."""

    async def save_if_version(self, key: Any, name: str, value: Any, expected: int) -> int:
        if expected == 0:
            await super().save_if_version(key, name, {"first": True}, -1)
        return await super().save_if_version(key, name, value, expected)


class TestTargets:
    async def test_somebody_else_who_saves_first_is_not_overwritten(self, source: Path, target: Path) -> None:
        async with Overtaken(target) as states:
            report = await migrate(source, states)

            assert (report.written, len(report.kept)) == (4, 9)
            assert await states.get("user123", "agent_meta") == {"first": True}

    @pytest.mark.parametrize("url", ["{}/target", "sqlite:///{}/x.db"])
    async def test_the_longest_names(self, tmp_path: Path, url: str) -> None:
        left = LeftInFiles(tmp_path / "sessions")
        await left.document("s", json.dumps({"v" * 255: {"n": 1}, "l" * 255: [{"n": 1}], "e" * 255: []}))
        target = url.format(tmp_path)

        first, second = [await migrate(left.named, target) for _ in range(2)]

        assert (first.failed, first.kept, second.written, second.already_there) == ([], [], 0, 3)

    async def test_a_users_own(self, source: Path) -> None:
        store: Any = Plain()
        dry = await migrate(source, store, dry_run=True)
        assert store.kept == {}

        first, second = [await migrate(source, store) for _ in range(2)]

        assert (dry.written, first.written, second.written, second.already_there) == (13, 13, 0, 13)
        assert store.kept[SessionKey("user123"), "memory_messages"] == USER123["memory_messages"]
        store.kept[SessionKey("real"), "moodTracker"] = {"mood": "other"}
        assert (await migrate(source, store)).kept == ["'moodTracker' of session 'real'"]

    async def test_one_that_does_not_keep_what_it_is_given(self, source: Path) -> None:
        store: Any = Forgetful()

        with pytest.raises(StoreError, match="something else is read back"):
            await migrate(source, store)

    async def test_one_in_memory(self, source: Path) -> None:
        async with InMemoryAgentStateStore() as states:
            assert (await migrate(source, states)).written == 13
            assert (await everything(states))["user123"] == USER123

    @pytest.mark.parametrize("url", ["memory://", "sqlite:///{}/x.db", "file://{}/store"])
    async def test_an_open_store(self, source: Path, tmp_path: Path, url: str) -> None:
        async with open_store(url.format(tmp_path)) as store:
            first, second = [await migrate(source, store) for _ in range(2)]
            assert (first.written, second.already_there) == (13, 13)
            assert (await everything(store.states))["user123"] == USER123

    @pytest.mark.parametrize("url", ["sqlite:///{}/below/x.db", "file://{}/below/store"])
    async def test_one_that_a_url_names(self, source: Path, tmp_path: Path, url: str) -> None:
        url = url.format(tmp_path)
        assert (await migrate(source, url, dry_run=True)).written == 13
        assert not (tmp_path / "below").exists()
        assert (await migrate(source, url)).written == 13
        assert (await migrate(source, url, dry_run=True)).already_there == 13
        async with open_store(url) as store:
            assert (await everything(store.states))["user123"] == USER123

    async def test_a_sqlite_in_the_layout_of_1x(self, source: Path, tmp_path: Path) -> None:
        await migrate(source, f"sqlite:///{tmp_path}/x.db", layout="1.x")
        async with SqliteAgentStateStore(tmp_path / "x.db", layout="1.x") as states:
            assert (await everything(states))["user123"] == USER123

    async def test_postgres(self, source: Path, postgres_url: str) -> None:
        # The shared server: nobody else has these sessions there.
        async with PostgresAgentStateStore(postgres_url) as states:
            dry = await migrate(source, postgres_url, dry_run=True)
            try:
                report = await migrate(source, postgres_url)
                assert dry.written == report.written == 13
                assert (await everything(states))["user123"] == USER123
            finally:
                for session in ("seed", "real", "user123", "sess 1"):
                    await states.delete(session)

    async def test_a_cluster(self, source: Path, redis_cluster_url: str) -> None:
        async with RedisAgentStateStore(redis_cluster_url) as states:
            try:
                assert (await migrate(source, redis_cluster_url)).written == 13
                assert (await migrate(source, redis_cluster_url, dry_run=True)).already_there == 13
                assert (await everything(states))["user123"] == USER123
            finally:
                for session in ("seed", "real", "user123", "sess 1"):
                    await states.delete(session)


class TestRefused:
    @pytest.mark.parametrize(
        "source",
        ["", "nowhere", "\0", "sqlite:///x.db", "http://u:sesame@h/x", "root:sesame@host/db", "mysql:/u:sesame@h", 7],
    )
    async def test_what_is_no_source(self, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        with pytest.raises(ConfigurationError) as raised:
            await migrate(source, tmp_path / "target")
        assert "sesame" not in str(raised.value)
        assert "\n" not in str(raised.value)
        assert list(tmp_path.iterdir()) == []

    async def test_a_file_is_no_source(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(ConfigurationError, match="is a file"):
            await migrate(tmp_path / "file", tmp_path / "target")

    @pytest.mark.parametrize("target", ["", "\0", "nosuch://u:sesame@h", "sqlite://x", object(), JsonSession, 7])
    @pytest.mark.parametrize("dry_run", [False, True])
    async def test_what_is_no_target(self, source: Path, target: Any, dry_run: bool) -> None:
        with pytest.raises(ConfigurationError) as raised:
            await migrate(source, target, dry_run=dry_run)
        assert "sesame" not in str(raised.value)

    async def test_an_unknown_layout(self, source: Path, target: Path) -> None:
        with pytest.raises(ConfigurationError, match="layout"):
            await migrate(source, target, layout="3.x")
        with pytest.raises(ConfigurationError, match="layout"):
            await migrate(source, "memory://", layout="1.x")


class TestADryRun:
    """Leaves a target of any kind as it is, to the byte."""

    @pytest.mark.parametrize("kind", ["anybodys", "ours"])
    async def test_into_a_sqlite_file(self, source: Path, tmp_path: Path, kind: str) -> None:
        path = tmp_path / "target.db"
        if kind == "ours":
            async with SqliteAgentStateStore(path) as states:
                await states.save("somebody", "a", {"n": 1})
        else:
            with closing(sqlite3.connect(path)) as database:
                database.execute("CREATE TABLE mine (a)")
        before = path.read_bytes()
        report = await migrate(source, f"sqlite:///{path}", dry_run=True)
        assert report.written > 0
        assert path.read_bytes() == before

    async def test_into_what_is_no_database(self, source: Path, tmp_path: Path) -> None:
        path = tmp_path / "notes.txt"
        path.write_text("no database, but long enough to be taken for one " * 100)
        with pytest.raises(StoreError, match=r"notes\.txt"):
            await migrate(source, f"sqlite:///{path}", dry_run=True)

    async def test_into_a_layout_that_a_store_has_not(self, source: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"2\.x only"):
            await migrate(source, f"file://{tmp_path}", layout="1.x", dry_run=True)

    async def test_into_a_directory_of_a_store(self, source: Path, tmp_path: Path) -> None:
        path = tmp_path / "target"
        path.mkdir(mode=0o700)
        await migrate(source, f"file://{path}", dry_run=True)
        assert list(path.iterdir()) == []
        async with open_store(f"file://{path}") as store:
            await migrate(source, store)
        report = await migrate(source, f"file://{path}", dry_run=True)
        assert (report.written, report.failed) == (0, [])
        assert report.already_there > 0

    async def test_into_javas_table(self, source: Path, private_postgres: Callable[[], Server]) -> None:
        with private_postgres() as server:
            await self._into_javas_table(source, server.url)

    async def _into_javas_table(self, source: Path, postgres_url: str) -> None:
        ask, table = KINDS["postgres"].ask, "agentscope.agentscope_sessions"
        columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'agentscope_sessions'"
        await ask(
            postgres_url,
            "CREATE SCHEMA IF NOT EXISTS agentscope",
            f"DROP TABLE IF EXISTS {table}",
            f"CREATE TABLE {table} (session_id TEXT, state_key TEXT, item_index INT, state_data TEXT)",
        )
        before = await ask(postgres_url, columns)
        report = await migrate(source, postgres_url, dry_run=True)
        assert report.written > 0
        assert await ask(postgres_url, columns) == before
        await ask(postgres_url, f"ALTER TABLE {table} DROP COLUMN item_index")
        with pytest.raises(ConfigurationError, match=r"leafward migrate|somebody else"):
            await migrate(source, postgres_url, dry_run=True)


async def test_a_name_that_a_users_own_store_holds_as_the_other_kind_is_kept(source: Path) -> None:
    states: Any = Plain()
    states.save(SessionKey("seed"), "memory_messages", {"not": "a list"})
    report = await migrate(source, states)
    assert any("memory_messages" in one for one in report.kept)
    assert report.written > 0
