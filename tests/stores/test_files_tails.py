"""A journal whose end is torn, or whose middle is damaged, loses nothing that is whole."""

from __future__ import annotations

import logging
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

from leafward import LATEST_LEAF, CorruptStore, Message, Session, StoreError, assistant, user
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Scope
from leafward.stores.contracts import Usage
from leafward.stores.drafts import Draft
from leafward.stores.entries import Shelf
from leafward.stores.files import FileStore
from leafward.stores.journal.lines import read
from tests.stores.files_store import drop_index, fill, journal, opened, shared_journal, texts


def asides(path: Path, kind: str) -> list[Path]:
    return sorted(one for one in path.parent.iterdir() if f".{kind}-" in one.name)


async def check_cut(store: FileStore, path: Path, whole: bytes, tail: bytes) -> None:
    """Let a journal end in a tail that is not whole, and see that it is moved aside."""
    for one in asides(path, "torn"):
        one.unlink()
    path.write_bytes(whole + tail)

    assert await texts(store) == ["walnut 0", "walnut 1"]
    assert await Session(store, "s").get_states() == {"plan": {"at": "m1"}}

    assert path.read_bytes() == whole
    assert [one.read_bytes() for one in asides(path, "torn")] == ([tail] if tail else [])
    if len(tail) % 50 == 0:
        await Session(store, "s").append_message(user("on"))
        assert await texts(store) == ["walnut 0", "walnut 1", "on"]
        assert read(path.read_bytes()).torn is None
        path.unlink()
        assert await texts(store) == []
        path.write_bytes(whole)
        assert await texts(store) == ["walnut 0", "walnut 1"]


