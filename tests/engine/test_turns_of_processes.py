"""Agents of several processes on one session: one turn at a time, and nothing is lost when the holder is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from leafward import Message, Session, open_store
from leafward.core.ids import Scope, new_id
from leafward.engine.agent import ReActAgent
from leafward.stores import Store
from leafward.testing import ScriptedModel
from leafward.testing.lease_messages import until
from tests.engine.turn_child import TTL, Child, started
from tests.stores.both_servers import KINDS, drop_tables
from tests.stores.redis_store import forget

EACH = 5
UNKNOWN = "Outcome unknown: the process ended while this ran. Find out before you call it again."


class OnProcesses:
    """A subclass gives the URL, and options to open it with."""

    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {}

    @pytest.fixture
    async def store(self, url: str, options: dict[str, str]) -> AsyncGenerator[Store]:
        async with open_store(url, **options) as store:  # pyright: ignore[reportArgumentType]
            yield store

    @pytest.fixture
    async def children(self, url: str, options: dict[str, str], tmp_path: Path) -> AsyncGenerator[list[Child]]:
        async with AsyncExitStack() as stack:
            yield list(
                await asyncio.gather(*(stack.enter_async_context(started(url, tmp_path, **options)) for _ in range(2)))
            )

    @pytest.fixture
    def ledger(self, tmp_path: Path) -> Path:
        return tmp_path / "ledger"

    async def test_their_turns_never_interleave(self, store: Store, children: list[Child], ledger: Path) -> None:
        names = [f"do {number} {n}" for n in range(EACH) for number in range(2)]
        for child in children:
            await child("let_go")
        for name in names:
            await children[int(name.split()[1])]("call", name, "s1")
        for name in names:
            assert await children[int(name.split()[1])]("reply", name) == [f"answer to {name}", None]

        history = await read_history(store, "s1")
        assert history.pop("leaves") == ["1"]
        turns = history["path"]
        order = [line.removeprefix("user ") for line in turns if line.startswith("user ")]
        assert turns == [line for name in order for line in turn_of(name)]
        assert sorted(order) == sorted(names)
        for number in range(2):
            assert [name for name in order if name.split()[1] == str(number)] == names[number::2]
        noted = ledger.read_text().splitlines()
        assert noted == [f"{word} {name} {time}" for name in order for time in range(2) for word in ("begin", "end")]

    async def test_a_third_one_interrupts_and_steers(self, store: Store, children: list[Child], ledger: Path) -> None:
        holder, other = children
        third = ReActAgent("cook", ScriptedModel([]), store=store)
        another = ReActAgent("another", ScriptedModel([]), store=store)
        assert not await third.interrupt("alice", "s1", "too early")
        assert not await third.steer("alice", "s1", "too early")

        await holder("call", "do A", "s1")
        await holder("call", "do B", "s2")
        await until_noted(ledger, "begin do A 0", "begin do B 0")
        assert not await another.interrupt("alice", "s1", "to somebody else")
        assert await third.steer("alice", "s1", "faster, please")
        assert await third.steer("alice", "s2", "slower, please")
        assert await other("interrupt", "s1", "that will do")
        assert await holder("reached", "s1", "interrupt") == "interrupt"
        assert await holder("reached", "s2", "steer") == "steer"
        await holder("let_go")

        assert await holder("reply", "do A") == ["", "INTERRUPTED"]
        assert await holder("reply", "do B") == ["answer to slower, please", None]
        # A call returns when its release is on the way; until then the session counts as held.
        for session_id in ("s1", "s2"):
            for _ in range(1000):
                if await store.leases.holder(session_id, "alice") is None:
                    break
                await asyncio.sleep(0.01)
        assert not await third.interrupt("alice", "s1", "too late")
        assert not await third.steer("alice", "s2", "too late")
        assert (await read_history(store, "s1"))["path"] == [
            *turn_of("do A")[:3],
            *("user faster, please", "user that will do"),
        ]
        assert (await read_history(store, "s2"))["path"] == [
            *turn_of("do B")[:3],
            *("user slower, please", "assistant answer to slower, please"),
        ]

    async def test_a_holder_that_slept_too_long_stores_nothing_and_starts_no_tool(
        self, store: Store, children: list[Child], ledger: Path
    ) -> None:
        sleeper, other = children
        await sleeper("call", "do A", "s1")
        await until_noted(ledger, "begin do A 0")
        await other("let_go")
        await other("call", "next", "s1")
        replied = asyncio.ensure_future(other("reply", "next"))
        while not replied.done():
            # One that is stopped while it writes may keep all others out: then it is stopped at another moment.
            sleeper.send_signal(signal.SIGSTOP)
            await asyncio.wait((replied,), timeout=4 * TTL)
            if not replied.done():
                sleeper.send_signal(signal.SIGCONT)
        assert await replied == ["answer to next", None]

        sleeper.send_signal(signal.SIGCONT)
        await sleeper("let_go")
        name, _ = await sleeper("reply", "do A")

        assert name == "LeaseLost"
        assert ledger.read_text().splitlines() == ["begin do A 0", "end do A 0"]
        assert await read_history(store, "s1") == {
            "path": ["user do A", "call do A 0", f"result {UNKNOWN}", "user next", "assistant answer to next"],
            "leaves": ["1"],
        }

    async def test_a_holder_that_dies_takes_the_interrupt_with_it_but_not_the_message(
        self, store: Store, children: list[Child], ledger: Path
    ) -> None:
        holder, other = children
        await holder("call", "do A", "s1")
        await until_noted(ledger, "begin do A 0")
        # So that it cannot receive.
        holder.send_signal(signal.SIGSTOP)
        assert await ReActAgent("cook", ScriptedModel([]), store=store).interrupt("alice", "s1", "that will do")
        holder.send_signal(signal.SIGKILL)
        await other("let_go")
        await other("call", "do B", "s1")

        assert await other("reply", "do B") == ["answer to do B", None]
        assert (await read_history(store, "s1"))["path"] == [
            *("user do A", "call do A 0", f"result {UNKNOWN}", "user that will do"),
            *turn_of("do B"),
        ]

    async def test_a_question_of_one_that_was_killed_is_listed_by_a_second_and_answered_in_a_third(
        self, store: Store, children: list[Child], ledger: Path
    ) -> None:
        asking, answering = children
        await asking("call", "pay A", "s1")
        assert await asking("reply", "pay A") == ["", "PERMISSION_ASKING"]
        asking.send_signal(signal.SIGKILL)
        second = ReActAgent("cook", ScriptedModel([]), store=store)

        assert [question.call["id"] for question in await second.questions("alice", "s1")] == ["pay A"]
        assert not ledger.exists()
        await answering("let_go")
        assert await answering("answer", "s1", {"pay A": True}) == "answer to pay A"
        assert await answering("answer", "s1", {"pay A": True}) == "answer to pay A"

        assert sorted(ledger.read_text().splitlines()) == ["begin pay A", "end pay A", "pay pay A"]
        assert await second.questions("alice", "s1") == []


def turn_of(name: str) -> list[str]:
    calls = [line for time in range(2) for line in (f"call {name} {time}", f"result {name} {time} is done")]
    return [f"user {name}", *calls, f"assistant answer to {name}"]


async def read_history(store: Store, session_id: str) -> dict[str, list[str]]:
    history = await Session(store, session_id, user_id="alice", agent_id="cook").get_raw_history()
    leaves = await store.messages.leaves(Scope.of(session_id, user_id="alice", agent_id="cook"))
    return {"path": [line(message) for message in history], "leaves": [str(len(leaves))]}


def line(message: Message) -> str:
    part = message.parts[0]
    if part["type"] == "tool_use":
        return f"call {part['input']['what']}"
    if part["type"] == "tool_result":
        return f"result {part['output'][0]['text']}"
    return f"{message.role} {message.text}"


async def until_noted(ledger: Path, *texts: str) -> None:
    async def noted() -> bool:
        return ledger.exists() and set(texts) <= set(ledger.read_text().splitlines())

    await until(noted)


class TestOnSQLite(OnProcesses):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/chat.db"


class TestOnFiles(OnProcesses):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        tmp_path.chmod(0o700)
        return f"file:///{tmp_path}/chats"


class TestOnRedis(OnProcesses):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url

    @pytest.fixture
    def options(self, redis_url: str) -> Iterator[dict[str, str]]:
        prefix = f"{new_id()}:"
        yield {"key_prefix": prefix}
        forget(redis_url, prefix)


async def tables(kind: str, url: str) -> AsyncGenerator[dict[str, str]]:
    prefix = f"t{new_id()[-8:]}_"
    async with open_store(url, table_prefix=prefix):
        pass
    yield {"table_prefix": prefix}
    await drop_tables(KINDS[kind], url, prefix)


class TestOnPostgres(OnProcesses):
    @pytest.fixture
    def url(self, postgres_url: str) -> str:
        return postgres_url

    @pytest.fixture
    async def options(self, url: str) -> AsyncGenerator[dict[str, str]]:
        async for options in tables("postgres", url):
            yield options


class TestOnMariaDB(OnProcesses):
    @pytest.fixture
    def url(self, mysql_url: str) -> str:
        return mysql_url

    @pytest.fixture
    async def options(self, url: str) -> AsyncGenerator[dict[str, str]]:
        async for options in tables("mysql", url):
            yield options
