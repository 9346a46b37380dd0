"""A directory that leafward never wrote to is read as it is: nothing is made in it, and it may be any user's."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from leafward import SessionKey, StaleState, StateDecodeError, StoreError
from leafward.core.errors import ConfigurationError
from leafward.importers.agentscope import migrate
from leafward.stores import InMemoryAgentStateStore, JsonFileAgentStateStore, JsonSession, Slot, WorkspaceSession
from leafward.stores.files import directory, seen_versions, unfinished
from leafward.stores.files.folder import Content, Folder, FolderAtOnce, Parts
from leafward.stores.files.names import decoded
from leafward.stores.files.read_tree import ReadTree
from tests.stores.states.killing import ROOT

NOBODY = 65534
SOMEBODY = 65533
GROUP = 65500
Open = Callable[[Path], JsonFileAgentStateStore]
STORES: dict[str, tuple[str, Open]] = {
    "JsonFileAgentStateStore": ("__anon__/s", JsonFileAgentStateStore),
    "JsonSession": ("s", JsonSession),
    "WorkspaceSession": ("agents/helper/context/s", lambda root: WorkspaceSession(root, "helper")),
}
stores = pytest.mark.parametrize("kind", STORES)
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def root() -> Generator[Path]:
    """A directory that other users can reach."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made / "states"
    for path in (made, *made.rglob("*")):
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(made)


def java_saves(place: Path, name: str, text: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / f"{name}.json").write_text(text)


def left_by_java(root: Path, kind: str) -> Path:
    """Make a session in Java's form and return its directory."""
    place = root / STORES[kind][0]
    java_saves(place, "notes", '{ "n" : 1 }')
    (place / "steps.jsonl").write_text('{"n":1}\n{"n":2}\n')
    (place / "steps.hash").write_text("76dead55")
    return place


def found(root: Path) -> dict[str, object]:
    """Return all there is to see of a directory and what is in it."""
    looks = {path: path.stat() for path in (root.parent, root, *root.rglob("*")) if path.exists()}
    return {
        str(path): (seen.st_mode, seen.st_mtime_ns, path.read_bytes() if path.is_file() else None)
        for path, seen in looks.items()
    }


@contextmanager
def as_another_user(number: int = NOBODY) -> Generator[None]:
    """Be a user that is not root, which may write everywhere."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(number)
    try:
        yield
    finally:
        os.seteuid(before)


def as_member(number: int, work: Callable[[], object]) -> int:
    """Do something in a process of a user that has a group of its own and is in `GROUP` as well; return its result."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([GROUP])
            os.setgid(number)
            os.setuid(number)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


async def read_all(states: JsonFileAgentStateStore) -> None:
    assert await states.get("s", "notes") == {"n": 1}
    assert await states.get_versioned("s", "notes") == ({"n": 1}, 1)
    assert await states.get_list("s", "steps") == [{"n": 1}, {"n": 2}]
    assert await states.exists("s")
    assert await states.list_session_keys() == {SessionKey("s")}
    assert await (await states._table()).names(Slot(None, "s")) == {"notes": False, "steps": True}
    assert await states.get("s", "never") is None
    assert await states.get_list("never", "steps") == []
    assert not await states.exists("never")
    with pytest.raises(StateDecodeError):
        await states.get("s", "steps")