class TestTornTails:
    @pytest.mark.parametrize("indexed", [True, False])
    async def test_a_tail_torn_at_any_byte_is_moved_aside(self, tmp_path: Path, indexed: bool) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=2)
            await Session(store, "s").set_state("plan", {"at": "m1"})
        path = journal(tmp_path)
        whole = path.read_bytes()
        shutil.copy(tmp_path / "index.sqlite", tmp_path / "kept")
        async with opened(tmp_path) as store:
            calls = [{"type": "text", "text": "a"}, {"type": "tool_use", "id": "c", "name": "look", "input": {}}]
            drafts = [Draft(*one.sealed(), 3) for one in (Message("assistant", calls, id="x"), user("b", id="y"))]
            states = [AttachedState("plan", '{"at":"y"}'), AttachedState("状態", "{}")]
            usage = Usage(1, 2, 0.5, usage_id="call 1")
            await store.messages.append(Scope.of("s"), drafts, LATEST_LEAF, state=states, usage=usage)
        added = path.read_bytes()[len(whole) :]
        assert len(read(whole + added).batches[-1].entries) == 6

        drop_index(tmp_path)
        if indexed:
            # As it was before the write that is torn.
            (tmp_path / "kept").rename(tmp_path / "index.sqlite")
            async with opened(tmp_path, durability="process") as store:
                for cut in range(len(added)):
                    await check_cut(store, path, whole, added[:cut])
        else:
            for cut in range(0, len(added), 41):
                drop_index(tmp_path)
                path.write_bytes(whole + added[:cut])
                async with opened(tmp_path, durability="process") as store:
                    await check_cut(store, path, whole, added[:cut])

    async def test_a_torn_tail_is_told_once_and_kept_private(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with opened(tmp_path) as store:
            await fill(store)
        path = journal(tmp_path)
        with path.open("ab") as file:
            file.write(b'{"type":"message","secret')

        with caplog.at_level(logging.WARNING):
            async with opened(tmp_path) as store:
                assert len(await texts(store)) == 4
                assert len(await texts(store)) == 4

        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "secret" not in caplog.text
        assert [one.stat().st_mode & 0o777 for one in asides(path, "torn")] == [0o600]

    async def test_every_torn_tail_is_kept(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store)
        path = journal(tmp_path)
        for n in range(3):
            with path.open("ab") as file:
                file.write(b"torn %d" % n)
            async with opened(tmp_path) as store:
                assert len(await texts(store)) == 4

        assert [one.read_bytes() for one in asides(path, "torn")] == [b"torn 0", b"torn 1", b"torn 2"]


async def damaged(directory: Path, what: bytes = b"walnut 1") -> bytes:
    """Make a store whose session has one letter changed in one line, and return the journal's bytes."""
    async with opened(directory) as store:
        await fill(store)
        await Session(store, "s").append_message(assistant("branch", id="b"), parent_id="m1")
        await Session(store, "s").label("m1", "a label")
        await fill(store, "other")
    path = journal(directory)
    data = path.read_bytes()
    path.write_bytes(data.replace(what, what[:-1] + b"X", 1))
    return path.read_bytes()


class TestDamage:
    async def test_what_is_whole_around_damage_is_served(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = await damaged(tmp_path)

        async with opened(tmp_path) as store:
            session = Session(store, "s")
            assert [m.id for m in await session.get_history("m3")] == ["m0", "m2", "m3"]
            assert [m.id for m in await session.get_history("b")] == ["m0", "m2", "m3", "b"]
            assert [found.id for found in await session.search("walnut", limit=9)] == ["m3", "m2", "m0"]
            told = await store.damage()
            await session.get_history()

        assert journal(tmp_path).read_bytes() == data
        path = str(journal(tmp_path))
        assert told[0].startswith(f"{path}: line 3 (byte ")
        assert "line 7 cannot be carried out: no message 'm1'" in told[1]
        assert len(told) == 2
        assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]

    async def test_writes_to_a_damaged_session_are_refused_and_others_are_not(self, tmp_path: Path) -> None:
        data = await damaged(tmp_path)

        async with opened(tmp_path) as store:
            session = Session(store, "s")
            for write in (
                session.append_message(user("no")),
                session.delete_messages(["m0"]),
                session.clear_messages(),
                store.registry.rename(Scope.of("s"), "no"),
            ):
                with pytest.raises(CorruptStore, match=r"line 3 .*store\.repair\("):
                    await write
            await Session(store, "other").append_message(user("yes"))
            assert (await texts(store, "other"))[-1] == "yes"

        assert journal(tmp_path).read_bytes() == data

    async def test_a_repaired_session_goes_on(self, tmp_path: Path) -> None:
        data = await damaged(tmp_path)
        path = journal(tmp_path)

        async with opened(tmp_path) as store:
            report = await store.repair("s")
            session = Session(store, "s")
            before = await session.get_history("b"), await session.get_version(), await session.get_tree()
            await session.append_message(user("on", id="on"))
            assert (await store.repair("s")).repaired is False
            assert await store.damage() == []

        assert report.repaired
        assert [("line 3" in one or "line 7" in one) for one in report.lost] == [True, True]
        assert [Path(one).read_bytes() for one in report.kept] == [data]
        assert [Path(one).stat().st_mode & 0o777 for one in report.kept] == [0o600]
        assert "damaged" in asides(path, "damaged")[0].name
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            session = Session(store, "s")
            await session.delete_messages(["on"])
            again = await session.get_history("b"), await session.get_version() - 2, await session.get_tree()
            assert again[0] == before[0]
            assert again[1] == before[1]
            assert await store.damage() == []

    @pytest.mark.parametrize("line", range(1, 8))
    async def test_a_session_can_be_read_and_repaired_whichever_line_is_lost(self, tmp_path: Path, line: int) -> None:
        await damaged(tmp_path, b"walnut nowhere")
        path = journal(tmp_path)
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) == 7
        lines[line - 1] = lines[line - 1].replace(b'"leafward"', b'"leafware"')
        path.write_bytes(b"".join(lines))

        async with opened(tmp_path) as store:
            read_before = await Session(store, "s").get_tree()
            await store.repair("s")
            assert await Session(store, "s").get_tree() == read_before
            await Session(store, "s").append_message(user("on"))
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert (await texts(store))[-1] == "on"
            assert await store.damage() == []

    @pytest.mark.parametrize("line", range(2, 9))
    async def test_states_stay_in_force_below_messages_that_are_lost(self, tmp_path: Path, line: int) -> None:
        async with opened(tmp_path) as store:
            session = Session(store, "s")
            await session.append_message(user("a", id="a"), state={"plan": {"at": "a"}})
            await session.append_message(user("b", id="b"))
            await session.set_state("plan", {"at": "b"})
            await session.append_message(user("c", id="c"))
            await session.append_messages([user("x", id="x"), user("known", id="b")], "a", state={"mood": {}})
        path = journal(tmp_path)
        lines = path.read_bytes().splitlines(keepends=True)
        assert len(lines) == 8
        lines[line - 1] = lines[line - 1].replace(b'"leafward"', b'"leafware"')
        path.write_bytes(b"".join(lines))
        # A batch is lost with any of its lines; the state of a lost message is that of the nearest one before it.
        plan = {"a": {"at": "b"} if line == 4 else {"at": "a"}, "b": {"at": "b"}, "c": {"at": "b"}, "x": {"at": "a"}}
        if line in (2, 3):
            plan["x"] = plan["c"]
        if line == 4:
            plan["x"] = {"at": "b"}
        elif line == 5:
            plan |= {"b": {"at": "a"}, "c": {"at": "a"}}
        lost = {2: ["a"], 3: ["a"], 4: ["b"], 5: [], 6: ["c"], 7: ["x"], 8: ["x"]}[line]

        async def seen(store: FileStore) -> tuple[dict[str, Any], dict[str, Any]]:
            session = Session(store, "s")
            ids = [node.id for node in await session.get_tree()]
            plans = {id: await session.get_state("plan", id) for id in ids}
            return plans, {id: await session.get_state("mood", id) for id in ids}

        async with opened(tmp_path) as store:
            before = await seen(store)
            await store.repair("s")
            after = await seen(store)
            await Session(store, "s").set_state("plan", {"at": "repaired"})
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert await Session(store, "s").get_state("plan") == {"at": "repaired"}
            await Session(store, "s").set_state("plan", None)
            assert await store.damage() == []

        assert before == after
        assert before[0] == {id: plan[id] for id in plan if id not in lost}

    async def test_damage_does_not_keep_a_session_from_being_deleted(self, tmp_path: Path) -> None:
        await damaged(tmp_path)
        path = journal(tmp_path)
        async with opened(tmp_path) as store:
            await store.repair("s")
            path.write_bytes(path.read_bytes().replace(b"walnut 2", b"walnut 9"))
            assert await store.registry.delete(Scope.of("s"))
            assert await texts(store) == []
            assert await store.damage() == []
        assert [one.name for one in path.parent.iterdir()] == ["other.log.jsonl"]

    async def test_a_damaged_shared_journal_is_repaired_with_a_session(self, tmp_path: Path) -> None:
        shelf = Shelf(Scope.of("s"), "facts", shared=True)
        async with opened(tmp_path) as store:
            for n in range(3):
                await store.entries.edit(shelf, f"k{n}", lambda _, n=n: f"fact {n}")
        path = shared_journal(tmp_path)
        path.write_bytes(path.read_bytes().replace(b"fact 1", b"fact X"))

        async with opened(tmp_path) as store:
            assert [await store.entries.get(shelf, f"k{n}") is not None for n in range(3)] == [True, False, True]
            with pytest.raises(CorruptStore, match="repair"):
                await store.entries.edit(shelf, "k3", lambda _: "no")
            assert (await store.repair("s")).repaired
            await store.entries.edit(shelf, "k3", lambda _: "yes")
        drop_index(tmp_path)
        async with opened(tmp_path) as store:
            assert [await store.entries.get(shelf, f"k{n}") is not None for n in range(4)] == [True, False, True, True]


