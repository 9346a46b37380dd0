"""What is SQLite's own: its file, its writer thread, its lock, its errors."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    CorruptStore,
    MessageNotFound,
    OutcomeUnknown,
    Session,
    StoreError,
    assistant,
    open_store,
    user,
)
from leafward.core import Owner, Scope
from leafward.core.query import parse_query
from leafward.stores import SearchFilter
from leafward.stores.sql import schema
from leafward.stores.sqlite import SqliteStore
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.setup import migrate


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "chat.db"


@pytest.fixture
async def store(path: Path) -> AsyncGenerator[SqliteStore]:
    async with open_store(f"sqlite:///{path}") as store:
        assert isinstance(store, SqliteStore)
        yield store


def rows(path: Path, statement: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(statement).fetchall()
    finally:
        connection.close()


class Held:
    """Keeps the writer thread busy until let go, so that what is written meanwhile waits in one batch."""

    def __init__(self, store: SqliteStore) -> None:
        self._go = threading.Event()
        self._begun = threading.Event()
        self.write = asyncio.ensure_future(store._writer.run(self._work))

    def _work(self, _: sqlite3.Connection) -> None:
        self._begun.set()
        assert self._go.wait(20)

    async def __aenter__(self) -> Held:
        assert await asyncio.to_thread(self._begun.wait, 10)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._go.set()
        await self.write


class TestItsFile:
    async def test_missing_directories_are_made(self, tmp_path: Path) -> None:
        async with open_store(f"sqlite:///{tmp_path}/a/b/c.db") as store:
            await Session(store).append_message(user("hi"))
        assert (tmp_path / "a/b/c.db").exists()

    async def test_a_relative_url_is_below_the_working_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        async with open_store("sqlite:///rel.db"):
            assert (tmp_path / "rel.db").exists()

    async def test_all_its_files_are_for_the_owner_only(self, store: SqliteStore, path: Path) -> None:
        await Session(store).append_message(user("hi"))
        files = sorted(path.parent.iterdir())
        assert [file.name for file in files] == ["chat.db", "chat.db-lock", "chat.db-shm", "chat.db-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}

    async def test_a_commit_is_synced_by_default(self, store: SqliteStore) -> None:
        assert store.durability() == "power"
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)

    async def test_process_durability_is_told_truthfully(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}", durability="process") as store:
            assert store.durability() == "process"

    @pytest.mark.parametrize(
        "url",
        ["sqlite://x.db", "sqlite:///", "sqlite:///:memory:", "sqlite:x.db", "sqlite:///a\0b"],
    )
    async def test_a_url_without_a_file_is_refused(self, url: str) -> None:
        with pytest.raises(ConfigurationError):
            await open_store(url)

    async def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="directory"):
            await open_store(f"sqlite:///{tmp_path}")

    @pytest.mark.parametrize("options", [{"durability": "soon"}, {"table_prefix": "a;b"}, {"colour": 1}])
    async def test_a_wrong_option_is_refused(self, path: Path, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            await open_store(f"sqlite:///{path}", **options)
        assert not path.exists()

    async def test_two_prefixes_share_a_file_without_meeting(self, path: Path) -> None:
        for prefix in ("one_", "two_", ""):
            async with open_store(f"sqlite:///{path}", table_prefix=prefix) as store:
                assert await Session(store).get_history() == []
                await Session(store).append_message(user(f"of {prefix}"))
                assert [found.content for found in await Session(store).search("of")] == [f"of {prefix}"]

    async def test_it_lives_beside_the_tables_of_an_application(self, path: Path) -> None:
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE message (mine TEXT)")
        connection.close()
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("hi"))
        assert rows(path, "SELECT count(*) FROM message") == [(0,)]

    async def test_a_closed_store_leaves_no_log_behind(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("hi"))
        assert sorted(file.name for file in path.parent.iterdir()) == ["chat.db", "chat.db-lock"]


class TestBadFiles:
    async def test_a_file_that_is_no_database_is_left_alone(self, path: Path) -> None:
        path.write_bytes(b"dear diary, " * 500)
        before = path.read_bytes()
        with pytest.raises(CorruptStore, match="not a SQLite database"):
            await open_store(f"sqlite:///{path}")
        assert path.read_bytes() == before

    async def test_a_newer_file_is_refused_and_left_alone(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("from tomorrow"))
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE leafward_meta SET value = '99' WHERE name = 'schema'")
        connection.close()
        with pytest.raises(StoreError, match=r"newer leafward.*99.*upgrade"):
            await open_store(f"sqlite:///{path}")
        assert rows(path, "SELECT count(*) FROM leafward_message") == [(1,)]

    async def test_a_damaged_page_is_told_as_damage(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store).append_messages([user("x" * 2000) for _ in range(200)])
        data = bytearray(path.read_bytes())
        for page in range(12, len(data) // 4096):
            data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        path.write_bytes(data)
        async with open_store(f"sqlite:///{path}") as store:
            with pytest.raises(CorruptStore, match="damaged"):
                await Session(store).get_history()

    def test_a_read_only_directory_is_told_as_such(self, tmp_path: Path) -> None:
        # Root may write anywhere, so this runs as nobody.
        place = tmp_path / "locked"
        place.mkdir(mode=0o555)
        for parent in (tmp_path, *tmp_path.parents):
            if parent.stat().st_uid == os.getuid() and parent != Path("/"):
                parent.chmod(parent.stat().st_mode | 0o055)
        program = f"""
