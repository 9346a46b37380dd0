"""A commit of lease rows alone waits for no disk; all else does, and takes with it what was not flushed before."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from leafward import Session, open_store, user
from leafward.stores.sqlite import SqliteStore
from leafward.stores.sqlite.writer import Transaction
from tests.stores.sqlite_store import Held

NORMAL, FULL = 1, 2
"""What SQLite calls the levels: a commit at FULL waits for the disk."""


@pytest.fixture
def levels(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The level of each commit of a writer, in order."""
    found: list[int] = []
    commit = Transaction.commit

    def noted(self: Transaction, connection: Any) -> None:
        found.append(connection.execute("PRAGMA synchronous").fetchone()[0])
        commit(self, connection)

    monkeypatch.setattr(Transaction, "commit", noted)
    return found


async def test_leases_are_not_flushed_and_texts_are(store: SqliteStore, levels: list[int]) -> None:
    async with store.leases.acquire("s", ttl=0.3) as lease:
        await asyncio.sleep(0.15)
        assert levels == [NORMAL, NORMAL], "acquire and renew"
        assert await lease.receive() == []
        assert len(levels) == 2, "looking writes nothing"
        await store.leases.send("s", None, "text")
        assert await lease.receive() == ["text"]
        levels.clear()
    await asyncio.sleep(0)
    assert NORMAL in levels
    assert FULL not in levels


async def test_a_message_is_flushed_after_a_lease_was_taken(store: SqliteStore, levels: list[int]) -> None:
    session = Session(store, "s")
    for _ in range(3):
        levels.clear()
        async with store.leases.acquire("s") as lease:
            await session.with_lease(lease).append_message(user("text"))
        assert levels == [NORMAL, FULL, NORMAL]


async def test_what_shares_a_commit_with_a_message_is_flushed_with_it(store: SqliteStore, levels: list[int]) -> None:
    async with Held(store):
        both = asyncio.gather(store.leases.acquire("s"), Session(store, "s").append_message(user("text")))
        await asyncio.sleep(0.05)
    lease, _ = await both
    assert levels == [FULL, FULL]
    levels.clear()
    async with Held(store):
        two = asyncio.gather(store.leases.acquire("t"), store.leases.acquire("u"))
        await asyncio.sleep(0.05)
    others = await two
    assert levels == [FULL, NORMAL]
    for one in (lease, *others):
        await one.release()


async def test_a_store_that_survives_no_power_cut_never_flushes(path: Path, levels: list[int]) -> None:
    async with open_store(f"sqlite:///{path}", durability="process") as store:
        async with store.leases.acquire("s"):
            await Session(store, "s").append_message(user("text"))
        assert {*levels} == {NORMAL}
