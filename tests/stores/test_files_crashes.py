"""Kills, full disks and failing disks: what was acknowledged is there, once, and nothing is there by halves."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leafward import Message, OutcomeUnknown, Session, StorageFull, StoreError, open_store, user
from leafward.core.ids import Scope
from leafward.stores.contracts import Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Shelf
from leafward.stores.files import FileStore, writing
from leafward.stores.files.folder import Folder, Parts
from leafward.stores.files.journal_places import home
from leafward.stores.journal.lines import read
from tests.stores.files_store import drop_index, end, fill, journal, opened, said, shared_journal, start, texts, types

S = Scope.of("s")


@contextmanager
def crashing(monkeypatch: pytest.MonkeyPatch, when: Callable[[str], bool]) -> Generator[None]:
    """Let the disk take no further write of a journal, nor undo one, from the first whose name tells `when`."""
    dead = False
    move, extend = Folder.move, writing.Journals._extend

    def check(name: str) -> None:
        nonlocal dead
        dead = dead or when(name)
        if dead:
            raise OSError(errno.EIO, "crashed")

    def moves(self: Folder, parts: Parts, to: Parts, **options: Any) -> None:
        check(to[-1])
        move(self, parts, to, **options)

    def extends(self: writing.Journals, key: Any) -> Any:
        check(home(key)[-1])
        return extend(self, key)

    def undoes(self: writing.Journals) -> None:
        self._forget()

    with monkeypatch.context() as patch:
        patch.setattr(Folder, "move", moves)
        patch.setattr(writing.Journals, "_extend", extends)
        patch.setattr(writing.Journals, "undo", undoes)
        yield


class TestTwoJournals:
    @pytest.mark.parametrize("indexed", [True, False])
    async def test_a_crash_between_the_shared_and_the_own_journal_is_made_good(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
    ) -> None:
        shelf = Shelf(S, "facts", shared=True)
        async with opened(tmp_path) as store:
            await fill(store, count=2)
            await store.entries.edit(shelf, "a", lambda _: "one")
            written = 0

            def second(name: str) -> bool:
                nonlocal written
                written += name == "s.log.jsonl"
                return written == 2

            with crashing(monkeypatch, second), pytest.raises(StoreError):
                await store.entries.edit(shelf, "b", lambda _: "two")
        assert types(shared_journal(tmp_path)) == ["shared", "shared_context", "shared_context"]
        assert types(journal(tmp_path)).count("shared_change") == 1
        if not indexed:
            drop_index(tmp_path)

        async with opened(tmp_path) as store:
            entry = await store.entries.get(shelf, "b")
            assert entry is not None
            assert entry.content == "two"
            if indexed:
                assert (await store.messages.revision(S)).version == 4
                assert types(journal(tmp_path)).count("shared_change") == 2
            await store.entries.edit(shelf, "b", lambda _: "three")
            assert (await store.messages.changes(S, 3)).records[-1].kind == "context"

    async def test_a_shared_text_of_a_session_that_was_deleted_brings_it_not_back(self, tmp_path: Path) -> None:
        shelf = Shelf(S, "facts", shared=True)
        async with opened(tmp_path) as store:
            await store.entries.edit(shelf, "a", lambda _: "one")
            assert await store.registry.delete(S)
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert await store.entries.get(shelf, "a") is not None
            assert await store.registry.get(S) is None
            assert await store.registry.count(S.owner) == 0

    @pytest.mark.parametrize("indexed", [True, False])
    async def test_a_crash_in_a_split_ends_the_old_session_later(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indexed: bool
    ) -> None:
        first = Draft(*Message("user", "go on").sealed(), 2)
        async with opened(tmp_path) as store:
            await fill(store, count=2)
            with crashing(monkeypatch, lambda name: name == "s.log.jsonl"), pytest.raises(StoreError):
                await store.registry.split(S, Scope.of("next"), None, first)
        assert types(journal(tmp_path)) == ["session", "message", "message"]
        assert types(journal(tmp_path, "next")) == ["session", "restore", "message"]
        if not indexed:
            drop_index(tmp_path)

        async with opened(tmp_path) as store:
            assert await texts(store, "next") == ["go on"]
            info = await store.registry.get(S)
            assert info is not None
            assert info.end_reason == "compaction"
        assert types(journal(tmp_path)) == ["session", "message", "message", "end"]

    async def test_a_crash_while_a_fork_is_written_leaves_nothing_to_see(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=2)
            with crashing(monkeypatch, lambda name: name == "fork.log.jsonl"), pytest.raises(StoreError):
                await store.registry.fork(S, "m1", Scope.of("fork"), "Copy")
        assert len(list((tmp_path / ".unfinished").iterdir())) == 1

        async with opened(tmp_path) as store:
            assert await store.registry.get(Scope.of("fork")) is None
            assert list((tmp_path / ".unfinished").iterdir()) == []
            assert not journal(tmp_path, "fork").exists()


class TestFailingDisks:
    async def test_a_write_that_the_index_refuses_is_taken_out_of_the_journal(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=2)
            before = journal(tmp_path).read_bytes()
            connection = store._runner.engine.parts._connection
            connection.execute("PRAGMA max_page_count = 1")

            writes = [Session(store, name).append_message(user("x" * 50_000)) for name in ("s", "s", "new")]
            for outcome in await asyncio.gather(*writes, return_exceptions=True):
                assert isinstance(outcome, StorageFull)

            assert journal(tmp_path).read_bytes() == before
            assert not journal(tmp_path, "new").exists()
            assert await texts(store) == ["walnut 0", "walnut 1"]
            connection.execute("PRAGMA max_page_count = 1000000")
            await Session(store, "s").append_message(user("on"))
            assert await texts(store) == ["walnut 0", "walnut 1", "on"]

    async def test_usage_is_counted_once_when_writes_that_shared_a_commit_are_run_again(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=1)
            commit, failed = writing.Journals.commit, 0

            def fails_once(self: writing.Journals, connection: sqlite3.Connection) -> None:
                nonlocal failed
                if len(self._lines) > 1 and not failed:
                    failed += 1
                    self.write()
                    raise sqlite3.OperationalError("disk I/O error")
                commit(self, connection)

            monkeypatch.setattr(writing.Journals, "commit", fails_once)
            await asyncio.gather(*(store.registry.add_usage(S, Usage(1, 1, 0.5)) for _ in range(30)))
            assert failed == 1
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            info = await store.registry.get(S)
            assert info is not None
            assert info.input_tokens == 30
        assert types(journal(tmp_path)).count("usage") == 30

    async def test_a_failed_fsync_is_an_unknown_outcome_that_repeating_settles(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=1)
            session = Session(store, "s")
            with monkeypatch.context() as patch:
                patch.setattr(Folder, "sync", _fail)
                with pytest.raises(OutcomeUnknown):
                    await session.append_message(user("maybe", id="maybe"))
            with pytest.raises(StoreError, match="open it again"):
                await session.append_message(user("later"))
        async with opened(tmp_path) as store:
            await Session(store, "s").append_message(user("maybe", id="maybe"))
            assert await texts(store) == ["walnut 0", "maybe"]

    async def test_a_write_that_cannot_be_undone_is_an_unknown_outcome(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=1)
            with monkeypatch.context() as patch:
                patch.setattr(writing, "write_all", _full)
                patch.setattr(os, "ftruncate", _fail)
                with pytest.raises(OutcomeUnknown):
                    await Session(store, "s").append_message(user("maybe"))

    async def test_short_writes_are_continued(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", lambda number, data, place: pwrite(number, data[:7], place))
        async with opened(tmp_path) as store:
            await fill(store, count=3)
        assert types(journal(tmp_path)) == ["session", "message", "message", "message"]

    @pytest.mark.parametrize("limit", [20_000, 600_000, 1_000_000])
    async def test_a_full_disk_is_told_and_nothing_acknowledged_is_lost(self, tmp_path: Path, limit: int) -> None:
        program = """
