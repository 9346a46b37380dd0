"""One of several processes with an agent on a store: takes commands as lines of JSON, and answers each with a line.

Run as a program with the store's URL, a directory for what its tools do, and options of the store. The model has one
answer to everything: it calls the tool `work` twice, then says so. `work` waits until it is let go.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import Signals
from typing import Any

from leafward import Message, RuntimeContext, open_store, tool, user
from leafward.engine.agent import ReActAgent
from leafward.engine.agent_store import Place
from leafward.engine.models.model import ModelRequest
from leafward.engine.turn_queue import queues_of
from leafward.stores import Store
from leafward.stores.leases import Slot
from leafward.testing import ScriptedModel, call

PATIENCE = 60
ROOT = Path(__file__).parent.parent.parent
TTL = 1.5
"""Seconds that the lease of one who is stopped lasts: renewed after a third of it, which is after it was stopped."""


class Child:
    """Another process, and what it answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]).encode() + b"\n")
        line = await asyncio.wait_for(self._process.stdout.readline(), PATIENCE)
        assert line, "the process ended"
        return json.loads(line)

    def send_signal(self, number: Signals) -> None:
        self._process.send_signal(number)

    async def end(self) -> None:
        if self._process.returncode is None:
            assert self._process.stdin is not None
            self._process.stdin.close()
        await asyncio.wait_for(self._process.wait(), PATIENCE)


@asynccontextmanager
async def started(url: str, directory: Path, **options: str) -> AsyncGenerator[Child]:
    pipe = asyncio.subprocess.PIPE
    words = [f"{name}={value}" for name, value in options.items()]
    command = (sys.executable, "-m", "tests.engine.turn_child", url, str(directory), *words)
    child = Child(await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe))
    try:
        assert await child("greet") == "ready"
        yield child
    finally:
        await child.end()


class Worker:
    """What the process does."""

    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory
        self._calls: dict[str, asyncio.Task[Message]] = {}
        self._go = asyncio.Event()
        self._agent = self._made()

    def _made(self) -> ReActAgent:
        @tool
        async def work(what: str) -> str:
            """Work."""
            self._note(f"begin {what}")
            await self._go.wait()
            self._note(f"end {what}")
            return f"{what} is done"

        @tool(check=lambda arguments, ctx: "ask")
        async def pay(what: str) -> str:
            """Pay."""
            self._note(f"pay {what}")
            return f"{what} is paid"

        return ReActAgent("cook", ScriptedModel(answer), store=self._store, tools=[work, pay], lease_ttl=TTL)

    async def greet(self) -> str:
        return "ready"

    async def call(self, text: str, session_id: str) -> str:
        """Begin a call, which goes on while other commands come."""
        self._calls[text] = asyncio.create_task(
            self._agent.call(user(text, id=text), RuntimeContext("alice", session_id))
        )
        return "called"

    async def let_go(self) -> str:
        """Let tools end that run, and those that follow."""
        self._go.set()
        return "let go"

    async def reply(self, text: str) -> list[Any]:
        try:
            reply = await self._calls[text]
        except Exception as error:
            return [type(error).__name__, str(error)]
        return [reply.text, (reply.metadata or {}).get("agentscope_generate_reason")]

    async def answer(self, session_id: str, answers: dict[str, bool]) -> str:
        return (await self._agent.answer("alice", session_id, answers)).text

    async def interrupt(self, session_id: str, text: str) -> bool:
        return await self._agent.interrupt("alice", session_id, text)

    async def reached(self, session_id: str, by: str) -> str:
        """Wait until the running turn knows what was sent to it."""
        control = queues_of(Place(self._store.states, self._store)).held[Slot("alice", session_id)].control
        for _ in range(100 * PATIENCE):
            if control.stop if by == "interrupt" else control.steering:
                return by
            await asyncio.sleep(0.01)
        return "nothing came"

    def _note(self, what: str) -> None:
        # Appended in one write, so that the lines of all processes are in the order they were written.
        file = os.open(self._directory / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(file, f"{what}\n".encode())
        os.close(file)


def answer(request: ModelRequest) -> Any:
    """Call the tool `work` twice for the last question, or `pay` once, then say so."""
    messages = request.messages
    last = next(row for row in range(len(messages) - 1, -1, -1) if messages[row].role == "user")
    question = messages[last].text
    times = sum(message.role == "assistant" for message in messages[last:])
    if times < 2 and question.startswith("do "):
        return [call("work", {"what": f"{question} {times}"}, id=f"{question} {times}")]
    if times < 1 and question.startswith("pay "):
        return [call("pay", {"what": question}, id=question), call("work", {"what": question}, id=f"{question} too")]
    return f"answer to {question}"


async def work(url: str, directory: str, *options: str) -> None:
    named = dict(option.split("=", 1) for option in options)
    async with open_store(url, **named) as store:  # pyright: ignore[reportArgumentType]
        worker = Worker(store, Path(directory))
        while line := await asyncio.to_thread(sys.stdin.readline):
            name, *arguments = json.loads(line)
            print(json.dumps(await getattr(worker, name)(*arguments)), flush=True)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
