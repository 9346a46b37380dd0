"""What a call costs: round trips before its reply, flushes to a disk, and bytes of a step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from leafward import ReActAgent, RuntimeContext, Session, open_store, tool, user
from leafward.core.ids import new_id
from leafward.engine import ModelRequest
from leafward.stores import JsonFileAgentStateStore, Store
from leafward.testing import ScriptedModel, call
from tests.engine.flushes import Flushes, counted_flushes
from tests.stores.both_servers import elsewhere
from tests.stores.proxy import Proxy

CALL = 5
"""Acquire, load, input, reply, slot."""
ROUND = 2
"""Intent, results."""
CALLS = 9
"""How many calls are made to find out what one costs."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def answer(request: ModelRequest) -> Any:
    """Call a tool as often as the user said."""
    asked = [number for number, message in enumerate(request.messages) if message.role == "user"][-1]
    rounds = sum(message.role == "tool" for message in request.messages[asked:])
    if rounds < int(request.messages[asked].text):
        return [call("add", {"a": rounds, "b": 1})]
    return "Done."


def adder(store: Any, **options: Any) -> ReActAgent:
    return ReActAgent("adder", ScriptedModel(answer), store=store, tools=[add], **options)


def alice(session_id: str) -> RuntimeContext:
    return RuntimeContext("alice", session_id)


class TestOnAServer:
    @pytest.fixture(params=["postgres", "mysql", "redis"])
    def url(self, request: pytest.FixtureRequest, server_url: Callable[[str], str]) -> str:
        return server_url(request.param)

    @pytest.fixture
    async def proxy(self, url: str) -> AsyncGenerator[Proxy]:
        parts = urlsplit(url)
        async with Proxy(str(parts.hostname), parts.port or 0) as proxy:
            # What is asked at once is then all asked before the first reply.
            proxy.delay = 0.01
            yield proxy

    @pytest.fixture
    async def store(self, url: str, proxy: Proxy) -> AsyncGenerator[Store]:
        async with open_store(elsewhere(url, port=proxy.port)) as store:
            yield store

    async def test_a_call_takes_five_round_trips_and_each_round_of_tools_two(self, store: Store, proxy: Proxy) -> None:
        agent, session_id = adder(store), new_id()

        async def trips(agent: ReActAgent, rounds: int, session_id: str = session_id) -> int:
            before = proxy.trips
            await agent.call(str(rounds), alice(session_id))
            found = proxy.trips - before
            # The lease is released beside the reply.
            await asyncio.sleep(3 * proxy.delay)
            return found

        async def usual(rounds: int) -> list[int]:
            # Until all connections know the statements there are more; what is done in the background also counts.
            return [await trips(agent, rounds) for _ in range(CALLS)]

        assert CALL in await usual(0)
        assert CALL + ROUND in await usual(1)
        assert CALL + 3 * ROUND in await usual(3)
        # Another process has no states in memory.
        assert CALL in [await trips(adder(store), 0) for _ in range(CALLS)]
        # In a session's first call the slot is made before the input is stored.
        assert CALL + 1 in [await trips(agent, 0, new_id()) for _ in range(CALLS)]


@pytest.fixture
def flushes() -> Iterator[Flushes]:
    with counted_flushes() as flushes:
        yield flushes


class TestOnADisk:
    """Counted as commits of SQLite that wait for the disk, and files that are synced."""

    @pytest.fixture(params=["sqlite", "file", "json"])
    async def store(self, request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Any]:
        if request.param == "json":
            async with JsonFileAgentStateStore(tmp_path) as states:
                yield states
        else:
            urls = {"sqlite": f"sqlite:///{tmp_path}/s.db", "file": f"file:///{tmp_path}/files"}
            async with open_store(urls[request.param]) as store:
                yield store

    @pytest.fixture
    def costs(self, request: pytest.FixtureRequest) -> dict[str, tuple[int, int]]:
        # A slot in a file is three: its text, the note of its version, the names in its directory. A session's first
        # call makes the slot as well; the name of its new directory is one more, that of its new journal another.
        return {
            "sqlite": {"first": (4, 0), "call": (3, 0), "round": (2, 0)},
            "file": {"first": (0, 10), "call": (0, 5), "round": (0, 2)},
            "json": {"first": (2, 7), "call": (2, 3), "round": (2, 0)},
        }[request.node.callspec.params["store"]]

    async def test_a_call_flushes_its_steps_and_its_slot_once_each(
        self, store: Any, flushes: Flushes, costs: dict[str, tuple[int, int]]
    ) -> None:
        agent = adder(store)

        async def counted(session_id: str, rounds: int) -> tuple[int, int]:
            before = flushes.commits, flushes.files
            await agent.call(str(rounds), alice(session_id))
            return flushes.commits - before[0], flushes.files - before[1]

        # The first call of all makes what is missing in the store.
        await counted("another", 0)
        assert await counted("s1", 0) == costs["first"]
        assert await counted("s1", 0) == costs["call"]
        per_call, per_round = costs["call"], costs["round"]
        assert await counted("s1", 2) == (per_call[0] + 2 * per_round[0], per_call[1] + 2 * per_round[1])


async def test_a_step_writes_the_same_in_a_long_session(tmp_path: Path) -> None:
    """What a step adds to the journal of its session is its messages and what changed, however long that is."""
    sizes: dict[int, list[int]] = {}
    async with open_store(f"file:///{tmp_path}/files") as store:
        agent = adder(store, slot="off")
        for length in (10, 10_000):
            session = Session(store, f"s{length}", user_id="alice", agent_id="adder")
            await session.append_messages([user(f"message {number}") for number in range(length)])
            (journal,) = tmp_path.rglob(f"s{length}.log.jsonl")
            sizes[length] = []
            for _ in range(2):
                before = journal.stat().st_size
                await agent.call("1", alice(f"s{length}"))
                sizes[length].append(journal.stat().st_size - before)

    # Numbers have more digits in a long session.
    assert abs(sizes[10_000][1] - sizes[10][1]) < 64
