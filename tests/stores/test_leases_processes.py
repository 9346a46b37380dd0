"""Leases between processes: real ones, which are stopped and killed, and what each did is kept in a file outside.

Run as a program, this file is one of them: it takes commands as lines, and answers each with a line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from leafward import LeaseBusy, LeaseLost, Session, open_store, user
from leafward.stores import Lease, Store
from leafward.stores.sqlite import SqliteStore
from leafward.testing.elsewhere import elsewhere

PATIENCE = 60
ROUNDS = 8
THINKING = 0.02
"""Seconds that a turn takes; long enough that two who do not wait for each other meet."""
SHORT = 1.5
"""Seconds that the lease of one who is stopped lasts: renewed after a third of it, which is after it was stopped."""


# The program.


class Worker:
    """One process with the store open."""

    def __init__(self, store: Store, ledger: Path) -> None:
        self._store = store
        self._ledger = ledger
        self._name = f"{os.getpid()}"
        self._waiting: asyncio.Future[Lease] | None = None
        self._lease: Lease | None = None

    async def greet(self) -> str:
        return "ready"

    async def acquire(self, ttl: str) -> str:
        self._lease = await self._store.leases.acquire("s", ttl=float(ttl))
        return f"{self._lease.token}"

    async def queue(self, ttl: str) -> str:
        """Draw a ticket for a lease that is taken."""
        self._waiting = elsewhere(self._store.leases.acquire("s", ttl=float(ttl)))
        await asyncio.sleep(0)
        try:
            await elsewhere(self._store.leases.acquire("s", wait=0))
        except LeaseBusy:
            return "queued"
        return "free"

    async def serve(self) -> str:
        """Wait for one's turn, write down that one has it, and let the next in."""
        assert self._waiting is not None
        async with await self._waiting:
            self._note("begin")
            await Session(self._store, "s").append_message(user("here"))
            self._note("end")
        return "served"

    async def contend(self, leased: str) -> str:
        for _ in range(ROUNDS):
            if leased == "leased":
                async with self._store.leases.acquire("s"):
                    await self._work()
            else:
                await self._work()
        return "done"

    async def _work(self) -> None:
        self._note("begin")
        await Session(self._store, "s").append_message(user(self._name))
        await asyncio.sleep(THINKING)
        self._note("end")

    async def write(self, text: str) -> str:
        assert self._lease is not None
        try:
            await Session(self._store, "s").with_lease(self._lease).append_message(user(text))
        except LeaseLost:
            return "lost"
        # Stopped while it writes, it would hold up all who write to the file, whoever has a lease.
        assert isinstance(self._store, SqliteStore)
        await self._store.settle()
        return "written"

    def _note(self, what: str) -> None:
        # Appended in one write, so that the lines of all processes are in the order they were written.
        file = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{what} {self._name}\n".encode())
        os.close(file)


async def work(directory: str) -> None:
    async with open_store(f"sqlite:///{directory}/chat.db") as store:
        worker = Worker(store, Path(directory) / "ledger")
        commands: dict[str, Callable[..., Awaitable[str]]] = {
            "greet": worker.greet,
            "acquire": worker.acquire,
            "queue": worker.queue,
            "serve": worker.serve,
            "contend": worker.contend,
            "write": worker.write,
        }
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *arguments = line.split()
            print(await commands[name](*arguments), flush=True)


# The tests.


