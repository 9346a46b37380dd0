"""What AgentScope 1.x is writing at this moment is read once it is whole; what it left unfinished is read, and said."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from leafward import SessionKey, StateDecodeError, open_store
from leafward.importers.agentscope import migrate
from leafward.stores import AgentStateStore, InMemoryAgentStateStore, JsonFileAgentStateStore, JsonSession, Slot
from leafward.stores.files import unfinished
from leafward.stores.files.folder import Content, Folder, Parts
from leafward.stores.files.state_names import lists_missing
from tests.stores.states.killing import ROOT

HASH = "76dead55"
FOR_EVER = 3600.0

JAVA = """
import json, os, sys, time
place, first, last, stop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
for n in range(first, last):
    time.sleep(0.012)
    data = "".join(json.dumps({"of": n, "n": i, "text": "walnut " * (i % 40)}) + "\\n" for i in range(300)).encode()
    os.unlink(place + "/list.jsonl")
    time.sleep(0.0005)
    with open(place + "/list.jsonl", "wb", buffering=0) as file:
        for at in range(0, len(data), 8192):
            file.write(data[at : at + 8192])
            time.sleep(0.0005)
            if stop and at > 3 * 8192:
                print("half", flush=True)
                time.sleep(60)
    with open(place + "/list.hash", "w") as file:
        file.write(f"{n:x}")
    value = json.dumps({"n": n, "text": "walnut " * 3000}).encode()
    with open(place + "/value.json", "wb", buffering=0) as file:
        for at in range(0, len(value), 8192):
            time.sleep(0.0005)
            file.write(value[at : at + 8192])
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of a session, in which Java has a list and a value."""
    made = tmp_path / "s"
    made.mkdir()
    (made / "list.jsonl").write_text("".join(f'{{"of":0,"n":{n}}}\n' for n in range(300)))
    (made / "list.hash").write_text(HASH)
    (made / "value.json").write_text('{"n":0}')
    age(made / "list.jsonl", made / "list.hash", made / "value.json", made)
    return made


def age(*paths: Path, seconds: float = 60) -> None:
    """Make files look as if they had not been touched for a while."""
    for path in paths:
        os.utime(path, (before := time.time() - seconds, before))


def java(place: Path, first: int, last: int, *stop: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", JAVA, str(place), str(first), str(last), *stop]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


class TestWhileJavaWrites:
    @pytest.mark.parametrize("locked", [False, True])
    async def test_every_read_is_whole(self, place: Path, locked: bool) -> None:
        async with JsonSession(place.parent) as states:
            if locked:
                await states.save("other", "x", {})
            child, seen, versions = java(place, 1, 60), set[int](), dict[int, int]()
            try:
                while child.poll() is None:
                    items = await states.get_list("s", "list")
                    assert [item["n"] for item in items] == [*range(300)]
                    [of] = {item["of"] for item in items}
                    value, version = await states.get_versioned("s", "value")
                    assert value is not None
                    assert versions.setdefault(version, value["n"]) == value["n"]
                    seen |= {of, value["n"]}
                    assert await states.exists("s")
                    assert await (await states._table()).names(Slot(None, "s")) == {"list": True, "value": False}
                assert child.returncode == 0
            finally:
                child.kill()
                child.communicate()
            assert len(seen) > 3
            assert [*versions] == [*range(1, len(versions) + 1)]

    @pytest.mark.parametrize(("layout", "hash"), [("1.x", HASH), ("2.x", HASH), ("1.x", "")])
    async def test_a_list_is_waited_for_until_its_hash_is_there(self, place: Path, layout: str, hash: str) -> None:
        root = place.parent
        # Java empties the file before it writes the hash, and may be killed between.
        (place / "list.hash").write_text(hash)
        age(place / "list.hash")
        if layout == "2.x":
            (root / "__anon__").mkdir()
            place = place.rename(root / "__anon__/s")
        async with JsonFileAgentStateStore(root, layout=layout) as states:
            (place / "list.jsonl").write_text('{"n":1}\n')
            reading = asyncio.ensure_future(states.get_list("s", "list"))
            await asyncio.sleep(0.1)
            assert not reading.done()
            with (place / "list.jsonl").open("a") as file:
                file.write('{"n":2}\n')
            (place / "list.hash").write_text("1f")
            assert await reading == [{"n": 1}, {"n": 2}]

    @pytest.mark.parametrize("hash", [HASH, "empty:0"])
    async def test_a_list_that_ends_within_a_line_is_waited_for_whenever_its_hash_was_written(
        self, place: Path, hash: str
    ) -> None:
        (place / "list.jsonl").write_text('{"n":1}\n{"n"')
        (place / "list.hash").write_text(hash)
        # Two saves within one tick of the clock, of which the second one takes long.
        now = time.time() - 0.1
        for path in (place / "list.jsonl", place / "list.hash"):
            os.utime(path, (now, now))
        async with JsonSession(place.parent) as states:
            reading = asyncio.ensure_future(states.get_list("s", "list"))
            await asyncio.sleep(0.1)
            assert not reading.done()
            (place / "list.jsonl").write_text('{"n":1}\n{"n":2}\n')
            (place / "list.hash").write_text("1f")
            assert await reading == [{"n": 1}, {"n": 2}]

    async def test_a_list_that_java_finishes_during_a_read_is_not_taken_for_finished_before(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (place / "list.jsonl").write_text('{"n":1}\n')
        content = Folder.content

        def finish(self: Folder, parts: Parts, *, at_most: int | None = None) -> Content | None:
            found = content(self, parts, at_most=at_most)
            if parts[-1].startswith("list.") and (place / "list.hash").read_text() == HASH:
                (place / "list.jsonl").write_text('{"n":1}\n{"n":2}\n')
                (place / "list.hash").write_text("1f")
            return found

        async with JsonSession(place.parent) as states:
            # Behind the lock, nothing is looked at twice.
            await states.save("other", "x", {})
            monkeypatch.setattr(Folder, "content", finish)
            assert await states.get_list("s", "list") == [{"n": 1}, {"n": 2}]

    @pytest.mark.parametrize("text", ["", '{"n":1}\n{"n"'])
    async def test_a_first_list_is_waited_for(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "s").mkdir()
        (tmp_path / "s/list.jsonl").write_text(text)
        async with JsonSession(tmp_path) as states:
            reading = asyncio.ensure_future(states.get_list("s", "list"))
            await asyncio.sleep(0.1)
            assert not reading.done()
            (tmp_path / "s/list.jsonl").write_text('{"n":1}\n{"n":2}\n')
            (tmp_path / "s/list.hash").write_text("1f")
            assert await reading == [{"n": 1}, {"n": 2}]

    async def test_a_list_that_was_empty_is_waited_for(self, place: Path) -> None:
        (place / "list.hash").write_text("empty:0")
        (place / "list.jsonl").write_text("")
        async with JsonSession(place.parent) as states:
            assert await states.get_list("s", "list") == []
            (place / "list.jsonl").write_text('{"n":1}\n')
            reading = asyncio.ensure_future(states.get_list("s", "list"))
            await asyncio.sleep(0.1)
            assert not reading.done()
            (place / "list.hash").write_text("1f")
            assert await reading == [{"n": 1}]

    @pytest.mark.parametrize("locked", [False, True])
    async def test_every_read_of_a_list_that_we_saved_last_is_whole(self, place: Path, locked: bool) -> None:
        items = [{"of": 0, "n": n, "text": "walnut " * (n % 40)} for n in range(300)]
        async with JsonSession(place.parent) as ours, JsonSession(place.parent) as states:
            seen = set[int]()
            for of in range(1, 12):
                # One that is replaced, and one that is added to: Java then writes all of it again.
                await ours.save_list("s", "list", items if of % 2 else items[:200])
                await ours.save_list("s", "list", items)
                if locked:
                    await states.save("other", "x", {})
                child = java(place, of, of + 1)
                try:
                    while child.poll() is None:
                        found = await states.get_list("s", "list")
                        assert [item["n"] for item in found] == [*range(300)]
                        seen |= {item["of"] for item in found}
                        assert await states.exists("s")
                finally:
                    child.kill()
                    child.communicate()
            assert len(seen) > 3

    async def test_each_step_of_a_rewrite_of_our_list_is_waited_for(self, tmp_path: Path) -> None:
        path, items = tmp_path / "s/list.jsonl", [{"n": n} for n in range(5)]
        async with JsonSession(tmp_path) as states:
            await states.save_list("s", "list", items[:2])
            await states.save_list("s", "list", items[:4])
            await states.save_list("s", "list", items)
            whole = path.read_bytes()
            for step in (None, b"", whole[:8], whole[:16], whole[:-1], whole + b'{"n":5}\n'):
                path.unlink(missing_ok=True)
                if step is not None:
                    path.write_bytes(step)
                for read in (states.get_list("s", "list"), *([states.exists("s")] if step is None else [])):
                    reading = asyncio.ensure_future(read)
                    await asyncio.sleep(0.05)
                    assert not reading.done(), step
                    reading.cancel()
            path.write_bytes(whole + b'{"n":5}\n')
            (path.parent / "list.hash").write_text("1f")
            assert await states.get_list("s", "list") == [*items, {"n": 5}]

    async def test_a_session_is_listed_and_moved_while_java_writes_its_only_list(self, place: Path) -> None:
        target = InMemoryAgentStateStore()
        (place / "value.json").unlink()
        (place / "list.jsonl").unlink()
        async with JsonSession(place.parent) as states:
            listing = asyncio.ensure_future(states.list_session_keys())
            moving = asyncio.ensure_future(migrate(place.parent, target))
            await asyncio.sleep(0.1)
            (place / "list.jsonl").write_text('{"n":1}\n')
            (place / "list.hash").write_text("1f")
            assert await listing == {SessionKey("s")}
            assert (await moving).sessions == 1
        assert await target.get_list("s", "list") == [{"n": 1}]

    async def test_a_save_waits_also_where_java_left_a_value_of_the_name(self, place: Path) -> None:
        (place / "list.json").write_text("{}")
        (place / "list.jsonl").write_text('{"n":1}\n{"n"')
        async with JsonSession(place.parent) as states:
            saving = asyncio.ensure_future(states.save_list("s", "list", [{"n": 3}]))
            await asyncio.sleep(0.1)
            assert not saving.done()
            (place / "list.hash").write_text("1f")
            await saving
            assert await states.get_list("s", "list") == [{"n": 3}]
        assert not (place / "list.json").exists()

    @pytest.mark.parametrize("saved_last", ["by Java", "by us"])
    @pytest.mark.parametrize("step", ["deleted", "made", "half", "cut between lines"])
    async def test_a_save_waits_until_java_has_written_its_list(self, place: Path, saved_last: str, step: str) -> None:
        path, items = place / "list.jsonl", [{"of": 0, "n": n} for n in range(300)]
        javas, ours = items[:280], [*items, {"n": 300}]
        lines = "".join(json.dumps(item, separators=(",", ":")) + "\n" for item in javas).encode()
        written = {"deleted": 0, "made": 0, "half": 1000, "cut between lines": lines.index(b"\n", 1000) + 1}[step]
        async with JsonSession(place.parent) as states:
            if saved_last == "by us":
                await states.save_list("s", "list", items)
            path.unlink()
            # As Java opens it: what is there already is not emptied.
            number = None if step == "deleted" else os.open(path, os.O_WRONLY | os.O_CREAT)
            if number is not None:
                os.write(number, lines[:written])
            saving = asyncio.ensure_future(states.save_list("s", "list", ours))
            await asyncio.sleep(0.1)
            assert not saving.done()
            number = number or os.open(path, os.O_WRONLY | os.O_CREAT)
            os.write(number, lines[written:])
            os.close(number)
            assert path.read_bytes() == lines
            (place / "list.hash").write_text("1f")
            await saving
            assert await states.get_list("s", "list") == ours
        assert len(path.read_bytes().splitlines()) == 301
        assert (place / "list.hash").read_text().startswith("py:content ")

    @pytest.mark.parametrize("step", ["deleted", "half"])
    @pytest.mark.parametrize(("kind", "flushes"), [("append", 1), ("append", 2), ("replace", 1), ("replace", 2)])
    async def test_a_list_that_java_begins_to_write_during_a_save_is_not_mixed_with_it(
        self, place: Path, kind: str, flushes: int, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, items = place / "list.jsonl", [{"of": 0, "n": n} for n in range(300)]
        ours = [*items, {"n": 300}] if kind == "append" else items[1:]
        lines = b'{"n":1}\n' * 200
        begun, java, sync = asyncio.Event(), list[int](), Folder.sync
        # The mark is flushed first, then the lines.
        after = iter(range(flushes))

        def begin(self: Folder, number: int) -> None:
            sync(self, number)
            if next(after, flushes) == flushes - 1:
                path.unlink()
                java.append(-1 if step == "deleted" else os.open(path, os.O_WRONLY | os.O_CREAT))
                if step == "half":
                    os.write(java[0], lines[:800])
                loop.call_soon_threadsafe(begun.set)

        loop = asyncio.get_running_loop()
        async with JsonSession(place.parent) as states, JsonSession(place.parent) as readers:
            await states.save("other", "x", {})
            await readers.save("other", "x", {})
            with monkeypatch.context() as patch:
                patch.setattr(Folder, "sync", begin)
                saving = asyncio.ensure_future(states.save_list("s", "list", ours))
                await begun.wait()
                reading = asyncio.ensure_future(readers.get_list("s", "list"))
                await asyncio.sleep(0.1)
                assert not saving.done()
                assert not reading.done()
                assert not [*place.parent.glob(".leafward.new*")]
            number = os.open(path, os.O_WRONLY | os.O_CREAT) if step == "deleted" else java[0]
            os.write(number, lines if step == "deleted" else lines[800:])
            os.close(number)
            (place / "list.hash").write_text("1f")
            await saving
            assert await reading in (ours, [{"n": 1}] * 200)
            assert await states.get_list("s", "list") == ours

    async def test_a_hash_that_java_writes_late_does_not_stay_beside_our_lines(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sync = Folder.sync

        def write_late(self: Folder, number: int) -> None:
            # Our mark is there, and Java's lines still are.
            if (place / "list.hash").read_text() == "py:content":
                (place / "list.hash").write_text("1f")
            sync(self, number)

        monkeypatch.setattr(Folder, "sync", write_late)
        async with JsonSession(place.parent) as states:
            await states.save_list("s", "list", [{"n": 1}])
        assert (place / "list.hash").read_text().startswith("py:content 8 ")

    async def test_a_list_that_java_saves_right_after_ours_keeps_its_hash(
        self, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        sync_names = Folder.sync_names

        def save(self: Folder, parts: Parts) -> None:
            # Our file has its place, and our mark still says nothing of it.
            if parts == ("s",) and (place / "list.jsonl").read_text() == '{"n":1}\n':
                (place / "list.jsonl").unlink()
                (place / "list.jsonl").write_text('{"n":2}\n{"n":3}\n')
                (place / "list.hash").write_text("1f")
            sync_names(self, parts)

        monkeypatch.setattr(Folder, "sync_names", save)
        monkeypatch.setattr(unfinished, "PATIENCE", 0.1)
        async with JsonSession(place.parent) as states:
            await states.save_list("s", "list", [{"n": 1}])
            assert await states.get_list("s", "list") == [{"n": 2}, {"n": 3}]
        assert (place / "list.hash").read_text() == "1f"
        assert caplog.records == []

    async def test_what_we_write_is_never_waited_for(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unfinished, "_PAUSE", FOR_EVER)
        async with (
            JsonSession(tmp_path) as states,
            open_store(f"file:///{tmp_path}/store") as store,
            asyncio.timeout(60),
        ):
            for one in (states, store.states):
                for items in ([{"n": 1}], [{"n": 1}, {"n": 2}, {"n": 3}], [{"n": 2}], []):
                    await one.save_list("s", "list", items)
                    assert await one.get_list("s", "list") == items
                    await one.save("s", "value", {"n": len(items)})
                    assert await one.get("s", "value") == {"n": len(items)}

    async def test_others_are_served_while_one_waits(self, place: Path) -> None:
        async with JsonSession(place.parent) as states:
            await states.save("other", "x", {})
            (place / "list.jsonl").unlink()
            reading = asyncio.ensure_future(states.get_list("s", "list"))
            await asyncio.sleep(0.05)
            for n in range(20):
                await states.save("other", "x", {"n": n})
            assert not reading.done()
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading


class TestWhatWasLeft:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(unfinished, "PATIENCE", 0.4)

    @pytest.mark.parametrize("locked", [False, True])
    async def test_a_list_whose_writer_was_killed_is_read_and_said_once(
        self, place: Path, locked: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        child = java(place, 1, 2, "stop")
        try:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "half\n"
        finally:
            child.kill()
            child.communicate()
        async with JsonSession(place.parent) as states:
            if locked:
                await states.save("other", "x", {})
            for _ in range(2):
                items = await states.get_list("s", "list")
                assert 0 < len(items) < 300
                assert [item["n"] for item in items] == [*range(len(items))]
        [warning] = caplog.records
        assert (warning.name, warning.levelname) == ("leafward.stores.files", "WARNING")
        assert f"{place}/list.jsonl is newer than its .hash" in warning.getMessage()

    async def test_a_list_that_was_deleted_and_not_written_is_empty_and_said_once(
        self, place: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (place / "list.jsonl").unlink()
        async with JsonSession(place.parent) as states:

            async def touch() -> None:
                while True:
                    (place / "more.txt").write_text("x")
                    (place / "more.txt").unlink()
                    await asyncio.sleep(0.05)

            touching = asyncio.ensure_future(touch())
            for _ in range(2):
                assert await asyncio.wait_for(states.get_list("s", "list"), 5) == []
            assert await (await states._table()).names(Slot(None, "s")) == {"value": False}
            touching.cancel()
        [warning] = caplog.records
        assert "list.jsonl is missing beside its .hash" in warning.getMessage()

    @pytest.mark.parametrize("text", ['{"n":1}\n', ""])
    async def test_a_list_of_ours_whose_writer_was_killed_is_read_and_said_until_it_is_saved(
        self, tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with JsonSession(tmp_path) as states:
            await states.save_list("s", "list", [{"n": 1}, {"n": 2}])
            (tmp_path / "s/list.jsonl").write_text(text)
            found = [json.loads(line) for line in text.splitlines()]
            for _ in range(2):
                assert await asyncio.wait_for(states.get_list("s", "list"), 5) == found
        [warning] = caplog.records
        assert f"{tmp_path}/s/list.jsonl does not fit its .hash" in warning.getMessage()
        caplog.clear()
        async with JsonSession(tmp_path) as states:
            await states.save_list("s", "list", found)
        age(tmp_path / "s/list.jsonl", tmp_path / "s/list.hash")
        async with JsonSession(tmp_path) as states:
            assert await states.get_list("s", "list") == found
        assert caplog.records == []

    @pytest.mark.parametrize("saved_last", ["by Java", "by us"])
    async def test_a_save_is_not_added_to_a_list_that_java_may_go_on_writing(
        self, place: Path, saved_last: str
    ) -> None:
        path, items = place / "list.jsonl", [{"of": 0, "n": n} for n in range(300)]
        async with JsonSession(place.parent) as states:
            if saved_last == "by us":
                await states.save_list("s", "list", items)
            path.unlink()
            with path.open("wb", buffering=0) as java:
                java.write(b'{"of":0,"n":0}\n{"of":0,"n":1}\n')
                await asyncio.wait_for(states.save_list("s", "list", items[:5]), 5)
                java.write(b'{"of":1,"n":2}\n{"of":')
            assert await states.get_list("s", "list") == items[:5]

    async def test_a_line_that_was_added_to_our_list_is_read_without_a_warning(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with JsonSession(tmp_path) as states:
            await states.save_list("s", "list", [{"n": 1}])
            with (tmp_path / "s/list.jsonl").open("a") as file:
                file.write('{"n":2}\n')
            age(tmp_path / "s/list.jsonl")
            assert await states.get_list("s", "list") == [{"n": 1}, {"n": 2}]
        assert caplog.records == []

    def test_many_such_lists_are_found_in_one_go(self) -> None:
        class Files(list[str]):
            def __contains__(self, _: object) -> bool:
                raise AssertionError("looks through all files for each list")

        files = Files(f"{n}{ending}" for n in range(9) for ending in ((".hash",) if n == 5 else (".hash", ".jsonl")))
        assert lists_missing(files) == [("5.jsonl", "5.hash")]

    async def test_a_list_that_another_program_keeps_changing_is_read(
        self, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unfinished, "_LONGEST", 0.5)

        async def add_lines() -> None:
            while True:
                with (place / "list.jsonl").open("a") as file:
                    file.write("{}\n")
                await asyncio.sleep(0.02)

        async with JsonSession(place.parent) as states:
            adding = asyncio.ensure_future(add_lines())
            await asyncio.sleep(0.05)
            assert len(await asyncio.wait_for(states.get_list("s", "list"), 5)) > 300
            adding.cancel()

    async def test_a_copy_is_read_without_a_warning(self, place: Path, caplog: pytest.LogCaptureFixture) -> None:
        age(place / "list.hash", seconds=0.03)
        age(place / "list.jsonl", seconds=0.01)
        async with JsonSession(place.parent) as states:
            for _ in range(2):
                assert len(await states.get_list("s", "list")) == 300
        assert caplog.records == []

    @pytest.mark.parametrize("ahead", [60, -60])
    async def test_a_clock_that_is_wrong_makes_nobody_wait(
        self, place: Path, ahead: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(unfinished, "_PAUSE", FOR_EVER)
        (place / "value.json").write_text("{")
        age(place / "list.jsonl", place / "value.json", seconds=-ahead)
        async with JsonSession(place.parent) as states, asyncio.timeout(60):
            assert len(await states.get_list("s", "list")) == 300
            with pytest.raises(StateDecodeError):
                await states.get("s", "value")

    async def test_half_a_value_is_reported_in_the_end(self, place: Path) -> None:
        (place / "value.json").write_text('{"n":')
        async with JsonSession(place.parent) as states:
            with pytest.raises(StateDecodeError):
                await states.get("s", "value")
            assert not (place / "value.ver").exists()


@pytest.mark.parametrize("layout", ["1.x", "2.x"])
async def test_a_half_of_a_value_has_no_version(tmp_path: Path, layout: str) -> None:
    place = tmp_path / ("s" if layout == "1.x" else "__anon__/s")
    place.mkdir(parents=True)
    (place / "value.json").write_text('{"n":')
    async with JsonFileAgentStateStore(tmp_path, layout=layout) as states:
        await states.save("other", "x", {})
        reading = asyncio.ensure_future(_versioned(states))
        await asyncio.sleep(0.1)
        (place / "value.json").write_text(json.dumps({"n": 1}))
        assert await reading == ({"n": 1}, 1)


async def _versioned(states: AgentStateStore) -> object:
    assert isinstance(states, JsonFileAgentStateStore)
    return await states.get_versioned("s", "value")
