"""leafward and the limit on one backend in one process, taking turns call by call.

`python -m backends.duel KIND` answers for both, `… KIND leafward` and `… KIND limit` for one of them. `… KIND alone`
answers as for both, but only leafward takes part.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any

import msgspec
from driver import Bench, Reply, answer, serve

from backends.anywhere import Anywhere
from backends.limits import LIMITS, Backend
from backends.proxy import Proxy
from backends.states import STATE_LIMITS, item, save_list, value
from backends.steps import SEND, Steps, pairs

OURS, LIMIT = "leafward", "limit"
ALONE = "alone"
BEHIND, PLAIN = "behind a lease", "plain"
BATCH = 20
REPEATS = 3
"""How often round trips are counted; background work may add to them, so the fewest are told."""

Call = Callable[[], Awaitable[Any]]


class Duel:
    """Answers with what both took, by name; `alone` leaves the limit out."""

    def __init__(self, kind: str, *, alone: bool = False) -> None:
        self._kind = kind
        self._ours = Anywhere(kind)
        self._backends: dict[str, Backend] = {OURS: self._ours} if alone else {OURS: self._ours, LIMIT: LIMITS[kind]()}
        self._absent = {LIMIT} if alone else set[str]()
        self._benches = {name: Bench(backend) for name, backend in self._backends.items()}
        self._order = list(self._backends)
        self._lease: Any = None
        self._limits: list[Backend] = []
        """What else is open."""

    async def do_open(self, path: str) -> Reply:
        self._path = path
        for backend in self._backends.values():
            await backend.open(path)
            await backend.make()
        return {}

    async def do_fill(self, session: int, upto: int, only: str | None = None) -> Reply:
        for name, bench in self._benches.items():
            if only in (None, name):
                await bench.do_fill(session, upto, 3_600)
        return {}

    async def do_settle(self) -> Reply:
        return await self._benches[OURS].do_settle()

    async def do_close(self) -> Reply:
        for backend in (*self._backends.values(), *self._limits):
            await backend.close()
        return {}

    async def _turns(self, times: int, calls: dict[str, Callable[[], Awaitable[Call]]]) -> Reply:
        """Time the calls that the makers return, one of each in turn, the first one last in the next turn."""
        gc.collect()
        order = [name for name in calls if name not in self._absent]
        spent: dict[str, list[int]] = {name: [] for name in order}
        for _ in range(times):
            for name in order:
                spent[name].append(await self._benches[OURS].timed(await calls[name]()))
            order.append(order.pop(0))
        return {"ns": spent}

    async def do_write(self, session: int, size: int, times: int) -> Reply:
        """Append one message, or several as one batch."""

        async def ready(name: str) -> Call:
            messages = await self._benches[name].take(session, size)
            return lambda: _append(self._backends[name], session, messages)

        return await self._turns(times, {name: lambda name=name: ready(name) for name in self._backends})

    async def do_read(self, session: int, times: int) -> Reply:
        """Load the whole history."""

        async def ready(name: str) -> Call:
            return lambda: self._read_all(name, self._backends[name], session)

        return await self._turns(times, {name: lambda name=name: ready(name) for name in self._backends})

    async def _read_all(self, name: str, backend: Backend, session: int) -> None:
        found, expected = await backend.history(session), self._benches[name].length(session)
        if found != expected:
            raise AssertionError(f"{found} of {expected} messages came back")

    async def do_read_cold(self, session: int, times: int) -> Reply:
        """Load the whole history from a store that was opened for it."""
        opened: list[Anywhere] = []

        async def fresh() -> Call:
            store = Anywhere(self._kind)
            await store.open(self._path)
            opened.append(store)
            return lambda: self._read_all(OURS, store, session)

        async def known() -> Call:
            return lambda: self._read_all(LIMIT, self._backends[LIMIT], session)

        try:
            return await self._turns(times, {OURS: fresh, LIMIT: known})
        finally:
            for store in opened:
                await store.close()

    async def do_widen(self, sessions: list[int]) -> Reply:
        """Get ready for `at_once`: sessions that are begun, connections that are open."""
        for backend in self._backends.values():
            await backend.widen()
        for session in sessions:
            await self.do_fill(session, 1)
        await self.do_at_once(sessions, 1)
        return {}

    async def do_at_once(self, sessions: list[int], each: int) -> Reply:
        """Append to each session by a task of its own, all at the same time; return the rates."""
        rates: dict[str, float] = {}
        self._order.append(self._order.pop(0))
        for name in self._order:
            backend = self._backends[name]
            batches = [(session, await self._benches[name].take(session, each)) for session in sessions]

            async def write(session: int, messages: list[Any], backend: Backend = backend) -> None:
                for message in messages:
                    await backend.at_once(session, message)

            gc.collect()
            begin = time.perf_counter()
            await asyncio.gather(*(write(session, messages) for session, messages in batches))
            rates[name] = len(sessions) * each / (time.perf_counter() - begin)
        return {"rates": rates}

    async def do_search(self, session: int | None, query: str, times: int) -> Reply:
        return await self._benches[OURS].do_search(session, query, "words", times, 60.0)

    async def do_trips(self, session: int, histories: dict[str, int]) -> Reply:
        """Count round trips: of appends to a session, and of reading histories for the first time and again."""
        store = Anywhere(self._kind)
        trips: dict[str, int] = {}
        cold: dict[str, int] = {}
        async with Proxy(self._path) as proxy:
            await store.open(proxy.url)
            for size in (1, BATCH):
                batches = [await self._benches[OURS].take(session, size) for _ in range(REPEATS + 1)]
                # The first has statements prepared and scripts loaded.
                await store.extend(session, batches.pop())
                trips[str(size)] = await _trips(proxy, lambda batches=batches: _append(store, session, batches.pop()))
            for name, one in histories.items():
                cold[name] = await _trips(proxy, lambda one=one: store.history(one), repeats=1)
                trips[name] = await _trips(proxy, lambda one=one: store.history(one))
            await store.close()
        return {"trips": trips, "cold": cold}

    # States.

    async def do_states(self, sizes: list[int]) -> Reply:
        """Make a value, and lists of these sizes, in the store and by the driver."""
        self._lists = {size: [item(number) for number in range(size)] for size in sizes}
        for size, items in self._lists.items():
            await self._ours.states.save_list(f"l{size}", "list", items)
        if LIMIT in self._absent:
            return {}
        self._limit: Any = STATE_LIMITS[self._kind]()
        self._limits.append(self._limit)
        await self._limit.open(self._path)
        await self._limit.make_states()
        for size, items in self._lists.items():
            for index, one in enumerate(items):
                await self._limit.add(size, index, msgspec.json.encode(one).decode())
        return {}

    async def do_save_state(self, times: int) -> Reply:
        """Save a value of 100 KB."""
        numbers = count()

        async def ours() -> Call:
            given = value(next(numbers))
            return lambda: self._ours.states.save("s", "state", given)

        async def limit() -> Call:
            given = value(next(numbers))
            return lambda: self._limit.put(0, msgspec.json.encode(given).decode())

        return await self._turns(times, {OURS: ours, LIMIT: limit})

    async def do_get_state(self, times: int) -> Reply:
        """Get it."""

        async def ours() -> Call:
            return lambda: self._ours.states.get("s", "state")

        async def decoded() -> None:
            msgspec.json.decode(await self._limit.get(0))

        async def limit() -> Call:
            return decoded

        return await self._turns(times, {OURS: ours, LIMIT: limit})

    async def do_grow_list(self, size: int, times: int) -> Reply:
        """Save a list with one more item."""
        lists = {name: list(self._lists[size]) for name in (OURS, LIMIT)}

        def grown(name: str) -> list[Any]:
            lists[name].append(item(len(lists[name])))
            return lists[name]

        async def ours() -> Call:
            items = grown(OURS)
            return lambda: self._ours.states.save_list(f"l{size}", "list", items)

        async def limit() -> Call:
            items = grown(LIMIT)
            return lambda: save_list(self._limit, size, items)

        found = await self._turns(times, {OURS: ours, LIMIT: limit})
        self._lists[size] = lists[OURS]
        return found

    async def do_list_bytes(self, size: int) -> Reply:
        """Count the bytes that are sent to the server for one more item."""
        store = Anywhere(self._kind)
        items = self._lists[size]
        async with Proxy(self._path) as proxy:
            await store.open(proxy.url)
            for _ in range(2):
                # The first has statements prepared and scripts loaded.
                items.append(item(len(items)))
                before = proxy.sent
                await store.states.save_list(f"l{size}", "list", items)
            sent = proxy.sent - before
            await store.close()
        return {"bytes": sent - len(msgspec.json.encode(items[-1]))}

    # Agents.

    async def do_fill_states(self, session: int, upto: int) -> Reply:
        """Attach states to so many messages."""
        await Steps(self._ours, self._benches[OURS]).fill_states(session, upto)
        return {}

    async def do_agent(self, what: str, session: int, other: int, times: int) -> Reply:
        """Do what an agent does, in turn with what it is compared with."""
        steps = Steps(self._ours, self._benches[OURS])
        lease = await self._ours.acquire(session) if what == SEND else None
        try:
            return await self._turns(times, pairs(steps, what, session, other, lease))
        finally:
            if lease is not None:
                await lease.release()

    # Leases.

    async def do_lease(self, session: int, times: int) -> Reply:
        """Acquire and release a lease that nobody else wants."""

        async def hold() -> None:
            await (await self._ours.acquire(session)).release()

        async def ready() -> Call:
            return hold

        return await self._turns(times, {OURS: ready})

    async def do_write_behind(self, session: int, times: int) -> Reply:
        """Append behind a lease, and without one."""
        lease = await self._ours.acquire(session)

        async def fenced() -> Call:
            (message,) = await self._benches[OURS].take(session, 1)
            return lambda: self._ours.append_behind(lease, session, message)

        async def plain() -> Call:
            (message,) = await self._benches[OURS].take(session, 1)
            return lambda: self._ours.append(session, message)

        try:
            return await self._turns(times, {BEHIND: fenced, PLAIN: plain})
        finally:
            await lease.release()

    async def do_acquire(self, session: int) -> Reply:
        """Wait for a lease and keep it; return when it was had, by the clock of the machine."""
        self._lease = await self._ours.acquire(session)
        return {"at": time.monotonic_ns()}

    async def do_release(self) -> Reply:
        """Give the lease back; return when that was begun."""
        begin = time.monotonic_ns()
        await self._lease.release()
        return {"at": begin}


async def _append(backend: Backend, session: int, messages: list[Any]) -> None:
    if len(messages) == 1:
        await backend.append(session, messages[0])
    else:
        await backend.extend(session, messages)


async def _trips(proxy: Proxy, call: Call, repeats: int = REPEATS) -> int:
    counts: list[int] = []
    for _ in range(repeats):
        before = proxy.trips
        await call()
        counts.append(proxy.trips - before)
    return min(counts)


def main(kind: str, who: str = "") -> None:
    """Answer for both, for one, or as for both by one."""
    if who == OURS:
        serve(lambda: Anywhere(kind))
    elif who == LIMIT:
        serve(LIMITS[kind])
    else:
        answer(lambda: Duel(kind, alone=who == ALONE))


if __name__ == "__main__":
    main(*sys.argv[1:])
