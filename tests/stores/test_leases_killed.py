"""On one machine a holder that was killed is followed at once, and one that waited holds up nobody."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from leafward import LeaseBusy, open_store
from leafward.stores import Store
from leafward.stores.leases import holder_process
from leafward.testing.elsewhere import elsewhere
from tests.stores.lease_child import PATIENCE, Child, started

LONG = 1000
"""Seconds that leases last here: longer than any test."""


@pytest.fixture(params=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    tmp_path.chmod(0o700)
    return f"sqlite:///{tmp_path}/chat.db" if request.param == "sqlite" else f"file:///{tmp_path}/chats"


@pytest.fixture
async def store(url: str) -> AsyncGenerator[Store]:
    async with open_store(url) as store:
        yield store


@pytest.fixture
async def child(store: Store, url: str, tmp_path: Path) -> AsyncGenerator[Child]:
    async with started(url, tmp_path / "ledger") as child:
        yield child


async def test_a_holder_that_was_killed_is_followed_at_once(store: Store, child: Child) -> None:
    token = int(await child(f"acquire {LONG}"))
    with pytest.raises(LeaseBusy):
        await store.leases.acquire("s", "alice", wait=0.3)
    assert await store.leases.send("s", "alice", "stop", label="agent:a")
    child.send_signal(signal.SIGKILL)

    async with asyncio.timeout(PATIENCE), store.leases.acquire("s", "alice", label="agent:a") as lease:
        assert lease.token > token
        assert await lease.receive() == ["stop"]


async def test_one_that_waits_already_follows_too(store: Store, child: Child) -> None:
    await child(f"acquire {LONG}")
    waiting = elsewhere(store.leases.acquire("s", "alice"))
    await asyncio.wait((waiting,), timeout=0.1)
    assert not waiting.done()
    child.send_signal(signal.SIGKILL)

    async with asyncio.timeout(PATIENCE):
        await (await waiting).release()


async def test_nothing_is_sent_to_a_holder_that_was_killed(store: Store, child: Child) -> None:
    await child(f"acquire {LONG}")
    assert await store.leases.holder("s", "alice") is not None
    child.send_signal(signal.SIGKILL)
    await child.end()

    assert await store.leases.holder("s", "alice") is None
    assert not await store.leases.send("s", "alice", "too late")


async def test_a_holder_that_is_stopped_is_not_gone(store: Store, child: Child) -> None:
    await child(f"acquire {LONG}")
    child.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(LeaseBusy):
            await store.leases.acquire("s", "alice", wait=0.3)
    finally:
        child.send_signal(signal.SIGCONT)


async def test_one_that_was_killed_while_it_waited_is_skipped_at_once(
    store: Store, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So long that its ticket does not run out while this test waits.
    monkeypatch.setattr("leafward.stores.leases.contracts.TICKET_TTL", float(LONG))
    began = time.monotonic()
    async with store.leases.acquire("s", "alice"):
        assert await child(f"queue {LONG}") == "queued"
        waiting = elsewhere(store.leases.acquire("s", "alice"))
        await asyncio.wait((waiting,), timeout=0.05)
        child.send_signal(signal.SIGKILL)
        await child.end()

    async with asyncio.timeout(5):
        await (await waiting).release()
    assert time.monotonic() - began < 9, "its ticket would have run out by itself"


class TestProcesses:
    def test_this_one_is_not_gone(self) -> None:
        me = holder_process.this_process()
        assert me is not None
        assert f" {os.getpid()} " in me
        assert not holder_process.is_gone(me)

    def test_one_that_ended_is_gone_also_before_it_was_waited_for(self) -> None:
        source = "import leafward.stores.leases.holder_process as p; print(p.this_process(), flush=True); input()"
        with subprocess.Popen(
            [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout is not None
            name = other.stdout.readline().strip()
            assert not holder_process.is_gone(name)
            other.kill()
            while Path(f"/proc/{other.pid}/stat").read_text(encoding="utf-8").split()[2] != "Z":
                time.sleep(0.01)
            assert holder_process.is_gone(name)
        assert holder_process.is_gone(name)

    def test_another_of_the_same_number_is_not_it(self) -> None:
        me = holder_process.this_process()
        assert me is not None
        assert holder_process.is_gone(f"{me}1")

    def test_of_another_machine_boot_or_namespace_nothing_is_known(self) -> None:
        me = holder_process.this_process()
        assert me is not None
        boot, namespace, pid, started_at = me.split()
        for name in (
            f"{boot}0 {namespace} 999999999 1",
            f"{boot} pid:[1] 999999999 1",
            f"0 {namespace} {pid} {started_at}1",
            "nothing like it",
            "",
            None,
        ):
            assert not holder_process.is_gone(name)

    def test_without_proc_nothing_is_known(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        me = holder_process.this_process()
        monkeypatch.setattr(holder_process, "_PROC", tmp_path)
        holder_process._process.cache_clear()
        holder_process._namespace_of.cache_clear()
        try:
            assert holder_process.this_process() is None
            assert not holder_process.is_gone(me)
        finally:
            holder_process._process.cache_clear()
            holder_process._namespace_of.cache_clear()

    def test_one_that_is_hidden_but_answers_is_not_gone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        me = holder_process.this_process()
        monkeypatch.setattr(holder_process, "_stat", lambda _: None)
        assert not holder_process.is_gone(me)
        monkeypatch.setattr(holder_process, "_answers", lambda _: False)
        assert holder_process.is_gone(me)
