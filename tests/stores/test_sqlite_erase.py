"""Erasing a session from a SQLite file: no byte of it is left, and nobody else notices."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import struct
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leafward import CorruptStore, Session, open_store, user
from leafward.core.ids import Scope
from leafward.stores.entries import Shelf
from leafward.stores.registry import Origin
from leafward.stores.sql import registry
from leafward.stores.sqlite import SqliteStore, purge, rawfile, scrub
from tests.stores.canaries import (
    CANARIES,
    SEEDS,
    VICTIMS,
    check_sound,
    end,
    fill,
    left,
    others,
    run_child,
    soil,
    touch_all,
)
from tests.stores.sqlite_store import rows


class TestWhatIsLeft:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("settled", [True, False])
    async def test_no_byte_is_left_and_others_are_whole(
        self, store: SqliteStore, path: Path, seed: int, settled: bool
    ) -> None:
        await fill(store, seed)
        if settled:
            await store.settle()
        planted = {found.split(" in ")[0] for found in left(path.parent)}
        assert planted == set(CANARIES)
        before = await others(store)

        for scope in VICTIMS:
            report = await store.registry.erase(scope)
            assert report.erased
            assert not any("-wal" in one for one in report.not_reached)

        assert left(path.parent) == {}
        assert await others(store) == before
        for scope in VICTIMS:
            assert await Session(store, scope.session_id, user_id=scope.owner.user_id).get_history() == []
        await store.close()
        assert left(path.parent) == {}
        check_sound(path)

    async def test_nothing_comes_back_with_later_changes(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            await fill(store, 6)
            await store.settle()
        soil(path)
        async with open_store(f"sqlite:///{path}") as other, open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            assert isinstance(other, SqliteStore)
            # Both remember pages now, with what these hold without use.
            await touch_all(other)
            await touch_all(store)
            for scope in VICTIMS:
                await store.registry.erase(scope)
            for opened in (store, other):
                assert left(path.parent) == {}
                await touch_all(opened)
                await opened.settle()
            assert left(path.parent) == {}
        check_sound(path)

    async def test_messages_that_were_cleared_before_go_as_well(self, store: SqliteStore, path: Path) -> None:
        await fill(store, 2, rounds=20)
        for scope in VICTIMS:
            session = Session(store, scope.session_id, user_id=scope.owner.user_id)
            await session.clear_messages()
            await session.append_message(user("after the clearing"))
            await store.registry.erase(scope)
        assert left(path.parent) == {}

    async def test_a_plain_delete_leaves_most_of_it(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            await fill(store, 0)
            await store.settle()
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("PRAGMA secure_delete = OFF")
            for table in ("message", "label", "overlay", "session", "shelf", "entry", "entry_word", "prompt", "change"):
                database.execute(f"DELETE FROM leafward_{table}")
        found = {found.split(" in ")[0] for found in left(path.parent)}
        assert found >= {"text", "input", "result", "metadata", "id", "summary", "block", "entry", "prompt"}

    async def test_overwriting_what_sqlite_deletes_would_not_be_enough(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrub, "_is_suspect", lambda page: False)
        remains: dict[str, int] = {}
        for seed in SEEDS:
            directory = path.parent / str(seed)
            async with open_store(f"sqlite:///{directory}/chat.db", durability="process") as store:
                assert isinstance(store, SqliteStore)
                await fill(store, seed)
                for scope in VICTIMS:
                    await store.registry.erase(scope)
                remains |= left(directory)
        assert remains


class TestBesideOthers:
    async def test_another_process_goes_on_writing_and_nothing_is_left(self, store: SqliteStore, path: Path) -> None:
        await fill(store, 6, rounds=40)
        program = """
async def main():
    async with open_store(f"sqlite:///{path}") as store:
        session, number = Session(store, "busy"), 0
        waiting = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while not waiting.done():
            await session.append_message(user(f"busy {number}"))
            number += 1
            await Session(store, "chat-0", user_id="bob").get_history()
            if number == 20:
                print("busy", flush=True)
        print(number, len(await session.get_history()), flush=True)