import asyncio, os, leafward.stores.sqlite, encodings.idna
from leafward import StoreError, open_store
if os.getuid() == 0: os.setgid(65534); os.setuid(65534)
async def main():
    try: await open_store("sqlite:///{place}/x.db")
    except StoreError as error: print("refused:", error)
asyncio.run(main())
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert "refused:" in done.stdout, done.stderr
        assert "permissions" in done.stdout

    def test_a_full_disk_loses_nothing_and_the_store_goes_on(self, path: Path) -> None:
        program = f"""
import asyncio, resource
from leafward import Session, StorageFull, open_store, user
async def main():
    async with open_store("sqlite:///{path}") as store:
        session = Session(store)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
        stored = []
        try:
            while True:
                stored.append((await session.append_message(user("x" * 3000))).id)
        except StorageFull as error:
            print("full:", error)
        assert [m.id for m in await session.get_history()] == stored
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        stored.append((await session.append_message(user("room again"))).id)
        assert [m.id for m in await session.get_history()] == stored
        print("kept", len(stored))
asyncio.run(main())
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert "full: no space left" in done.stdout, done.stderr
        assert "kept" in done.stdout, done.stderr
        assert rows(path, "PRAGMA integrity_check") == [("ok",)]


class TestMigration:
    def database(self, path: Path) -> tuple[Database, sqlite3.Connection]:
        database = Database(str(path), "power", "t_")
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


class TestGroupCommit:
    async def test_writes_that_wait_together_share_a_commit(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("first"))
        commits: list[str] = []
        store._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        async with Held(store):
            writes = [asyncio.ensure_future(session.append_message(user(f"m{n}"))) for n in range(20)]
            await asyncio.sleep(0)
        await asyncio.gather(*writes)
        store._connection.set_trace_callback(None)
        assert len(commits) == 2
        assert [message.text for message in await session.get_history()] == ["first", *(f"m{n}" for n in range(20))]

    async def test_a_bad_write_fails_alone(self, store: SqliteStore) -> None:
        session = Session(store)
        async with Held(store):
            good = asyncio.ensure_future(session.append_message(user("good")))
            bad = asyncio.ensure_future(session.append_message(user("bad"), parent_id="nowhere"))
            last = asyncio.ensure_future(session.append_message(user("last")))
            await asyncio.sleep(0)
        await asyncio.gather(good, last)
        with pytest.raises(MessageNotFound):
            await bad
        assert [message.text for message in await session.get_history()] == ["good", "last"]

    async def test_a_write_that_ends_the_transaction_takes_no_other_with_it(self, store: SqliteStore) -> None:
        def rolls_back(connection: sqlite3.Connection) -> None:
            connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("the disk said no")

        session = Session(store)
        async with Held(store):
            good = asyncio.ensure_future(session.append_message(user("good")))
            bad = asyncio.ensure_future(store._writer.run(rolls_back))
            last = asyncio.ensure_future(session.append_message(user("last")))
            await asyncio.sleep(0)
        await asyncio.gather(good, last)
        with pytest.raises(StoreError, match="the disk said no"):
            await bad
        assert [message.text for message in await session.get_history()] == ["good", "last"]

    async def test_a_cancelled_write_that_has_not_begun_is_withdrawn(self, store: SqliteStore) -> None:
        session = Session(store)
        async with Held(store):
            write = asyncio.ensure_future(session.append_message(user("never")))
            await asyncio.sleep(0)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write
        assert await session.get_history() == []

    async def test_a_cancelled_write_that_has_begun_is_finished_first(self, store: SqliteStore) -> None:
        go, begun = threading.Event(), threading.Event()

        def slow(connection: sqlite3.Connection) -> None:
            begun.set()
            assert go.wait(20)
            connection.execute("INSERT INTO leafward_meta VALUES ('slow', 'done')")

        write = asyncio.ensure_future(store._writer.run(slow))
        assert await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):
            write.cancel()
            await asyncio.sleep(0.01)
        assert not write.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert store._connection.execute("SELECT value FROM leafward_meta WHERE name = 'slow'").fetchall() == [
            ("done",)
        ]

    async def test_a_lock_that_cannot_be_had_is_told_and_the_store_goes_on(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise OSError("no locks available")

        monkeypatch.setattr("fcntl.flock", fails)
        with pytest.raises(StoreError, match="no locks available"):
            await Session(store).append_message(user("never"))
        monkeypatch.undo()
        await Session(store).append_message(user("now"))
        assert [message.text for message in await Session(store).get_history()] == ["now"]

    async def test_after_a_failed_fsync_nothing_more_is_acknowledged(self, store: SqliteStore) -> None:
        def fails(connection: sqlite3.Connection) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        await Session(store).append_message(user("safe"))
        with pytest.raises(OutcomeUnknown, match="repeat the call"):
            await store._writer.run(fails)
        with pytest.raises(StoreError, match="open it again"):
            await Session(store).append_message(user("later"))
        assert [message.text for message in await Session(store).get_history()] == ["safe"]


class TestIndex:
    async def test_an_indexed_message_is_found_as_a_queued_one_is(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_messages([user(f"deployment number{n} 部署") for n in range(60)])
        queued = await session.search("deployed 部署", limit=100)
        await store.settle()
        assert store._connection.execute("SELECT count(*) FROM leafward_unindexed").fetchone() == (0,)
        assert await session.search("deployed 部署", limit=100) == queued
        assert len(queued) == 60

    async def test_old_words_and_deleted_messages_leave_the_index(self, store: SqliteStore) -> None:
        session = Session(store)
        one = await session.append_message(user("alpha", id="one"))
        await session.append_message(user("beta", id="two"))
        await store.settle()
        await session.update_message(user("gamma", id=one.id))
        await session.delete_messages(["two"])
        for word, hits in (("alpha", 0), ("beta", 0), ("gamma", 1)):
            assert len(await session.search(word)) == hits
        await store.settle()
        for word, hits in (("alpha", 0), ("beta", 0), ("gamma", 1)):
            found = store._connection.execute(
                "SELECT rowid FROM leafward_search WHERE leafward_search MATCH ?", (word,)
            )
            assert len(found.fetchall()) == hits
            assert len(await session.search(word)) == hits

    async def test_a_cleared_session_leaves_the_file_in_the_background(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_messages([user(f"secret{n}") for n in range(100)])
        await store.settle()
        await session.clear_messages()
        await session.append_message(user("fresh"))
        assert await session.search("secret5") == []
        await store.settle()
        assert store._connection.execute("SELECT count(*) FROM leafward_message").fetchone() == (1,)
        assert store._connection.execute("SELECT count(*) FROM leafward_tree").fetchone() == (1,)
        found = store._connection.execute(
            "SELECT rowid FROM leafward_search WHERE leafward_search MATCH 'secret5'"
        ).fetchall()
        assert found == []

    async def test_an_index_of_another_analyzer_is_made_anew(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            await Session(store).append_message(user("findable"))
            await store.settle()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE leafward_meta SET value = 'older' WHERE name = 'analyzer'")
            connection.execute("DELETE FROM leafward_search_data WHERE id > 10")
        connection.close()
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            assert len(await Session(store).search("findable")) == 1
            await store.settle()
            assert len(await Session(store).search("findable")) == 1

    async def test_a_damaged_index_is_noticed_and_made_anew(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("findable", id="one"))
        await store.settle()
        store._connection.execute("DELETE FROM leafward_search_data")
        assert len(await session.search("findable")) == 1
        await session.update_message(user("changed", id="one"))
        await store.settle()
        assert len(await session.search("changed")) == 1
        assert await session.search("findable") == []

    async def test_an_index_that_cannot_be_written_fails_no_write_and_is_told(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise sqlite3.OperationalError("no index today")

        monkeypatch.setattr("leafward.stores.sqlite.index.tokens_for", fails)
        session = Session(store)
        await session.append_message(user("still stored"))
        with pytest.raises(StoreError, match="no index today"):
            await store.settle()
        assert len(await session.search("stored")) == 1
        monkeypatch.undo()
        await session.append_message(user("again"))
        await store.settle()
        assert store._connection.execute("SELECT count(*) FROM leafward_unindexed").fetchone() == (0,)


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


class TestProcesses:
    async def test_two_stores_on_one_file_agree_at_once(self, store: SqliteStore, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as other:
            for n in range(10):
                await Session(store if n % 2 else other).append_message(user(f"m{n}"))
            texts = [f"m{n}" for n in range(10)]
            assert [message.text for message in await Session(store).get_history()] == texts
            assert [message.text for message in await Session(other).get_history()] == texts

    async def test_a_killed_parent_does_not_leave_its_lock_to_a_forked_child(self, path: Path) -> None:
        program = f"""
