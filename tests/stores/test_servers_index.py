"""The index on a server comes to hold what is written; a message that cannot be read stops no other session's."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from leafward import CorruptStore, Session, user
from leafward.core.ids import Scope
from leafward.stores.servers import indexing, searching
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql import scanning
from tests.stores.both_servers import Kind, OnBothServers, opened
from tests.stores.server_store import PREFIX


class TestASearch(OnBothServers):
    @pytest.fixture
    async def unindexed(self, store: ServerStore, monkeypatch: pytest.MonkeyPatch) -> ServerStore:
        """A store in which 200 messages, every fiftieth with a needle, have no index yet; pages are of 20."""
        monkeypatch.setattr(searching, "RANKED", 20)
        with monkeypatch.context() as patch:
            patch.setattr(indexing.Indexer, "want", lambda *_: None)
            texts = [f"walnut {n} {'needle' if n % 50 == 0 else ''}" for n in range(200)]
            await Session(store, "s").append_messages([user(text) for text in texts])
        return store

    @pytest.mark.parametrize("wanted", ["needle", "nothing"])
    async def test_has_a_session_indexed_that_it_had_to_read(
        self, kind: Kind, url: str, unindexed: ServerStore, wanted: str
    ) -> None:
        async with opened(url, table_prefix=PREFIX) as other:
            await Session(other, "s").search(wanted)
            await _until_indexed(kind, url, 200)

    async def test_reads_no_message_more_than_once_before_it_ranks(
        self, unindexed: ServerStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read: list[Any] = []
        original = scanning.candidate

        def candidate(row: Any) -> Any:
            read.append(row[1])
            return original(row)

        monkeypatch.setattr(scanning, "candidate", candidate)
        assert len(await Session(unindexed, "s").search("needle")) == 4
        assert len(read) <= 200 + 4


class TestTheIndexer:
    async def test_looks_again_if_something_was_written_while_it_found_nothing_left(self) -> None:
        scope = Scope.of("s")
        looks = 0
        looked_again = asyncio.Event()

        class Runner:
            async def look(self, operation: object) -> Any:
                nonlocal looks
                looks += 1
                if looks == 1:
                    # Committed after the snapshot that tells that all is indexed.
                    indexer.wrote(scope, indexing.ENOUGH)
                else:
                    looked_again.set()

            async def transact(self, operation: object) -> Any:
                raise AssertionError("there is nothing to be written")

        indexer = indexing.Indexer(Runner())
        indexer.wrote(scope, indexing.ENOUGH)
        async with asyncio.timeout(10):
            await looked_again.wait()
        await indexer.stop()
        assert looks == 2


class TestAMessageThatIsNoneOfOurs(OnBothServers):
    @pytest.mark.parametrize("body", ["no JSON", "{}", '{"parts": ["x"]}'])
    async def test_is_told_once_and_keeps_no_other_session_from_being_indexed(
        self, kind: Kind, url: str, store: ServerStore, body: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        await Session(store, "bad").append_message(user("hi"))
        await kind.ask(url, "BEGIN", f"UPDATE {PREFIX}message SET body = '{body}'", "COMMIT")
        with caplog.at_level(logging.WARNING):
            for times in range(1, 4):
                await Session(store, "bad").append_messages([user("hi") for _ in range(40)])
                await Session(store, "good").append_messages([user("hi") for _ in range(40)])
                await _until_indexed(kind, url, 40 * times)
        (warning,) = [one.getMessage() for one in caplog.records]
        assert "session 'bad'" in warning
        with pytest.raises(CorruptStore, match="session 'bad'"):
            await store.settle()

    async def test_is_told_to_whoever_reads_it(self, kind: Kind, url: str, store: ServerStore) -> None:
        session = Session(store, "bad")
        await session.append_message(user("hi"))
        await kind.ask(url, "BEGIN", f"UPDATE {PREFIX}message SET body = 'no JSON'", "COMMIT")
        for read in (session.get_history, session.get_latest_leaf, session.get_tree):
            with pytest.raises(CorruptStore, match="not JSON"):
                await read()


async def _until_indexed(kind: Kind, url: str, messages: int) -> None:
    """Return once so many messages have words."""
    for _ in range(200):
        if await kind.ask(url, f"SELECT count(*) FROM {PREFIX}words") == [(messages,)]:
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"not all of {messages} messages were indexed")
