"""A server that is restarted, or ends connections, is not noticed by whoever has the store open."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator

import pytest

from leafward import OutcomeUnknown, Session, StoreError, user
from leafward.stores.servers import running
from leafward.stores.servers.store import ServerStore
from tests.servers.server import Server
from tests.stores.both_servers import Kind, OnPrivateServers, opened

BUSY = 8


async def fill_the_pool(store: ServerStore) -> None:
    """Let the store have several connections, all idle afterwards."""
    session = Session(store, "fill")
    await session.append_message(user("hi"))
    await asyncio.gather(*(session.get_history() for _ in range(BUSY)))


class TestARestart(OnPrivateServers):
    @pytest.fixture
    async def store(self, url: str) -> AsyncGenerator[ServerStore]:
        async with opened(url) as store:
            yield store

    async def test_between_calls_goes_unnoticed(self, private: Server, store: ServerStore) -> None:
        await fill_the_pool(store)
        session = Session(store, "between")
        await session.append_message(user("before", id="before"))

        private.kill()
        private.start()

        assert [one.id for one in await session.get_history()] == ["before"]
        await asyncio.gather(*(session.append_message(user("after", id=f"after {n}")) for n in range(BUSY)))
        assert len(await session.get_history()) == BUSY + 1
        private.kill()
        private.start()
        await session.append_message(user("again", id="again"))
        assert [one.id for one in await session.get_history()][-1] == "again"

    async def test_under_load_loses_and_doubles_nothing(self, private: Server, store: ServerStore) -> None:
        session = Session(store, "load")
        await session.append_message(user("first"))
        acknowledged: list[str] = []
        under_way = asyncio.Event()

        async def write(who: int) -> None:
            for n in range(30):
                await session.append_message(user("text", id=f"{who} {n}"))
                acknowledged.append(f"{who} {n}")
                if len(acknowledged) > 20:
                    under_way.set()

        writing = asyncio.gather(*(write(who) for who in range(4)))
        await under_way.wait()
        await asyncio.to_thread(private.kill)
        await asyncio.to_thread(private.start)
        await writing

        kept = [one.id for one in await session.get_history()][1:]
        assert sorted(kept) == sorted(acknowledged)
        assert len(kept) == 120

    async def test_that_takes_long_ends_calls_in_bounded_time(
        self, private: Server, store: ServerStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "PATIENCE_S", 0.5)
        session = Session(store, "down")
        await session.append_message(user("before", id="before"))
        private.kill()

        began = time.monotonic()
        with pytest.raises(StoreError):
            await session.get_history()
        with pytest.raises(StoreError, match="cannot be reached") as caught:
            await session.append_message(user("during", id="during"))
        assert not isinstance(caught.value, OutcomeUnknown)
        assert time.monotonic() - began < 20
        private.start()

        await session.append_message(user("during", id="during"))
        assert [one.id for one in await session.get_history()] == ["before", "during"]

    async def test_does_not_end_a_subscription(self, private: Server, store: ServerStore) -> None:
        session = Session(store, "told")
        await session.append_message(user("before"))
        changes = session.subscribe(await session.get_version())
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(running.POLL_S)

        await asyncio.to_thread(private.kill)
        await asyncio.to_thread(private.start)
        await session.append_message(user("after", id="after"))

        change = await asyncio.wait_for(waiting, 20)
        assert list(change.message_ids) == ["after"]
        await changes.aclose()

    async def test_leaves_a_lease_with_its_holder(self, private: Server, store: ServerStore) -> None:
        async with store.leases.acquire("leased", ttl=60) as lease:
            await asyncio.to_thread(private.kill)
            await asyncio.to_thread(private.start)
            await Session(store, "leased").with_lease(lease).append_message(user("hi"))

    async def test_connections_that_the_server_ends_go_unnoticed(
        self, kind: Kind, url: str, store: ServerStore
    ) -> None:
        await fill_the_pool(store)
        session = Session(store, "ended")
        for n in range(3):
            assert await kind.end_connections(url) >= 1
            await session.append_message(user("text", id=str(n)))
            assert await kind.end_connections(url) >= 1
            assert len(await session.get_history()) == n + 1

    async def test_a_store_is_closed_while_its_server_is_down(self, private: Server, url: str) -> None:
        async with opened(url) as store:
            await fill_the_pool(store)
            private.kill()
            await asyncio.wait_for(store.close(), 20)
        private.start()
