"""What all private servers have in common: a directory, a port, a password, and a life that ends with ours."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.servers.guardian import guard, release
from tests.servers.ports import Port
from tests.servers.processes import kill_tree

HOST = "127.0.0.1"
_FAST = Path("/dev/shm")
_PATIENCE = 60.0
_STEP = 0.01
_TAIL = 4000


class ServerFailed(RuntimeError):
    """A private server did not do what it was told; the message ends with the end of its log."""


class Server(ABC):
    """A private server on a free port of 127.0.0.1, for this process only.

        with Postgres(fast=True) as server:
            server.kill()
            server.start()      # the same port, the same data

    It is durable by default, as users run it; `settings` are lines added to its configuration file, read at each
    start, so a test may change them in between. With `fast` its directory is in memory where the machine has
    such a place: what a killed server would have left on disk is there, a power cut is not what we test with it.
    All calls block until what they say is true.
    """

    account: ClassVar[str | None] = None
    """Who runs it when we are root; nobody, where that account is missing."""
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, *, fast: bool = False, settings: Sequence[str] = (), password: str | None = None) -> None:
        self.settings = list(settings)
        self.password = password or secrets.token_hex(12)
        self._port = Port()
        self.port = self._port.number
        place = _FAST if fast and _FAST.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(prefix="leafward-server-", dir=place))
        guard(self.directory)
        self._owner = _owner(self.account)
        if self._owner:
            os.chown(self.directory, self._owner.pw_uid, self._owner.pw_gid)
        self._process: subprocess.Popen[Any] | None = None
        self._is_prepared = False

    @property
    @abstractmethod
    def url(self) -> str:
        """What a user would give to `open_store`."""

    @abstractmethod
    def _prepare(self) -> None:
        """Make the data, before the first start."""

    @abstractmethod
    def _command(self) -> list[str]:
        """Write the configuration, then return the command that runs the server in the foreground."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether a client that logs in is answered."""

    def _finish(self) -> None:  # noqa: B027 - most servers need nothing more
        """Do what the first start needs a running server for."""

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither killed nor stopped since."""
        return self._process is not None

    @property
    def pid(self) -> int:
        """The number of the server's first process, which started all others."""
        if self._process is None:
            raise ServerFailed(f"{type(self).__name__} is not running")
        return self._process.pid

    def start(self) -> None:
        """Start it, on the same port and data as before, and return when clients are answered.

        Raises:
            ServerFailed: it ended, or does not answer.
            ProgramMissing: it is not installed.
        """
        if self._process:
            raise ServerFailed(f"{type(self).__name__} is running already")
        is_first = not self._is_prepared
        if is_first:
            self._prepare()
        self._launch(self._command())
        self._wait_until_ready()
        if is_first:
            self._finish()
            self._is_prepared = True

    def kill(self) -> None:
        """End it as a crash does: SIGKILL to all its processes, none left when this returns."""
        kill_tree(self.pid)
        self._forget_process()

    def stop(self) -> None:
        """End it as its administrator would, keeping its data.

        Raises:
            ServerFailed: it did not end by itself, and was killed.
        """
        process = self._process
        if process is None:
            return
        process.send_signal(self.stop_signal)
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self._failure("did not stop") from None
        self._forget_process()

    def close(self) -> None:
        """End it and remove its directory."""
        if not self.directory.exists():
            return
        try:
            self.stop()
        finally:
            shutil.rmtree(self.directory)
            release(self.directory)
            self._port.release()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _launch(self, command: Sequence[str]) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self._identity(),
            )
        guard(self._process.pid)

    def _wait_until_ready(self) -> None:
        assert self._process
        deadline = time.monotonic() + _PATIENCE
        while not self._is_ready():
            if self._process.poll() is not None:
                failure = self._failure("ended while starting")
                self._forget_process()
                raise failure
            if time.monotonic() > deadline:
                self.kill()
                raise self._failure(f"did not answer for {_PATIENCE:g} s")
            time.sleep(_STEP)

    def _forget_process(self) -> None:
        assert self._process
        self._process.wait()
        release(self._process.pid)
        self._process = None

    def _run(self, *command: str, env: Mapping[str, str] | None = None) -> None:
        """Run a program of the server's as the server's account."""
        done = subprocess.run(
            command,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
            check=False,
            **self._identity(),
        )
        with self._log.open("ab") as log:
            log.write(done.stdout)
        if done.returncode:
            raise self._failure(f"could not be set up: {Path(command[0]).name} ended with {done.returncode}")

    def _write(self, name: str, lines: Sequence[str]) -> Path:
        """Write a file that only the server's account can read."""
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        if self._owner:
            os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        return path

    def _identity(self) -> dict[str, Any]:
        if self._owner is None:
            return {}
        return {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}

    @property
    def _log(self) -> Path:
        return self.directory / "server.log"

    def _failure(self, what: str) -> ServerFailed:
        log = self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""
        return ServerFailed(f"{type(self).__name__} on port {self.port} {what}. Its log ends:\n{log[-_TAIL:]}")


def _owner(account: str | None) -> pwd.struct_passwd | None:
    """Return the account to run as, or None to stay who we are."""
    if account is None or os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam(account)
    except KeyError:
        return pwd.getpwnam("nobody")
