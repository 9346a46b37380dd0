"""Erasing a session from a directory of journals: no byte of it is left in any file."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from leafward import Session, StoreError, user
from leafward.core.ids import Scope
from leafward.stores.entries import Shelf
from leafward.stores.files import FileStore, writing
from leafward.stores.files.folder import Folder, Parts
from tests.stores import canaries
from tests.stores.canaries import CANARIES, VICTIMS
from tests.stores.files_store import fill, journal, opened, shared_journal, texts


def left(directory: Path) -> set[str]:
    """Return what canaries are left in which files."""
    found: set[str] = set()
    for file in directory.rglob("*"):
        data = file.read_bytes().lower() if file.is_file() else str(file).encode()
        found |= {f"{kind} in {file.name}" for kind, canary in CANARIES.items() if canary[2:12].encode() in data}
    return found


@pytest.mark.parametrize("settled", [True, False])
async def test_no_byte_is_left_and_others_are_whole(tmp_path: Path, settled: bool) -> None:
    async with opened(tmp_path, durability="process") as store:
        await canaries.fill(cast(Any, store), 6, rounds=40)
        if settled:
            await store.settle()
        assert {one.split(" in ")[0] for one in left(tmp_path)} == set(CANARIES)
        before = await canaries.others(cast(Any, store))

        for scope in VICTIMS:
            report = await store.registry.erase(scope)
            assert report.erased
            assert "backups and other copies of the directory" in report.not_reached
            assert not any("database file" in one for one in report.not_reached)

        assert left(tmp_path) == set()
        assert await canaries.others(cast(Any, store)) == before
    assert left(tmp_path) == set()
    async with opened(tmp_path) as store:
        for scope in VICTIMS:
            assert await texts(store, scope.session_id, user_id=scope.owner.user_id) == []
            assert not (await store.registry.erase(scope)).erased


async def test_what_was_kept_beside_a_journal_goes_with_it(tmp_path: Path) -> None:
    chance = random.Random(1)
    async with opened(tmp_path) as store:
        session = Session(store, "s")
        for n in range(4):
            await session.append_message(canaries.canary_message(chance, n))
        await fill(store, "s.log.jsonl", count=1)
    path = journal(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"call-1", b"call-X", 1))
    async with opened(tmp_path) as store:
        assert (await store.repair("s")).repaired
    with path.open("ab") as file:
        file.write(CANARIES["text"].encode())
    async with opened(tmp_path) as store:
        assert len(await texts(store)) == 3
        names = sorted(one.name for one in path.parent.iterdir())
        assert names == ["s.log.jsonl", "s.log.jsonl.damaged-1", "s.log.jsonl.log.jsonl", "s.log.jsonl.torn-1"]

        await store.registry.erase(Scope.of("s"))

        assert [one.name for one in path.parent.iterdir()] == ["s.log.jsonl.log.jsonl"]
        assert left(tmp_path) == set()
        assert list((tmp_path / ".unfinished").iterdir()) == []


@pytest.mark.parametrize("there", [True, False])
async def test_what_a_killed_removal_left_goes_with_the_next_erasure(tmp_path: Path, there: bool) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        # Another process was killed after its commit.
        (tmp_path / ".unfinished" / "gone").write_bytes(journal(tmp_path).read_bytes())
        if not there:
            assert await store.registry.delete(Scope.of("s"))

        assert (await store.registry.erase(Scope.of("s"))).erased is there

        assert list((tmp_path / ".unfinished").iterdir()) == []


async def test_what_a_failed_commit_takes_back_is_not_removed_with_an_erasure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as store:
        for name in ("s", "other"):
            await fill(store, name)
        before = journal(tmp_path, "other").read_bytes()

        def fails(self: writing.Journals, connection: sqlite3.Connection) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with monkeypatch.context() as patch:
            patch.setattr(writing.Journals, "commit", fails)
            calls = [store.registry.delete(Scope.of("other")), store.registry.erase(Scope.of("s"))]
            for outcome in await asyncio.gather(*calls, return_exceptions=True):
                assert isinstance(outcome, StoreError)

        assert journal(tmp_path, "other").read_bytes() == before
        assert (len(await texts(store)), len(await texts(store, "other"))) == (4, 4)


async def keep_three_torn_tails(store: FileStore, path: Path) -> None:
    """Have three files kept beside a journal."""
    for n in range(3):
        with path.open("ab") as file:
            file.write(b"torn %d" % n)
        assert len(await texts(store)) == 4


async def test_deleting_a_session_does_not_look_at_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        path = journal(tmp_path)
        await keep_three_torn_tails(store, path)
        assert len(list(path.parent.iterdir())) == 4
        looked: list[Parts] = []
        with monkeypatch.context() as patch:
            patch.setattr(Folder, "names", lambda self, parts: looked.append(parts) or [])
            assert await store.registry.delete(Scope.of("s"))

        assert looked == []
        assert list(path.parent.iterdir()) == []


async def test_an_erasure_also_finds_what_is_kept_behind_a_gap(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        path = journal(tmp_path)
        await keep_three_torn_tails(store, path)
        path.with_name(f"{path.name}.torn-2").unlink()

        assert (await store.registry.erase(Scope.of("s"))).erased

        assert list(path.parent.iterdir()) == []


async def test_what_an_erasure_does_not_reach_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        await store.registry.fork(Scope.of("s"), "m1", Scope.of("fork"), "Copy")
        await store.entries.edit(Shelf(Scope.of("s"), "facts", shared=True), "", lambda _: "shared walnut")

        report = await store.registry.erase(Scope.of("s"))

        told = "; ".join(report.not_reached)
        assert "the session 'fork', which was made from it" in told
        assert "'facts'" in told
        assert "the disk" in told
        assert b"shared walnut" in shared_journal(tmp_path).read_bytes()


async def test_a_deleted_session_leaves_no_file_and_can_begin_anew(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await fill(store)
        incarnation = journal(tmp_path).read_bytes().splitlines()[0]
        assert await store.registry.delete(Scope.of("s"))
        assert not journal(tmp_path).exists()
        assert not await store.registry.delete(Scope.of("s"))
        await Session(store, "s").append_message(user("new"))
        assert await texts(store) == ["new"]
    assert journal(tmp_path).read_bytes().splitlines()[0] != incarnation
    async with opened(tmp_path) as store:
        assert await texts(store) == ["new"]
