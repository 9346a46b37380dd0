"""How writes share commits, fail alone and are cancelled."""

from __future__ import annotations

import asyncio
import sqlite3
import threading

import pytest

from leafward import (
    MessageNotFound,
    OutcomeUnknown,
    Session,
    StoreError,
    user,
)
from leafward.stores.sqlite import SqliteStore
from tests.stores.sqlite_store import Held


class TestGroupCommit:
    async def test_writes_that_wait_together_share_a_commit(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("first"))
        commits: list[str] = []
        store._connection.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        async with Held(store):
            writes = [asyncio.ensure_future(session.append_message(user(f"m{n}"))) for n in range(20)]
            await asyncio.sleep(0)
        await asyncio.gather(*writes)
        store._connection.set_trace_callback(None)
        assert len(commits) == 2
        assert [message.text for message in await session.get_history()] == ["first", *(f"m{n}" for n in range(20))]

    async def test_a_bad_write_fails_alone(self, store: SqliteStore) -> None:
        session = Session(store)
        async with Held(store):
            good = asyncio.ensure_future(session.append_message(user("good")))
            bad = asyncio.ensure_future(session.append_message(user("bad"), parent_id="nowhere"))
            last = asyncio.ensure_future(session.append_message(user("last")))
            await asyncio.sleep(0)
        await asyncio.gather(good, last)
        with pytest.raises(MessageNotFound):
            await bad
        assert [message.text for message in await session.get_history()] == ["good", "last"]

    async def test_a_write_that_ends_the_transaction_takes_no_other_with_it(self, store: SqliteStore) -> None:
        def rolls_back(connection: sqlite3.Connection) -> None:
            connection.execute("ROLLBACK")
            raise sqlite3.OperationalError("the disk said no")

        session = Session(store)
        async with Held(store):
            good = asyncio.ensure_future(session.append_message(user("good")))
            bad = asyncio.ensure_future(store._writer.run(rolls_back))
            last = asyncio.ensure_future(session.append_message(user("last")))
            await asyncio.sleep(0)
        await asyncio.gather(good, last)
        with pytest.raises(StoreError, match="the disk said no"):
            await bad
        assert [message.text for message in await session.get_history()] == ["good", "last"]

    async def test_a_cancelled_write_that_has_not_begun_is_withdrawn(self, store: SqliteStore) -> None:
        session = Session(store)
        async with Held(store):
            write = asyncio.ensure_future(session.append_message(user("never")))
            await asyncio.sleep(0)
            write.cancel()
            with pytest.raises(asyncio.CancelledError):
                await write
        assert await session.get_history() == []

    async def test_a_cancelled_write_that_has_begun_is_finished_first(self, store: SqliteStore) -> None:
        go, begun = threading.Event(), threading.Event()

        def slow(connection: sqlite3.Connection) -> None:
            begun.set()
            assert go.wait(20)
            connection.execute("INSERT INTO leafward_meta VALUES ('slow', 'done')")

        write = asyncio.ensure_future(store._writer.run(slow))
        assert await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):
            write.cancel()
            await asyncio.sleep(0.01)
        assert not write.done()
        go.set()
        with pytest.raises(asyncio.CancelledError):
            await write
        assert store._connection.execute("SELECT value FROM leafward_meta WHERE name = 'slow'").fetchall() == [
            ("done",)
        ]

    async def test_a_lock_that_cannot_be_had_is_told_and_the_store_goes_on(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise OSError("no locks available")

        monkeypatch.setattr("fcntl.flock", fails)
        with pytest.raises(StoreError, match="no locks available"):
            await Session(store).append_message(user("never"))
        monkeypatch.undo()
        await Session(store).append_message(user("now"))
        assert [message.text for message in await Session(store).get_history()] == ["now"]

    async def test_after_a_failed_fsync_nothing_more_is_acknowledged(self, store: SqliteStore) -> None:
        def fails(connection: sqlite3.Connection) -> None:
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
            raise error

        await Session(store).append_message(user("safe"))
        with pytest.raises(OutcomeUnknown, match="repeat the call"):
            await store._writer.run(fails)
        with pytest.raises(StoreError, match="open it again"):
            await Session(store).append_message(user("later"))
        assert [message.text for message in await Session(store).get_history()] == ["safe"]
