"""leafward's `ReActAgent` on SQLite, and what is measured of it alone."""

from __future__ import annotations

import asyncio
import gc
import time
import tracemalloc
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from leafward import ReActAgent, RuntimeContext, open_store, tool
from leafward.engine import BlockEnd, CallDelta, ModelEvent, ModelRequest, Stop, TextDelta
from leafward.stores.gate import Gate
from turns.layer_costs import added_to_a_call, added_to_a_piece
from turns.loop import ANSWER, QUESTION, WRITTEN, Loop, serve
from turns.sdk_stream import Streams
from turns.tool_costs import at_once, large_result, permissions, schemas

PASSED_ON = 3
"""Generators between a model and its reader in the bare chain, as loops are written: an agent, a turn, a model call."""


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class Script:
    """A model that calls `add` as often as it is told, then answers."""

    def __init__(self) -> None:
        self.rounds = 0

    async def stream(self, request: ModelRequest) -> AsyncIterator[ModelEvent]:
        done = 0
        for message in reversed(request.messages):
            if message.role == "user":
                break
            done += message.role == "tool"
        if done < self.rounds:
            yield CallDelta("", "add", f"call {len(request.messages)}", 0)
            yield CallDelta(WRITTEN, index=0)
            yield BlockEnd(0)
            yield Stop("tool_calls")
        else:
            yield TextDelta(ANSWER)
            yield Stop("stop")


class Words:
    """A model that sends so many pieces."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        for _ in range(self._pieces):
            yield TextDelta("word ")


class Leafward(Loop):
    def __init__(self) -> None:
        self._script = Script()

    async def open(self, path: str) -> None:
        self._store: Any = await open_store(f"sqlite:///{path}/leafward.db")
        self._agent = self._made(self._store)

    def _made(self, store: Any, **options: Any) -> ReActAgent:
        return ReActAgent("adder", self._script, store=store, tools=[add], max_iterations=100, **options)

    async def call(self, session: int, rounds: int) -> str:
        self._script.rounds = rounds
        return (await self._agent.call(QUESTION, RuntimeContext("u", f"s{session}"))).text

    async def settle(self) -> None:
        await self._store.settle()

    async def close(self) -> None:
        await self._store.close()

    # What is measured of leafward alone.

    async def chunks(self, pieces: int) -> dict[str, float]:
        """Return the nanoseconds of one piece of a stream: through an agent, the bare chain, and one generator."""
        async with open_store("memory://") as store:
            agent = ReActAgent("speaker", Words(pieces), store=store)
            spent = await _per_piece(agent.stream(QUESTION), pieces)
        bare: AsyncIterator[Any] = Words(pieces).stream(ModelRequest([]))
        once = await _per_piece(_passed_on(bare), pieces)
        bare = Words(pieces).stream(ModelRequest([]))
        for _ in range(PASSED_ON):
            bare = _passed_on(bare)
        return {"agent": spent, "bare": await _per_piece(bare, pieces), "once": once}

    async def sdk_chunks(self, pieces: int) -> dict[str, float]:
        """Return the nanoseconds of one piece of a stream of OpenAI's SDK, alone and through a model."""
        streams = Streams(pieces)
        sdk = await _per_piece(streams.by_sdk(), pieces)
        model = await _per_piece(streams.by_model(), pieces)
        await streams.close()
        return {"sdk": sdk, "model": model}

    async def layers(self, rounds: int, times: int) -> dict[str, float]:
        """Return the seconds of a call with so many rounds of tools, without and with middleware and hooks."""
        self._script.rounds = rounds
        return await added_to_a_call(self._store, self._made, times)

    async def layer_chunks(self, pieces: int) -> dict[str, float]:
        """Return the nanoseconds of one piece of a stream, with and without middleware and hooks."""
        return await added_to_a_piece(Words, pieces)

    async def tools_at_once(self, calls: int) -> dict[str, float]:
        """Return the seconds of a call with ten tools at once, and of its commits."""
        return await at_once(self._store, calls)

    async def large_result(self, megabytes: int) -> float:
        """Return how many times the size of a result is in memory at the most."""
        return await large_result(megabytes)

    async def schemas(self, functions: int) -> float:
        """Return the milliseconds in which so many functions become tools."""
        return schemas(functions)

    async def permissions(self, rules: int) -> float:
        """Return the microseconds in which a call is decided by so many rules."""
        return permissions(rules)

    async def crowd(self, sessions: int) -> dict[str, float]:
        """Return calls per second of many sessions at once, and of as many one after the other."""
        self._script.rounds = 1
        contexts = [RuntimeContext("crowd", f"c{number}") for number in range(sessions)]
        begin = time.perf_counter()
        for ctx in contexts[: sessions // 5]:
            await self._agent.call(QUESTION, ctx)
        alone = sessions // 5 / (time.perf_counter() - begin)
        begin = time.perf_counter()
        await asyncio.gather(*(self._agent.call(QUESTION, ctx) for ctx in contexts))
        rate = sessions / (time.perf_counter() - begin)
        # Once more, with an account of memory, which takes its time.
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        some = contexts[: sessions // 5]
        await asyncio.gather(*(self._agent.call(QUESTION, ctx) for ctx in some))
        most = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        return {"at once": rate, "alone": alone, "most": most / len(some)}

    async def idle(self, sessions: int) -> float:
        """Return how many bytes are left of each session that was served, when the cache is full."""
        self._script.rounds = 0
        tracemalloc.start()

        async def serve(first: int) -> int:
            for start in range(first, first + sessions, 50):
                numbers = range(start, min(start + 50, first + sessions))
                calls = (self._agent.call(QUESTION, RuntimeContext("idle", f"i{number}")) for number in numbers)
                await asyncio.gather(*calls)
            await self._store.settle()
            gc.collect()
            return tracemalloc.get_traced_memory()[0]

        before = await serve(0)
        after = await serve(sessions)
        tracemalloc.stop()
        return (after - before) / sessions

    async def queue(self, turns: int) -> float:
        """Return the nanoseconds of one turn of the local queue, without a lease."""
        gate = Gate()
        begin = time.perf_counter_ns()
        for number in range(turns):
            async with gate.turn(number):
                pass
        return (time.perf_counter_ns() - begin) / turns


async def _per_piece(events: AsyncIterator[Any], pieces: int) -> float:
    """Return the nanoseconds between two pieces, from a tenth of them to the last; few events come before the first."""
    count, begin, end = 0, 0, 0
    async for _ in events:
        count += 1
        if count == pieces // 10:
            begin = time.perf_counter_ns()
        elif count == pieces:
            end = time.perf_counter_ns()
    return (end - begin) / (pieces - pieces // 10)


async def _passed_on(events: AsyncIterator[Any]) -> AsyncGenerator[Any]:
    async for event in events:
        yield event


if __name__ == "__main__":
    serve(Leafward)
