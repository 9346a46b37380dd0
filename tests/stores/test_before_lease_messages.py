"""Stores of the version that had no lease messages are opened, with a lease that is held and one who waits."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from leafward import LeaseLost, Session, open_store, user
from leafward.core.ids import new_id
from leafward.stores import Fence, JsonFileAgentStateStore, Lease, Slot, Store
from leafward.stores.leases.local_queue import LocalQueue
from leafward.stores.sql import schema, tables
from tests.examples.test_third_party_store import bucket
from tests.stores.both_servers import Kind, OnBothServers, opened
from tests.stores.redis_store import command, forget

TTL = 2.0
LAST_STEP = 4
"""The step of a server's schema that made the table of texts; the version before had three."""
LEASE = "INSERT INTO {}lease (user_id, session_id, token, holder, expires_at) VALUES ('alice', 's', {}, 'old', {})"
COLUMNS = (("lease", "label"), ("lease", "since"), ("lease", "process"), ("ticket", "process"))
"""What that step added to tables that there were."""
TICKET = "INSERT INTO {}ticket (user_id, session_id, holder, expires_at) VALUES ('alice', 's', 'waits', {})"


def moments() -> tuple[int, int, int]:
    """Return a token, and until when a lease and a ticket of the version before last."""
    now = time.time_ns() // 1000
    return now, now + int(TTL * 1e6), now + int(TTL * 1e6 / 2)


async def check(store: Store, token: int) -> None:
    """See the holder of the version before, send it a text, and follow it."""
    async with asyncio.timeout(60):
        holder = await store.leases.holder("s", "alice")
        assert holder is not None
        assert (holder.token, holder.label) == (token, None)
        assert abs((holder.expires - holder.since).total_seconds() - TTL) < 0.1
        assert await store.leases.send("s", "alice", "for all")
        assert not await store.leases.send("s", "alice", "for a", label="a")

        async with store.leases.acquire("s", "alice", label="a") as lease:
            assert lease.token > token
            assert await lease.receive() == ["for all"]
            await Session(store, "s", user_id="alice").with_lease(lease).append_message(user("followed"))
        holder = await store.leases.holder("s", "alice")
        assert holder is None


def old_tables(connection: sqlite3.Connection) -> int:
    """Make the tables, leases and tickets of the version before in a SQLite file of this one; return the token."""
    token, held, kept = moments()
    for table, column in COLUMNS:
        connection.execute(f"ALTER TABLE leafward_{table} DROP COLUMN {column}")
    connection.execute("DROP TABLE leafward_sent")
    connection.execute(f"UPDATE leafward_meta SET value = '{len(schema.MIGRATIONS) - 1}' WHERE name = 'schema'")
    connection.execute(LEASE.format("leafward_", token, held))
    connection.execute(TICKET.format("leafward_", kept))
    connection.commit()
    connection.close()
    return token


async def test_a_sqlite_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chat.db"
    async with open_store(url):
        pass
    token = old_tables(sqlite3.connect(tmp_path / "chat.db"))
    async with open_store(url) as store:
        await check(store, token)


async def test_a_directory_of_journals(tmp_path: Path) -> None:
    url = f"file:///{tmp_path}/chats"
    async with open_store(url) as store:
        await Session(store, "s", user_id="alice").append_message(user("before"))
    token = old_tables(sqlite3.connect(tmp_path / "chats" / "index.sqlite"))
    async with open_store(url) as store:
        await check(store, token)
        history = await Session(store, "s", user_id="alice").get_history()
        assert [message.text for message in history] == ["before", "followed"]


async def test_a_directory_of_states(tmp_path: Path) -> None:
    async with JsonFileAgentStateStore(tmp_path) as states:
        await states.save("s", "a", {"n": 1})
    token = old_tables(sqlite3.connect(tmp_path / ".leafward.sqlite"))
    async with JsonFileAgentStateStore(tmp_path) as states:
        await check(await states.open(), token)


@pytest.fixture
def prefix(redis_url: str) -> Iterator[str]:
    prefix = f"{new_id()}:"
    yield prefix
    forget(redis_url, prefix)


async def test_keys_of_redis(redis_url: str, prefix: str) -> None:
    token, held, kept = moments()
    lease, queue, waiting = (f"{prefix}{{u:alice}}:{part}:s" for part in ("lease", "queue", "waiting"))
    command(redis_url, "HSET", lease, "token", token, "holder", "old", "expires", held, "tickets", 1)
    command(redis_url, "ZADD", queue, 1, "waits")
    command(redis_url, "ZADD", waiting, kept, "waits")
    async with open_store(redis_url, key_prefix=prefix) as store:
        await check(store, token)


class TestTablesOfAServer(OnBothServers):
    async def test_are_upgraded(self, kind: Kind, url: str, prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(tables, "STEPS", tables.STEPS[: LAST_STEP - 1])
            patch.setattr(tables, "TABLES", [name for name in tables.TABLES if name != "sent"])
            async with opened(url, table_prefix=prefix) as store:
                await Session(store, "s", user_id="alice").append_message(user("before"))
        assert f"{prefix}sent" not in await kind.tables(url, prefix)
        await kind.ask(url, *(f"ALTER TABLE {prefix}{table} DROP COLUMN {column}" for table, column in COLUMNS))
        token, held, kept = moments()
        statements = LEASE.format(prefix, token, held), TICKET.format(prefix, kept)
        await kind.ask(url, "BEGIN", *statements, "COMMIT")

        async with opened(url, table_prefix=prefix) as store:
            await check(store, token)
        async with opened(url, table_prefix=prefix) as store:
            history = await Session(store, "s", user_id="alice").get_history()
            assert [message.text for message in history] == ["before", "followed"]


async def test_an_object_of_a_bucket() -> None:
    token, held, kept = moments()
    lease = {"token": token, "holder": "old", "queue": {"old": held / 1e6, "waits": kept / 1e6}}
    objects = MemoryStore()
    async with await bucket.open_bucket("s3://chats", client=objects) as store:
        path, _, _ = await store._server._read("alice")
        await objects.put_async(path, json.dumps({"journals": {}, "leases": {"s": lease}}).encode())
        await check(store, token)
        stale = Lease(
            store.runner, Fence(Slot("alice", "s"), token), "old", 30, queue=LocalQueue(), asked=time.monotonic()
        )
        with pytest.raises(LeaseLost):
            await stale.receive()
        stale._renewing.cancel()
