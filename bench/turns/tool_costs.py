"""What tools cost an agent: ten at once, a result that is too large, the schemas of functions, and rules."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import AsyncIterator, Callable
from statistics import median
from typing import Any, Literal

from leafward import ReActAgent, RuntimeContext, Session, ToolSet, open_store, tool, user
from leafward.core import PermissionContext, PermissionRule
from leafward.core.agent_contexts import Behavior
from leafward.engine import ModelEvent, ModelRequest, Stop, TextDelta, WholePart
from leafward.engine.permissions import add_rule, decide
from leafward.stores import Store
from leafward.testing import call

SLOWEST_S = 0.1
_TOOLS = 10
_COMMITS = _TOOLS + 3
"""The input, the reply with its calls, each result, and the last reply."""
_MEGABYTE = 1_000_000


class _Calls:
    """A model that makes some calls at once, then answers."""

    def __init__(self, *calls: dict[str, Any]) -> None:
        self._calls = calls

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        if request.messages[-1].role == "tool":
            yield TextDelta("Done.")
        else:
            for one in self._calls:
                yield WholePart(one)
        yield Stop("stop")


async def at_once(store: Store, times: int) -> dict[str, float]:
    """Return the seconds of a call with ten tools, each a little slower than the one before, and of its commits."""

    @tool
    async def wait(seconds: float) -> str:
        """Wait."""
        await asyncio.sleep(seconds)
        return "waited"

    waits = [SLOWEST_S * (number + 1) / _TOOLS for number in range(_TOOLS)]
    model = _Calls(*(call("wait", {"seconds": seconds}, id=f"c{n}") for n, seconds in enumerate(waits)))
    agent = ReActAgent("waiter", model, store=store, tools=[wait])
    session = Session(store, "beside", user_id="u")
    calls: list[float] = []
    commits: list[float] = []
    for number in range(times):
        begin = time.perf_counter()
        await agent.call("Wait.", RuntimeContext("u", f"w{number}"))
        calls.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        for _ in range(_COMMITS):
            await session.append_message(user("one commit"))
        commits.append(time.perf_counter() - begin)
    return {"call": median(calls), "commits": median(commits)}


async def large_result(megabytes: int) -> float:
    """Return how many times the size of a result, which no store holds, is in memory at the most."""

    @tool
    async def dump() -> str:
        """Return everything."""
        return "x" * (megabytes * _MEGABYTE)

    async with open_store("memory://") as store:
        agent = ReActAgent("dumper", _Calls(call("dump", {}, id="c1")), store=store, tools=[dump])
        await agent.call("Dump.", RuntimeContext("u", "before"))
        tracemalloc.start()
        await agent.call("Dump.", RuntimeContext("u", "measured"))
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most / (megabytes * _MEGABYTE)


def schemas(functions: int) -> float:
    """Return the milliseconds in which so many functions become tools."""
    made = [_function(number) for number in range(functions)]
    begin = time.perf_counter()
    tools = ToolSet(made)
    spent = time.perf_counter() - begin
    assert len(tools.to_openai()) == functions
    return spent * 1_000


def permissions(rules: int, calls: int = 1_000) -> float:
    """Return the microseconds in which a call is decided by so many rules, of all behaviors, for its tool."""
    context = PermissionContext()
    behaviors: list[Behavior] = ["deny", "ask", "allow"]
    for number in range(rules):
        add_rule(context, PermissionRule("find", behaviors[number % 3], "userSettings", f"/folder {number}/*"))
    arguments = {"path": "/elsewhere/file", "limit": 10}
    decide(context, "find", arguments)
    begin = time.perf_counter()
    for _ in range(calls):
        decide(context, "find", arguments)
    return (time.perf_counter() - begin) / calls * 1e6


def _function(number: int) -> Callable[..., Any]:
    def find(
        query: str, limit: int = 10, order: Literal["newest", "best"] = "best", tags: list[str] | None = None
    ) -> str:
        """Find pages.

        Args:
            query: The words to look for.
            limit: How many pages at the most.
            order: Which come first.
            tags: What each page has.
        """
        return f"{query} {limit} {order} {tags}"

    find.__name__ = f"find_{number}"
    return find
