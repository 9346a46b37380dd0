"""Who takes part, and the processes they run in.

Every contender is a child process that answers `driver.py`'s commands. Ours and the raw limits run in this
project's environment; each peer has one of its own under `bench/.venvs`, made here when it is missing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

HERE = Path(__file__).parent
ENVIRONMENTS = HERE / ".venvs"

LEAFWARD = "leafward"
RAW = "raw"
FILE = "file + fsync"
HOP = "raw on a thread"
FTS = "raw FTS5"
FTS_BLOCK = "raw FTS5 table"
COPY = "raw INSERT … SELECT"

LACKING = ("AttributeError:", "ImportError:", "ModuleNotFoundError:", "TypeError:")
"""How an error begins that a call or an option causes which a version does not have."""


@dataclass(frozen=True)
class Peer:
    """Somebody else's library: what to install and what is measured of it."""

    title: str
    module: str
    requirements: tuple[str, ...]
    imports: str
    durable: bool = True
    """Whether a finished append survives a power cut."""


PEERS = (
    Peer(
        "openai-agents SQLiteSession",
        "peers.openai_agents",
        ("openai-agents==0.24.0",),
        "from agents import SQLiteSession",
    ),
    Peer(
        "langgraph SqliteSaver",
        "peers.langgraph_checkpoint_sqlite",
        ("langgraph-checkpoint-sqlite==3.1.2", "langgraph-checkpoint==4.3.1", "langchain-core==1.7.2"),
        "from langgraph.checkpoint.sqlite import SqliteSaver",
    ),
    Peer(
        "google-adk SqliteSessionService",
        "peers.google_adk",
        ("google-adk==2.13.0", "aiosqlite", "sqlalchemy", "greenlet"),
        "from google.adk.sessions.sqlite_session_service import SqliteSessionService",
    ),
    Peer(
        "strands FileSessionManager",
        "peers.strands_agents",
        ("strands-agents==1.62.0",),
        "from strands.session.file_session_manager import FileSessionManager",
        durable=False,
    ),
)


class ContenderFailed(Exception):
    """A contender's own call raised, or its process ended, or it could not be installed."""

    def __init__(self, title: str, text: str) -> None:
        self.text = text
        super().__init__(f"{title}: {text}")


class Missing(Exception):
    """The contender's library has no such operation."""


@dataclass
class Contender:
    """One participant: how to start its process, and why it stopped taking part, if it did."""

    title: str
    command: tuple[str, ...]
    is_peer: bool = False
    imports: str = ""
    durable: bool = True
    version: str = ""
    may_lack: bool = False
    """Whether it is another version of leafward, in which calls may be missing that this one has."""

    @property
    def python(self) -> str:
        return self.command[0]


class Process:
    """A running contender."""

    def __init__(self, contender: Contender, errors: IO[bytes]) -> None:
        self.contender = contender
        self._child = subprocess.Popen(
            contender.command,
            cwd=HERE,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )

    def send(self, do: str, **arguments: Any) -> Callable[[], dict[str, Any]]:
        """Ask something and return the call that waits for the answer."""
        assert self._child.stdin is not None
        # A child that has ended is noticed where its answer is missing.
        with suppress(BrokenPipeError):
            self._child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self._child.stdin.flush()
        return self._answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Ask something and wait for the answer."""
        return self.send(do, **arguments)()

    def _answer(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise ContenderFailed(self.contender.title, f"its process ended with {self._child.wait()}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            if self.contender.may_lack and reply["error"].startswith(LACKING):
                raise Missing(self.contender.title)
            raise ContenderFailed(self.contender.title, reply["error"])
        if "none" in reply:
            raise Missing(self.contender.title)
        return reply

    def end(self) -> None:
        """Close the child's input, which ends it, and wait."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with suppress(BrokenPipeError):
            self._child.stdin.close()
        try:
            self._child.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._child.stdout.close()


@contextmanager
def running(contender: Contender, errors: Path) -> Iterator[Process]:
    """Start a contender for the length of the block; what it writes to stderr is added to `errors`."""
    with errors.open("ab") as log:
        process = Process(contender, log)
        try:
            yield process
        finally:
            process.end()


def local(title: str, module: str, *arguments: str) -> Contender:
    """Return a contender of this project's own environment."""
    return Contender(title, (sys.executable, "-m", module, *arguments))


def install(peer: Peer) -> Contender:
    """Return the peer, ready to start.

    Raises:
        ContenderFailed: it could not be installed; the text is the installer's last line.
    """
    home = ENVIRONMENTS / peer.module.removeprefix("peers.").replace("_", "-")
    python = home / "bin" / "python"
    uv = [sys.executable, "-m", "uv"]
    wanted = home / "requirements.txt"
    steps = [
        [*uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(home)],
        [*uv, "pip", "install", "--quiet", "--python", str(python), *peer.requirements],
    ]
    if wanted.exists() and wanted.read_text(encoding="utf-8").splitlines() == list(peer.requirements):
        steps = []
    for step in steps:
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines() or ["the installer said nothing"]
            raise ContenderFailed(peer.title, said[-1])
    wanted.write_text("\n".join(peer.requirements), encoding="utf-8")
    command = (str(python), "-m", peer.module)
    return Contender(
        peer.title,
        command,
        is_peer=True,
        imports=peer.imports,
        version=_installed_version(python, peer.requirements[0].split("==")[0]),
        durable=peer.durable,
    )


def _installed_version(python: Path, package: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout.strip()
