"""What the tests of journals on disk share."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from leafward import Message, Session, open_store, user
from leafward.core.ids import Owner, Scope
from leafward.stores.files import FileStore
from leafward.stores.files.journal_places import home
from leafward.stores.journal.lines import read

ROOT = Path(__file__).parents[2]


def opened(directory: Path, **options: Any) -> AbstractAsyncContextManager[Any]:
    """Open the store of a directory."""
    return open_store(f"file:///{directory}", **options)


def journal(directory: Path, session_id: str = "s", user_id: str | None = None, agent_id: str = "default") -> Path:
    """Return the file that holds a session."""
    return directory.joinpath(*home(Scope(Owner(agent_id, user_id), session_id)))


def shared_journal(directory: Path, user_id: str | None = None, agent_id: str = "default") -> Path:
    return directory.joinpath(*home(Owner(agent_id, user_id)))


def types(path: Path) -> list[str]:
    """Return the types of a journal's lines, all of which are sound."""
    found = read(path.read_bytes())
    assert found.torn is None
    assert not found.damage
    return [entry.type for entry in found.entries]


async def texts(store: Any, session_id: str = "s", **scope: Any) -> list[str]:
    return [message.text for message in await Session(store, session_id, **scope).get_history()]


async def fill(store: FileStore, session_id: str = "s", count: int = 4, **scope: Any) -> list[Message]:
    """Append messages m0, m1, … one at a time."""
    session = Session(store, session_id, **scope)
    return [await session.append_message(user(f"walnut {n}", id=f"m{n}")) for n in range(count)]


def drop_index(directory: Path) -> None:
    """Remove the index with all that belongs to it."""
    for path in directory.glob("index.sqlite*"):
        path.unlink()


IMPORTS = """
import asyncio, os, sys
from leafward import *
from tests.stores.files_store import *
"""


def start(program: str, directory: Path, arguments: Sequence[str] = ()) -> subprocess.Popen[str]:
    """Start a program of another process, which finds the store at `directory`."""
    lines = f"{IMPORTS}\ndirectory = Path({str(directory)!r})\n{program}"
    return subprocess.Popen(
        [sys.executable, "-c", lines, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


async def said(child: subprocess.Popen[str]) -> str:
    """Return the next line that a program says."""
    assert child.stdout is not None
    return (await asyncio.to_thread(child.stdout.readline)).strip()


def tell(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def end(child: subprocess.Popen[str]) -> None:
    if child.poll() is None:
        child.kill()
        child.wait()
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