class TestNoTrace:
    @stores
    async def test_reading_leaves_a_directory_as_it_is(self, root: Path, kind: str) -> None:
        left_by_java(root, kind)
        before = found(root)
        async with STORES[kind][1](root) as states:
            await read_all(states)
        assert found(root) == before

    @stores
    async def test_deleting_what_is_not_there_leaves_a_directory_as_it_is(self, root: Path, kind: str) -> None:
        left_by_java(root, kind)
        before = found(root)
        async with STORES[kind][1](root) as states:
            await states.delete("never")
            await states.delete("s", "never")
            assert not await (await states._table()).forget(Slot(None, "never"))
        assert found(root) == before

    @stores
    async def test_a_missing_directory_stays_missing_and_is_seen_once_it_is_there(self, root: Path, kind: str) -> None:
        async with STORES[kind][1](root) as states:
            assert await states.get("s", "notes") is None
            assert await states.get_list("s", "steps") == []
            assert not await states.exists("s")
            assert await states.list_session_keys() == set()
            await states.delete("s")
            assert not root.exists()
            left_by_java(root, kind)
            await read_all(states)
            shutil.rmtree(root)
            assert not await states.exists("s")

    async def test_a_directory_that_java_made_again_is_the_one_that_is_read(self, root: Path) -> None:
        left_by_java(root, "JsonSession")
        async with JsonSession(root) as states:
            await read_all(states)
            root.rename(root.with_name("aside"))
            java_saves(root / "s", "notes", '{"n":7}')
            assert await states.get("s", "notes") == {"n": 7}

    async def test_an_empty_directory_of_a_deleted_session_goes(self, root: Path) -> None:
        (root / "s").mkdir(parents=True)
        async with JsonSession(root) as states:
            await states.delete("s")
        assert not (root / "s").exists()

    async def test_a_file_in_place_of_the_directory_is_refused(self, root: Path) -> None:
        root.write_text("x")
        async with JsonSession(root) as states:
            with pytest.raises(ConfigurationError, match="is a file: name a directory"):
                await states.get("s", "notes")

    async def test_a_session_from_before_1_0_5_is_read_without_making_its_directory(self, root: Path) -> None:
        shutil.copytree(Path(__file__).parent / "fixtures" / "legacy", root)
        before = found(root)
        async with JsonSession(root) as states:
            assert await states.list_session_keys() == {SessionKey("real"), SessionKey("seed")}
            assert await states.exists("real")
            assert await states.get_versioned("real", "moodTracker") == ({"mood": "fine"}, 1)
            assert len(await states.get_list("seed", "memory_messages")) == 2
            assert "moodTracker" in await (await states._table()).names(Slot(None, "real"))
            await states.delete("real", "never")
            assert found(root) == before
            assert await states.save_if_version("real", "moodTracker", {"mood": "good"}, 1) == 2
            assert (root / "real/memory_messages.jsonl").exists()
            assert not (root / "seed").exists()