asyncio.run(main())
"""
        child = run_child(program, path)
        try:
            assert child.stdout is not None
            assert child.stdin is not None
            assert await asyncio.to_thread(child.stdout.readline) == "busy\n"
            for scope in VICTIMS:
                report = await store.registry.erase(scope)
                assert not any("-wal" in one for one in report.not_reached)
            assert left(path.parent) == {}
            child.stdin.write("stop\n")
            child.stdin.flush()
            written, read = (await asyncio.to_thread(child.stdout.readline)).split()
            assert written == read
            assert await asyncio.to_thread(child.wait, 30) == 0
        finally:
            end(child)
        assert left(path.parent) == {}
        await store.close()
        check_sound(path)

    async def test_erasures_that_run_at_once_all_reach_everything(self, store: SqliteStore, path: Path) -> None:
        await fill(store, 6)
        async with open_store(f"sqlite:///{path}") as other:
            reports = await asyncio.gather(
                store.registry.erase(VICTIMS[0]),
                other.registry.erase(VICTIMS[1]),
                store.registry.erase(Scope.of("chat-4", user_id="bob")),
                store.registry.erase(Scope.of("chat-4", user_id="bob")),
            )
            assert sorted(report.erased for report in reports) == [False, True, True, True]
            assert left(path.parent) == {}
        await store.close()
        check_sound(path)

    async def test_writes_and_reads_of_the_same_store_go_on(self, store: SqliteStore, path: Path) -> None:
        await fill(store, 6)
        session = Session(store, "busy")
        erasing = asyncio.ensure_future(store.registry.erase(VICTIMS[0]))
        number = 0
        while not erasing.done():
            await session.append_message(user(f"busy {number}"))
            number += 1
            assert len(await session.get_history()) == number
        await store.registry.erase(VICTIMS[1])
        assert left(path.parent) == {}

    async def test_somebody_elses_long_read_is_told_and_the_next_opening_finishes(
        self, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(scrub, "PATIENCE_S", 0.3)
        await fill(store, 6, rounds=20)
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM leafward_message").fetchone()
            reports = [await store.registry.erase(scope) for scope in VICTIMS]
            assert all(report.erased for report in reports)
            assert all(any("chat.db-wal" in one for one in report.not_reached) for report in reports)
            assert left(path.parent)
            await Session(store, "chat-0", user_id="bob").append_message(user("still writable"))
        await store.close()
        async with open_store(f"sqlite:///{path}") as again:
            assert isinstance(again, SqliteStore)
            await again.settle()
            assert left(path.parent) == {}
        check_sound(path)

    async def test_sqlites_locks_survive_the_close_of_a_store_that_erased(self, store: SqliteStore, path: Path) -> None:
        await fill(store, 6, rounds=10)
        async with open_store(f"sqlite:///{path}") as other:
            await other.registry.erase(VICTIMS[0])
        # The bytes that SQLite locks for as long as a connection is open; the try must be another process's.
        program = """
import fcntl
with open(path, "r+b") as file:
    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
    except BlockingIOError: print("locked")
    else: print("free")
"""
        assert run_child(program, path).communicate(timeout=30)[0] == "locked\n"
        await store.close()
        assert run_child(program, path).communicate(timeout=30)[0] == "free\n"
        assert rawfile._held == {}


class TestInterrupted:
    @pytest.mark.parametrize(
        "moment", ["_begin", "_join", "_empty_log", "_wipe", "_overwrite", "_overwrite_page", "_finish"]
    )
    def test_a_kill_leaves_a_sound_store_and_the_next_opening_finishes(self, path: Path, moment: str) -> None:
        program = f"""
import os, signal
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
async def main():
    async with open_store(f"sqlite:///{{path}}") as store:
        await fill(store, 6)
        await store.registry.erase(VICTIMS[0])
        scrub.Scrubber.{moment} = die
        await store.registry.erase(VICTIMS[1])
