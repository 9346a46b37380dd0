"""How a SQLite file is made, migrated and copied."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leafward import (
    ConfigurationError,
    Message,
    Session,
    SessionKey,
    SessionManager,
    StoredSearchProvider,
    StoreError,
    assistant,
    open_store,
    user,
)
from leafward.sessions import estimate_tokens
from leafward.stores.sql import schema
from leafward.stores.sqlite import SqliteStore
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.setup import migrate
from leafward.testing.summarising import all_but_the_last
from tests.stores.sqlite_store import rows


class TestMigration:
    def database(self, path: Path) -> tuple[Database, sqlite3.Connection]:
        database = Database(str(path), "power", "t_")
        path.touch()
        return database, database.connect()

    def test_an_old_file_gets_only_the_steps_it_lacks(self, path: Path) -> None:
        database, connection = self.database(path)
        first = (("CREATE TABLE {p}one (a)",),)
        migrate(database, connection, first)
        connection.execute("INSERT INTO t_one VALUES ('kept')")
        migrate(database, connection, (*first, ("ALTER TABLE {p}one ADD COLUMN b DEFAULT 7",)))
        assert connection.execute("SELECT * FROM t_one").fetchall() == [("kept", 7)]
        assert connection.execute("SELECT value FROM t_meta WHERE name = 'schema'").fetchall() == [("2",)]
        connection.close()

    def test_a_failing_step_leaves_the_file_as_it_was(self, path: Path) -> None:
        database, connection = self.database(path)
        first = (("CREATE TABLE {p}one (a)",),)
        migrate(database, connection, first)
        with pytest.raises(sqlite3.OperationalError):
            migrate(database, connection, (*first, ("CREATE TABLE {p}two (a)", "no such statement")))
        assert connection.execute("SELECT value FROM t_meta WHERE name = 'schema'").fetchall() == [("1",)]
        assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 't_two'").fetchall()
        connection.close()

    async def test_a_file_of_the_first_schema_opens(self, tmp_path: Path) -> None:
        async with open_store(old_file(tmp_path, 1)) as store:
            session = Session(store, "chat-1", user_id="alice")
            assert [message.text for message in await session.get_history()] == ["Hello", "再试一次"]
            assert [found.content for found in await session.search("试")] == ["再试一次"]
            assert len(await session.get_leaves()) == 2
            assert await session.get_labels() == {"m2": "first try"}

    async def test_a_session_of_the_first_schema_can_do_what_is_new(self, tmp_path: Path) -> None:
        async with open_store(old_file(tmp_path, 1)) as store:
            manager = SessionManager(store, user_id="alice").with_context("memory")
            (info,) = await manager.list()
            session = manager.get_session("chat-1")
            prompt = estimate_tokens(await session.freeze_system_prompt())

            assert (info.id, info.name, info.input_tokens, info.estimated_cost) == ("chat-1", "chat-1", 0, 0.0)
            assert (info.model, info.source, info.parent_session_id, info.end_reason) == (None, None, None, None)
            # Nothing counted the window when this file was written.
            assert await session.estimate_tokens() == prompt + 6 + 8
            await session.append_message(user("Hello", id="m4"))
            assert await session.estimate_tokens() == prompt + 6 + 8 + 6
            made = await session.add_compaction("in short", "m1", "m3")
            await session.replace_context_block("memory", "Likes tea.")
            fork = await manager.fork("chat-1", "m4", "fork")
            assert [message.id for message in await manager.get_history(fork.id)] == [f"compaction_{made.id}", "m4"]
            await manager.import_session(await manager.export_session("chat-1"), session_id="copy")
            assert await manager.get_history("copy") == await session.get_history()
            assert await manager.delete("chat-1")

    async def test_compaction_begins_with_the_first_message_added_to_an_old_file(self, tmp_path: Path) -> None:
        async with open_store(old_file(tmp_path, 1)) as store:
            session = Session(store, "chat-1", user_id="alice", on_compaction=all_but_the_last, compact_after=19)

            await session.append_message(user("Hello", id="m4"))

            assert [message.text for message in await session.get_history()] == ["so far", "Hello"]

    async def test_a_file_of_the_second_schema_opens(self, tmp_path: Path) -> None:
        async with open_store(old_file(tmp_path, 2)) as store:
            manager = (
                SessionManager(store, user_id="alice")
                .with_context("memory", description="Learned facts")
                .with_context("house", shared=True)
                .with_context("facts", provider=StoredSearchProvider())
                .with_context("recipes", provider={"get": lambda: "", "load": lambda key: None})
                .with_cached_prompt()
            )
            session = manager.get_session("chat-1")
            (info,) = await manager.list()
            (overlay,) = await session.get_compactions()
            history = await session.get_history()
            blocks = [block.content for block in await session.get_context_blocks()]
            found = await (await session.tools()).call("search_context", {"label": "facts", "query": "steeped tea"})
            prompt = await session.freeze_system_prompt()

            assert (info.name, info.model, info.source) == ("Tea", "a-model", "web")
            assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (100, 20, 0.25)
            assert (overlay.summary, overlay.from_message_id, overlay.to_message_id) == (
                "They greeted each other.",
                "m1",
                "m2",
            )
            assert [message.id for message in history] == [f"compaction_{overlay.id}", "m3", "m4"]
            assert history[-1].parts[0]["output"] == "[skill unloaded: tea]"
            assert [message.id for message in await session.get_raw_history("m5")] == ["m1", "m5"]
            assert await session.get_labels() == {"m2": "first try"}
            assert blocks == ["Likes tea.", "Quiet after ten.", "1 entries indexed.", ""]
            assert found == "[green-tea]\nGreen tea is steeped at 70 °C."
            assert await session.get_loaded_skill_keys() == ["recipes:tea"]
            assert "- tea: how to make tea" in prompt
            assert not await session.is_prompt_stale()
            assert await session.estimate_tokens() == estimate_tokens(prompt) + 10 + 7 + 18
            assert [one.id for one in await manager.search("试")] == ["m5"]
            assert await session.get_version() == 13

    async def test_a_file_of_the_third_schema_opens(self, tmp_path: Path) -> None:
        # Its holder and one who waited were killed; the clock of that machine was a few days ahead.
        async with open_store(old_file(tmp_path, 3)) as store, asyncio.timeout(20):
            async with store.leases.acquire("chat-1", user_id="alice") as lease:
                assert lease.token == 1795797400000001
                leased = Session(store, "chat-1", user_id="alice").with_lease(lease)
                await leased.append_message(user("Hello again", id="m6"))
            async with store.leases.acquire("chat-2", wait=0) as lease:
                assert lease.token > 1794797400000000
            assert [message.id for message in await leased.get_raw_history()] == ["m1", "m2", "m3", "m4", "m6"]

    async def test_a_file_of_the_fourth_schema_opens(self, tmp_path: Path) -> None:
        async with open_store(old_file(tmp_path, 4)) as store:
            key = SessionKey("chat-1", "alice")
            assert await store.states.get(key, "agent_meta") == {"name": "Assistant"}
            (message,) = await store.states.get_list(key, "memory_messages", Message)
            assert message.text == "hi"
            await store.states.save(key, "agent_meta", {"name": "Another"})

    async def test_a_file_of_the_fifth_schema_opens(self, tmp_path: Path) -> None:
        async with open_store(old_file(tmp_path, 5)) as store:
            session = Session(store, "chat-1", user_id="alice")
            plans = {id: await session.get_state("plan", id) for id in ("m1", "m2", "m3", "m4", "m5")}
            assert plans == {"m1": {"step": 0}, "m2": {"step": 2}, "m3": {"step": 2}, "m4": None, "m5": {"step": 0}}
            assert await session.get_states() == {}
            assert await session.get_state("leafward.turn") == {"open": True}
            manager = SessionManager(store, user_id="alice")
            await manager.add_usage("chat-1", 1, 1, 1.0, usage_id="call 1")
            info = await manager.get("chat-1")
            assert info is not None
            assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (100, 20, 0.25)

    async def test_a_file_of_the_sixth_schema_opens(self, tmp_path: Path) -> None:
        # Its holder was a process of another boot.
        async with open_store(old_file(tmp_path, 6)) as store, asyncio.timeout(20):
            assert await store.leases.holder("chat-1", "alice") is None
            async with store.leases.acquire("chat-1", "alice", label="agent:another") as lease:
                assert lease.token == 1795797400000001
                assert await lease.receive() == ["and sum up"]
            async with store.leases.acquire("chat-1", "alice", label="agent:support") as lease:
                assert await lease.receive() == ["sum up", "stop"]
                assert await lease.receive() == []

    @pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
    async def test_a_migrated_file_has_the_tables_of_a_new_one(self, tmp_path: Path, path: Path, number: int) -> None:
        shapes: list[object] = []
        for url in (old_file(tmp_path, number), f"sqlite:///{path}"):
            async with open_store(url):
                pass
            file = Path(url.removeprefix("sqlite:///"))
            tables = [name for (name,) in rows(file, "SELECT name FROM sqlite_master WHERE type = 'table'")]
            columns = {name: {column[1:] for column in rows(file, f"PRAGMA table_info({name})")} for name in tables}
            indexes = rows(file, "SELECT name, sql FROM sqlite_master WHERE type = 'index' ORDER BY name")
            known = {name: found for name, found in columns.items() if not name.startswith("leafward_search")}
            shapes.append((known, indexes))

        assert shapes[0] == shapes[1]

    async def test_eight_processes_may_open_a_new_file_at_once(self, path: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        with spawn.Pool(8) as pool:
            results = await asyncio.to_thread(pool.map, append_one, [(str(path), n) for n in range(8)])
        assert results == [None] * 8
        async with open_store(f"sqlite:///{path}") as store:
            history = await Session(store).get_history()
        assert sorted(message.text for message in history) == [f"from {n}" for n in range(8)]


def old_file(directory: Path, number: int) -> str:
    """Make a file as it was written under an earlier schema and return its URL."""
    made = (Path(__file__).parent / "fixtures" / f"schema-{number}.sql").read_text(encoding="utf-8")
    connection = sqlite3.connect(directory / "old.db")
    connection.executescript(made)
    connection.close()
    return f"sqlite:///{directory}/old.db"


def append_one(argument: tuple[str, int]) -> None:
    path, number = argument

    async def run() -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user(f"from {number}"))

    asyncio.run(run())


class TestBackup:
    async def test_a_backup_is_whole_while_others_write(self, store: SqliteStore, tmp_path: Path) -> None:
        session = Session(store)
        await session.append_messages([user("x" * 1000) for _ in range(500)])

        async def write() -> None:
            for n in range(100):
                await session.append_message(assistant(f"during {n}"))

        writing = asyncio.ensure_future(write())
        await asyncio.sleep(0.01)
        await store.backup(tmp_path / "copies" / "copy.db")
        await writing
        async with open_store(f"sqlite:///{tmp_path}/copies/copy.db") as copy:
            copied = await Session(copy).get_history()
        history = await session.get_history()
        assert 500 <= len(copied) <= 600
        assert copied == history[: len(copied)]
        assert stat.S_IMODE((tmp_path / "copies" / "copy.db").stat().st_mode) == 0o600

    async def test_a_backup_replaces_the_one_before(self, store: SqliteStore, tmp_path: Path) -> None:
        for text in ("one", "two"):
            await Session(store).append_message(user(text))
            await store.backup(tmp_path / "copy.db")
        async with open_store(f"sqlite:///{tmp_path}/copy.db") as copy:
            assert [message.text for message in await Session(copy).get_history()] == ["one", "two"]

    async def test_the_store_is_never_its_own_backup(self, store: SqliteStore, path: Path) -> None:
        with pytest.raises(ConfigurationError, match="itself"):
            await store.backup(path)


class TestStaleBackups:
    async def test_a_log_left_by_a_killed_user_of_the_old_copy_spoils_no_new_one(
        self, store: SqliteStore, tmp_path: Path
    ) -> None:
        copy = tmp_path / "copy.db"
        await Session(store).append_messages([user("x" * 500) for _ in range(100)])
        await store.backup(copy)
        program = f"""
import asyncio, os, signal
from leafward import Session, open_store, user
async def main():
    store = await open_store("sqlite:///{copy}")
    await Session(store).append_messages([user("y" * 700) for _ in range(100)])
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program], check=False, timeout=60)
        assert Path(f"{copy}-wal").exists()
        await Session(store).append_message(user("newest"))
        await store.backup(copy)
        async with open_store(f"sqlite:///{copy}") as opened:
            history = await Session(opened).get_history()
        assert len(history) == 101
        assert history[-1].text == "newest"

    async def test_a_backup_that_cannot_be_written_names_its_target(self, store: SqliteStore, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("not a directory")
        with pytest.raises(StoreError, match=r"file/copy\.db"):
            await store.backup(tmp_path / "file" / "copy.db")


def test_the_schema_has_as_many_steps_as_fixtures() -> None:
    fixtures = sorted((Path(__file__).parent / "fixtures").glob("schema-*.sql"))
    assert len(fixtures) == len(schema.MIGRATIONS)