import resource
async def main():
    stored = []
    async with opened(directory) as store:
        session = Session(store, "s")
        await session.append_message(user("first", id="first"))
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), hard))
        full = 0
        while full < 3:
            try:
                await session.append_message(user(f"{len(stored)} " + "x" * 3000, id=f"n{len(stored)}.{full}"))
                stored.append(f"n{len(stored)}.{full}")
            except StorageFull:
                full += 1
        read = [message.id for message in await session.get_history()]
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        await session.append_message(user("last", id="last"))
    print(read == ["first", *stored], ",".join(stored), flush=True)
asyncio.run(main())
"""
        child = start(program, tmp_path, [str(limit)])
        try:
            answer = await said(child)
        finally:
            end(child)
        whole, *rest = answer.split()
        stored = rest[0].split(",") if rest else []
        assert whole == "True"
        assert (len(stored) > 10) == (limit > 100_000)
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert [m.id for m in await Session(store, "s").get_history()] == ["first", *stored, "last"]
        assert not [one for one in journal(tmp_path).parent.iterdir() if "torn" in one.name]


def _fail(*_: object) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def _full(number: int, data: bytes, place: int) -> None:
    os.pwrite(number, data[:9], place)
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


WRITER = """
async def main():
    async with opened(directory, durability="process") as store:
        session, name = Session(store, "s"), sys.argv[1]
        for n in range(100000):
            text = f"{name} {n} " + "x" * (n * 37 % 900)
            await session.append_messages([user(text, id=f"{name}.{n}.{k}") for k in (0, 1)])
            os.write(1, f"{n}\\n".encode())
            if n == int(sys.argv[2]):
                break