class TestWhoseJournal:
    async def test_a_journal_under_another_name_is_refused(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, "Alice")
        data = journal(tmp_path, "Alice").read_bytes()
        journal(tmp_path, "alice").write_bytes(data)

        async with opened(tmp_path) as store:
            for call in (Session(store, "alice").get_history(), Session(store, "alice").append_message(user("no"))):
                with pytest.raises(StoreError, match=r"'Alice'.*'alice'"):
                    await call
            assert len(await texts(store, "Alice")) == 4
            assert [info.id for info in await store.registry.list(Scope.of("s").owner, limit=None, cursor=None)] == [
                "Alice"
            ]
        assert journal(tmp_path, "alice").read_bytes() == journal(tmp_path, "Alice").read_bytes() == data

    async def test_a_journal_of_a_newer_leafward_is_told_and_left_alone(self, tmp_path: Path) -> None:
        async with opened(tmp_path) as store:
            await fill(store, count=1)
            await fill(store, "other")
        path = journal(tmp_path)
        lines: list[bytes] = []
        crc = 0
        for line in path.read_bytes().splitlines():
            told = line.rpartition(b',"crc"')[0].replace(b'"format":1', b'"format":2') + b"}"
            crc = zlib.crc32(told, crc)
            lines.append(told[:-1] + b',"crc":"%08x"}\n' % crc)
        path.write_bytes(b"".join(lines))

        for _ in range(2):
            async with opened(tmp_path) as store:
                for call in (Session(store, "s").get_history(), Session(store, "s").append_message(user("no"))):
                    with pytest.raises(StoreError, match="written by a newer leafward"):
                        await call
                assert len(await texts(store, "other")) == 4
                assert (await store.registry.list(Scope.of("s").owner, limit=None, cursor=None))[0].id == "other"
            drop_index(tmp_path)
        assert path.read_bytes() == b"".join(lines)