class Child:
    """Another process, and what it answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, command: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        assert line, "the process ended"
        return line.decode().strip()

    @property
    def name(self) -> str:
        return f"{self._process.pid}"

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)


@asynccontextmanager
async def started(directory: Path) -> AsyncGenerator[Child]:
    pipe = asyncio.subprocess.PIPE
    child = Child(
        await asyncio.create_subprocess_exec(sys.executable, __file__, str(directory), stdin=pipe, stdout=pipe)
    )
    try:
        assert await child("greet") == "ready"
        yield child
    finally:
        await child.end()


@pytest.fixture
async def children(tmp_path: Path) -> AsyncGenerator[list[Child]]:
    async with AsyncExitStack() as running:
        yield [await running.enter_async_context(started(tmp_path)) for _ in range(4)]


@pytest.fixture
async def child(tmp_path: Path) -> AsyncGenerator[Child]:
    async with started(tmp_path) as child:
        yield child


@pytest.fixture
async def store(tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store(f"sqlite:///{tmp_path}/chat.db") as store:
        yield store


def overlaps(ledger: Path) -> int:
    """Count how often somebody began before another had ended."""
    inside: set[str] = set()
    met = 0
    for line in ledger.read_text(encoding="utf-8").splitlines():
        what, name = line.split()
        if what == "begin":
            met += bool(inside)
            inside.add(name)
        else:
            inside.remove(name)
    return met


async def texts(store: Store) -> list[str]:
    return [message.text for message in await Session(store, "s").get_history()]


async def test_four_processes_have_a_lease_in_the_order_they_came(
    store: Store, children: list[Child], tmp_path: Path
) -> None:
    order: list[str] = []
    for n in range(3):
        turn = children[n:] + children[:n]
        async with store.leases.acquire("s"):
            for child in turn:
                assert await child("queue 30") == "queued"
            serving = [asyncio.ensure_future(child("serve")) for child in reversed(turn)]
        await asyncio.gather(*serving)
        order += [child.name for child in turn]

    lines = (tmp_path / "ledger").read_text(encoding="utf-8").splitlines()
    assert lines == [f"{what} {name}" for name in order for what in ("begin", "end")]


async def test_four_processes_that_contend_never_have_it_two_at_once(children: list[Child], tmp_path: Path) -> None:
    await asyncio.gather(*(child("contend leased") for child in children))

    assert len((tmp_path / "ledger").read_text(encoding="utf-8").splitlines()) == 2 * ROUNDS * len(children)
    assert overlaps(tmp_path / "ledger") == 0


async def test_without_a_lease_the_same_processes_meet(children: list[Child], tmp_path: Path) -> None:
    await asyncio.gather(*(child("contend free") for child in children))

    assert overlaps(tmp_path / "ledger") > 0


async def test_a_holder_that_was_stopped_writes_nothing_when_it_goes_on(store: Store, child: Child) -> None:
    for n in range(3):
        token = int(await child(f"acquire {SHORT}"))
        assert await child(f"write before-{n}") == "written"
        child.send(signal.SIGSTOP)

        async with asyncio.timeout(PATIENCE), store.leases.acquire("s") as lease:
            assert lease.token > token
            await Session(store, "s").with_lease(lease).append_message(user(f"next-{n}"))
            child.send(signal.SIGCONT)
            assert await child(f"write late-{n}") == "lost"
        assert await child(f"write later-{n}") == "lost"

    assert await texts(store) == [f"{what}-{n}" for n in range(3) for what in ("before", "next")]


async def test_a_holder_that_was_stopped_goes_on_when_nobody_came(store: Store, child: Child) -> None:
    await child(f"acquire {SHORT}")
    child.send(signal.SIGSTOP)
    await asyncio.sleep(1.2 * SHORT)
    child.send(signal.SIGCONT)

    assert await child("write still-mine") == "written"
    assert await texts(store) == ["still-mine"]


async def test_a_holder_that_was_killed_is_followed(store: Store, child: Child) -> None:
    token = int(await child(f"acquire {SHORT}"))
    assert await child("write before") == "written"
    child.send(signal.SIGKILL)

    async with asyncio.timeout(PATIENCE), store.leases.acquire("s") as lease:
        assert lease.token > token
        await Session(store, "s").with_lease(lease).append_message(user("after"))
    assert await texts(store) == ["before", "after"]


async def test_one_who_is_killed_while_it_waits_is_skipped(store: Store, child: Child) -> None:
    async with store.leases.acquire("s"):
        assert await child(f"queue {SHORT}") == "queued"
        waiting = elsewhere(store.leases.acquire("s"))
        child.send(signal.SIGKILL)

    await (await asyncio.wait_for(waiting, PATIENCE)).release()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1]))
