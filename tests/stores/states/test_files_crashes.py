"""Whenever a process is killed or a disk is full, there is what was stored or what was to be, and never some of it."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, nullcontext, suppress
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pytest

from leafward import StaleState, StateDecodeError, StorageFull, StoreError, open_store
from leafward.core.errors import OutcomeUnknown
from leafward.stores import JsonFileAgentStateStore, Slot
from leafward.stores.files import state_lists as lists
from leafward.stores.files import writing
from leafward.stores.files.folder import Folder
from leafward.stores.files.state_tree import StateTree
from leafward.stores.files.states import StateFiles
from tests.stores.states.killing import ROOT, kill_savers

S = Slot(None, "s")
HASH = "76dead55"
Step = Callable[[StateFiles], object]


class Crash(BaseException):
    pass


@contextmanager
def crashing(after: int) -> Generator[list[int]]:
    """Let the system take so many calls that change something, tear the next in two and take none afterwards."""
    left = [after]
    patch = pytest.MonkeyPatch()

    def counted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **options)
            if left[0] == 0 and name == "pwrite":
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], arguments[2])
            left[0] -= 1
            if left[0] < 0:
                raise Crash
            return real(*arguments, **options)

        return call

    for name in ("pwrite", "rename", "unlink", "mkdir", "rmdir", "ftruncate", "fsync", "open"):
        patch.setattr(os, name, counted(name))
    try:
        yield left
    finally:
        patch.undo()


def seen(files: StateFiles, names: list[str]) -> list[object]:
    """Return all there is to see of some names."""
    found: list[object] = [files.exists(S)]
    for name in names:
        for look in (files.get, files.get_list):
            try:
                what: Any = look(S, name)
            except StateDecodeError as error:
                what = error.reason
            found.append((what[0].split(), what[1]) if isinstance(what, tuple) else what)
    return found


SCENES: dict[str, tuple[list[Step], Step]] = {
    "a first value": ([], lambda f: f.put(S, "x", '{"n":1}', None)),
    "a first list": ([], lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":2}'])),
    "a value again": ([lambda f: f.put(S, "x", '{"n":1}', None)], lambda f: f.put(S, "x", '{"n":2}', 1)),
    "a value over a list": (
        [lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":2}'])],
        lambda f: f.put(S, "x", '{"n":2}', None),
    ),
    "a list over a value": (
        [lambda f: f.put(S, "x", '{"n":1}', None)],
        lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":2}']),
    ),
    "one line more": (
        [lambda f: f.put_list(S, "x", ['{"n":1}'])],
        lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":2}']),
    ),
    "some lines more": (
        [lambda f: f.put_list(S, "x", ['{"n":1}'])],
        lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":2}', '{"n":3}', '{"n":4}']),
    ),
    "other lines": (
        [lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":2}'])],
        lambda f: f.put_list(S, "x", ['{"n":1}', '{"n":3}']),
    ),
    "no lines": ([lambda f: f.put_list(S, "x", ['{"n":1}'])], lambda f: f.put_list(S, "x", [])),
    "a name that goes": (
        [lambda f: f.put_list(S, "x", ['{"n":1}']), lambda f: f.put(S, "y", "{}", None)],
        lambda f: f.drop(S, "x"),
    ),
    "a slot that goes": (
        [lambda f: f.put_list(S, "x", ['{"n":1}']), lambda f: f.put(S, "y", "{}", None)],
        lambda f: f.drop(S, None),
    ),
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "states"


def texts(files: StateFiles) -> list[str]:
    return [one if isinstance(one, str) else one.decode() for one in files.get_list(S, "x")]


def opened(root: Path) -> StateFiles:
    files = StateFiles(StateTree(Folder(str(root), synced=True), ()), "1.x", legacy=True)
    files.clear()
    return files


class TestEveryCall:
    @pytest.mark.parametrize("scene", SCENES)
    @pytest.mark.parametrize("theirs", [False, True])
    def test_a_crash_before_any_call_leaves_the_old_or_the_new(self, root: Path, scene: str, theirs: bool) -> None:
        prepare, step = SCENES[scene]
        outcomes: list[object] = []
        for after in range(200):
            where = root / str(after)
            files = opened(where)
            for one in prepare:
                one(files)
            mark = where / "s" / "x.hash"
            if theirs and mark.exists():
                mark.write_text(HASH)
            old, lines = seen(files, ["x", "y"]), _bytes(where / "s" / "x.jsonl")
            with crashing(after) as left, suppress(Crash):
                step(files)
            finished = left[0] >= 0
            if mark.exists() and mark.read_text() == HASH:
                assert _bytes(where / "s" / "x.jsonl") == lines
            files = opened(where)
            outcomes.append(seen(files, ["x", "y"]))
            # What is there already is no longer at the version it was to be saved at.
            with suppress(StaleState):
                step(files)
            assert not [path.name for path in where.iterdir() if path.name.startswith(".leafward")]
            if finished:
                new = outcomes[-1]
                assert outcomes.count(old) + outcomes.count(new) == len(outcomes)
                assert old != new
                assert after > 1
                return
        pytest.fail("it never ends")

    def test_a_crash_in_a_migration_leaves_all_or_nothing(self, root: Path) -> None:
        blob = '{"memory":{"messages":[{"role":"user","content":"hi"}]},"toolkit":{"activeGroups":[]},"own":{"n":1}}'
        names = ["memory_messages", "toolkit_activeGroups", "own"]
        for after in range(200):
            where = root / str(after)
            where.mkdir(parents=True)
            (where / "s.json").write_text(blob)
            files = opened(where)
            with crashing(after) as left, suppress(Crash):
                files.get(S, "own")
            finished = left[0] >= 0
            made = {path.name for path in (where / "s").glob("*.json*")} if (where / "s").exists() else set()
            found = seen(opened(where), names)
            assert found[0] is True
            assert None not in found
            assert (where / "s.json").read_text() == blob
            if finished:
                assert len(made) == 3
                return
        pytest.fail("it never ends")

    def test_a_plan_that_leads_elsewhere_is_refused(self, tmp_path: Path, root: Path) -> None:
        precious = tmp_path / "precious"
        precious.write_text("x")
        opened(root)
        for plan in ('{"move":[],"remove":[["..","precious"]],"leave":[]}', '{"remove":7}', "x"):
            (root / ".leafward.plan").write_text(plan)
            with pytest.raises(StoreError, match="remove it"):
                opened(root)
        assert precious.exists()


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


OLD = ['{"n":1}', '{"n":"å∂"}']
MORE = ['{"n":3}', '{"text":"walnut"}', '{"n":5}']


class TestTornAppends:
    @pytest.mark.parametrize("more", [MORE, MORE[:1]])
    @pytest.mark.parametrize("old", [OLD, []])
    def test_an_append_that_was_cut_off_anywhere_is_none(self, root: Path, old: list[str], more: list[str]) -> None:
        files = opened(root)
        files.put_list(S, "x", old)
        path, mark = root / "s/x.jsonl", root / "s/x.hash"
        start, whole = lists.to_lines(old), lists.to_lines([*old, *more])
        for cut in range(len(start), len(whole) + 1):
            path.write_bytes(whole[:cut])
            mark.write_text(lists.appending(len(start), more))
            expected = [*old, *more] if cut >= len(whole) - 1 else old
            assert texts(files) == expected
            files.put_list(S, "x", [*old, *more, '{"last":1}'])
            assert path.read_bytes() == whole + b'{"last":1}\n'
            assert mark.read_text().removesuffix(" after append") == lists.mark_of(path.read_bytes())

    def test_an_append_of_which_blocks_are_missing_is_none(self, root: Path) -> None:
        files = opened(root)
        files.put_list(S, "x", OLD)
        path, mark = root / "s/x.jsonl", root / "s/x.hash"
        start, whole = lists.to_lines(OLD), lists.to_lines([*OLD, *MORE])
        for begin in range(len(start), len(whole)):
            for end in (begin + 1, begin + 5, len(whole)):
                path.write_bytes(whole[:begin] + b"\0" * (min(end, len(whole)) - begin) + whole[end:])
                mark.write_text(lists.appending(len(start), MORE))
                found = texts(files)
                assert found == OLD or (begin == len(whole) - 1 and found == [*OLD, *MORE])

    @pytest.mark.parametrize(
        "edited",
        [
            [*OLD, MORE[0], '{"n":"mine"}'],
            [*OLD, '{"n":"mine"}'],
            [OLD[0], '{"n":"mine"}', *MORE[:2]],
            ['{"n":"much longer than it was before"}', *MORE[:1]],
            [*OLD, *MORE, '{"n":"mine"}'],
            ['{"n":0}'],
        ],
    )
    def test_lines_that_somebody_wrote_are_kept(self, root: Path, edited: list[str]) -> None:
        files = opened(root)
        files.put_list(S, "x", OLD)
        (root / "s/x.hash").write_text(lists.appending(len(lists.to_lines(OLD)), MORE))
        (root / "s/x.jsonl").write_bytes(lists.to_lines(edited))
        os.utime(root / "s/x.jsonl", (0, 0))
        assert texts(files) == edited

    def test_a_list_that_ended_with_an_append_may_be_shortened_by_hand(self, root: Path) -> None:
        files = opened(root)
        files.put_list(S, "x", OLD)
        files.put_list(S, "x", [*OLD, *MORE])
        (root / "s/x.jsonl").write_bytes(lists.to_lines([*OLD, *MORE[:2]]))
        os.utime(root / "s/x.jsonl", (0, 0))
        assert len(files.get_list(S, "x")) == 4

    def test_only_what_is_new_is_written(self, root: Path) -> None:
        files = opened(root)
        files.put_list(S, "x", OLD)
        path = root / "s/x.jsonl"
        before = path.stat().st_ino
        for count in (1, 2, 3):
            files.put_list(S, "x", [*OLD, *MORE[:count]])
        assert path.stat().st_ino == before
        files.put_list(S, "x", MORE)
        assert path.stat().st_ino != before


class TestPowerCuts:
    POOL: ClassVar = [[], ["1"], ["1", "2"], ["1", "2", "3"], ["2"]]

    @pytest.mark.parametrize("theirs", [False, True])
    def test_no_mark_that_may_be_left_hides_what_was_saved(
        self, root: Path, theirs: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number, saved in enumerate(product(self.POOL, repeat=3)):
            place = root / str(number) / "s"
            files = opened(place.parent)
            files.put_list(S, "x", ["1"])
            if theirs:
                (place / "x.hash").write_text(HASH)
            with monkeypatch.context() as patch:
                left = marks_on_disk(place / "x.hash", patch)
                for texts_of in saved:
                    files.put_list(S, "x", texts_of)
            os.utime(place / "x.jsonl", (0, 0))
            for mark in left:
                (place / "x.hash").write_bytes(mark)
                assert texts(files) == saved[-1], (saved, mark)

    def test_several_lines_are_appended_behind_a_mark_that_is_on_disk(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files, path = opened(root), root / "s/x.jsonl"
        files.put_list(S, "x", ["1"])
        left = marks_on_disk(root / "s/x.hash", monkeypatch)
        seen, pwrite = list[list[bytes]](), os.pwrite

        def noted(number: int, data: bytes, place: int) -> int:
            if path.stat().st_ino == os.fstat(number).st_ino:
                seen.append([*left])
            return pwrite(number, data, place)

        monkeypatch.setattr(os, "pwrite", noted)
        files.put_list(S, "x", ["1", "2", "3"])
        assert seen == [[lists.appending(2, ["2", "3"]).encode()]]

    def test_nor_does_one_after_an_append_that_a_killed_process_did_not_end(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files, mark = opened(root), root / "s/x.hash"
        files.put_list(S, "x", ["1", "2", "3"])
        mark.write_text(lists.appending(2, ["2", "3"]))
        with monkeypatch.context() as patch:
            left = marks_on_disk(mark, patch)
            files.put_list(S, "x", ["1", "2", "3", "4"])
        os.utime(root / "s/x.jsonl", (0, 0))
        for one in left:
            mark.write_bytes(one)
            assert texts(files) == ["1", "2", "3", "4"], one


def marks_on_disk(path: Path, patch: pytest.MonkeyPatch) -> list[bytes]:
    """Return what may be left of a mark if the power is cut now: what was flushed last, and all that came later."""
    left = [path.read_bytes()]

    def noted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(number: int, *arguments: Any) -> Any:
            found = real(number, *arguments)
            if path.stat().st_ino == os.fstat(number).st_ino:
                if name == "fsync":
                    left.clear()
                left.append(path.read_bytes())
            return found

        return call

    patch.setattr(os, "fsync", noted("fsync", lambda _: None))
    for name in ("pwrite", "ftruncate"):
        patch.setattr(os, name, noted(name, getattr(os, name)))
    return left


class TestFullDisks:
    @pytest.mark.parametrize("scene", [scene for scene in SCENES if "goes" not in scene])
    def test_nothing_is_lost_and_it_is_told(self, root: Path, scene: str, monkeypatch: pytest.MonkeyPatch) -> None:
        prepare, step = SCENES[scene]
        pwrite = os.pwrite
        for room in range(20):
            where = root / str(room)
            files = opened(where)
            for one in prepare:
                one(files)
            old = seen(files, ["x"])
            left = room

            def full(number: int, data: bytes, place: int) -> int:
                nonlocal left
                left -= 1
                if left < 0:
                    pwrite(number, data[: len(data) // 2], place)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return pwrite(number, data, place)

            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", full)
                try:
                    step(files)
                except StorageFull:
                    assert seen(files, ["x"]) == old
                    assert not [path.name for path in where.iterdir() if path.name.startswith(".leafward")]
                else:
                    if left >= 0:
                        return
            if seen(files, ["x"]) == old:
                step(files)
        pytest.fail("it never fits")

    def test_a_failed_fsync_is_an_unknown_outcome(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        files = opened(root)
        files.put_list(S, "x", OLD)
        files.put_list(S, "x", [*OLD, MORE[0]])

        def fail(*_: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with monkeypatch.context() as patch:
            patch.setattr(Folder, "sync", fail)
            with pytest.raises(OutcomeUnknown):
                files.put_list(S, "x", [*OLD, MORE[0], MORE[1]])
            with pytest.raises(StoreError):
                files.put(S, "y", "{}", None)
        assert files.get(S, "y") is None

    @pytest.mark.parametrize("failing", range(12))
    def test_a_directory_that_cannot_be_made_durable_costs_nothing(
        self, root: Path, failing: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = opened(root)
        files.put_list(S, "x", OLD)
        sync, left = Folder.sync_names, failing

        def fail(self: Folder, parts: Any) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(self, parts)

        with monkeypatch.context() as patch:
            patch.setattr(Folder, "sync_names", fail)
            with suppress(OutcomeUnknown):
                files.put(S, "x", '{"n":1}', None)
        try:
            found = files.get(S, "x")
        except StateDecodeError:
            assert len(files.get_list(S, "x")) == 2
        else:
            assert found is not None


class TestOfAStore:
    async def test_a_state_is_saved_once_when_what_it_was_to_be_committed_with_failed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with open_store(f"file:///{tmp_path}") as store:
            commit, failed = writing.Journals.commit, 0

            def fails(self: writing.Journals, connection: Any) -> None:
                nonlocal failed
                if not failed:
                    failed += 1
                    raise StorageFull("a journal")
                commit(self, connection)

            monkeypatch.setattr(writing.Journals, "commit", fails)
            saves = [store.states.save_if_version(f"s{n}", "a", {"n": n}, 0) for n in range(8)]
            assert await asyncio.gather(*saves) == [1] * 8
            assert failed == 1

    async def test_a_cancelled_save_is_whole_or_not_there(self, tmp_path: Path) -> None:
        items = [{"n": n} for n in range(300)]
        async with open_store(f"file:///{tmp_path}") as store:
            for delay in range(12):
                task = asyncio.ensure_future(store.states.save_list(f"s{delay}", "list", items))
                for _ in range(delay):
                    await asyncio.sleep(0.0003)
                task.cancel()
                with pytest.raises(asyncio.CancelledError) if not task.done() else nullcontext():
                    await task
                before = await store.states.get_list(f"s{delay}", "list")
                assert before in ([], items)
                await asyncio.sleep(0.005)
                assert await store.states.get_list(f"s{delay}", "list") == before

    async def test_what_a_killed_process_left_is_cleared(self, tmp_path: Path) -> None:
        async with open_store(f"file:///{tmp_path}") as store:
            await store.states.save("s", "a", {"n": 1})
        left = tmp_path / ".states/.leafward.new0"
        left.write_text("{")
        async with open_store(f"file:///{tmp_path}") as store:
            assert not left.exists()
            assert await store.states.get("s", "a") == {"n": 1}

    async def test_states_outlive_the_index(self, tmp_path: Path) -> None:
        async with open_store(f"file:///{tmp_path}") as store:
            await store.states.save("s", "a", {"n": 1})
            for path in tmp_path.glob("index.sqlite*"):
                path.unlink()
            assert await store.states.save_if_version("s", "a", {"n": 2}, 1) == 2
        async with open_store(f"file:///{tmp_path}") as store:
            assert await store.states.get_versioned("s", "a") == ({"n": 2}, 2)


RACER = """
import asyncio, sys
from leafward import StaleState
from leafward.stores import JsonFileAgentStateStore
async def main():
    async with JsonFileAgentStateStore(sys.argv[1]) as states:
        for _ in range(25):
            while True:
                value, version = await states.get_versioned("s", "count")
                try:
                    await states.save_if_version("s", "count", {"n": (value or {"n": 0})["n"] + 1}, version)
                    break
                except StaleState:
                    continue
asyncio.run(main())
"""


class TestProcesses:
    async def test_two_at_once_lose_no_save(self, root: Path) -> None:
        children = [subprocess.Popen([sys.executable, "-c", RACER, str(root)], cwd=ROOT) for _ in range(2)]
        for child in children:
            assert await asyncio.to_thread(child.wait, 60) == 0
        async with JsonFileAgentStateStore(root) as states:
            assert await states.get_versioned("s", "count") == ({"n": 50}, 50)

    @pytest.mark.fault
    async def test_a_killed_saver_leaves_the_old_list_or_the_new(self, root: Path) -> None:
        assert await kill_savers(root, 20) > 20
