"""Two processes on one file: limits hold, titles stay apart, and both get the same prompt."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from leafward import Session, open_store
from leafward.testing.keyed import content_of, with_facts
from leafward.testing.prompts import LINE

# Reads its number, waits for a line so that both begin at once, then prints what it found as JSON.
_PREAMBLE = """
import asyncio, json, sys
from leafward import ContextError, Session, StoredSearchProvider, open_store
url, number = sys.argv[1], int(sys.argv[2])

def begin():
    print("ready", flush=True)
    sys.stdin.readline()
"""

_APPEND = """
async def main():
    async with open_store(url) as store:
        session = Session(store, "s").with_context("memory", max_tokens=100)
        begin()
        async def write(line):
            try:
                await session.append_context_block("memory", line)
            except ContextError:
                return None
            return line
        return await asyncio.gather(*(write(f"line {number}-{n:02}") for n in range(30)))
"""

_NOTE = """
async def main():
    async with open_store(url) as store:
        session = Session(store, "s").with_context("facts", provider=StoredSearchProvider())
        tools = await session.tools()
        begin()
        titles = [f"Title {n}{'+' * (number + 1)}" for n in range(10)]
        return [
            await tools.call("set_context", {"label": "facts", "content": title, "metadata": {"title": title}})
            for title in titles
        ]
"""

_FREEZE = """
async def main():
    async with open_store(url) as store:
        sessions = [
            Session(store, f"s{n}").with_context("soul", provider=f"You are number {number}.").with_cached_prompt()
            for n in range(10)
        ]
        begin()
        return [await session.freeze_system_prompt() for session in sessions]
"""


def _in_processes(tmp_path: Path, script: str, count: int = 2) -> list[Any]:
    """Run a script in several processes at once on one file, and return what each of them found."""
    ending = "\nprint(json.dumps(asyncio.run(main())), flush=True)\n"
    command = [sys.executable, "-c", _PREAMBLE + script + ending, f"sqlite:///{tmp_path}/chat.db"]
    running = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        return [json.loads(process.communicate("go\n", timeout=60)[0]) for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """Make the file, so that processes that begin at once only use it."""
    url = f"sqlite:///{tmp_path}/chat.db"
    async with open_store(url) as store:
        await Session(store, "s").with_context("memory").replace_context_block("memory", "x" * 200)
    return url


async def test_two_processes_never_exceed_a_limit_and_lose_nothing(tmp_path: Path, url: str) -> None:
    told = _in_processes(tmp_path, _APPEND)

    async with open_store(url) as store:
        session = Session(store, "s").with_context("memory", max_tokens=100)
        found = await session.get_context_block("memory")
    assert found is not None
    written = [line for lines in told for line in lines if line is not None]
    assert found.tokens <= 100
    assert sorted(found.content.split("\n")[1:]) == sorted(written)
    # 200 characters are there, each line is 10 more, and 400 are 100 tokens.
    assert len(written) == 20


async def test_titles_of_two_processes_never_overwrite_each_other(tmp_path: Path, url: str) -> None:
    told = _in_processes(tmp_path, _NOTE)

    keys = {answer for answers in told for answer in answers}
    assert len(keys) == 20
    async with open_store(url) as store:
        assert await content_of(with_facts(store), "facts") == "20 entries indexed."


async def test_two_processes_that_freeze_at_once_get_the_same_prompt(tmp_path: Path, url: str) -> None:
    first, second = _in_processes(tmp_path, _FREEZE)

    assert first == second
    assert set(first) <= {f"{LINE}\nSOUL [readonly]\n{LINE}\nYou are number {number}." for number in range(2)}
    async with open_store(url) as store:
        again = Session(store, "s0").with_context("soul", provider="You are new.").with_cached_prompt()
        assert await again.freeze_system_prompt() == first[0]
        assert await again.is_prompt_stale()
