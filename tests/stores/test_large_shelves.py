"""Sessions with many searchable words are copied and removed in slices, and nobody sees them half done."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from leafward import Session, open_store, user
from leafward.core.ids import Scope
from leafward.core.query import parse_query
from leafward.stores import Store
from leafward.stores.entries import Shelf
from leafward.stores.sql import entries, registry
from leafward.stores.sql.entries import MOST_WORDS
from leafward.stores.sqlite import SqliteStore, purge, uncut
from leafward.stores.sqlite.connection import Database
from leafward.stores.sqlite.upkeep import SqliteUpkeep
from tests.stores.sqlite_store import rows

ENTRIES = 60
EACH = 1000
MOST_ROWS = 25_000
"""In one transaction: some hundredths of a second."""
CANARY = "xkcvbdwpmzgf"
LARGE, COPY = Scope.of("large"), Scope.of("copy")
WITHOUT_WORDS = "SELECT count(*) FROM leafward_entry WHERE analyzer = ''"
LEFT = """
    SELECT (SELECT count(*) FROM leafward_shelf), (SELECT count(*) FROM leafward_entry),
        (SELECT count(*) FROM leafward_entry_word)"""


@pytest.fixture(params=["memory", "sqlite"])
async def either(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Store]:
    async with open_store("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/either.db") as store:
        yield store


@pytest.fixture
def nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """No background work: what a call leaves to it stays."""
    monkeypatch.setattr(SqliteUpkeep, "due", lambda _, *, idle: False)


async def fill(store: Store, scope: Scope = LARGE) -> None:
    await Session(store, scope.session_id).append_message(user("hi", id="m1"))
    for number in range(ENTRIES):
        words = " ".join(f"{CANARY}{(number * 7 + n) % 1500}" for n in range(EACH))
        await put(store, scope, f"key-{number}", f"only{number} {words}")


async def put(store: Store, scope: Scope, key: str, text: str | None, searchable: bool = True) -> None:
    await store.entries.edit(Shelf(scope, "notes"), key, lambda _: text, searchable=searchable)


async def find(store: Store, scope: Scope, words: str) -> list[str]:
    found = await store.entries.search(Shelf(scope, "notes"), parse_query(words), limit=1000)
    return sorted(result.id for result in found)


class Transactions:
    """Counts the rows that each transaction of the store's writer changes."""

    def __init__(self, store: SqliteStore) -> None:
        self._connection = store._connection
        self._before = store._connection.total_changes
        self.largest = 0
        store._connection.set_trace_callback(self._note)

    def _note(self, statement: str) -> None:
        if statement in ("COMMIT", "BEGIN IMMEDIATE"):
            changes = self._connection.total_changes
            self.largest, self._before = max(self.largest, changes - self._before), changes


class TestOtherWritersWaitForASlice:
    @pytest.mark.parametrize("how", ["delete", "erase"])
    async def test_when_a_large_session_goes(self, store: SqliteStore, path: Path, how: str) -> None:
        await fill(store)
        await store.settle()
        assert rows(path, LEFT) == [(1, ENTRIES, ENTRIES * (EACH + 1))]
        transactions = Transactions(store)
        await getattr(store.registry, how)(LARGE)
        await store.settle()
        assert purge.WORDS <= transactions.largest < MOST_ROWS
        assert rows(path, LEFT) == [(0, 0, 0)]

    async def test_when_a_large_session_is_forked(self, store: SqliteStore, path: Path) -> None:
        await fill(store)
        await store.settle()
        transactions = Transactions(store)
        await store.registry.fork(LARGE, "m1", COPY, "copy")
        await store.settle()
        assert EACH < transactions.largest < MOST_ROWS
        assert rows(path, WITHOUT_WORDS) == [(0,)]
        assert rows(path, LEFT) == [(2, 2 * ENTRIES, 2 * ENTRIES * (EACH + 1))]

    async def test_when_a_large_session_is_imported(self, store: SqliteStore, path: Path) -> None:
        await fill(store)
        archive = await store.registry.dump(LARGE)
        await store.settle()
        transactions = Transactions(store)
        await store.registry.restore(COPY, archive)
        assert await find(store, COPY, f"only{ENTRIES - 1}") == [f"key-{ENTRIES - 1}"]
        await store.settle()
        assert MOST_WORDS < transactions.largest < MOST_ROWS
        assert rows(path, WITHOUT_WORDS) == [(0,)]
        assert rows(path, LEFT) == [(2, 2 * ENTRIES, 2 * ENTRIES * (EACH + 1))]


