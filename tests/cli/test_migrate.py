"""`leafward migrate`, as it is run in a shell."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.command import LEAFWARD, environment, leafward, leafward_in_terminal
from tests.importers.left import FIXTURES, files_in

MANY = 300


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return Path(shutil.copytree(FIXTURES, tmp_path / "sessions"))


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """Enough sessions to be met in the middle of them."""
    directory = tmp_path / "many"
    directory.mkdir()
    for number in range(MANY):
        blob = {"memory": {"messages": [{"role": "user", "content": str(number)}]}, "agent": {"n": number}}
        (directory / f"s{number}.json").write_text(json.dumps(blob))
    return directory


def until_some_are_moved(target: Path, running: subprocess.Popen[bytes]) -> None:
    """Return once the command is in the middle of it."""
    for _ in range(6000):
        if len(list((target / "__anon__").glob("*"))) > 20:
            return
        assert running.poll() is None
        time.sleep(0.005)
    pytest.fail("nothing was moved")


def started(source: Path, target: Path) -> subprocess.Popen[bytes]:
    command = [LEAFWARD, "migrate", str(source), str(target)]
    # What a shell starts in the background is told to ignore Ctrl-C, and so are its children.
    heeding = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, heeding)


def test_a_summary_tells_what_became_of_it(tmp_path: Path, source: Path) -> None:
    done = leafward("migrate", "sessions", "sqlite:///chat.db", cwd=tmp_path)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "   Target: sqlite:///chat.db",
        "   4 sessions found: 9 values, 4 lists, 8 messages.",
        "   13 states written, 0 already there, 0 kept as the target has them, 0 failed.",
        f"   Unclear: {source}/c2VzcyAx: taken for session 'sess 1'; AgentScope would give 'c2VzcyAx' the same name",
        "   Unclear names: look at each; names 'literal' or 'encoded' decides for all of them.",
    ]
    assert files_in(source) == files_in(FIXTURES)
    again = leafward("migrate", "sessions", "sqlite:///chat.db", "--json", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    found = json.loads(again.stdout)
    assert (found["sessions"], found["written"], found["already_there"], found["failed"]) == (4, 0, 13, [])
    assert [Path(one["what"]).name for one in found["unclear"]] == ["c2VzcyAx"]
    literal = leafward("migrate", "sessions", "sqlite:///chat.db", "--names", "literal", "--dry-run", cwd=tmp_path)
    assert "taken for session 'c2VzcyAx'" in literal.stdout


def test_without_a_target_the_sessions_stay_where_they_are(tmp_path: Path, source: Path) -> None:
    for name in ("sessions", f"file://{source}"):
        assert leafward("migrate", name, cwd=tmp_path).returncode == 0
    assert (source / "__anon__" / "user123" / "memory_messages.jsonl").exists()
    assert files_in(source).items() >= files_in(FIXTURES).items()
    assert leafward("migrate", "sessions", "--layout", "1.x", cwd=tmp_path).returncode == 0
    assert (source / "real" / "moodTracker.json").exists()


def test_the_environment_names_a_target(tmp_path: Path, source: Path) -> None:
    done = leafward("migrate", "sessions", cwd=tmp_path, LEAFWARD_STORE="sqlite:///chat.db")

    assert done.returncode == 0
    assert (tmp_path / "chat.db").exists()
    assert "Target: sqlite:///chat.db" in done.stdout
    assert files_in(source) == files_in(FIXTURES)


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_sessions_of_2x_are_counted_and_left_alone(tmp_path: Path, options: tuple[str, ...]) -> None:
    for user in ("__anon__", "alice"):
        session = tmp_path / "state" / user / "s1"
        session.mkdir(parents=True)
        (session / "agent_state.json").write_text('{"session_id": "s1", "context": []}')

    done = leafward("migrate", "state", "sqlite:///chat.db", *options, cwd=tmp_path)

    assert done.returncode == 0
    assert "0 sessions found" in done.stdout
    assert "2 sessions of 2.x left alone" in done.stdout
    found = leafward("migrate", "state", "sqlite:///chat.db", "--json", *options, cwd=tmp_path)
    assert (json.loads(found.stdout)["of_2x"], json.loads(found.stdout)["target"]) == (2, "sqlite:///chat.db")


def test_postgres_is_said_to_have_nothing_to_move(tmp_path: Path) -> None:
    done = leafward("migrate", "postgresql://app@db.example/chat", "new", cwd=tmp_path)

    assert done.returncode == 2
    assert "open them with PostgresAgentStateStore" in done.stderr


def test_a_dry_run_writes_nothing(tmp_path: Path, source: Path) -> None:
    before = files_in(tmp_path)

    done = leafward("migrate", "sessions", "--dry-run", cwd=tmp_path)
    other = leafward("migrate", "sessions", "sqlite:///chat.db", "--dry-run", "--json", cwd=tmp_path)

    assert "13 states would be written" in done.stdout
    assert json.loads(other.stdout)["dry_run"] is True
    assert files_in(tmp_path) == before
    assert not list(source.glob(".*"))


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_what_failed_is_listed_and_ends_with_2(tmp_path: Path, source: Path, options: tuple[str, ...]) -> None:
    (source / "bad\x1b[2J.json").write_text("{")

    done = leafward("migrate", "sessions", "new", *options, cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr == "Error: what is listed as failed could not be read: fix or delete it, then run this again\n"
    assert "is refused" in done.stdout
    assert "\x1b" not in done.stdout
    assert (tmp_path / "new" / "__anon__" / "user123").exists()
    if options:
        [failed] = json.loads(done.stdout)["failed"]
        assert failed["what"].endswith("bad\x1b[2J.json")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("nowhere",), "does not exist"),
        (("http://u:sesame@h/x",), "AgentScope keeps nothing at"),
        (("sessions", "nosuch://u:sesame@h"), "is not a store's URL"),
        (("mysql://u:sesame@127.0.0.1:1/x",), "cannot be reached"),
        (("redis://:sesame@127.0.0.1:1",), "cannot be reached"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, source: Path, words: tuple[str, ...], part: str) -> None:
    done = leafward("migrate", *words, cwd=tmp_path)

    assert done.returncode == 2
    assert part in done.stderr
    assert "sesame" not in done.stderr
    assert (done.stdout, done.stderr.count("\n")) == ("", 1)


def test_a_terminal_shows_how_far_it_is(tmp_path: Path, many: Path) -> None:
    code, written = leafward_in_terminal("migrate", "many", "new", cwd=tmp_path)

    assert code == 0
    assert "Moving sessions" in written
    assert f"/{MANY}" in written
    assert "Moving sessions" not in leafward("migrate", "many", "new", cwd=tmp_path).stderr


def test_killed_in_the_middle_it_can_be_run_again(tmp_path: Path, many: Path) -> None:
    whole = json.loads(leafward("migrate", "many", "whole", "--json", cwd=tmp_path).stdout)
    with started(many, tmp_path / "new") as running:
        until_some_are_moved(tmp_path / "new", running)
        running.send_signal(signal.SIGKILL)
        running.communicate()
    assert running.returncode == -signal.SIGKILL

    again = json.loads(leafward("migrate", "many", "new", "--json", cwd=tmp_path).stdout)

    counts = ("sessions", "values", "lists", "messages", "kept", "failed")
    assert [again[name] for name in counts] == [whole[name] for name in counts] == [MANY, MANY, MANY, MANY, [], []]
    assert 0 < again["written"] < 2 * MANY
    assert again["written"] + again["already_there"] == 2 * MANY
    files, expected = files_in(tmp_path / "new"), files_in(tmp_path / "whole")
    others = {path: data for path, data in files.items() if data != expected[path]}
    assert files.keys() == expected.keys()
    # The mark beside the list that was being written: it says nothing of its lines, which are all there.
    assert len(others) <= 1
    assert {(path.suffix, data) for path, data in others.items()} <= {(".hash", b"py:content")}


def test_interrupted_it_says_that_it_can_be_run_again(tmp_path: Path, many: Path) -> None:
    with started(many, tmp_path / "new") as running:
        until_some_are_moved(tmp_path / "new", running)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate()

    assert running.returncode == 1
    assert b"run the same command again" in errors
    assert errors.count(b"\n") == 1
    assert leafward("migrate", "many", "new", cwd=tmp_path).returncode == 0
    assert len(list((tmp_path / "new" / "__anon__").iterdir())) == MANY


def test_help_teaches_by_examples(tmp_path: Path) -> None:
    done = leafward("migrate", "--help", cwd=tmp_path)

    assert done.returncode == 0
    assert done.stdout.count("\n  $ leafward migrate ") == 4
    assert "agentscope_sessions_backup" in done.stdout
