"""The child's side of the bench: one contender in one process, asked over stdin in lines of JSON.

Each line is `{"do": <command>, ...arguments}` and gets one line back. Times are measured here, around the
contender's own call and nothing else; messages are made before the clock starts.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import traffic

Reply = dict[str, Any]


class Driver:
    """What a contender can do; a subclass leaves out what its library has no call for."""

    fill_batch = 500

    async def open(self, path: str) -> None:
        """Open or create the store in directory `path`."""
        raise NotImplementedError

    async def prepare(self, message: dict[str, Any]) -> Any:
        """Return the message in the library's own type, outside of any measurement."""
        return message

    async def append(self, session: int, message: Any) -> None:
        """Append one message as durably as the library does by default."""
        raise NotImplementedError

    async def extend(self, session: int, messages: list[Any]) -> None:
        """Append many messages, in the quickest way that the library offers."""
        for message in messages:
            await self.append(session, message)

    async def history(self, session: int) -> int:
        """Load the whole history and return its length."""
        raise NotImplementedError

    async def recent(self, session: int, count: int) -> int:
        """Load the last `count` messages and return how many came."""
        raise NotImplementedError

    async def branch(self, session: int, at: int, message: Any) -> None:
        """Continue the session from message `at`, leaving the later ones in place."""
        raise NotImplementedError

    async def search(self, session: int | None, query: str, kind: str) -> int:
        """Return the number of results on the first page; `session=None` searches all of the user's."""
        raise NotImplementedError

    async def waiting(self) -> int:
        """Return how many messages the search index has not seen yet."""
        raise NotImplementedError

    async def release(self, session: int) -> None:
        """Forget what is held for a session that is not written any more."""

    async def settle(self) -> None:
        """Wait until no background work is left."""

    async def close(self) -> None:
        """Close the store."""