class TestNobodySeesIt:
    @pytest.mark.usefixtures("nothing_behind")
    async def test_a_deleted_session_made_anew_has_none_of_the_old_entries(self, either: Store) -> None:
        for _ in range(3):
            await fill(either)
            assert await either.registry.delete(LARGE)
            await put(either, LARGE, "key-1", "new")
            assert await find(either, LARGE, f"{CANARY}7") == []
            assert await either.entries.count(Shelf(LARGE, "notes")) == 1
            assert [entry.content for entry in (await either.registry.dump(LARGE)).entries] == ["new"]

    @pytest.mark.usefixtures("nothing_behind")
    async def test_a_copy_is_searched_like_its_source_before_its_words_are_cut(self, either: Store) -> None:
        await fill(either)
        await put(either, LARGE, "hidden", "only1", searchable=False)
        await either.registry.fork(LARGE, "m1", COPY, "copy")
        for words in ("only1", f"{CANARY}7", f"only3 {CANARY}21", "nowhere"):
            assert await find(either, COPY, words) == await find(either, LARGE, words)
        assert await find(either, COPY, "only1") == ["key-1"]

    async def test_a_copy_is_searched_like_its_source_once_they_are(self, store: SqliteStore) -> None:
        await fill(store)
        await put(store, LARGE, "hidden", "only1", searchable=False)
        await store.registry.fork(LARGE, "m1", COPY, "copy")
        await store.settle()
        for words in ("only1", f"{CANARY}7", f"only3 {CANARY}21", "nowhere"):
            assert await find(store, COPY, words) == await find(store, LARGE, words)

    async def test_a_change_before_the_words_are_cut_holds_afterwards(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteUpkeep, "due", lambda _, *, idle: False)
            async with open_store(f"sqlite:///{path}") as store:
                await fill(store)
                await store.registry.fork(LARGE, "m1", COPY, "copy")
                await put(store, COPY, "key-1", "other")
                await put(store, COPY, "key-2", None)
                await put(store, COPY, "key-3", "only3", searchable=False)
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            for _ in range(2):
                assert await find(store, COPY, "only1") == await find(store, COPY, "only2") == []
                assert await find(store, COPY, "only3") == []
                assert await find(store, COPY, "other") == ["key-1"]
                assert await find(store, COPY, "only4") == ["key-4"]
                await store.settle()
        assert rows(path, WITHOUT_WORDS) == [(0,)]

    @pytest.mark.usefixtures("nothing_behind")
    async def test_writing_what_an_uncut_entry_says_already_is_no_change(self, store: SqliteStore) -> None:
        await fill(store)
        await store.registry.fork(LARGE, "m1", COPY, "copy")
        entry = await store.entries.get(Shelf(COPY, "notes"), "key-1")
        assert entry is not None
        version = await store.messages.revision(COPY)
        await put(store, COPY, "key-1", entry.content)
        assert await store.messages.revision(COPY) == version

    async def test_an_entry_whose_words_another_version_cut_loses_them_when_it_changes(
        self, store: SqliteStore, path: Path
    ) -> None:
        await put(store, LARGE, "a", "tea and biscuits")
        await put(store, LARGE, "b", "tea")
        await store._writer.run(lambda connection: connection.execute("UPDATE leafward_entry SET analyzer = 'old'"))
        await put(store, LARGE, "a", "coffee")
        assert await find(store, LARGE, "tea") == ["b"]
        assert rows(path, "SELECT count(*) FROM leafward_entry_word") == [(2,)]


class TestInterrupted:
    async def test_what_a_closed_store_had_not_removed_goes_when_it_is_opened(
        self, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(SqliteUpkeep, "due", lambda _, *, idle: False)
            async with open_store(f"sqlite:///{path}") as store:
                await fill(store)
                await store.registry.delete(LARGE)
        assert rows(path, LEFT) == [(1, ENTRIES, ENTRIES * (EACH + 1))]
        async with open_store(f"sqlite:///{path}") as store:
            assert isinstance(store, SqliteStore)
            await store.settle()
        assert rows(path, LEFT) == [(0, 0, 0)]

    async def test_no_byte_of_an_erased_shelf_is_left(self, store: SqliteStore, path: Path) -> None:
        await fill(store)
        await store.registry.fork(LARGE, "m1", COPY, "copy")
        await Session(store, "other").append_message(user("stays"))
        assert CANARY.encode() in b"".join(file.read_bytes() for file in path.parent.iterdir())
        for scope in (COPY, LARGE):
            assert (await store.registry.erase(scope)).erased
        assert CANARY.encode() not in b"".join(file.read_bytes() for file in path.parent.iterdir())

    @pytest.mark.usefixtures("nothing_behind")
    async def test_words_that_another_process_cuts_meanwhile_are_removed_too(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await fill(store)
            await store.registry.fork(LARGE, "m1", COPY, "copy")
        database = Database(str(path), "power", "leafward_")
        with closing(database.connect()) as connection:
            cut = database.run(connection, uncut.prepare())
            assert cut
            database.run(connection, registry.delete(COPY))
            first = True
            while not database.run(connection, purge.is_over()):
                discarded = database.run(connection, purge.prepare())
                assert discarded is not None
                if first and isinstance(discarded, purge.DiscardedShelf):
                    assert discarded.entries
                    database.run(connection, uncut.apply(cut))
                    first = False
                database.run(connection, purge.apply(discarded))
        assert not first
        assert rows(path, LEFT) == [(1, ENTRIES, ENTRIES * (EACH + 1))]

    @pytest.mark.usefixtures("nothing_behind")
    async def test_an_entry_that_changes_while_its_words_are_cut_has_those_of_its_new_text(self, path: Path) -> None:
        async with open_store(f"sqlite:///{path}") as store:
            await fill(store)
            await store.registry.fork(LARGE, "m1", COPY, "copy")
        database = Database(str(path), "power", "leafward_")
        with closing(database.connect()) as connection:
            cut = database.run(connection, uncut.prepare())
            shelf, first = (
                Shelf(COPY, "notes"),
                rows(path, "SELECT min(entry_no) FROM leafward_entry WHERE analyzer = ''"),
            )
            assert cut[0].entry_no == first[0][0]
            database.run(connection, entries.edit(shelf, "key-0", lambda _: "tea", None, True))
            database.run(connection, uncut.apply(cut))
        of_key_0 = (
            "SELECT w.word FROM leafward_entry e JOIN leafward_entry_word w USING (entry_no) WHERE e.entry_no = {}"
        )
        assert [word for (word,) in rows(path, of_key_0.format(cut[0].entry_no))] == ["tea"]
