"""The child's side: an agent with one tool, and a model that calls it so many times before it answers."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

from driver import Reply, answer

QUESTION = "What is one and two?"
ANSWER = "One and two is three."
ARGUMENTS = {"a": 1, "b": 2}
WRITTEN = json.dumps(ARGUMENTS)
EACH = 8
"""Calls to one session, before the next: conversations stay short, so that the loop is measured and not its history."""


class Loop:
    """An agent of one library on its SQLite store."""

    async def open(self, path: str) -> None:
        """Open or create the store in directory `path`, and make the agent."""
        raise NotImplementedError

    async def call(self, session: int, rounds: int) -> str:
        """Have a question answered after so many rounds of tools; return the answer."""
        raise NotImplementedError

    async def settle(self) -> None:
        """Wait until no background work is left."""

    async def close(self) -> None:
        """Close the store."""


class Loops:
    """Runs the commands on one loop."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._calls = 0

    async def do_open(self, path: str) -> Reply:
        await self._loop.open(path)
        return {}

    async def do_call(self, tool_rounds: int, times: int) -> Reply:
        """Time some calls."""
        gc.collect()
        spent: list[int] = []
        for _ in range(times):
            session = self._calls // EACH
            self._calls += 1
            begin = time.perf_counter_ns()
            said = await self._loop.call(session, tool_rounds)
            spent.append(time.perf_counter_ns() - begin)
            if said != ANSWER:
                raise AssertionError(f"the agent answered {said!r}")
        return {"ns": spent}

    async def do_settle(self) -> Reply:
        await self._loop.settle()
        return {}

    async def do_close(self) -> Reply:
        await self._loop.close()
        return {}

    async def do_measure(self, what: str, arguments: dict[str, Any]) -> Reply:
        """Run a measurement that only some loops have."""
        method: Callable[..., Awaitable[Any]] | None = getattr(self._loop, what, None)
        if method is None:
            raise NotImplementedError
        gc.collect()
        return {"found": await method(**arguments)}


def serve(make: Callable[[], Loop]) -> None:
    """Answer requests by one loop."""
    answer(lambda: Loops(make()))
