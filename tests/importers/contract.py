"""What a migration promises, wherever AgentScope left its sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leafward import Message, SessionKey
from leafward.importers.agentscope import migrate
from leafward.importers.sources import directory_of
from leafward.stores import JsonFileAgentStateStore, SqliteAgentStateStore
from leafward.stores.states.store import StateStore
from leafward.stores.states.table import StateTable
from tests.importers.left import DOCUMENTS, USER123, Left, files_in

COUNTS = {"sessions": 3, "values": 8, "lists": 3, "messages": 7}


def counts(report: Any) -> dict[str, int]:
    return {name: getattr(report, name) for name in COUNTS}


async def everything(states: StateStore) -> dict[str, dict[str, Any]]:
    """Return all that the sessions of `Left.fill` became."""
    names = {
        "seed": ["agent_meta"],
        "real": ["agent_meta", "moodTracker", "planNotebook_state", "toolkit_activeGroups"],
        "user123": ["agent_meta", "planNotebook_state", "toolkit_activeGroups"],
    }
    return {
        session_id: {name: await states.get(session_id, name) for name in values}
        | {"memory_messages": await states.get_list(session_id, "memory_messages")}
        for session_id, values in names.items()
    }


def without_columns(snapshot: dict[Any, Any]) -> dict[Any, Any]:
    """Leave out that a table in which we write gets a column for versions."""
    return {key: value for key, value in snapshot.items() if not (isinstance(key, str) and key.startswith("columns"))}


class Stopped(Exception):
    """The run is cut off."""


class _Counting:
    """A table that tells of every list."""

    def __init__(self, table: StateTable, count: Callable[[], None]) -> None:
        self._table = table
        self._count = count

    async def put_list(self, *arguments: Any, **options: Any) -> None:
        self._count()
        await self._table.put_list(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)


class Failing(JsonFileAgentStateStore):
    """Fails after some writes."""

    writes = 0

    async def save_if_version(self, key: Any, name: str, value: Any, expected: int) -> int:
        self._count()
        return await super().save_if_version(key, name, value, expected)

    async def _table(self) -> StateTable:
        counting: Any = _Counting(await super()._table(), self._count)
        return counting

    def _count(self) -> None:
        self.writes -= 1
        if self.writes < 0:
            raise Stopped


class MigrationContract:
    """Subclasses define an async fixture `left`, empty."""

    @pytest.fixture
    def target(self, tmp_path: Path) -> Path:
        return tmp_path / "target"

    def in_place(self, left: Left) -> str:
        return directory_of(left.named) or left.named

    async def test_moves_every_form(self, left: Left, target: Path) -> None:
        await left.fill()

        report = await migrate(left.named, target)

        assert counts(report) == COUNTS
        assert (report.written, report.already_there, report.kept, report.failed) == (11, 0, [], [])
        async with JsonFileAgentStateStore(target) as states:
            keys = await states.list_session_keys()
            found = await everything(states)
            said = [(m.role, m.text) for m in await states.get_list("seed", "memory_messages", Message)]
        assert keys == {SessionKey(one) for one in ("seed", "real", "user123")}
        assert found["user123"] == USER123
        assert said == [("user", "Hello"), ("assistant", "Hi!")]
        assert found["seed"]["agent_meta"] == {"name": "Assistant", "iteration": 5}
        blob = json.loads(DOCUMENTS["real"])
        assert [one["content"] for one in found["real"]["memory_messages"]] == [
            one["content"] for one in blob["agent"]["memory"]["messages"]
        ]
        assert found["real"]["planNotebook_state"] == blob["planNotebook"]
        assert found["real"]["moodTracker"] == blob["moodTracker"]
        assert found["real"]["toolkit_activeGroups"] == blob["toolkit"]

    async def test_leaves_the_source_as_it_is(self, left: Left, target: Path) -> None:
        await left.fill()
        before = await left.snapshot()

        await migrate(left.named, target)

        assert await left.snapshot() == before

    async def test_a_second_run_changes_nothing(self, left: Left, target: Path) -> None:
        await left.fill()
        first = await migrate(left.named, target)
        before = files_in(target)

        second = await migrate(left.named, target)

        assert (second.written, second.already_there, second.kept) == (0, first.written, [])
        assert counts(second) == counts(first)
        assert files_in(target) == before

    @pytest.mark.parametrize("layout", ["2.x", "1.x"])
    async def test_source_and_target_may_be_one_place(self, left: Left, layout: str) -> None:
        await left.fill()
        before = await left.snapshot()
        dry = await migrate(left.named, self.in_place(left), layout=layout, dry_run=True)
        assert await left.snapshot() == before

        report = await migrate(left.named, self.in_place(left), layout=layout)

        assert counts(report) == counts(dry) == COUNTS
        there = 0 if layout == "2.x" else 4
        assert (report.written, report.already_there) == (dry.written, dry.already_there) == (11 - there, there)
        after = await left.snapshot()
        assert without_columns(before).items() <= without_columns(after).items()
        again = await migrate(left.named, self.in_place(left), layout=layout)
        assert (counts(again), again.written, again.already_there) == (COUNTS, 0, 11)
        assert await left.snapshot() == after

    async def test_a_dry_run_writes_nothing(self, left: Left, target: Path) -> None:
        await left.fill()
        before = await left.snapshot()

        report = await migrate(left.named, target, dry_run=True)

        assert (counts(report), report.written, report.dry_run) == (COUNTS, 11, True)
        assert not target.exists()
        assert await left.snapshot() == before

    async def test_what_the_target_has_is_kept(self, left: Left, target: Path) -> None:
        await left.fill()
        async with JsonFileAgentStateStore(target) as states:
            await states.save("real", "moodTracker", {"mood": "better"})
            await states.save("seed", "memory_messages", {"no": "list"})
            await states.save("user123", "agent_meta", dict(reversed(USER123["agent_meta"].items())))
            dry = await migrate(left.named, states, dry_run=True)
            also_dry = await migrate(left.named, target, dry_run=True)

            report = await migrate(left.named, states)

            assert await states.get("real", "moodTracker") == {"mood": "better"}
            assert await states.get("seed", "memory_messages") == {"no": "list"}
        assert report.kept == dry.kept == also_dry.kept
        assert sorted(report.kept) == ["'memory_messages' of session 'seed'", "'moodTracker' of session 'real'"]
        assert (report.written, report.already_there) == (also_dry.written, also_dry.already_there) == (8, 1)

    @pytest.mark.parametrize("writes", [0, 1, 4, 9])
    async def test_an_interrupted_run_is_run_again(self, left: Left, target: Path, writes: int) -> None:
        await left.fill()
        async with Failing(target) as states:
            states.writes = writes
            with pytest.raises(Stopped):
                await migrate(left.named, states)

        report = await migrate(left.named, target)

        assert (counts(report), report.written, report.already_there) == (COUNTS, 11 - writes, writes)
        async with JsonFileAgentStateStore(target) as states, SqliteAgentStateStore(target.parent / "x.db") as others:
            await migrate(left.named, others)
            assert await everything(states) == await everything(others)

    async def test_who_listens_is_told_and_may_stop_it(self, left: Left, target: Path) -> None:
        await left.fill()
        told: list[tuple[int, int | None, str]] = []

        def stop(done: int, total: int | None, what: str) -> None:
            told.append((done, total, what))
            if done == 2:
                raise Stopped

        with pytest.raises(Stopped):
            await migrate(left.named, target, progress=stop)
        assert [(done, total) for done, total, _ in told] == [(1, 3), (2, 3)]
        assert "user123" in told[0][2]
        assert (await migrate(left.named, target)).written < 11

    async def test_a_session_that_went_on_in_1x_is_not_that_of_its_document(self, left: Left, target: Path) -> None:
        await left.fill()
        await left.states("real", {"memory_messages": [{"newer": True}]})

        report = await migrate(left.named, target)

        assert (report.sessions, report.superseded, report.kept) == (3, 1, [])
        async with JsonFileAgentStateStore(target) as states:
            assert await states.get_list("real", "memory_messages") == [{"newer": True}]
            assert await states.get("real", "moodTracker") is None

    async def test_what_cannot_be_read_is_told_and_does_not_stop_the_rest(self, left: Left, target: Path) -> None:
        await left.fill()
        await left.document("torn", '{"memory":')
        await left.document("text", '"text"')
        await left.document("odd", '{"first": {"fine": true}, "memory": {"messages": [{"role": "ghost"}]}}')
        await left.document("layout", '{"first": {"fine": true}, "a:list": {"refused": true}}')
        await left.document("hidden", '{"memory": {"messages": []}}')
        await left.document("__anon__", '{"a": {}}')
        await left.states("hidden", {"first": {"fine": True}, "list": ['{"n": 1}', '{"n":', '{"n": 3}']})
        await left.states("array", {"first": {"fine": True}, "second": "[1]"})

        report = await migrate(left.named, target)

        found = {**COUNTS, "sessions": COUNTS["sessions"] + len(report.failed)}
        assert (counts(report), report.written) == (found, 11)
        reasons = {
            "torn": "is not JSON",
            "text": "object",
            "odd": "'ghost'",
            "layout": "'a:list' is refused",
            "hidden": "'list': item 1",
            "__anon__": "is refused",
            "array": "'second': is not a JSON object",
        }
        assert len(report.failed) == len(reasons)
        for session_id, part in reasons.items():
            [reason] = [reason for what, reason in report.failed if session_id in what]
            assert part in reason
        async with JsonFileAgentStateStore(target) as states:
            assert {key.session_id for key in await states.list_session_keys()} == {"seed", "real", "user123"}

    async def test_ids_are_taken_as_they_are(self, left: Left, target: Path) -> None:
        ids = ["sess 1", "会话", "a.b-c", "Ünïcode", "~x", "~odd", "100%", "a%20b", "a@b", "x" * 200]
        for session_id in ids:
            await left.states(session_id, {"a": {"id": session_id}})
        old = ["old one", "-rf", "..x", "alte Sitzung", "y" * 200]
        for session_id in old:
            await left.document(session_id, compact_document(session_id))

        report = await migrate(left.named, target, names="encoded")

        assert report.failed == report.left_out == []
        async with JsonFileAgentStateStore(target) as states:
            assert {key.session_id for key in await states.list_session_keys()} == {*ids, *old}
            for session_id in [*ids, *old]:
                assert await states.get(session_id, "a") == {"id": session_id}

    async def test_ids_that_read_like_an_encoding_are_taken_as_they_are(self, left: Left, target: Path) -> None:
        ids = ["acme", "1440", "User", "anon", "QA", "city", "bd2f"]
        for session_id in ids:
            await left.states(session_id, {"a": {"id": session_id}})

        report = await migrate(left.named, target)

        assert (report.sessions, report.failed, report.left_out) == (len(ids), [], [])
        async with JsonFileAgentStateStore(target) as states:
            assert {key.session_id for key in await states.list_session_keys()} == {*ids}
            for session_id in ids:
                assert await states.get(session_id, "a") == {"id": session_id}

    async def test_what_is_in_the_layout_of_2x_already_is_left_alone(self, left: Left, target: Path) -> None:
        await left.fill()
        await migrate(left.named, self.in_place(left))

        report = await migrate(left.named, target)

        assert (counts(report), report.written) == (COUNTS, 11)

    async def test_sandboxes_are_no_sessions(self, left: Left, target: Path) -> None:
        await left.states("sandbox", {"_sandbox_state": {"json": "", "deleted": True}})

        assert (await migrate(left.named, target)).sessions == 0


def compact_document(session_id: str) -> str:
    return json.dumps({"a": {"id": session_id}}, ensure_ascii=False)
