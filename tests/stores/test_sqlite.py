"""What is SQLite's own: its file, its lock, its log."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    ConfigurationError,
    CorruptStore,
    Session,
    StoreError,
    open_store,
    user,
)
from leafward.stores.sqlite import SqliteStore
from tests.stores.sqlite_store import rows


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
        assert [file.name for file in files] == [
            "chat.db",
            "chat.db-lock",
            "chat.db-lock-next",
            "chat.db-shm",
            "chat.db-wal",
        ]
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

    async def test_a_path_that_no_file_can_have_is_refused(self) -> None:
        with pytest.raises(ConfigurationError):
            await open_store("sqlite:///\ud800.db")

    async def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="directory"):
            await open_store(f"sqlite:///{tmp_path}")

    @pytest.mark.parametrize("options", [{"durability": "soon"}, {"table_prefix": "a;b"}, {"key_prefix": "a"}])
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
        assert sorted(file.name for file in path.parent.iterdir()) == ["chat.db", "chat.db-lock", "chat.db-lock-next"]


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
        assert sorted(file.name for file in path.parent.iterdir()) == ["chat.db", "chat.db-lock", "chat.db-lock-next"]

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


class TestBadFiles:
    @pytest.mark.parametrize("times", [1, 40, 500])
    async def test_a_file_that_is_no_database_is_left_alone(self, path: Path, times: int) -> None:
        path.write_bytes(b"dear diary, " * times)
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
        for page in range(48, len(data) // 4096):
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


class TestForks:
    def test_a_child_forked_from_a_busy_parent_can_open_the_file_anew(self, path: Path) -> None:
        program = f"""
import asyncio, os, sys, warnings
from leafward import Session, open_store, user
warnings.simplefilter("ignore")
async def anew(n):
    async with open_store("sqlite:///{path}") as store:
        await Session(store, f"child {{n}}").append_message(user("hi"))
        await Session(store, "parent").get_history()
async def main():
    async with open_store("sqlite:///{path}") as store:
        session = Session(store, "parent")
        writes = [asyncio.ensure_future(session.append_message(user("x" * 100_000))) for _ in range(200)]
        reads = [asyncio.ensure_future(session.get_history()) for _ in range(20)]
        children = []
        for n in range(6):
            await asyncio.sleep(0.01)
            child = os.fork()
            if child == 0:
                asyncio._set_running_loop(None)
                try:
                    asyncio.run(anew(n))
                    os._exit(0)
                except BaseException as error:
                    print("child:", repr(error), flush=True)
                    os._exit(1)
            children.append(child)
        codes = [os.waitpid(child, 0)[1] for child in children]
        await asyncio.gather(*writes, *reads)
        print(codes, len(await session.get_history()))
asyncio.run(main())
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=50, check=False)
        assert done.stdout.strip() == "[0, 0, 0, 0, 0, 0] 200", done.stdout + done.stderr


class TestOthersOnTheFile:
    async def test_a_file_that_was_removed_takes_no_more_writes(self, store: SqliteStore, path: Path) -> None:
        session = Session(store)
        await session.append_message(user("safe"))
        for file in path.parent.iterdir():
            file.unlink()
        with pytest.raises(StoreError, match="removed or replaced"):
            await session.append_message(user("would be lost"))
        assert not path.exists()

    async def test_a_locked_file_fails_all_that_waited_together(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("leafward.stores.sqlite.connection.BUSY_TIMEOUT_S", 0.5)
        async with open_store(f"sqlite:///{path}") as store:
            outside = sqlite3.connect(path, isolation_level=None)
            outside.execute("BEGIN IMMEDIATE")
            async with asyncio.timeout(10):
                writes = [asyncio.ensure_future(Session(store).append_message(user(f"m{n}"))) for n in range(20)]
                results = await asyncio.gather(*writes, return_exceptions=True)
            assert {type(result) for result in results} == {StoreError}
            outside.execute("ROLLBACK")
            outside.close()
            await Session(store).append_message(user("free again"))

    async def test_a_write_that_waits_for_a_locked_file_can_be_given_up(self, store: SqliteStore, path: Path) -> None:
        outside = sqlite3.connect(path, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await Session(store).append_message(user("given up"))
        outside.execute("ROLLBACK")
        outside.close()
        assert await Session(store).get_history() == []

    async def test_dropped_stores_let_go_of_their_threads_and_files(self, path: Path) -> None:
        async def drop() -> None:
            for _ in range(5):
                await open_store(f"sqlite:///{path}")
                gc.collect()

        before = threading.active_count()
        with pytest.warns(ResourceWarning):
            await drop()
        async with asyncio.timeout(20):
            while threading.active_count() > before + 2:  # noqa: ASYNC110
                await asyncio.sleep(0.02)


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