asyncio.run(main())
"""
        child = run_child(program, path)
        assert child.wait(60) == -signal.SIGKILL
        end(child)
        assert rows(path, "SELECT count(*) FROM leafward_session WHERE session_id IN ('chat-2', 'chat-5')") == [(0,)]

        async def reopen() -> None:
            async with open_store(f"sqlite:///{path}") as store:
                assert isinstance(store, SqliteStore)
                await store.settle()
                assert left(path.parent) == {}
                assert len(await Session(store, "chat-4", user_id="bob").get_history()) == 60

        asyncio.run(reopen())
        check_sound(path)

    async def test_a_cancelled_erasure_is_finished_all_the_same(self, store: SqliteStore, path: Path) -> None:
        await fill(store, 6)
        for scope in VICTIMS:
            revision = await store.messages.revision(scope)
            erasing = asyncio.ensure_future(store.registry.erase(scope))
            async with asyncio.timeout(20):
                await store.messages.wait(scope, revision)
            erasing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await erasing
        await store.settle()
        assert left(path.parent) == {}

    async def test_an_erasure_that_meets_a_damaged_page_says_so(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            await fill(store, 6, rounds=10)
            await store.registry.erase(VICTIMS[0])
            data = bytearray(path.read_bytes())
        pages = [at for at in range(4096, len(data), 4096) if data[at] == 13]
        with path.open("r+b") as file:
            file.seek(pages[-1] + 5)
            file.write(struct.pack(">H", 9))
        async with open_store(f"sqlite:///{path}") as store:
            with pytest.raises(CorruptStore):
                await store.registry.erase(VICTIMS[1])


class TestTheReport:
    async def test_a_session_that_is_not_there_is_not_erased(self, store: SqliteStore) -> None:
        report = await store.registry.erase(Scope.of("nobody"))
        assert (report.session_id, report.erased, report.not_reached) == ("nobody", False, [])

    async def test_it_names_what_was_made_from_the_session_and_what_it_was_made_from(self, store: SqliteStore) -> None:
        scopes = {name: Scope.of(name) for name in ("root", "fork", "leaf", "cousin", "other")}
        await Session(store, "root").append_message(user("hi", id="m1"))
        for source, target in (("root", "fork"), ("fork", "leaf"), ("root", "cousin")):
            await store.registry.fork(scopes[source], "m1", scopes[target], target)
        await store.registry.create(scopes["other"], Origin("other", parent_session_id="nobody"))
        told = " / ".join((await store.registry.erase(scopes["fork"])).not_reached)
        assert "the session 'root', which it was made from" in told
        assert "the session 'leaf', which was made from it" in told
        assert "cousin" not in told
        assert "other'" not in told

    async def test_sessions_that_name_each_other_as_parents_are_named_once(self, store: SqliteStore) -> None:
        for name, parent in (("a", "b"), ("b", "a")):
            await store.registry.create(Scope.of(name), Origin(name, parent_session_id=parent))
        assert sum("'b'" in one for one in (await store.registry.erase(Scope.of("a"))).not_reached) == 1

    async def test_it_names_shared_blocks_which_stay(self, store: SqliteStore) -> None:
        shelf = Shelf(Scope.of("chat"), "facts", shared=True)
        await store.entries.edit(shelf, "", lambda _: "likes tea")
        report = await store.registry.erase(Scope.of("chat"))
        assert any("share: 'facts'" in one for one in report.not_reached)
        entry = await store.entries.get(shelf)
        assert entry is not None
        assert entry.content == "likes tea"

    async def test_it_says_that_backups_are_not_reached(self, store: SqliteStore) -> None:
        await Session(store, "chat").append_message(user("hi"))
        told = (await store.registry.erase(Scope.of("chat"))).not_reached
        assert any("backups" in one for one in told)
        assert any("file system" in one for one in told)

    async def test_it_says_when_a_file_is_laid_out_otherwise(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA auto_vacuum = FULL")
            database.execute("CREATE TABLE mine (x)")
        async with open_store(f"sqlite:///{path}") as store:
            await Session(store, "chat").append_message(user("hi"))
            report = await store.registry.erase(Scope.of("chat"))
        assert any("auto_vacuum" in one for one in report.not_reached)
        assert rows(path, "SELECT count(*) FROM leafward_meta WHERE name = 'erasing'") == [(0,)]


async def test_a_tree_is_dropped_only_when_nothing_of_it_is_left(store: SqliteStore, path: Path) -> None:
    # What one process read to be removed may be gone because another is at the same tree, and not the last of it.
    await Session(store, "s").append_messages([user(f"m{n}") for n in range(60)])
    scope = Scope.of("s")
    runner: Any = store.messages._runner  # pyright: ignore[reportPrivateUsage]
    tree_no = await runner._commit(lambda: registry.delete(scope))
    await runner._commit(lambda: purge.apply(purge.DiscardedTree(tree_no, [])))
    await store.settle()

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM leafward_message").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM leafward_tree").fetchone() == (0,)