import asyncio, os, signal, time
from leafward import open_store
async def main():
    store = await open_store("sqlite:///{path}")
    store._lock.__enter__()
    if os.fork() == 0:
        os.setsid()
        time.sleep(30)
        os._exit(0)
    print("held", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""
        done = await asyncio.to_thread(
            subprocess.Popen, [sys.executable, "-W", "ignore", "-c", program], stdout=subprocess.PIPE
        )
        assert done.stdout is not None
        assert await asyncio.to_thread(done.stdout.readline) == b"held\n"
        async with asyncio.timeout(10), open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("not stuck"))
        done.stdout.close()
        await asyncio.to_thread(done.wait)

    async def test_an_unclosed_store_warns(self, path: Path) -> None:
        store = await open_store(f"sqlite:///{path}")
        with pytest.warns(ResourceWarning, match="not closed"):
            store.__del__()  # type: ignore[attr-defined]
        await store.close()


def test_the_schema_has_as_many_steps_as_fixtures() -> None:
    fixtures = sorted((Path(__file__).parent / "fixtures").glob("schema-*.sql"))
    assert len(fixtures) == len(schema.MIGRATIONS)


class TestOneFile:
    async def test_a_relative_store_stays_where_it_was_opened(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / "b")
        async with open_store("sqlite:///chat.db") as other:
            await Session(other).append_message(user("of b"))
        monkeypatch.chdir(tmp_path / "a")
        async with open_store("sqlite:///chat.db") as store:
            await Session(store).append_message(user("of a"))
            monkeypatch.chdir(tmp_path / "b")
            assert [message.text for message in await Session(store).get_history()] == ["of a"]

    async def test_a_link_to_a_store_is_that_store(self, store: SqliteStore, path: Path, tmp_path: Path) -> None:
        (tmp_path / "link.db").symlink_to(path)
        async with open_store(f"sqlite:///{tmp_path}/link.db") as linked:
            await Session(linked).append_message(user("through the link"))
        assert not (tmp_path / "link.db-lock").exists()
        assert [message.text for message in await Session(store).get_history()] == ["through the link"]

    async def test_a_link_to_nothing_yet_makes_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "link.db").symlink_to(tmp_path / "later.db")
        async with open_store(f"sqlite:///{tmp_path}/link.db") as store:
            await Session(store).append_message(user("hi"))
        assert (tmp_path / "later.db").exists()

    async def test_every_call_of_close_returns_when_the_file_is_let_go(self, path: Path) -> None:
        store = await open_store(f"sqlite:///{path}")
        await Session(store).append_message(user("hi"))
        await asyncio.gather(*(store.close() for _ in range(5)))
        assert sorted(file.name for file in path.parent.iterdir()) == ["chat.db", "chat.db-lock"]

    async def test_closing_does_not_wait_for_somebody_elses_read(self, path: Path) -> None:
        reader = None
        async with asyncio.timeout(20), open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("hi"))
            reader = sqlite3.connect(path)
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM leafward_message").fetchone()
        async with asyncio.timeout(20), open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("still writable"))
        reader.close()

    async def test_an_opening_that_is_cancelled_leaves_nothing_open(self, path: Path) -> None:
        for _ in range(20):
            opening = asyncio.ensure_future(asyncio.wait_for(open_store(f"sqlite:///{path}"), timeout=0.0005))
            await asyncio.gather(opening, return_exceptions=True)
            if not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store).append_message(user("hi"))


