"""Servers end with the process that started them, and one run of pytest has one set of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import pytest

from tests.servers.processes import is_running, wait_until

ROOT = Path(__file__).parents[2]

STARTED_AND_LEFT = """
import sys
from tests.servers.mariadb import MariaDB
from tests.servers.postgres import Postgres
from tests.servers.redis import Redis
for kind in (MariaDB, Postgres, Redis):
    server = kind(fast=True)
    server.start()
    print(server.pid, server.directory, flush=True)
    globals()[kind.__name__] = server
print(flush=True)
sys.stdin.read()
"""

SHARED_TESTS = """
import pytest

@pytest.mark.parametrize("number", range(8))
def test_which(number, redis_url):
    with open("seen", "a") as seen:
        seen.write(redis_url + "\\n")

def test_none_is_needed():
    pass
"""


@contextmanager
def started() -> Iterator[tuple[subprocess.Popen[str], list[tuple[int, Path]]]]:
    """A process that started three servers, with their numbers and directories."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTED_AND_LEFT],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout
        pairs = [line.split() for line in takewhile(lambda line: line != "\n", process.stdout)]
        yield process, [(int(pid), Path(directory)) for pid, directory in pairs]


@pytest.mark.server
@pytest.mark.parametrize("end", ["killed", "killed with its group", "interrupted", "ended"])
def test_servers_end_with_their_process_however_it_ends(end: str) -> None:
    with started() as (process, servers):
        assert len(servers) == 3
        assert all(is_running(pid) and directory.is_dir() for pid, directory in servers)
        if end == "ended":
            assert process.stdin
            process.stdin.close()
        elif end == "killed with its group":
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.send_signal(signal.SIGKILL if end == "killed" else signal.SIGTERM)
        process.wait()

    for pid, directory in servers:
        wait_until(lambda pid=pid: not is_running(pid), f"server {pid} to end")
        wait_until(lambda directory=directory: not directory.exists(), f"{directory} to be removed")


def run_pytest(directory: Path, *options: str, **environment: str) -> str:
    """Run tests that use our fixtures in a directory of their own; return what pytest printed."""
    (directory / "conftest.py").write_text("from tests.conftest import *\n", encoding="utf-8")
    (directory / "test_shared.py").write_text(SHARED_TESTS, encoding="utf-8")
    (directory / "seen").touch()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--import-mode=importlib", "-rA", *options],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def seen(directory: Path) -> list[str]:
    return (directory / "seen").read_text(encoding="utf-8").splitlines()


@pytest.mark.server
@pytest.mark.parametrize("workers", [0, 2])
def test_all_tests_of_a_run_share_one_server(tmp_path: Path, workers: int) -> None:
    assert "9 passed" in run_pytest(tmp_path, "-n", str(workers), LEAFWARD_TEST_REDIS="")

    assert len(seen(tmp_path)) == 8
    assert len(set(seen(tmp_path))) == 1


@pytest.mark.parametrize("workers", [0, 2])
def test_a_server_the_environment_names_is_used_instead(tmp_path: Path, workers: int) -> None:
    run_pytest(tmp_path, "-n", str(workers), LEAFWARD_TEST_REDIS="redis://elsewhere/7")

    assert set(seen(tmp_path)) == {"redis://elsewhere/7"}


def test_tests_that_ask_for_a_server_can_be_left_out(tmp_path: Path) -> None:
    told = run_pytest(tmp_path, "-m", "not server")

    assert "1 passed, 8 deselected" in told
    assert seen(tmp_path) == []
