"""Signals: a process that is asked to end pauses its turns first, and another process goes on with them."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from leafward import ConfigurationError, ReActAgent
from leafward.engine import install_shutdown_signals
from leafward.testing import ScriptedModel

ROOT = Path(__file__).parent.parent.parent
UNKNOWN = "Outcome unknown: the process ended while this ran. Find out before you call it again."


@pytest.fixture(params=["sqlite", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file:///{tmp_path}/files"}[request.param]


@asynccontextmanager
async def baker(*arguments: str) -> AsyncGenerator[Process]:
    command = (sys.executable, "-m", "tests.engine.baker", *arguments)
    child = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


async def line(child: Process) -> str:
    assert child.stdout is not None
    return (await child.stdout.readline()).decode().strip()


def let_go(child: Process) -> None:
    assert child.stdin is not None
    child.stdin.write(b"go on\n")


async def finished(url: str) -> dict[str, Any]:
    """Finish the turn in another process, and return what there is of it then."""
    async with baker("finish", url) as child:
        found: dict[str, Any] = json.loads(await line(child))
        return found


def results(found: dict[str, Any]) -> list[tuple[str, str]]:
    parts = [part for parts in found["parts"] for part in parts if part["type"] == "tool_result"]
    return [(part["state"], part["output"][0]["text"]) for part in parts]


async def test_a_process_that_gets_sigterm_in_a_tool_waits_for_it_and_another_one_goes_on(url: str) -> None:
    async with baker("call", url, "30") as child:
        assert await line(child) == "began"
        child.send_signal(signal.SIGTERM)
        let_go(child)
        assert await line(child) == "paused"
        assert await child.wait() == -signal.SIGTERM, "the signal has its effect once the turn is stored"

    found = await finished(url)

    assert (found["reply"], found["flag"]) == ("Done.", False)
    assert results(found) == [("success", "bread is baked")]
    assert [part["text"] for parts in found["parts"] for part in parts if part["type"] == "text"] == ["Bake", "Done."]


async def test_a_tool_that_hangs_keeps_no_process_from_ending(url: str) -> None:
    async with baker("call", url, "0.1") as child:
        assert await line(child) == "began"
        child.send_signal(signal.SIGTERM)
        assert await line(child) == "paused"
        assert await child.wait() == -signal.SIGTERM

    assert results(await finished(url)) == [("interrupted", UNKNOWN)]


async def test_a_second_signal_has_its_effect_at_once(url: str) -> None:
    async with baker("call", url, "30") as child:
        assert await line(child) == "began"
        child.send_signal(signal.SIGTERM)
        # Until the first is handled, both would count as one.
        ended = asyncio.create_task(child.wait())
        while not ended.done():
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGTERM)
            await asyncio.wait((ended,), timeout=0.05)
        assert await ended == -signal.SIGTERM

    assert results(await finished(url)) == [("interrupted", UNKNOWN)], "as after any process that was killed"


async def test_an_interrupted_program_pauses_its_turn_before_its_main_task_is_cancelled(url: str) -> None:
    async with baker("call", url, "30") as child:
        assert await line(child) == "began"
        child.send_signal(signal.SIGINT)
        let_go(child)
        assert await line(child) == "paused"
        assert await child.wait() == -signal.SIGINT

    assert results(await finished(url)) == [("success", "bread is baked")]


async def test_uvicorn_stops_once_the_turns_of_its_application_are_paused(url: str) -> None:
    async with baker("serve", url, "30") as child, httpx.AsyncClient(timeout=30) as client:
        port = await line(child)
        posting = asyncio.create_task(client.post(f"http://127.0.0.1:{port}/"))
        assert await line(child) == "began"
        child.send_signal(signal.SIGTERM)
        let_go(child)
        answer = await posting
        assert (answer.status_code, "send the same input again" in answer.text) == (503, True)
        assert await child.wait() == -signal.SIGTERM
        assert child.stderr is not None
        assert b"Finished server process" in await child.stderr.read()

    assert results(await finished(url)) == [("success", "bread is baked")]


def one() -> ReActAgent:
    return ReActAgent("cook", ScriptedModel(["Done."]), store="memory://")


async def test_what_was_installed_before_comes_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]

    with install_shutdown_signals(one()) as signals:
        assert signal.getsignal(signal.SIGTERM) not in before
        inner = install_shutdown_signals(one())
        signals.uninstall()
        assert signal.getsignal(signal.SIGTERM) not in before, "one that was installed since then stays"
        inner.uninstall()

    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


async def test_what_was_installed_before_is_called_after_the_shutdown() -> None:
    shut, called = one(), asyncio.Event()
    states: list[str] = []

    def before(number: int, frame: object) -> None:
        states.append(shut.shutdown_state)
        called.set()

    original = signal.signal(signal.SIGTERM, before)
    try:
        with install_shutdown_signals(shut) as signals:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(called.wait(), 10)
            assert states == ["terminated"]
            assert signals.manager.state == "terminated"
    finally:
        signal.signal(signal.SIGTERM, original)


async def test_a_thread_cannot_install_signals() -> None:
    with pytest.raises(ConfigurationError, match="main thread"):
        await asyncio.to_thread(install_shutdown_signals, one())


def test_signals_need_a_running_loop() -> None:
    with pytest.raises(ConfigurationError, match="no event loop runs here"):
        install_shutdown_signals(one())