class TestTheLog:
    def log_size(self, path: Path) -> int:
        return (path.parent / f"{path.name}-wal").stat().st_size

    async def test_large_messages_are_copied_out_of_it(self, store: SqliteStore, path: Path) -> None:
        for _ in range(40):
            await Session(store).append_message(user("x" * 1_000_000))
        assert self.log_size(path) < 12_000_000

    async def test_reads_that_never_pause_do_not_let_it_grow_for_ever(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("leafward.stores.sqlite.upkeep.LARGEST_LOG", 2000)
        session = Session(store)
        await session.append_messages([user("x" * 1000) for _ in range(500)])
        done = False

        async def read() -> None:
            while not done:
                await session.get_history()

        readers = [asyncio.ensure_future(read()) for _ in range(3)]
        for _ in range(1500):
            await session.append_message(user("y" * 4000))
        done = True
        await asyncio.gather(*readers)
        # Without a restart it would hold every page of these writes, some 25 MB.
        assert self.log_size(path) < 20_000_000

    async def test_indexing_and_purging_leave_it_small(self, store: SqliteStore, path: Path) -> None:
        session = Session(store)
        await session.append_messages([user(f"word{n} " * 50) for n in range(2000)])
        await store.settle()
        await session.clear_messages()
        await store.settle()
        assert store._upkeep._uncopied < 1000
        assert self.log_size(path) < 20_000_000


class TestSlices:
    async def test_large_messages_are_indexed_one_at_a_time(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_messages([user(f"needle{n} " + "hay " * 30_000) for n in range(6)])
        slices: list[int] = []
        database = store._database
        original = database.run

        def counting(connection: sqlite3.Connection, operation: Any) -> Any:
            if operation.__name__ == "apply_slice":
                slices.append(sum(len(one.messages) for one in operation.gi_frame.f_locals["prepared"]))
            return original(connection, operation)

        database.run = counting  # type: ignore[method-assign]
        await store.settle()
        assert slices == [1] * 6
        assert len(await session.search("needle3")) == 1

    async def test_an_append_does_not_wait_for_a_slice_to_be_prepared(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        preparing, go = threading.Event(), threading.Event()

        def slow(*arguments: Any) -> str:
            preparing.set()
            assert go.wait(20)
            return "late"

        monkeypatch.setattr("leafward.stores.sqlite.index.tokens_for", slow)
        session = Session(store)
        await session.append_message(user("first"))
        assert await asyncio.to_thread(preparing.wait, 10)
        async with asyncio.timeout(5):
            for n in range(20):
                await session.append_message(user(f"m{n}"))
        go.set()
        monkeypatch.undo()

    async def test_a_message_that_is_no_json_is_told_and_holds_nothing_else_up(
        self, store: SqliteStore, path: Path
    ) -> None:
        session = Session(store)
        await session.append_messages([user("broken", id="bad"), user("findable", id="good")])
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE leafward_message SET body = '{oops' WHERE id = 'bad'")
        connection.close()
        await store.settle()
        assert [found.id for found in await session.search("findable")] == ["good"]
        with pytest.raises(CorruptStore, match="not JSON"):
            await session.get_history()
        assert (await session.get_message("good")) is not None

    async def test_a_damaged_index_is_made_anew_without_a_write(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("findable"))
        await store.settle()
        store._connection.execute("DELETE FROM leafward_search_data")
        assert len(await session.search("findable")) == 1
        await store.settle()
        rows = store._connection.execute("SELECT rowid FROM leafward_search WHERE leafward_search MATCH 'findabl'")
        assert len(rows.fetchall()) == 1

    async def test_two_versions_on_one_file_do_not_rebuild_in_turns(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("findable"))
        await store.settle()
        for _ in range(3):
            store._connection.execute("UPDATE leafward_meta SET value = 'another version' WHERE name = 'analyzer'")
            await session.append_message(user("findable too"))
            await store.settle()
        analyzer = store._connection.execute("SELECT value FROM leafward_meta WHERE name = 'analyzer'").fetchone()
        assert analyzer == ("another version",)
        assert len(await session.search("findable")) == 4


class TestScopes:
    async def test_a_cursor_opens_no_other_session(self, store: SqliteStore) -> None:
        bob, eve = Session(store, "bob"), Session(store, "eve")
        await bob.append_messages([user(f"secret {n}") for n in range(4)])
        await eve.append_message(user("mine"))
        page = await store.messages.path_page(Scope.of("bob"), limit=2)
        assert page.next is not None
        stolen = await store.messages.path_page(Scope.of("eve"), cursor=page.next, limit=10)
        assert stolen.messages == []

    async def test_a_search_over_an_owner_sees_all_sessions_of_that_owner_only(self, store: SqliteStore) -> None:
        for session_id, user_id in (("one", "alice"), ("two", "alice"), ("one", "bob"), ("one", None)):
            session = Session(store, session_id, user_id=user_id)
            await session.append_message(user(f"deployment of {user_id} in {session_id}"))
        await Session(store, "two", user_id="alice").clear_messages()
        await Session(store, "three", user_id="alice").append_message(user("deployed by alice"))
        for _ in range(2):
            found = await store.messages.search(
                Owner("default", "alice"), parse_query("deploy"), only=SearchFilter(), limit=10
            )
            assert sorted(result.session_id for result in found) == ["one", "three"]
            await store.settle()

    async def test_many_matches_of_others_are_passed_over(self, store: SqliteStore) -> None:
        await Session(store, "crowd", user_id="bob").append_messages([user("common word") for _ in range(2500)])
        mine = Session(store, "mine", user_id="alice")
        await mine.append_messages([user(f"common {n}") for n in range(1200)])
        await store.settle()
        assert len(await mine.search("common", limit=5000)) == 1200
        found = await store.messages.search(
            Owner("default", "alice"), parse_query("common"), only=SearchFilter(), limit=2
        )
        assert [result.session_id for result in found] == ["mine", "mine"]


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
