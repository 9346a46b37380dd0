"""Child processes that have imported everything and wait for one job, seen from the parent."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

_ROOT = Path(__file__).resolve().parent.parent


class WorkerFailed(Exception):
    """A child said too little, too late, or ended when it should not."""


class Worker:
    """One child process in a process group of its own; leaving the context ends and reaps it."""

    def __init__(self, *options: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the child
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "faults.child", *options],
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": path},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin = self._process.stdin
        self._stdout = self._process.stdout
        self._fd = self._stdout.fileno()
        self._last_errors = ""
        self._rest = b""
        self._lines: deque[str] = deque()
        self.said: list[str] = []
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def send(self, job: Mapping[str, Any]) -> None:
        """Give the child its job.

        Raises:
            WorkerFailed: the child has ended already.
        """
        data = memoryview(json.dumps(job).encode() + b"\n")
        try:
            while data:
                data = data[os.write(self._stdin.fileno(), data) :]
        except BrokenPipeError as error:
            raise WorkerFailed(f"ended before its job came; its errors: {self.errors()}") from error

    def line(self, *, deadline: float) -> str | None:
        """Return the next line the child said, None when it has ended.

        Raises:
            WorkerFailed: nothing was said until `deadline` (of `time.monotonic`).
        """
        while not self._lines and not self._ended:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._fd], [], [], left)[0]:
                raise WorkerFailed(f"silent for too long; its errors: {self.errors()}")
            self._receive()
        return self._lines.popleft() if self._lines else None

    def wait_for(self, prefix: str, *, deadline: float) -> None:
        """Return when the child has said a line that starts with `prefix`, or an error line.

        Raises:
            WorkerFailed: the child ended first, or was silent until `deadline`.
        """
        line = ""
        while not line.startswith((prefix, "x ")):
            following = self.line(deadline=deadline)
            if following is None:
                raise WorkerFailed(f"ended before saying {prefix!r}; its errors: {self.errors()}")
            line = following

    def heard(self) -> list[str]:
        """Return all it said until now."""
        while not self._ended and select.select([self._fd], [], [], 0)[0]:
            self._receive()
        return self.said

    def finish(self, *, deadline: float) -> list[str]:
        """Wait until the child ends by itself and return all it said.

        One that does not end is killed, and an error line is added to what it said.
        """
        try:
            while self.line(deadline=deadline) is not None:
                pass
        except WorkerFailed as error:
            self.kill()
            return [*self.said, error_line(error)]
        return self.said

    def stop(self) -> None:
        """Let the child do nothing, and know nothing of it, until `go_on`."""
        os.killpg(self._process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """Let a stopped child go on."""
        os.killpg(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the child's process group with SIGKILL and reap it; what it said stays readable."""
        if self._stdout.closed:
            return
        if self._process.poll() is None:
            # Not reaped yet, so its id still names this group.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        while not self._ended:
            self._receive()
        self._last_errors = self.errors()
        for stream in (self._stdin, self._stdout, self._errors):
            stream.close()

    def errors(self) -> str:
        """Return the end of what the child wrote as errors."""
        if self._errors.closed:
            return self._last_errors
        self._errors.seek(0)
        return self._errors.read()[-2000:].decode(errors="replace")

    def _receive(self) -> None:
        data = os.read(self._fd, 1 << 16)
        self._ended = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        self.said.extend(line.decode() for line in lines)
        self._lines.extend(line.decode() for line in lines)


def wait_for_any(workers: Iterable[Worker], *, deadline: float) -> None:
    """Return when one of them has said more, or ended.

    Raises:
        TimeoutError: all were silent until `deadline`.
    """
    left = deadline - time.monotonic()
    if left <= 0 or not select.select([worker._fd for worker in workers if not worker._ended], [], [], left)[0]:
        raise TimeoutError


class Pool:
    """Workers started ahead of their use, so that a job begins at once."""

    def __init__(self, *options: str, ahead: int = 2) -> None:
        self._options = options
        self._ready = deque(Worker(*options) for _ in range(ahead))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._ready:
            worker.kill()

    def take(self) -> Worker:
        """Return a waiting worker, which now belongs to the caller, and start another."""
        self._ready.append(Worker(*self._options))
        return self._ready.popleft()


def begin_together(workers: Sequence[Worker], jobs: Sequence[Mapping[str, Any]], *, deadline: float) -> None:
    """Give each worker its job, and let them begin at one moment when all are ready.

    Raises:
        WorkerFailed: one of them was not ready before `deadline`.
    """
    for worker, job in zip(workers, jobs, strict=True):
        worker.send(job)
    for worker in workers:
        worker.wait_for("ready", deadline=deadline)
    for worker in workers:
        worker.send({"go": True})


def error_line(error: Exception) -> str:
    """Return the line that tells the judge of an error."""
    return f"x {type(error).__name__}: {error}".replace("\n", " ")


Say = Callable[[str], None]
