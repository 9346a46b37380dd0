"""Processes that save lists until they are killed."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from leafward.stores import JsonFileAgentStateStore

ROOT = Path(__file__).parents[3]
PROGRAM = """
import asyncio, os, sys
from leafward.stores import JsonFileAgentStateStore
from tests.stores.states.killing import list_at
async def main():
    async with JsonFileAgentStateStore(sys.argv[1]) as states:
        for step in range(int(sys.argv[2]), 1_000_000):
            await states.save_list("s", "list", list_at(step))
            os.write(1, b"%d\\n" % step)
asyncio.run(main())
"""


def list_at(step: int) -> list[dict[str, Any]]:
    """Return the list of a step: mostly the one before and up to four items more, at times another altogether."""
    era, age = divmod(step, 40)
    count = sum(n % 5 for n in range(age + 1))
    return [{"era": era, "n": n, "text": "walnut " * (n * 7 % 90)} for n in range(count)]


async def kill_savers(directory: Path, kills: int, *, seed: int = 5) -> int:
    """Kill a saver again and again; each list found is the last that was saved, or the one that was being saved.

    Returns how many lists were saved.
    """
    chance = random.Random(seed)
    step = -1
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(directory), str(step + 1)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        try:
            first = await asyncio.to_thread(child.stdout.readline)
            await asyncio.sleep(chance.random() * 0.15)
            child.send_signal(signal.SIGKILL)
            told = [int(line) for line in (first + await asyncio.to_thread(child.stdout.read)).split()]
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        async with JsonFileAgentStateStore(directory) as states:
            found = await states.get_list("s", "list")
        assert found in (list_at(told[-1]), list_at(told[-1] + 1)), told[-1]
        step = told[-1] if found == list_at(told[-1]) else told[-1] + 1
    return step + 1