asyncio.run(main())
"""


class TestProcesses:
    async def test_a_killed_writer_loses_nothing_it_acknowledged(self, tmp_path: Path) -> None:
        chance = random.Random(5)
        told: dict[str, int] = {}
        for name in ("a", "b", "c", "d"):
            child = start(WRITER, tmp_path, [name, "99999"])
            try:
                lines = [await said(child) for _ in range(chance.randint(3, 40))]
                child.send_signal(signal.SIGKILL)
                assert child.stdout is not None
                lines += child.stdout.read().split()
                told[name] = int(lines[-1])
            finally:
                end(child)
            if name == "c":
                drop_index(tmp_path)
            async with opened(tmp_path) as store:
                history = await Session(store, "s").get_history()
            ids = [message.id for message in history]
            assert len(set(ids)) == len(ids)
            for other, last in told.items():
                own = [one for one in ids if one.startswith(f"{other}.")]
                expected = [f"{other}.{n}.{k}" for n in range(last + 2) for k in (0, 1)]
                # One write may be stored whose writer died before it could tell.
                assert own in (expected[:-2], expected)
            assert read(journal(tmp_path).read_bytes()).torn is None

    async def test_two_processes_write_one_unbroken_chain(self, tmp_path: Path) -> None:
        children = [start(WRITER, tmp_path, [name, "30"]) for name in ("a", "b")]
        try:
            for child in children:
                assert await asyncio.to_thread(child.wait, 60) == 0
        finally:
            for child in children:
                end(child)
        for _ in range(2):
            async with opened(tmp_path) as store:
                session = Session(store, "s")
                history = await session.get_history()
                assert len(history) == 2 * 31 * 2
                assert [await session.get_parent(m.id) for m in history] == [None, *history[:-1]]
                for name in ("a", "b"):
                    own = [m.id for m in history if m.id.startswith(name)]
                    assert own == [f"{name}.{n}.{k}" for n in range(31) for k in (0, 1)]
            drop_index(tmp_path)
        assert read(journal(tmp_path).read_bytes()).damage == []

    async def test_many_sessions_are_written_by_two_stores_at_once(self, tmp_path: Path) -> None:
        url = f"file:///{tmp_path}"
        async with open_store(url) as one, open_store(url, durability="process") as other:
            assert isinstance(one, FileStore)
            assert isinstance(other, FileStore)
            assert (one.durability() in ("power", "process"), other.durability()) == (True, "process")
            await asyncio.gather(
                *(fill(store, f"s{n}", 5, user_id=f"{k}") for n in range(8) for k, store in enumerate((one, other)))
            )
            for n in range(8):
                for k, store in enumerate((other, one)):
                    assert len(await texts(store, f"s{n}", user_id=f"{k}")) == 5
