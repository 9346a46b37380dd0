"""A journal that lost what was acknowledged says so; it is never taken for one that was shorter all along.

One whose last write is torn goes on without it; any other waits for a repair. One that lost every line is not taken for
a session that does not exist.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from leafward import CorruptStore, Message, MessageNotFound, Session, SessionManager, StoreError, user
from leafward.core.ids import Scope
from leafward.stores.entries import Shelf
from leafward.stores.files import FileStore
from leafward.stores.files.writing import Journals
from leafward.stores.registry import Origin
from tests.stores.files_store import drop_index, fill, journal, opened, shared_journal, texts, types


def overwrite(path: Path, data: bytes) -> None:
    """Change what a file holds; it stays the same file."""
    inode = path.stat().st_ino
    path.write_bytes(data)
    assert path.stat().st_ino == inode


def replace(path: Path, data: bytes) -> None:
    """Put another file in the place of one."""
    other = path.with_name("other")
    other.write_bytes(data)
    other.replace(path)


def flipped(data: bytes) -> bytes:
    return data[:-60] + bytes([data[-60] ^ 1]) + data[-59:]


def without_last_line(data: bytes) -> bytes:
    return data[: data.rindex(b"\n", 0, -1) + 1]


TEARS: dict[str, Callable[[bytes], bytes]] = {
    "a bit of the last line": flipped,
    "the end of the last line": lambda data: data[:-9],
    "all but a byte of the last line": lambda data: data[: len(without_last_line(data)) + 1],
    "the last line, with zeros in its place": lambda data: without_last_line(data).ljust(len(data), b"\0"),
    "the last line, with a torn write after it": lambda data: flipped(data) + b'{"type":"mess',
}
LOSSES: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "the last line": (without_last_line, 4),
    "the last two lines": (lambda data: without_last_line(without_last_line(data)), 3),
}
UNREADABLE: dict[str, Callable[[bytes], bytes]] = {
    "all but the beginning of the first line": lambda data: data[:13],
    "every byte": lambda data: bytes(len(data)),
    "all": lambda data: b"",
    "all but a line break": lambda data: b"\n",
}


async def picture(store: FileStore) -> dict[str, Any]:
    """What can be told of the session."""
    session, owner = Session(store, "s"), Scope.of("s").owner
    return {
        "texts": await texts(store),
        "found": sorted(found.id for found in await session.search("walnut", limit=9)),
        "leaf": await session.get_latest_leaf(),
        "version": await session.get_version(),
        "tree": await session.get_tree(),
        "listed": await store.registry.list(owner, limit=None, cursor=None),
    }


def torn_tails(path: Path) -> list[bytes]:
    return [one.read_bytes() for one in sorted(path.parent.glob(f"{path.name}.torn-*"))]


@pytest.mark.parametrize("what", TEARS)
async def test_a_torn_end_is_moved_aside_though_it_was_acknowledged(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        await fill(store, count=4)
        before, whole = await picture(store), path.read_bytes()
        await Session(store, "s").append_message(user("walnut 4", id="m4"))
        assert len(await texts(other)) == 5
        left = TEARS[what](path.read_bytes())
        overwrite(path, left)

        assert await picture(other) == before
        assert await picture(store) == before

        assert path.read_bytes() == whole
        assert torn_tails(path) == [left[len(whole) :]]
        [told] = caplog.records
        assert told.levelname == "ERROR"
        assert all(one in told.getMessage() for one in (f"{path} ", "acknowledged", "line 6 ", f"{path.name}.torn-1"))
        assert await store.damage() == []
        assert (await store.repair("s")).repaired is False
        await Session(store, "s").append_message(user("on", id="on"))
        await Session(other, "s").append_message(user("and on"))
        after = await picture(store)
        assert after["texts"] == [*before["texts"], "on", "and on"]
    drop_index(tmp_path)
    async with opened(tmp_path) as store:
        assert await picture(store) == after


async def test_a_batch_that_lost_its_last_line_is_torn_though_it_was_acknowledged(tmp_path: Path) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=2)
        whole = path.read_bytes()
        await Session(store, "s").append_messages([user("one"), user("two"), user("three")])
        left = without_last_line(path.read_bytes())
        overwrite(path, left)

        assert await texts(store) == ["walnut 0", "walnut 1"]

        assert torn_tails(path) == [left[len(whole) :]]
        await Session(store, "s").append_message(user("on"))
    assert types(path) == ["session", "message", "message", "message"]


async def test_an_append_is_the_first_to_find_a_torn_end(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=3)
    os.truncate(journal(tmp_path), journal(tmp_path).stat().st_size - 10)

    async with opened(tmp_path) as store:
        await Session(store, "s").append_message(user("on"))
        assert await texts(store) == ["walnut 0", "walnut 1", "on"]


async def test_a_torn_end_is_cut_for_good_also_when_the_index_cannot_note_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=3)
        overwrite(path, path.read_bytes()[:-9])

        def fails(self: Journals, connection: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(Journals, "commit", fails)
            with pytest.raises(StoreError):
                await texts(store)
        assert len(torn_tails(path)) == 1

        assert await texts(store) == ["walnut 0", "walnut 1"]
        assert await store.damage() == []
        await Session(store, "s").append_message(user("on"))


async def test_a_loss_that_was_told_is_not_made_good_by_a_torn_write_after_it(tmp_path: Path) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=3)
        overwrite(path, without_last_line(path.read_bytes()))
        assert len(await texts(store)) == 2
        left = path.read_bytes() + b'{"type":"mess'
        overwrite(path, left)

        with pytest.raises(CorruptStore, match="line 4 "):
            await Session(store, "s").append_message(user("no"))
        assert path.read_bytes() == left


async def test_a_shared_journal_that_is_torn_goes_on_though_it_was_acknowledged(tmp_path: Path) -> None:
    shelf = Shelf(Scope.of("s"), "facts", shared=True)
    async with opened(tmp_path) as store:
        for n in range(3):
            await store.entries.edit(shelf, f"k{n}", lambda _, n=n: f"fact {n}")
        path = shared_journal(tmp_path)
        overwrite(path, path.read_bytes()[:-9])

        assert [await store.entries.get(shelf, f"k{n}") is not None for n in range(3)] == [True, True, False]
        await store.entries.edit(shelf, "k3", lambda _: "yes")
        assert len(torn_tails(path)) == 1
    drop_index(tmp_path)
    async with opened(tmp_path) as store:
        assert [await store.entries.get(shelf, f"k{n}") is not None for n in range(4)] == [True, True, False, True]


@pytest.mark.parametrize("what", LOSSES)
async def test_losing_what_was_acknowledged_is_damage(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=5)
    path, (lose, count) = journal(tmp_path), LOSSES[what]
    before = path.read_bytes()
    left = lose(before)
    whole = [f"walnut {n}" for n in range(count)]
    line = count + 2
    overwrite(path, left)

    async with opened(tmp_path) as store:
        for _ in range(2):
            assert await texts(store) == whole
            [told] = await store.damage()
            assert told.startswith(f"{path}: line {line} (byte ")
            assert "acknowledged" in told
            with pytest.raises(CorruptStore, match=rf"line {line} .*store\.repair\("):
                await Session(store, "s").append_message(user("no"))
            # It is not forgotten when the file is looked at again.
            os.utime(path)
        assert path.read_bytes() == left
        assert [one.name for one in path.parent.iterdir()] == [path.name]
        assert "nobody was told" not in caplog.text

        report = await store.repair("s")

        assert report.repaired
        assert [Path(one).read_bytes() for one in report.kept] == [left]
        await Session(store, "s").append_message(user("on"))
        assert await texts(store) == [*whole, "on"]
        assert await store.damage() == []
    drop_index(tmp_path)
    async with opened(tmp_path) as store:
        assert await texts(store) == [*whole, "on"]


@pytest.mark.parametrize("what", LOSSES)
async def test_what_was_lost_can_be_put_back(tmp_path: Path, what: str) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=5)
        path = journal(tmp_path)
        before = path.read_bytes()
        overwrite(path, LOSSES[what][0](before))
        assert len(await store.damage()) == 0
        assert len(await texts(store)) == LOSSES[what][1]
        assert len(await store.damage()) == 1

        overwrite(path, before)

        assert len(await texts(store)) == 5
        assert await store.damage() == []
        await Session(store, "s").append_message(user("on"))


async def test_what_was_torn_can_be_put_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=5)
        path = journal(tmp_path)
        before = path.read_bytes()
        overwrite(path, before[:-9])
        assert len(await texts(store)) == 4

        overwrite(path, path.read_bytes() + torn_tails(path)[0] + before[-9:])

        assert len(await texts(store)) == 5
        await Session(store, "s").append_message(user("on"))


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("indexed", [True, False])
async def test_a_journal_without_a_sound_line_is_no_empty_session(tmp_path: Path, what: str, indexed: bool) -> None:
    path, owner = journal(tmp_path), Scope.of("s").owner
    async with opened(tmp_path) as store:
        await fill(store, count=2)
        await fill(store, "other", count=2)
    left = UNREADABLE[what](path.read_bytes())
    overwrite(path, left)
    if not indexed:
        drop_index(tmp_path)

    async with opened(tmp_path) as store, opened(tmp_path) as other:
        for _ in range(2):
            for call in calls(store):
                with pytest.raises(CorruptStore, match=rf"^{path} line 1 .*nothing of it can be read.*store\.repair\("):
                    await call
            # It is not forgotten when the file is looked at again.
            os.utime(path)
        with pytest.raises(CorruptStore, match="line 1 "):
            await texts(other)
        assert [one.startswith(f"{path}: line 1 (byte 0) ") for one in await store.damage()] == [True]
        assert [info.id for info in await store.registry.list(owner, limit=None, cursor=None)] == ["other"]
        manager = SessionManager(store)
        assert {found.session_id for found in await manager.search("walnut")} == {"other"}
        assert len(await texts(store, "other")) == 2
        assert path.read_bytes() == left

        report = await store.repair("s")

        assert report.repaired
        assert [Path(one).read_bytes() for one in report.kept] == [left]
        assert await texts(store) == []
        await Session(store, "s").append_message(user("first"))
        assert await texts(other) == ["first"]
    assert types(path) == ["session", "message"]


def calls(store: FileStore) -> list[Coroutine[Any, Any, Any]]:
    """What reads a session, or writes to it."""
    session, manager = Session(store, "s"), SessionManager(store)
    return [
        session.get_history(),
        session.get_message("m0"),
        session.get_tree(),
        session.get_version(),
        session.search("walnut"),
        manager.get("s"),
        manager.get_history("s"),
        manager.export_session("s"),
        manager.fork("s", "m0", "Copy"),
        session.append_message(user("no")),
        store.registry.create(Scope.of("s"), Origin("no")),
    ]


@pytest.mark.parametrize("what", UNREADABLE)
@pytest.mark.parametrize("noticed", [True, False])
async def test_a_session_without_a_sound_line_can_be_removed(tmp_path: Path, what: str, noticed: bool) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        for remove in (store.registry.delete, store.registry.erase):
            await fill(store, count=2)
            await store.settle()
            overwrite(path, UNREADABLE[what](path.read_bytes()))
            if noticed:
                with pytest.raises(CorruptStore):
                    await texts(store)

            assert await remove(Scope.of("s"))

            assert list(path.parent.iterdir()) == []
            assert await texts(store) == []
            assert await store.damage() == []
        assert not any(b"walnut" in one.read_bytes() for one in tmp_path.rglob("*") if one.is_file())


async def test_an_erasure_of_a_session_without_a_sound_line_says_that_it_was_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=2)
        overwrite(journal(tmp_path), b"")

        assert (await store.registry.erase(Scope.of("s"))).erased
        assert not (await store.registry.erase(Scope.of("s"))).erased


@pytest.mark.parametrize("what", UNREADABLE)
async def test_a_journal_that_lost_every_line_can_be_put_back(tmp_path: Path, what: str) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=3)
        before = path.read_bytes()
        overwrite(path, UNREADABLE[what](before))
        with pytest.raises(CorruptStore):
            await texts(store)

        overwrite(path, before)

        assert len(await texts(store)) == 3
        assert await store.damage() == []
        await Session(store, "s").append_message(user("on"))


async def test_a_shorter_journal_put_in_its_place_is_the_truth_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=2)
        backup = path.read_bytes()
        await Session(store, "s").append_message(user("later"))
        replace(path, backup)

        with caplog.at_level(logging.WARNING):
            assert await texts(store) == ["walnut 0", "walnut 1"]
            assert await texts(store) == ["walnut 0", "walnut 1"]

        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert str(path) in caplog.text
        assert "less than was acknowledged" in caplog.text
        assert await store.damage() == []
        await Session(store, "s").append_message(user("on"))
        assert await texts(store) == ["walnut 0", "walnut 1", "on"]


async def test_an_unreadable_file_put_in_its_place_is_damage(tmp_path: Path) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=2)
        before = path.read_bytes()
        replace(path, bytes(len(before)))
        with pytest.raises(CorruptStore, match="line 1 "):
            await texts(store)
        assert [one.startswith(f"{path}: line 1 ") for one in await store.damage()] == [True]
        replace(path, before)
        assert len(await texts(store)) == 2
        assert await store.damage() == []


async def test_damage_in_the_middle_and_a_loss_at_the_end_are_both_told(tmp_path: Path) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=5)
        overwrite(path, without_last_line(path.read_bytes().replace(b"walnut 1", b"walnut X")))

        assert await texts(store) == ["walnut 0", "walnut 2", "walnut 3"]

        assert [one.split(" (byte ")[0] for one in await store.damage()] == [f"{path}: line {n}" for n in (3, 6)]
        assert len((await store.repair("s")).lost) == 2


async def test_the_same_journal_put_in_its_place_is_nothing_to_tell(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = journal(tmp_path)
    async with opened(tmp_path) as store:
        await fill(store, count=2)
        replace(path, path.read_bytes())
        assert len(await texts(store)) == 2
    assert caplog.records == []


async def test_a_shared_journal_that_lost_its_last_line_is_damaged(tmp_path: Path) -> None:
    shelf = Shelf(Scope.of("s"), "facts", shared=True)
    async with opened(tmp_path) as store:
        for n in range(3):
            await store.entries.edit(shelf, f"k{n}", lambda _, n=n: f"fact {n}")
        path = shared_journal(tmp_path)
        overwrite(path, without_last_line(path.read_bytes()))

        assert [await store.entries.get(shelf, f"k{n}") is not None for n in range(3)] == [True, True, False]
        assert [one.startswith(f"{path}: line 4 ") for one in await store.damage()] == [True]
        with pytest.raises(CorruptStore, match="line 4 "):
            await store.entries.edit(shelf, "k3", lambda _: "no")
        assert (await store.repair("s")).repaired
        await store.entries.edit(shelf, "k3", lambda _: "yes")


async def test_a_write_that_fails_takes_nothing_from_one_that_shares_its_commit(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store, count=2)
    shutil.copy(tmp_path / "index.sqlite", tmp_path / "kept")
    async with opened(tmp_path) as store:
        await Session(store, "s").append_message(user("later", id="later"))
        await store.entries.edit(Shelf(Scope.of("s"), "facts", shared=True), "k", lambda _: "a fact")
    drop_index(tmp_path)
    (tmp_path / "kept").rename(tmp_path / "index.sqlite")

    async with opened(tmp_path) as store:
        session, queued = Session(store, "s"), threading.Event()
        writer = store._runner.engine.parts.writer
        busy = asyncio.ensure_future(writer.run(lambda _: queued.wait(20)))
        writes = [session.append_message(user("no"), parent_id="nowhere"), session.append_message(user("on"))]
        waiting = [asyncio.ensure_future(one) for one in writes]
        async with asyncio.timeout(20):
            while writer._queue.qsize() < 2:  # noqa: ASYNC110  (a queue of threads has no event to wait for)
                await asyncio.sleep(0)
        queued.set()

        outcomes = await asyncio.gather(*waiting, return_exceptions=True)

        assert await busy
        assert [type(outcome) for outcome in outcomes] == [MessageNotFound, Message]
        assert await texts(store) == ["walnut 0", "walnut 1", "later", "on"]
