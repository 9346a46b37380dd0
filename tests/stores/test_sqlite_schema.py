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
    Session,
    StoreError,
    assistant,
    open_store,
    user,
)
from leafward.stores.sql import schema
from leafward.stores.sqlite import SqliteStore
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.setup import migrate


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

    async def test_a_file_of_the_first_release_opens(self, tmp_path: Path) -> None:
        made = (Path(__file__).parent / "fixtures" / "schema-1.sql").read_text(encoding="utf-8")
        connection = sqlite3.connect(tmp_path / "old.db")
        connection.executescript(made)
        connection.close()
        async with open_store(f"sqlite:///{tmp_path}/old.db") as store:
            session = Session(store, "chat-1", user_id="alice")
            assert [message.text for message in await session.get_history()] == ["Hello", "再试一次"]
            assert [found.content for found in await session.search("试")] == ["再试一次"]
            assert len(await session.get_leaves()) == 2

    async def test_eight_processes_may_open_a_new_file_at_once(self, path: Path) -> None:
        spawn = multiprocessing.get_context("spawn")
        with spawn.Pool(8) as pool:
            results = await asyncio.to_thread(pool.map, append_one, [(str(path), n) for n in range(8)])
        assert results == [None] * 8
        async with open_store(f"sqlite:///{path}") as store:
            history = await Session(store).get_history()
        assert sorted(message.text for message in history) == [f"from {n}" for n in range(8)]


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
