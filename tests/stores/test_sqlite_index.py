"""How the search index follows, fails and is made anew."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

from leafward import (
    CorruptStore,
    Session,
    StoreError,
    open_store,
    user,
)
from leafward.core import Owner, Scope
from leafward.core.query import parse_query
from leafward.stores import SearchFilter
from leafward.stores.sqlite import SqliteStore


class TestIndex:
    async def test_an_indexed_message_is_found_as_a_queued_one_is(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_messages([user(f"deployment number{n} 部署") for n in range(60)])
        queued = await session.search("deployed 部署", limit=100)
        await store.settle()
        assert store._connection.execute("SELECT count(*) FROM leafward_unindexed").fetchone() == (0,)
        assert await session.search("deployed 部署", limit=100) == queued
        assert len(queued) == 60

    async def test_old_words_and_deleted_messages_leave_the_index(self, store: SqliteStore) -> None:
        session = Session(store)
        one = await session.append_message(user("alpha", id="one"))
        await session.append_message(user("beta", id="two"))
        await store.settle()
        await session.update_message(user("gamma", id=one.id))
        await session.delete_messages(["two"])
        for word, hits in (("alpha", 0), ("beta", 0), ("gamma", 1)):
            assert len(await session.search(word)) == hits
        await store.settle()
        for word, hits in (("alpha", 0), ("beta", 0), ("gamma", 1)):
            found = store._connection.execute(
                "SELECT rowid FROM leafward_search WHERE leafward_search MATCH ?", (word,)
            )
            assert len(found.fetchall()) == hits
            assert len(await session.search(word)) == hits

    async def test_a_cleared_session_leaves_the_file_in_the_background(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_messages([user(f"secret{n}") for n in range(100)])
        await store.settle()
        await session.clear_messages()
        await session.append_message(user("fresh"))
        assert await session.search("secret5") == []
        await store.settle()
        assert store._connection.execute("SELECT count(*) FROM leafward_message").fetchone() == (1,)
        assert store._connection.execute("SELECT count(*) FROM leafward_tree").fetchone() == (1,)
        found = store._connection.execute(
            "SELECT rowid FROM leafward_search WHERE leafward_search MATCH 'secret5'"
        ).fetchall()
        assert found == []

    async def test_an_index_of_another_analyzer_is_made_anew(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            await Session(store).append_message(user("findable"))
            await store.settle()
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE leafward_meta SET value = 'older' WHERE name = 'analyzer'")
            connection.execute("DELETE FROM leafward_search_data WHERE id > 10")
        connection.close()
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            assert len(await Session(store).search("findable")) == 1
            await store.settle()
            assert len(await Session(store).search("findable")) == 1

    async def test_a_damaged_index_is_noticed_and_made_anew(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("findable", id="one"))
        await store.settle()
        store._connection.execute("DELETE FROM leafward_search_data")
        assert len(await session.search("findable")) == 1
        await session.update_message(user("changed", id="one"))
        await store.settle()
        assert len(await session.search("changed")) == 1
        assert await session.search("findable") == []

    async def test_an_index_that_cannot_be_written_fails_no_write_and_is_told(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(*_: object) -> None:
            raise sqlite3.OperationalError("no index today")

        monkeypatch.setattr("leafward.stores.sqlite.index.tokens_for", fails)
        session = Session(store)
        await session.append_message(user("still stored"))
        with pytest.raises(StoreError, match="no index today"):
            await store.settle()
        assert len(await session.search("stored")) == 1
        monkeypatch.undo()
        await session.append_message(user("again"))
        await store.settle()
        assert store._connection.execute("SELECT count(*) FROM leafward_unindexed").fetchone() == (0,)


class TestSlices:
    async def test_large_messages_are_indexed_one_at_a_time(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_messages([user(f"needle{n} " + "hay " * 30_000) for n in range(6)])
        slices: list[int] = []
        database = store._database
        original = database.run

        def counting(connection: sqlite3.Connection, operation: Any) -> Any:
            if operation.__name__ == "apply_slice":
                slices.append(sum(len(one.messages) for one in operation.gi_frame.f_locals["prepared"]))
            return original(connection, operation)

        database.run = counting  # type: ignore[method-assign]
        await store.settle()
        assert slices == [1] * 6
        assert len(await session.search("needle3")) == 1

    async def test_an_append_does_not_wait_for_a_slice_to_be_prepared(
        self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        preparing, go = threading.Event(), threading.Event()

        def slow(*arguments: Any) -> str:
            preparing.set()
            assert go.wait(20)
            return "late"

        monkeypatch.setattr("leafward.stores.sqlite.index.tokens_for", slow)
        session = Session(store)
        await session.append_message(user("first"))
        assert await asyncio.to_thread(preparing.wait, 10)
        async with asyncio.timeout(5):
            for n in range(20):
                await session.append_message(user(f"m{n}"))
        go.set()
        monkeypatch.undo()

    async def test_a_message_that_is_no_json_is_told_and_holds_nothing_else_up(
        self, store: SqliteStore, path: Path
    ) -> None:
        session = Session(store)
        await session.append_messages([user("broken", id="bad"), user("findable", id="good")])
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE leafward_message SET body = '{oops' WHERE id = 'bad'")
        connection.close()
        await store.settle()
        assert [found.id for found in await session.search("findable")] == ["good"]
        with pytest.raises(CorruptStore, match="not JSON"):
            await session.get_history()
        assert (await session.get_message("good")) is not None

    async def test_a_damaged_index_is_made_anew_without_a_write(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("findable"))
        await store.settle()
        store._connection.execute("DELETE FROM leafward_search_data")
        assert len(await session.search("findable")) == 1
        await store.settle()
        rows = store._connection.execute("SELECT rowid FROM leafward_search WHERE leafward_search MATCH 'findabl'")
        assert len(rows.fetchall()) == 1

    async def test_two_versions_on_one_file_do_not_rebuild_in_turns(self, store: SqliteStore) -> None:
        session = Session(store)
        await session.append_message(user("findable"))
        await store.settle()
        for _ in range(3):
            store._connection.execute("UPDATE leafward_meta SET value = 'another version' WHERE name = 'analyzer'")
            await session.append_message(user("findable too"))
            await store.settle()
        analyzer = store._connection.execute("SELECT value FROM leafward_meta WHERE name = 'analyzer'").fetchone()
        assert analyzer == ("another version",)
        assert len(await session.search("findable")) == 4


class TestScopes:
    async def test_a_cursor_opens_no_other_session(self, store: SqliteStore) -> None:
        bob, eve = Session(store, "bob"), Session(store, "eve")
        await bob.append_messages([user(f"secret {n}") for n in range(4)])
        await eve.append_message(user("mine"))
        page = await store.messages.path_page(Scope.of("bob"), limit=2)
        assert page.next is not None
        stolen = await store.messages.path_page(Scope.of("eve"), cursor=page.next, limit=10)
        assert stolen.messages == []

    async def test_a_search_over_an_owner_sees_all_sessions_of_that_owner_only(self, store: SqliteStore) -> None:
        for session_id, user_id in (("one", "alice"), ("two", "alice"), ("one", "bob"), ("one", None)):
            session = Session(store, session_id, user_id=user_id)
            await session.append_message(user(f"deployment of {user_id} in {session_id}"))
        await Session(store, "two", user_id="alice").clear_messages()
        await Session(store, "three", user_id="alice").append_message(user("deployed by alice"))
        for _ in range(2):
            found = await store.messages.search(
                Owner("default", "alice"), parse_query("deploy"), only=SearchFilter(), limit=10
            )
            assert sorted(result.session_id for result in found) == ["one", "three"]
            await store.settle()

    async def test_many_matches_of_others_are_passed_over(self, store: SqliteStore) -> None:
        await Session(store, "crowd", user_id="bob").append_messages([user("common word") for _ in range(2500)])
        mine = Session(store, "mine", user_id="alice")
        await mine.append_messages([user(f"common {n}") for n in range(1200)])
        await store.settle()
        assert len(await mine.search("common", limit=5000)) == 1200
        found = await store.messages.search(
            Owner("default", "alice"), parse_query("common"), only=SearchFilter(), limit=2
        )
        assert [result.session_id for result in found] == ["mine", "mine"]