class Bench:
    """Runs the commands on one driver and remembers how long each session is."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._lengths: Counter[int] = Counter()
        self._plan: list[list[tuple[int, list[Any]]]] = []

    async def take(self, session: int, count: int) -> list[Any]:
        """Return the next messages of a session in the library's own type."""
        start = self._lengths[session]
        self._lengths[session] = start + count
        return [await self._driver.prepare(m) for m in traffic.messages(start, start + count, session=session)]

    def length(self, session: int) -> int:
        """Return how many messages a session was given."""
        return self._lengths[session]

    async def timed(self, operation: Callable[[], Awaitable[Any]]) -> int:
        """Return the nanoseconds of one call."""
        begin = time.perf_counter_ns()
        await operation()
        return time.perf_counter_ns() - begin

    async def _repeat(self, times: int, budget: float, operation: Callable[[], Awaitable[Any]]) -> list[int]:
        """Return the nanoseconds of up to `times` calls, fewer when `budget` seconds are over."""
        gc.collect()
        end = time.monotonic() + budget
        spent: list[int] = []
        while len(spent) < times and (not spent or time.monotonic() < end):
            spent.append(await self.timed(operation))
        return spent

    async def do_open(self, path: str) -> Reply:
        await self._driver.open(path)
        return {}

    async def do_resume(self, path: str, session: int, count: int) -> Reply:
        async def resume() -> None:
            await self._driver.open(path)
            found = await self._driver.recent(session, count)
            if found < count:
                raise AssertionError(f"{found} of {count} messages came back")

        # As before every other measurement: what importing left behind is not paid for here.
        gc.collect()
        return {"ns": [await self.timed(resume)]}

    async def do_fill(self, session: int, upto: int, budget: float) -> Reply:
        end = time.monotonic() + budget
        while self._lengths[session] < upto and time.monotonic() < end:
            count = min(self._driver.fill_batch, upto - self._lengths[session])
            await self._driver.extend(session, await self.take(session, count))
        return {"length": self._lengths[session]}

    async def do_append(self, session: int, times: int, budget: float) -> Reply:
        waiting = iter(await self.take(session, times))
        spent = await self._repeat(times, budget, lambda: self._driver.append(session, next(waiting)))
        self._lengths[session] -= times - len(spent)
        return {"ns": spent}

    async def do_together(self, session: int, tasks: int, each: int) -> Reply:
        """Append to one session from several tasks at once; return the rate."""
        batches = [await self.take(session, each) for _ in range(tasks)]

        async def write(messages: list[Any]) -> None:
            for message in messages:
                await self._driver.append(session, message)

        begin = time.perf_counter()
        outcomes = await asyncio.gather(*(write(batch) for batch in batches), return_exceptions=True)
        spent = time.perf_counter() - begin
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return {"rate": tasks * each / spent}

    async def do_history(self, session: int, times: int, budget: float) -> Reply:
        expected = self._lengths[session]

        async def read() -> None:
            found = await self._driver.history(session)
            if found != expected:
                raise AssertionError(f"{found} of {expected} messages came back")

        return {"ns": await self._repeat(times, budget, read)}

    async def do_recent(self, session: int, count: int, times: int, budget: float) -> Reply:
        return {"ns": await self._repeat(times, budget, lambda: self._driver.recent(session, count))}

    async def do_branch(self, session: int, times: int, budget: float) -> Reply:
        middle = self._lengths[session] // 2
        made = [await self._driver.prepare(self._branch_message(session, n)) for n in range(times)]
        waiting = iter(made)
        return {"ns": await self._repeat(times, budget, lambda: self._driver.branch(session, middle, next(waiting)))}

    def _branch_message(self, session: int, number: int) -> dict[str, Any]:
        message = traffic.message(number, session=session)
        return message | {"id": f"branch_{time.monotonic_ns()}_{number}"}

    async def do_plan(self, tasks: list[list[int]], each: int) -> Reply:
        """Make the messages for `spread`: `each` for every session, one list of sessions per task."""
        self._plan = [[(s, await self.take(s, each)) for s in sessions] for sessions in tasks]
        return {}

    async def do_spread(self, start: float, budget: float) -> Reply:
        """Write what was planned, one task per list; return when each task's writes ended."""
        end = start + budget
        errors: list[str] = []

        async def write(batch: list[tuple[int, list[Any]]]) -> list[float]:
            ended: list[float] = []
            for session, messages in batch:
                for message in messages:
                    if time.monotonic() >= end:
                        return ended
                    try:
                        await self._driver.append(session, message)
                        ended.append(time.monotonic())
                    except Exception as error:  # every error a library raises here is a result to report
                        errors.append(f"{type(error).__name__}: {error}"[:200])
                    # Calls that never wait would keep the other tasks out.
                    await asyncio.sleep(0)
                await self._driver.release(session)
            return ended

        await asyncio.sleep(max(0.0, start - time.monotonic()))
        return {"ended": await asyncio.gather(*(write(batch) for batch in self._plan)), "errors": errors}

    async def do_search(self, session: int | None, query: str, kind: str, times: int, budget: float) -> Reply:
        hits = 0

        async def look() -> None:
            nonlocal hits
            hits = await self._driver.search(session, query, kind)

        return {"ns": await self._repeat(times, budget, look), "hits": hits}

    async def do_append_while_indexing(self, session: int, budget: float) -> Reply:
        """Append one message after another for as long as the index advances beside them.

        Returns every wait, and how many messages were indexed meanwhile.
        """
        spent: list[int] = []
        indexed = 0
        end = time.monotonic() + budget
        while time.monotonic() < end:
            before = await self._driver.waiting()
            made = [
                await self.timed(lambda m=m: self._driver.append(session, m)) for m in await self.take(session, 100)
            ]
            advance = before + len(made) - await self._driver.waiting()
            if spent and advance <= 0:
                break
            spent += made
            indexed += advance
        return {"ns": spent, "indexed": indexed}

    async def do_append_while(self, session: int, stop: str) -> Reply:
        """Append one message after another until the file `stop` is there; return every wait."""
        spent: list[int] = []
        while not os.path.exists(stop):
            (message,) = await self.take(session, 1)
            spent.append(await self.timed(lambda m=message: self._driver.append(session, m)))
        return {"ns": spent}

    async def do_call(self, what: str, arguments: dict[str, Any], times: int = 1, budget: float = 3_600) -> Reply:
        """Time a method that only some contenders have; return with it what the last call gave."""
        method: Callable[..., Awaitable[Any]] | None = getattr(self._driver, what, None)
        if method is None:
            raise NotImplementedError
        found: Any = None

        async def operate() -> None:
            nonlocal found
            found = await method(**arguments)

        return {"ns": await self._repeat(times, budget, operate), "found": found}

    async def do_settle(self) -> Reply:
        begin = time.monotonic()
        await self._driver.settle()
        return {"seconds": time.monotonic() - begin}

    async def do_close(self) -> Reply:
        await self._driver.close()
        return {}


async def _answer(make: Callable[[], Any], replies: Any) -> None:
    commands = make()
    while line := await asyncio.to_thread(sys.stdin.readline):
        request: dict[str, Any] = json.loads(line)
        command = getattr(commands, "do_" + request.pop("do"))
        try:
            reply: Reply = await command(**request)
        except NotImplementedError:
            reply = {"none": True}
        except Exception as error:  # the asking side decides: fatal for us, a reported stop for a peer
            reply = {"error": f"{type(error).__name__}: {error}"}
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


def answer(make: Callable[[], Any]) -> None:
    """Answer requests by the `do_…` methods of what is made, until stdin ends; what a library prints goes to stderr."""
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8") as replies:
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        asyncio.run(_answer(make, replies))


def serve(make: Callable[[], Driver]) -> None:
    """Answer requests by one driver."""
    answer(lambda: Bench(make()))
