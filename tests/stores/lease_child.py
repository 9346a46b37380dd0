"""One of several processes with a store open: takes commands as lines, and answers each with a line.

Run as a program with the store's URL, and a file in which the process writes down what it received.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import Signals

from leafward import LeaseBusy, LeaseLost, open_store
from leafward.stores import Lease, Store
from leafward.testing.elsewhere import elsewhere

PATIENCE = 60
ROOT = Path(__file__).parent.parent.parent


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

    def send_signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)


@asynccontextmanager
async def started(url: str, ledger: Path, **options: str) -> AsyncGenerator[Child]:
    pipe = asyncio.subprocess.PIPE
    words = [f"{name}={value}" for name, value in options.items()]
    command = (sys.executable, "-m", "tests.stores.lease_child", url, str(ledger), *words)
    child = Child(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe))
    try:
        assert await child("greet") == "ready"
        yield child
    finally:
        await child.end()


class Worker:
    """What the process does."""

    def __init__(self, store: Store, ledger: Path) -> None:
        self._store = store
        self._ledger = ledger
        self._lease: Lease | None = None
        self._queued: asyncio.Future[Lease] | None = None
        self._receiving: asyncio.Future[None] | None = None
        self._stopping = False

    async def greet(self) -> str:
        return "ready"

    async def acquire(self, ttl: str) -> str:
        self._lease = await self._store.leases.acquire("s", "alice", float(ttl), label="agent:a")
        return f"{self._lease.token}"

    async def queue(self, ttl: str) -> str:
        """Draw a ticket for a lease that is held."""
        self._queued = elsewhere(self._store.leases.acquire("s", "alice", float(ttl)))
        await asyncio.sleep(0)
        try:
            await elsewhere(self._store.leases.acquire("s", "alice", wait=0))
        except LeaseBusy:
            return "queued"
        return "free"

    async def receive(self) -> str:
        """Receive what waits, and write it down."""
        assert self._lease is not None
        try:
            texts = await self._lease.receive()
        except LeaseLost:
            return "lost"
        self._note(texts)
        return f"{len(texts)}"

    async def receive_on(self) -> str:
        """Receive from now on, and write down what comes."""
        self._receiving = asyncio.ensure_future(self._receive_on())
        return "receiving"

    async def _receive_on(self) -> None:
        while not self._stopping:
            await self.receive()
            await asyncio.sleep(0.01)

    async def stop(self) -> str:
        """Receive no more; what was received is written down."""
        assert self._receiving is not None
        self._stopping = True
        await self._receiving
        return "stopped"

    async def release(self) -> str:
        assert self._lease is not None
        await self._lease.release()
        return "released"

    def _note(self, texts: list[str]) -> None:
        # In one write, so that the lines of all processes are in the order they were written.
        file = os.open(self._ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, "".join(f"{text}\n" for text in texts).encode())
        os.close(file)


async def work(url: str, ledger: str, *options: str) -> None:
    named = dict(option.split("=", 1) for option in options)
    async with open_store(url, **named) as store:  # pyright: ignore[reportArgumentType]
        worker = Worker(store, Path(ledger))
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *arguments = line.split()
            print(await getattr(worker, name)(*arguments), flush=True)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
