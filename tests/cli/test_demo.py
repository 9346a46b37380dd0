"""`leafward demo`, run as a user runs it."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leafward import Session, SessionManager, StoreError, open_store, user
from leafward.cli import story
from leafward.cli.agent_steps import compact, fork
from leafward.cli.file_steps import crash, reopen
from leafward.cli.screen import Screen
from leafward.cli.stage import AGENT, Demo
from leafward.cli.turn_step import turn
from tests.cli.command import leafward, leafward_in_terminal, python


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def first(home: Path) -> subprocess.CompletedProcess[str]:
    """The first run in a directory."""
    return leafward("demo", cwd=home)


@pytest.fixture(scope="module")
def second(home: Path, first: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What a second run in the same directory found."""
    assert first.returncode == 0, first.stderr
    done = leafward("demo", "--json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def step(found: dict[str, Any], name: str) -> dict[str, Any]:
    return next(one for one in found["steps"] if one["step"] == name)


def test_it_succeeds_and_says_that_nothing_was_lost(first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 0, first.stderr
    assert first.stderr == ""
    counts = re.search(r"Acknowledged (\d+), found (\d+), lost 0", first.stdout)
    assert counts is not None
    assert int(counts[2]) - int(counts[1]) in (0, 1)


def test_it_is_plain_when_piped(first: subprocess.CompletedProcess[str]) -> None:
    assert "\x1b" not in first.stdout
    assert "\r" not in first.stdout
    assert [line for line in first.stdout.splitlines() if line != line.rstrip()] == []


def test_matches_are_marked_in_english_and_chinese(first: subprocess.CompletedProcess[str]) -> None:
    assert "What if I go by [bicycle] instead?" in first.stdout
    assert "learn about [green tea]." in first.stdout
    assert "我想在西湖边喝[龙井]茶" in first.stdout


def test_it_draws_both_branches(first: subprocess.CompletedProcess[str]) -> None:
    assert re.search(r"├─ ○ user +How do I get there", first.stdout)
    assert re.search(r"└─ ● user +What if I go by bicycle", first.stdout)


def test_the_printed_lines_open_the_file_again(home: Path, first: subprocess.CompletedProcess[str]) -> None:
    lines = first.stdout[first.stdout.index("import asyncio") : first.stdout.index("   All of it held.")]

    done = python(lines, cwd=home)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("user Plan three days in Hangzhou")
    assert done.stdout.splitlines()[-1] == "user The bicycle it is. And tea when I arrive."


def test_the_writer_was_killed_by_the_signal(second: dict[str, Any]) -> None:
    assert step(second, "crash")["exit_code"] == -9


def test_a_second_run_remembers_the_first(second: dict[str, Any]) -> None:
    assert second["session_id"] == "demo-2"
    assert step(second, "remember")["earlier"] == [
        {"session_id": "demo-1", "messages": 7, "last": "The bicycle it is. And tea when I arrive."}
    ]


async def test_the_file_holds_what_the_demo_says(home: Path, second: dict[str, Any]) -> None:
    acknowledged = step(second, "reopen")["acknowledged"]

    async with open_store(f"sqlite:///{second['path']}") as store:
        session = Session(store, second["session_id"], agent_id=second["agent_id"])
        train = await session.get_raw_history(f"m{acknowledged}")
        labels = await session.get_labels()
        leaves = [leaf.id for leaf in await session.get_leaves()]

    assert Path(second["path"]) == home / "leafward-demo.db"
    assert [message.id for message in train] == [f"m{number}" for number in range(1, acknowledged + 1)]
    assert labels == {f"m{acknowledged + 1}": "by train", "bike-2": "by bike"}
    assert leaves == [f"m{acknowledged + 1}", "bike-3"]


def test_a_note_is_in_the_prompt_only_after_a_refresh(second: dict[str, Any]) -> None:
    noted = step(second, "note")

    assert noted["answer"].startswith("Written to traveller.")
    assert noted["refusal"].startswith("Error: block 'traveller' would hold")
    assert story.NOTE["content"] not in noted["prompt_before"]
    assert story.NOTE["content"] in noted["prompt"]


async def test_the_summary_and_all_it_covers_are_in_the_file(second: dict[str, Any]) -> None:
    said = step(second, "compact")

    async with open_store(f"sqlite:///{second['path']}") as store:
        session = Session(store, second["session_id"], agent_id=second["agent_id"])
        last = step(second, "reopen")["acknowledged"] + 1
        seen = await session.get_history(f"m{last}")
        covered = await session.get_covered(said["compaction_id"], limit=1000)

    assert said["tokens_after"] < said["tokens_before"] / 4
    assert [message.text for message in seen if message.id.startswith("compaction_")] == [story.SUMMARY]
    assert len(seen) == said["seen"] == said["messages"] - said["covered"] + 1
    assert len(covered) == said["covered"]
    expected = [story.message(number) for number in range(4, 4 + len(covered))]
    assert [(one.id, one.parts) for one in covered] == [(one.id, one.parts) for one in expected]


async def test_the_fork_goes_its_own_way(second: dict[str, Any]) -> None:
    said = step(second, "fork")

    async with open_store(f"sqlite:///{second['path']}") as store:
        manager = SessionManager(store, agent_id=second["agent_id"])
        forked = await manager.get(said["session_id"])
        path = [message.id for message in await manager.get_history(said["session_id"])]

    assert forked is not None
    assert forked.parent_session_id == second["session_id"]
    assert path[: len(said["path"])] == said["path"] == ["m1", "m2", "m3", "m4", "boat-1"]
    assert said["notes"] == story.NOTE["content"]


async def test_an_unloaded_guide_is_out_of_sight_but_stored(second: dict[str, Any]) -> None:
    said = step(second, "skill")

    async with open_store(f"sqlite:///{second['path']}") as store:
        session = Session(store, step(second, "fork")["session_id"], agent_id=second["agent_id"])
        seen = {message.id: message for message in await session.get_history()}
        stored = await session.get_message("load-1")
        loaded = await session.get_loaded_skill_keys()

    assert loaded == []
    assert said["tokens_unloaded"] < said["tokens_loaded"]
    assert stored is not None
    assert stored.parts[0]["output"][0]["text"] == story.load_guide(story.GUIDE)
    assert seen["load-1"].parts[0]["output"][0]["text"] == said["notice"] == f"[skill unloaded: {story.GUIDE}]"


def test_a_turn_that_was_killed_inside_its_tools_goes_on_and_books_once(second: dict[str, Any]) -> None:
    found = step(second, "turn")

    assert found["exit_code"] == -9
    assert found["stored_before"] == ["user", "assistant"]
    assert found["stored_after"] == ["user", "assistant", "tool", "tool", "assistant", "tool", "assistant"]
    assert found["ran_again"] == ["forecast", "find_bookings"]
    assert found["outcome"].startswith("Outcome unknown: the process ended while this ran.")
    assert found["bookings"] == 1
    assert found["reply"] == "Your bicycle is booked for Saturday, and it will be sunny."


def test_the_demo_says_what_is_scripted(first: subprocess.CompletedProcess[str]) -> None:
    assert "No model is asked here: its words are scripted." in first.stdout
    assert "a summary (a scripted one)" in first.stdout


def test_highlights_are_offsets_of_the_words_in_the_snippet(second: dict[str, Any]) -> None:
    found = step(second, "search")["found"]

    (snippet, highlights), *_ = [(one["snippet"], one["highlights"]) for one in found["龙井"]]

    assert [snippet[start:end] for start, end in highlights] == ["龙井"]


def test_a_terminal_gets_colours_and_json_gets_none(tmp_path: Path) -> None:
    code, written = leafward_in_terminal("demo", cwd=tmp_path)
    json_code, json_written = leafward_in_terminal("demo", "--json", cwd=tmp_path)

    assert (code, json_code) == (0, 0)
    assert "\x1b[1;36m1. Open a file\x1b[0m" in written
    assert json.loads(json_written)["session_id"] == "demo-2"


def test_no_color_is_honoured_in_a_terminal(tmp_path: Path) -> None:
    code, written = leafward_in_terminal("demo", cwd=tmp_path, NO_COLOR="1")

    assert code == 0
    assert "\x1b" not in written


def test_an_output_that_knows_no_chinese_gets_stand_ins(tmp_path: Path) -> None:
    done = leafward("demo", cwd=tmp_path, PYTHONIOENCODING="ascii")

    assert done.returncode == 0, done.stderr
    assert "search ??" in done.stdout


async def test_stored_text_cannot_command_the_terminal(tmp_path: Path) -> None:
    async with open_store(f"sqlite:///{tmp_path}/leafward-demo.db") as store:
        await Session(store, "demo-runs", agent_id="demo").append_message(user("an earlier run"))
        nasty = user("\x1b]0;owned\x07\x1b[2J\x9b5m\u202etxt\nend")
        await Session(store, "demo-1", agent_id="demo").append_message(nasty)

    code, written = leafward_in_terminal("demo", cwd=tmp_path)

    assert code == 0
    assert "the last: \ufffd]0;owned\ufffd\ufffd[2J\ufffd5m\ufffdtxt end" in written


def test_a_new_directory_is_made_for_the_file(tmp_path: Path) -> None:
    done = leafward("demo", "--json", "--path", "new/place/chat.db", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "new" / "place" / "chat.db").is_file()


def test_what_lies_in_the_current_directory_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "asyncio.py").write_text("raise SystemExit('ran a stranger')", encoding="utf-8")

    done = leafward("demo", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr


def make_text(path: Path) -> None:
    path.write_text("This is a shopping list, long enough to have a header. " * 40, encoding="utf-8")


def make_newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE leafward_meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID")
        database.execute("INSERT INTO leafward_meta VALUES ('schema', '999')")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (Path.mkdir, "chat.db is a directory"),
        (make_text, "chat.db is not a SQLite database"),
        (make_newer, "chat.db was written by a newer leafward"),
    ],
)
def test_a_file_that_cannot_be_used_gets_one_sentence(
    tmp_path: Path, make: Callable[[Path], object], sentence: str
) -> None:
    make(tmp_path / "chat.db")

    done = leafward("demo", "--path", "chat.db", cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("Error: ")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


async def store_opening(path: Path, numbers: range) -> list[str]:
    """Store messages of the demo's conversation as its first run would, and return their ids."""
    async with open_store(f"sqlite:///{path}") as store:
        stored = [story.message(number) for number in numbers]
        await Session(store, "demo-1", agent_id=AGENT).append_messages(stored)
    return [message.id for message in stored]


async def test_a_lost_message_fails_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    acknowledged = [*await store_opening(path, range(1, 9)), "m9"]

    with pytest.raises(StoreError, match="9 acknowledged, 8 found, 1 lost"):
        await reopen(Demo(path, 1, acknowledged), Screen(quiet=True))


async def test_an_altered_message_fails_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    acknowledged = await store_opening(path, range(1, 9))
    async with open_store(f"sqlite:///{path}") as store:
        await Session(store, "demo-1", agent_id=AGENT).update_message(user("Something else.", id="m3"))

    with pytest.raises(StoreError, match="8 acknowledged, 8 found, 1 lost"):
        await reopen(Demo(path, 1, acknowledged), Screen(quiet=True))


async def test_a_message_nobody_sent_fails_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    acknowledged = await store_opening(path, range(1, 9))
    await store_opening(path, range(9, 11))

    with pytest.raises(StoreError, match="8 acknowledged, 10 found"):
        await reopen(Demo(path, 1, acknowledged), Screen(quiet=True))


async def test_a_branch_that_is_not_compacted_fails_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    await store_opening(path, range(1, 5))
    async with open_store(f"sqlite:///{path}") as store:
        await Session(store, "demo-1", agent_id=AGENT).label("m4", "by train")

    with pytest.raises(StoreError, match="found nothing to summarise"):
        await compact(Demo(path, 1), Screen(quiet=True))


async def test_a_fork_without_the_notes_fails_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    await store_opening(path, range(1, 9))

    with pytest.raises(StoreError, match="a fork is not a copy"):
        await fork(Demo(path, 1), Screen(quiet=True))


async def test_an_effect_that_happened_twice_fails_the_demo(tmp_path: Path) -> None:
    path = tmp_path / "chat.db"
    async with open_store(f"sqlite:///{path}") as store:
        await Session(store, "demo-1-turn-bookings", agent_id=AGENT).append_message(user("a bicycle on Saturday"))

    with pytest.raises(StoreError, match="2 bookings of one"):
        await turn(Demo(path, 1), Screen(quiet=True))


async def test_an_agent_that_cannot_store_says_why(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"ended before it was killed: .* is a directory"):
        await turn(Demo(tmp_path, 1), Screen(quiet=True))


async def test_a_writer_that_cannot_write_says_why(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"ended before it was killed: .* is a directory"):
        await crash(Demo(tmp_path, 1), Screen(quiet=True))


def test_what_another_process_saved_is_loaded(second: dict[str, Any]) -> None:
    found = step(second, "state")
    assert found["plan"] == "Hangzhou"
    assert found["steps"] == {"Walk around West Lake": "DONE", "Taste Longjing tea 龙井": "TODO"}
    assert len(found["messages"]) == 2
    assert found["version"] == 1
