"""The lock before a database file: nobody is passed by one who has just written."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from leafward.stores.sqlite.lock import WriterLock

PATIENCE_S = 30.0


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "chat.db-lock")


@pytest.fixture
def others() -> Generator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as others:
        yield others


def wait_until_held(path: str) -> None:
    number = os.open(path, os.O_RDWR)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            try:
                fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            fcntl.flock(number, fcntl.LOCK_UN)
            time.sleep(0.001)
        raise AssertionError(f"nobody holds {path}")
    finally:
        os.close(number)


def test_who_has_written_does_not_write_again_before_one_who_waits(path: str, others: ThreadPoolExecutor) -> None:
    written: list[str] = []

    def write_once() -> None:
        with closing(WriterLock(path)) as lock, lock:
            written.append("the other")

    with closing(WriterLock(path)) as lock:
        for _ in range(20):
            with lock:
                other = others.submit(write_once)
                wait_until_held(f"{path}-next")
            with lock:
                written.append("we again")
            other.result(PATIENCE_S)

    assert written == ["the other", "we again"] * 20


def test_one_who_closed_without_leaving_holds_nobody_up(path: str, others: ThreadPoolExecutor) -> None:
    lock = WriterLock(path)
    lock.__enter__()
    lock.close()
    lock.close()

    def write() -> str:
        with closing(WriterLock(path)) as other, other:
            return "done"

    assert others.submit(write).result(PATIENCE_S) == "done"


def test_one_that_could_not_be_opened_again_has_nothing_to_close(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = WriterLock(path)
    lock.close()
    opened = os.open

    def fail(name: str, *arguments: int) -> int:
        if name.endswith("-next"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opened(name, *arguments)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Too many"):
        lock.__init__(path)
    monkeypatch.undo()
    free = opened(path, os.O_RDWR)
    lock.close()
    os.fstat(free)
    os.close(free)
