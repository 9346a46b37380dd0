"""The README's "Outgrow one machine": its very program, run against all six backends."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from leafward import SessionManager, open_store
from leafward.core.ids import new_id

README = Path(__file__).parent.parent.parent / "README.md"
SERVERS = {"postgresql": "postgres_url", "mysql": "mysql_url", "redis": "redis_url"}
BACKENDS = ["memory", "sqlite", "file", *(pytest.param(name, marks=pytest.mark.server) for name in SERVERS)]


def section() -> str:
    return README.read_text(encoding="utf-8").partition("## Outgrow one machine\n")[2].partition("\n## ")[0]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (code,) = re.findall(r"```python\n(.*?)```", section(), re.DOTALL)
    path = tmp_path / "replicas.py"
    path.write_text(code, encoding="utf-8")
    return path


@pytest.fixture
def url(backend: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    here = {"memory": "memory://chats", "sqlite": f"sqlite:///{tmp_path}/chat.db", "file": f"file:///{tmp_path}/chats"}
    return here[backend] if backend in here else request.getfixturevalue(SERVERS[backend])


@pytest.fixture
async def session_id(url: str) -> AsyncGenerator[str]:
    """A session of this test's own, gone afterwards: servers are shared."""
    name = f"outgrow {new_id()}"
    yield name
    async with open_store(url) as store:
        await SessionManager(store, user_id="alice").delete(name)


def start(program: Path, url: str, session_id: str, *names: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(program), url, session_id, *names]
    return subprocess.Popen(command, cwd=program.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> str:
    printed, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    return printed


async def check(url: str, session_id: str, messages: int) -> None:
    """See that turns followed each other, each knowing all before it."""
    async with open_store(url) as store:
        history = await SessionManager(store, user_id="alice").get_history(session_id)
    assert len(history) == messages
    for place in range(0, messages, 2):
        asked, answered = history[place : place + 2]
        name = asked.text.rpartition(" ")[2]
        assert answered.text == f"{name} has seen {place + 1} messages."


@pytest.mark.parametrize("backend", BACKENDS)
async def test_the_program_runs_unchanged_on_every_backend(
    backend: str, program: Path, url: str, session_id: str
) -> None:
    printed = finish(start(program, url, session_id, "one", "two"))

    assert re.fullmatch(r"12 messages, durability: (none|process|power)\n", printed)
    if backend != "memory":
        await check(url, session_id, 12)


@pytest.mark.parametrize("backend", BACKENDS[1:])
async def test_processes_that_run_it_meet_in_one_conversation(
    backend: str, program: Path, url: str, session_id: str
) -> None:
    processes = [start(program, url, session_id, name) for name in ("one", "two")]
    for process in processes:
        finish(process)

    await check(url, session_id, 12)


def test_the_table_names_every_backend_and_what_to_install() -> None:
    project = (README.parent / "pyproject.toml").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)://[^`]*` \| `pip install '?\.(?:\[(\w+)\]')?` \|", section(), re.MULTILINE)

    assert [scheme for scheme, _ in rows] == ["memory", "sqlite", "file", *SERVERS]
    assert [extra for _, extra in rows if extra and f"\n{extra} = [" not in project] == []


@pytest.mark.parametrize("words", [(), ("memory://",), ("memory://", "chat-1")])
def test_the_program_called_wrongly_says_how_to_call_it(program: Path, words: tuple[str, ...]) -> None:
    command = [sys.executable, str(program), *words]

    done = subprocess.run(command, cwd=program.parent, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 2
    assert done.stderr.strip().endswith("python replicas.py URL SESSION NAME...")
    assert done.stdout == ""
