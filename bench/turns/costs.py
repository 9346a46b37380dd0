"""Counts what a call costs a store: round trips, flushes, and the bytes of a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import mode
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from backends.arena import SERVERS

from leafward import ReActAgent, RuntimeContext, Session, open_store, user
from leafward.stores import JsonFileAgentStateStore
from turns.loop import QUESTION
from turns.ours import Script, add

KINDS = ("postgresql", "mysql", "redis", "sqlite", "file", "json")
TABLE = {
    **dict.fromkeys(SERVERS, (5, 6, 2)),
    "sqlite": (3, 4, 2),
    "file": (5, 8, 2),
    "json": (5, 8, 2),
}
"""A call without tools, a session's first call, each round of tools: what they are to take, in trips or flushes."""
CALLS = 9
"""How many calls are made to find out what one costs; drivers prepare what they are asked often."""
LENGTHS = (10, 10_000)


class Costs(NamedTuple):
    """Round trips before the reply, or flushes."""

    call: int
    first: int
    round: int


def count(kind: str, path: str) -> Costs:
    """Return what calls cost on the backend of a URL, or in a directory."""
    return asyncio.run(_count_trips(path) if kind in SERVERS else _count_flushes(kind, path))


def _agent(store: Any, **options: Any) -> tuple[ReActAgent, Script]:
    script = Script()
    return ReActAgent("counted", script, store=store, tools=[add], max_iterations=100, **options), script


async def _costs(store: Any, counter: Any) -> Costs:
    agent, script = _agent(store)

    async def counted(session: str, rounds: int) -> int:
        script.rounds = rounds
        before = counter()
        await agent.call(QUESTION, RuntimeContext("u", session))
        found = counter() - before
        # The lease is released beside the reply.
        await asyncio.sleep(0.03)
        return found

    # The first of all prepare statements and make what is missing.
    firsts = [await counted(f"first {number}", 0) for number in range(CALLS)]
    calls = [await counted("s", 0) for _ in range(CALLS)]
    rounds = [await counted("s", 1) for _ in range(CALLS)]
    return Costs(mode(calls), mode(firsts), mode(rounds) - mode(calls))


async def _count_trips(url: str) -> Costs:
    from tests.stores.proxy import Proxy

    parts = urlsplit(url)
    async with Proxy(str(parts.hostname), parts.port or 0) as proxy:
        # What is asked at once is then all asked before the first reply.
        proxy.delay = 0.01
        account = parts.netloc.rpartition("@")[0]
        behind = urlunsplit(parts._replace(netloc=f"{account}@127.0.0.1:{proxy.port}"))
        async with open_store(behind) as store:
            return await _costs(store, lambda: proxy.trips)


async def _count_flushes(kind: str, path: str) -> Costs:
    from tests.engine.flushes import counted_flushes

    with counted_flushes() as flushes:
        async with _on_disk(kind, path) as store:
            return await _costs(store, lambda: flushes.commits + flushes.files)


@asynccontextmanager
async def _on_disk(kind: str, path: str) -> AsyncGenerator[Any]:
    if kind == "json":
        async with JsonFileAgentStateStore(f"{path}/home") as states:
            yield states
    else:
        url = f"sqlite:///{path}/counted.db" if kind == "sqlite" else f"file:///{path}/counted"
        async with open_store(url) as store:
            yield store


def bytes_of_a_call(path: str) -> dict[int, int]:
    """Return what a call with a round of tools adds to the journals of sessions of some lengths, in a directory."""
    return asyncio.run(_written(path))


async def _filled(store: Any, length: int) -> str:
    session_id = f"long{length}"
    session = Session(store, session_id, user_id="u", agent_id="counted")
    for start in range(0, length, 1_000):
        numbers = range(start, min(start + 1_000, length))
        await session.append_messages([user(f"message {number:06}") for number in numbers])
    return session_id


async def _written(path: str) -> dict[int, int]:
    found: dict[int, int] = {}
    async with open_store(f"file:///{path}/bytes") as store:
        # The slot aside, which is written once per call.
        agent, script = _agent(store, slot="off")
        script.rounds = 1
        for length in LENGTHS:
            session_id = await _filled(store, length)
            (journal,) = [
                one for one in Path(path, "bytes").rglob("*.log.jsonl") if one.name.startswith(f"long{length}.")
            ]
            written: list[int] = []
            for _ in range(3):
                before = journal.stat().st_size
                await agent.call(QUESTION, RuntimeContext("u", session_id))
                written.append(journal.stat().st_size - before)
            found[length] = written[-1]
    return found