class TestRights:
    @stores
    async def test_a_read_only_directory_is_read(self, root: Path, kind: str) -> None:
        left_by_java(root, kind)
        for path in (root, *root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = found(root)
        with as_another_user():
            async with STORES[kind][1](root) as states:
                await read_all(states)
                with pytest.raises(StoreError, match="permissions"):
                    await states.save("s", "notes", {"n": 2})
                await read_all(states)
        assert found(root) == before

    async def test_a_read_only_directory_that_leafward_wrote_to_is_read(self, root: Path) -> None:
        async with JsonSession(root) as states:
            await states.save("s", "notes", {"n": 0})
            await states.save("s", "notes", {"n": 1})
        for path in (root, *root.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        with as_another_user():
            async with JsonSession(root) as states:
                assert await states.get_versioned("s", "notes") == ({"n": 1}, 2)
                with pytest.raises(StoreError):
                    await states.delete("s")
                assert await states.get_versioned("s", "notes") == ({"n": 1}, 2)

    @stores
    async def test_a_directory_that_others_can_write_to_is_read_and_written_with_one_warning(
        self, root: Path, kind: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        place = left_by_java(root, kind)
        for path in (root, *(path for path in root.rglob("*") if path.is_dir())):
            path.chmod(0o775)
        async with STORES[kind][1](root) as states:
            await read_all(states)
            assert caplog.records == []
            await states.save("s", "notes", {"n": 2})
            await states.save("t", "notes", {"n": 2})
            assert await states.get("s", "notes") == {"n": 2}
        [warning] = caplog.records
        assert (warning.name, warning.levelno) == ("leafward.stores.files", logging.WARNING)
        assert "can be written to by others" in warning.getMessage()
        assert "0700" in warning.getMessage()
        # Java may run as another user of the group.
        assert (place / "notes.json").stat().st_mode & 0o777 == 0o664
        assert (place.parent / "t").stat().st_mode & 0o777 == 0o775

    @only_root
    async def test_another_users_directory_is_read_and_what_root_writes_there_is_that_users(
        self, root: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        place = left_by_java(root, "JsonSession")
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        async with JsonSession(root) as states:
            await read_all(states)
            assert caplog.records == []
            await states.save("s", "notes", {"n": 2})
            await states.save_list("t", "steps", [{"n": 1}])
        [warning] = caplog.records
        assert "belongs to another user" in warning.getMessage()
        for path in (place / "notes.json", root / "t", root / "t/steps.jsonl"):
            assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)
        with as_another_user():
            (place / "notes.json").write_text('{"n": 3}')

    @pytest.mark.parametrize(
        ("hidden", "heading"), [("bob", "Failed"), ("alice/s1", "Left out"), ("alice/acme", "Left out")]
    )
    async def test_a_migration_names_what_it_may_not_read_and_moves_the_others(
        self, root: Path, hidden: str, heading: str
    ) -> None:
        for place in ("chat", "bob/s1", "alice/s1", "alice/acme"):
            java_saves(root / place, "notes", "{}")
        (root / hidden).chmod(0)
        with as_another_user():
            report = await migrate(root, InMemoryAgentStateStore())
        assert report.written == 1
        assert f"{heading}: {root / hidden}: {root / hidden} could not be read" in str(report)
        assert len([*report.failed, *report.left_out]) == 1

    @only_root
    async def test_all_who_may_write_to_a_shared_directory_can_save_there(self, root: Path) -> None:
        root.mkdir()
        root.chmod(0o777)
        for n, number in enumerate((NOBODY, SOMEBODY, NOBODY)):
            with as_another_user(number):
                async with JsonFileAgentStateStore(root) as states:
                    assert await states.get("s", "notes") == ({"n": n} if n else None)
                    await states.save("s", "notes", {"n": n + 1})
                    made = {path.name: path.stat().st_mode & 0o777 for path in root.glob(".leafward.sqlite*")}
                    kept = (f"{directory.LEASES}{ending}" for ending in ("", "-wal", "-shm", "-lock", "-lock-next"))
                    assert made == dict.fromkeys(kept, 0o666)

    @only_root
    @pytest.mark.parametrize("kind", ["JsonSession", "JsonFileAgentStateStore"])
    def test_members_of_a_group_save_in_turn_where_the_directory_does_not_pass_its_group_on(
        self, root: Path, kind: str
    ) -> None:
        place = left_by_java(root, kind)
        for path in (root, *root.rglob("*")):
            os.chown(path, NOBODY, GROUP)
            path.chmod(0o775 if path.is_dir() else 0o664)

        async def save(n: int) -> None:
            async with STORES[kind][1](root) as states:
                assert (await states.get("t", "notes") or {"n": 0}) == {"n": n}
                await states.save("t", "notes", {"n": n + 1})
                await states.save_list("s", "steps", [{"n": n}])
                assert {path.stat().st_gid for path in root.glob(".leafward.sqlite*")} == {GROUP}

        for n, number in enumerate((SOMEBODY, NOBODY, SOMEBODY)):
            assert as_member(number, lambda n=n: asyncio.run(save(n))) == 0
        assert {path.stat().st_gid for path in root.rglob("*")} == {GROUP}
        # As Java saves: in place, or through a file beside it.
        new = place.parent / "t"
        assert as_member(NOBODY, lambda: (new / "notes.json").write_text("{}")) == 0
        assert as_member(NOBODY, lambda: (new / "agent_state.json.tmp").write_text("{}")) == 0

    @only_root
    async def test_what_root_saves_in_another_users_directory_leaves_it_to_that_user(self, root: Path) -> None:
        root.mkdir()
        os.chown(root, NOBODY, NOBODY)
        async with JsonSession(root) as states:
            await states.save("s", "notes", {"n": 1})
            assert {path.stat().st_uid for path in root.glob(".leafward.sqlite*")} == {NOBODY}
        with as_another_user():
            async with JsonSession(root) as states:
                await states.save("s", "notes", {"n": 2})

    @only_root
    async def test_only_files_that_leafward_made_are_shared(self, root: Path) -> None:
        root.mkdir()
        os.chown(root, NOBODY, NOBODY)
        secret = root / f"{directory.LEASES}-lock"
        secret.write_text("of root")
        secret.chmod(0o600)
        async with JsonSession(root) as states:
            await states.save("s", "notes", {"n": 1})
        assert (secret.stat().st_uid, secret.stat().st_mode & 0o777) == (0, 0o600)

    @only_root
    async def test_a_versioned_read_needs_no_right_to_write_to_the_session(self, root: Path) -> None:
        place = left_by_java(root, "JsonFileAgentStateStore")
        before = found(root / "__anon__")
        root.chmod(0o777)
        with as_another_user():
            async with JsonFileAgentStateStore(root) as states:
                await states.save(SessionKey("mine", "bob"), "notes", {})
                for _ in range(2):
                    assert await states.get_versioned("s", "notes") == ({"n": 1}, 1)
                await read_all(states)
                with pytest.raises(StoreError, match="permissions"):
                    await states.save_if_version("s", "notes", {"n": 2}, 1)
        assert {name: look for name, look in found(root / "__anon__").items() if name != str(root)} == {
            name: look for name, look in before.items() if name != str(root)
        }
        with as_another_user():
            async with JsonFileAgentStateStore(root) as states:
                assert (await states.get_versioned("s", "notes")).version == 1
                os.seteuid(0)
                java_saves(place, "notes", '{"n":2}')
                os.seteuid(NOBODY)
                assert await states.get_versioned("s", "notes") == ({"n": 2}, 2)

    @pytest.mark.parametrize("reason", [errno.EPERM, errno.EROFS, errno.EXDEV, errno.EIO])
    async def test_a_version_is_remembered_where_the_system_refuses_to_note_it(
        self, root: Path, reason: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left_by_java(root, "JsonSession")
        async with JsonSession(root) as states:
            await states.save("t", "notes", {})

            def refused(self: Folder, *_: object, **__: object) -> None:
                raise OSError(reason, os.strerror(reason))

            monkeypatch.setattr(Folder, "move", refused)
            if reason == errno.EIO:
                with pytest.raises(StoreError, match=os.strerror(reason)):
                    await states.get_versioned("s", "notes")
            else:
                assert await states.get_versioned("s", "notes") == ({"n": 1}, 1)


class TestVersions:
    async def test_saves_of_java_after_a_read_are_noticed(self, root: Path) -> None:
        place = root / "__anon__/s"
        java_saves(place, "notes", '{"n":"a"}')
        async with JsonFileAgentStateStore(root) as states:
            _, version = await states.get_versioned("s", "notes")
            java_saves(place, "notes", '{"n":"b"}')
            java_saves(place, "notes", '{"n":"c"}')
            with pytest.raises(StaleState):
                await states.save_if_version("s", "notes", {"n": "ours"}, version)
            assert await states.get_versioned("s", "notes") == ({"n": "c"}, 2)
            assert await states.save_if_version("s", "notes", {"n": "ours"}, 2) == 3

    async def test_each_content_that_was_read_has_its_version(self, root: Path) -> None:
        place = root / "__anon__/s"
        async with JsonFileAgentStateStore(root) as states:
            for n in range(1, 5):
                java_saves(place, "notes", f'{{"n":{n}}}')
                for _ in range(2):
                    assert await states.get_versioned("s", "notes") == ({"n": n}, n)
            java_saves(place, "notes", '{"n":5}')
            with pytest.raises(StaleState):
                await states.save_if_version("s", "notes", {}, 4)

    async def test_what_was_read_before_the_first_save_of_another_state_still_counts(self, root: Path) -> None:
        place = root / "__anon__/s"
        java_saves(place, "notes", '{"n":"a"}')
        async with JsonFileAgentStateStore(root) as states:
            assert (await states.get_versioned("s", "notes")).version == 1
            await states.save("s", "other", {})
            java_saves(place, "notes", '{"n":"b"}')
            with pytest.raises(StaleState):
                await states.save_if_version("s", "notes", {"n": "ours"}, 1)
            assert await states.get_versioned("s", "notes") == ({"n": "b"}, 2)

    async def test_a_value_that_was_deleted_begins_again(self, root: Path) -> None:
        place = root / "__anon__/s"
        async with JsonFileAgentStateStore(root) as states:
            for n in range(3):
                java_saves(place, "notes", f'{{"n":{n}}}')
                await states.get("s", "notes")
            await states.delete("s", "notes")
            assert await states.save_if_version("s", "notes", {}, 0) == 1
            assert (await states.get_versioned("s", "notes")).version == 1

    async def test_only_so_many_versions_are_remembered(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen_versions, "MOST", 3)
        async with JsonSession(root) as states:
            for n in range(6):
                java_saves(root / f"s{n}", "notes", "{}")
                await states.get_versioned(f"s{n}", "notes")
                java_saves(root / f"s{n}", "notes", '{"n":1}')
            versions = [(await states.get_versioned(f"s{n}", "notes")).version for n in (3, 4, 5, 0)]
            assert versions == [2, 2, 2, 1]


BUSY = """
import asyncio, sys
from leafward.stores import JsonFileAgentStateStore
async def main():
    async with JsonFileAgentStateStore(sys.argv[1]) as states:
        for n in range(1, 150):
            await states.save("s", "count", {"n": n})
            await states.save_list("s", "list", [{"of": n // 4, "n": i} for i in range(20 * (n % 4 + 1))])
            await (states.save if n % 2 else states.save_list)("s", "either", {} if n % 2 else [{}])
asyncio.run(main())
"""


async def kind_of(states: JsonFileAgentStateStore, name: str) -> str:
    try:
        return "nothing" if await states.get("s", name) is None else "value"
    except StateDecodeError:
        return "list"


class TestOtherProcesses:
    async def test_a_reader_notices_that_another_store_began_to_write(self, root: Path) -> None:
        java_saves(root / "__anon__/s", "notes", '{"n":1}')
        async with JsonFileAgentStateStore(root) as reader, JsonFileAgentStateStore(root) as writer:
            assert (await reader.get_versioned("s", "notes")).version == 1
            assert await writer.save_if_version("s", "notes", {"n": 2}, 1) == 2
            with pytest.raises(StaleState):
                await reader.save_if_version("s", "notes", {"n": 3}, 1)
            assert await reader.get_versioned("s", "notes") == ({"n": 2}, 2)
            assert await reader.save_if_version("s", "notes", {"n": 3}, 2) == 3
            assert await writer.get_versioned("s", "notes") == ({"n": 3}, 3)

    async def test_a_reader_that_cannot_lock_sees_whole_changes_of_a_busy_writer(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(directory, "_can_write", lambda path: False)
        child = subprocess.Popen([sys.executable, "-c", BUSY, str(root)], cwd=ROOT)
        last = reads = 0
        try:
            async with JsonFileAgentStateStore(root) as states:
                while child.poll() is None:
                    value, version = await states.get_versioned("s", "count")
                    assert version == (value or {"n": 0})["n"] >= last
                    last = version
                    items = await states.get_list("s", "list")
                    assert len(items) in (0, 20, 40, 60, 80)
                    assert items == [{"of": item["of"], "n": i} for i, item in enumerate(items)]
                    assert len({item["of"] for item in items}) < 2
                    # It is saved after the count, as a value and as a list in turns.
                    assert last < 2 or await kind_of(states, "either") in ("value", "list")
                    reads += 1
            assert child.returncode == 0
        finally:
            child.kill()
            child.wait()
        assert reads > 5
        assert last > 10

    async def test_what_changes_during_every_look_is_read_in_the_end(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unfinished, "_LONGEST", 0.2)
        content, changes = ReadTree.content, 0
        most = {"s": 1_000_000, "t": 3}

        def java_saves_meanwhile(self: ReadTree, parts: Parts) -> Content | None:
            nonlocal changes
            read = content(self, parts)
            if parts[-1] == "notes.json" and changes < most[parts[-2]]:
                changes += 1
                java_saves(root / parts[-2], "notes", f'{{"n":"{"x" * changes}"}}')
            return read

        monkeypatch.setattr(ReadTree, "content", java_saves_meanwhile)
        for session in ("s", "t"):
            java_saves(root / session, "notes", '{"n":0}')
        async with JsonSession(root) as states, asyncio.timeout(10):
            assert await states.get("s", "notes") is not None
            assert changes > 2
            # Other files are still waited for.
            monkeypatch.setattr(unfinished, "_LONGEST", 3600)
            changes = 0
            assert await states.get("t", "notes") == {"n": "xxx"}

    async def test_sessions_are_listed_by_many_at_once(self, root: Path) -> None:
        ids = [id for number in range(1000, 3000) if decoded(id := str(number)) is not None]
        mine = {user: set(ids[n::4]) for n, user in enumerate(("alice", "bob", "carol", "dave"))}
        for user, sessions in mine.items():
            for id in sessions:
                java_saves(root / user / id, "agent_state", f'{{"session_id":"{id}","user_id":"{user}"}}')
        async with JsonFileAgentStateStore(root) as states:
            for _ in range(5):
                lists = await asyncio.gather(*map(states.list_session_keys, mine))
                assert [{key.session_id for key in keys} for keys in lists] == list(mine.values())

    def test_a_listing_keeps_its_directory_whatever_is_closed_and_opened_meanwhile(self, root: Path) -> None:
        names = {f"d{n}" for n in range(40)}
        for name in names:
            java_saves(root / name, "notes", "{}")
        before = len(os.listdir("/dev/fd"))
        with closing(FolderAtOnce(str(root))) as folder, ExitStack() as others:
            listed: list[tuple[str, list[str]]] = []
            for name, files, _ in folder.below(()):
                listed.append((name, files))
                folder.close()
                # A thread of another store gets the numbers that are free now.
                others.enter_context((root / name / "notes.json").open())
                assert all(folder.files((other,)) == ["notes.json"] for other in names)
            assert sorted(listed) == sorted((name, ["notes.json"]) for name in names)
            assert {name for name, _ in folder.stamps(()) if folder.files((name,))} == names
        assert len(os.listdir("/dev/fd")) == before

    async def test_a_lease_is_taken_where_nothing_was_written(self, root: Path) -> None:
        async with JsonSession(root) as states, JsonSession(root) as others:
            async with await states.leases.acquire("s") as lease:
                await states.with_lease(lease).save("s", "notes", {"n": 1})
                await states.with_lease(lease).delete("s", "never")
            assert await others.get("s", "notes") == {"n": 1}

    async def test_a_forked_child_reads_on(self, root: Path) -> None:
        left_by_java(root, "JsonSession")
        states = JsonSession(root)
        await read_all(states)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                # A loop of its own: that of the parent runs here.
                asyncio.events._set_running_loop(None)
                asyncio.run(read_all(states))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        await states.close()

    async def test_a_change_that_a_killed_process_left_is_waited_for_and_then_reported(
        self, root: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(directory, "_can_write", lambda path: False)
        left_by_java(root, "JsonSession")
        plan = root / ".leafward.plan"
        plan.write_text('{"move":[],"remove":[["s","notes.json"]],"leave":[]}')
        async with JsonSession(root) as states:
            reading = asyncio.ensure_future(states.get("s", "notes"))
            await asyncio.sleep(0.1)
            assert not reading.done()
            content = plan.read_text()
            plan.unlink()
            assert await reading == {"n": 1}
            plan.write_text(content)
            monkeypatch.setattr(unfinished, "PATIENCE", 0.1)
            with pytest.raises(StoreError, match="was killed while it changed several files"):
                await states.get("s", "notes")
            await states.save("s", "other", {})
            assert await states.get("s", "notes") is None
