"""Runs the services of the examples with uvicorn, and asks them as a browser does."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

WORKERS = 2
STARTED_S = 60


@contextmanager
def running(program: Path, home: Path) -> Generator[str]:
    """Start a service with its database in `home`, yield its address, and end it as a process manager does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", f"{program.stem}:app", "--workers", str(WORKERS), "--port", str(port)]
    log = home / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--app-dir", str(program.parent), "--timeout-graceful-shutdown", "1"],
            cwd=home,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + STARTED_S
            while log.read_text().count("Application startup complete") < WORKERS:
                assert process.poll() is None, log.read_text()
                assert time.monotonic() < until, log.read_text()
                time.sleep(0.05)
            yield f"http://127.0.0.1:{port}"
            process.terminate()
            process.wait(timeout=30)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def client_of(address: str) -> httpx.AsyncClient:
    """Return a client that opens a connection for each request, so that both workers get some."""
    limits = httpx.Limits(max_keepalive_connections=0)
    return httpx.AsyncClient(base_url=address, headers={"X-User": "alice"}, limits=limits, timeout=30, trust_env=False)


async def events_of(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line:
            yield json.loads(line.removeprefix("data: "))
