"""Versions notice a save by any AgentScope for Java, in a table that either side made."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from leafward import LeaseLost, SessionKey, StaleState, StateDecodeError
from leafward.stores.servers import states as server_states
from leafward.stores.servers.mysql import MysqlServer
from leafward.stores.servers.postgres import PostgresServer
from leafward.stores.servers.server import Server
from leafward.stores.states.store import StateStore
from tests.stores.both_servers import Kind, OnBothServers
from tests.stores.states.java_rows import NEXT, RELEASED, Java
from tests.stores.states.test_rows import made, where

ALICE = SessionKey("s1", "alice")
OURS, EARLIER = "leafward", "leafward before there were checksums"
COLUMNS = {"session_id", "state_key", "item_index", "state_data", "created_at", "updated_at"}
"""Those of a table that Java 2.0.2 made."""


@contextmanager
def counted_round_trips(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Collect what is sent to the servers."""
    sent: list[str] = []

    def counted(server: type[Server], name: str) -> Callable[..., Any]:
        original = getattr(server, name)

        def call(self: Server, connection: Any, *arguments: Any, **options: Any) -> Any:
            sent.append(arguments[0] if name.startswith("execute") else name)
            return original(self, connection, *arguments, **options)

        return call

    with monkeypatch.context() as patched:
        for server in (MysqlServer, PostgresServer):
            for name in ("begin", "commit", "rollback", "execute", "execute_many"):
                patched.setattr(server, name, counted(server, name))
        yield sent


class BesideJava(OnBothServers):
    """Gives each test a table that one side made, and which the other side shares."""

    maker = OURS

    @pytest.fixture(autouse=True)
    async def table(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[str]:
        table = where(kind, prefix)
        self.old, self.new = Java(kind, url, table, RELEASED), Java(kind, url, table, NEXT)
        if self.maker == EARLIER:
            async with made(kind, url, prefix) as states:
                await states.exists("s")
            await kind.ask(url, f"ALTER TABLE {table} DROP COLUMN leafward_sum")
        elif self.maker != OURS:
            await (self.old if self.maker == RELEASED else self.new).make_table()
        yield table
        await kind.ask(url, f"DROP TABLE IF EXISTS {table}")

    @pytest.fixture
    async def states(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[StateStore]:
        async with made(kind, url, prefix) as states:
            yield states

    @pytest.fixture
    async def others(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[StateStore]:
        """What another process has: it knows nothing of what the first has read."""
        async with made(kind, url, prefix) as states:
            yield states


class TestOurTable(BesideJava):
    async def test_has_versions_that_notice_a_save_by_java_2_0_2(self, states: StateStore, others: StateStore) -> None:
        version = await states.save_if_version(ALICE, "v", {"n": 1}, 0)
        await self.old.save("alice:s1", "v", '{"n":"java"}')
        for store in (states, others):
            with pytest.raises(StaleState):
                await store.save_if_version(ALICE, "v", {"n": 2}, version)
        for store in (states, others):
            assert await store.get_versioned(ALICE, "v") == ({"n": "java"}, version + 1)
        assert await others.save_if_version(ALICE, "v", {"n": 2}, version + 1) == version + 2
        assert await self.old.get("alice:s1", "v") == ('{"n":2}',)

    @pytest.mark.parametrize("count", [1, 2, 3])
    async def test_lets_another_process_notice_a_save_by_java_2_0_2_after_any_number_of_ours(
        self, states: StateStore, others: StateStore, count: int
    ) -> None:
        for name in ("read", "replaced"):
            for number in range(count):
                assert await states.save_if_version(ALICE, name, {"n": number}, number) == number + 1
        assert await others.get_versioned(ALICE, "read") == ({"n": count - 1}, count)

        await self.old.save("alice:s1", "replaced", '{"n":"java"}')

        with pytest.raises(StaleState):
            await others.save_if_version(ALICE, "replaced", {"n": "py"}, count)
        assert await others.get_versioned(ALICE, "replaced") == ({"n": "java"}, count + 1)

    async def test_counts_a_save_by_java_2_0_3_once(self, states: StateStore, others: StateStore) -> None:
        version = await states.save_if_version(ALICE, "v", {"n": 1}, 0)
        await self.new.save("alice:s1", "v", '{"n":"java"}')
        with pytest.raises(StaleState):
            await states.save_if_version(ALICE, "v", {"n": 2}, version)
        for store in (states, others):
            assert await store.get_versioned(ALICE, "v") == ({"n": "java"}, version + 1)
        assert await others.save_if_version(ALICE, "v", {"n": 2}, version + 1) == version + 2

    async def test_does_not_replace_a_value_that_java_created_since_the_read(
        self, states: StateStore, others: StateStore
    ) -> None:
        await states.save("other", "v", {})
        for java, slot in ((self.old, "old"), (self.new, "new")):
            key = SessionKey(slot, "alice")
            assert await states.get_versioned(key, "v") == (None, 0)
            await java.save(f"alice:{slot}", "v", '{"n":"java"}')
            for store in (states, others):
                with pytest.raises(StaleState):
                    await store.save_if_version(key, "v", {"n": "py"}, 0)
                assert await store.get_versioned(key, "v") == ({"n": "java"}, 1)
            assert await others.save_if_version(key, "v", {"n": "py"}, 1) == 2

    @pytest.mark.parametrize("read", [True, False], ids=["read before", "saved before"])
    @pytest.mark.parametrize("counts", [True, False], ids=["2.0.3", "2.0.2"])
    async def test_notices_that_java_deleted_a_value_and_saved_another(
        self, states: StateStore, kind: Kind, url: str, table: str, counts: bool, read: bool
    ) -> None:
        version = await states.save_if_version(ALICE, "a", {"n": 1}, 0)
        if read:
            assert await states.get_versioned(ALICE, "a") == ({"n": 1}, version)
        await kind.ask(url, f"DELETE FROM {table}")
        await (self.new if counts else self.old).save("alice:s1", "a", '{"n":"java"}')

        with pytest.raises(StaleState):
            await states.save_if_version(ALICE, "a", {"n": 2}, version)
        found = await states.get_versioned(ALICE, "a")
        assert found.value == {"n": "java"}
        assert await states.save_if_version(ALICE, "a", {"n": 2}, found.version) == found.version + 1

    async def test_counts_each_save_by_java_2_0_3_of_a_value_that_an_earlier_java_created(
        self, states: StateStore
    ) -> None:
        await states.save("other", "v", {})
        await self.old.save("alice:s1", "v", '{"n":0}')
        assert await states.get_versioned(ALICE, "v") == ({"n": 0}, 1)
        for number in (1, 2):
            await self.new.save("alice:s1", "v", f'{{"n":{number}}}')
            with pytest.raises(StaleState):
                await states.save_if_version(ALICE, "v", {"n": "py"}, number)
            assert await states.get_versioned(ALICE, "v") == ({"n": number}, number + 1)
        assert await states.save_if_version(ALICE, "v", {"n": "py"}, 3) == 4
        assert await self.new.get("alice:s1", "v") == ('{"n":"py"}', 4)

    async def test_is_saved_to_at_the_version_that_was_read_without_reading_again(
        self, states: StateStore, others: StateStore
    ) -> None:
        await states.save(ALICE, "v", {"n": 1})
        await self.old.save("alice:s1", "v", '{"n":"java"}')
        # Another process read it.
        assert await others.save_if_version(ALICE, "v", {"n": 2}, 2) == 3

    @pytest.mark.parametrize("order", [(RELEASED, NEXT), (NEXT, RELEASED), (RELEASED, RELEASED), (NEXT, NEXT)])
    async def test_counts_saves_of_two_javas_that_were_seen(self, states: StateStore, order: tuple[str, str]) -> None:
        version = await states.save_if_version(ALICE, "v", {"n": 1}, 0)
        for number, java in enumerate(order, start=1):
            await (self.old if java == RELEASED else self.new).save("alice:s1", "v", f'{{"n":"java {number}"}}')
            with pytest.raises(StaleState):
                await states.save_if_version(ALICE, "v", {"n": 2}, version)
            version += 1
            assert await states.get_versioned(ALICE, "v") == ({"n": f"java {number}"}, version)
        assert await states.save_if_version(ALICE, "v", {"n": 3}, version) == version + 1
        assert await states.get_versioned(ALICE, "v") == ({"n": 3}, version + 1)

    async def test_counts_a_save_by_java_under_a_save_without_a_version(self, states: StateStore) -> None:
        await states.save(ALICE, "v", {"n": 1})
        await self.old.save("alice:s1", "v", '{"n":"java"}')
        assert await states.save_if_version(ALICE, "v", {"n": 2}, -1) == 3
        await self.new.save("alice:s1", "v", '{"n":"java"}')
        assert await states.save_if_version(ALICE, "v", {"n": 3}, -1) == 5
        assert await states.get_versioned(ALICE, "v") == ({"n": 3}, 5)

    async def test_lets_java_2_0_3_notice_our_saves(self, states: StateStore) -> None:
        await states.save("other", "v", {})
        await self.new.save("alice:s1", "v", '{"n":1}')
        assert await states.get_versioned(ALICE, "v") == ({"n": 1}, 1)
        await self.old.save("alice:s1", "v", '{"n":"old"}')
        assert await states.get_versioned(ALICE, "v") == ({"n": "old"}, 2)
        assert await states.save_if_version(ALICE, "v", {"n": 2}, 2) == 3
        await self.new.save_if_version("alice:s1", "v", '{"n":"too late"}', 1)
        assert await self.new.get("alice:s1", "v") == ('{"n":2}', 3)
        await self.new.save_if_version("alice:s1", "v", '{"n":"in time"}', 3)
        assert await states.get_versioned(ALICE, "v") == ({"n": "in time"}, 4)

    async def test_counts_a_text_that_java_wrote_in_its_own_way_once(self, states: StateStore) -> None:
        await states.save(ALICE, "v", {"text": "Hello 你好 😀"})
        await self.old.save("alice:s1", "v", '{ "text" : "Hello 你好 😀" }')
        assert await states.get_versioned(ALICE, "v") == ({"text": "Hello 你好 😀"}, 2)
        await states.save(ALICE, "v", {"text": "Hello 你好 😀"})
        assert await states.get_versioned(ALICE, "v") == ({"text": "Hello 你好 😀"}, 3)

    async def test_notices_a_save_by_java_of_a_large_state_and_behind_a_lease(self, states: StateStore) -> None:
        large = {"text": "你好" * 1_000_000}
        async with states.leases.acquire("s1", "alice") as lease:
            held = states.with_lease(lease)
            version = await held.save_if_version(ALICE, "v", large, 0)
            assert await held.save_if_version(ALICE, "v", large, version) == version + 1
            await self.old.save("alice:s1", "v", '{"n":"java"}')
            with pytest.raises(StaleState):
                await held.save_if_version(ALICE, "v", large, version + 1)
            assert await held.get_versioned(ALICE, "v") == ({"n": "java"}, version + 2)
            assert await held.save_if_version(ALICE, "v", large, version + 2) == version + 3
            assert await held.get_versioned(ALICE, "v") == (large, version + 3)
        with pytest.raises(LeaseLost):
            await held.save_if_version(ALICE, "v", {}, version + 3)

    async def test_keeps_lists_as_before(self, states: StateStore, kind: Kind, url: str, table: str) -> None:
        await states.save(ALICE, "x", {"n": 1})
        await self.old.save_list("alice:s1", "x", '{"n":2}', '{"n":3}')
        assert await states.get_list(ALICE, "x") == [{"n": 2}, {"n": 3}]
        with pytest.raises(StateDecodeError):
            await states.get(ALICE, "x")
        with pytest.raises(StaleState):
            await states.save_if_version(ALICE, "x", {"n": 4}, 1)
        await states.save_list(ALICE, "x", [{"n": 2}, {"n": 4}])
        assert await kind.ask(url, f"SELECT COUNT(leafward_sum), MAX(version) FROM {table}") == [(0, 0)]

    async def test_lets_a_text_be_replaced_by_who_has_read_it_and_by_nobody_else(
        self, states: StateStore, others: StateStore
    ) -> None:
        random = Random(7)
        stored = 0
        await states.save(ALICE, "v", {"n": stored})
        await others.exists(ALICE)
        read: dict[StateStore, list[tuple[int, int]]] = {states: [], others: []}
        for number in range(1, 80):
            store = random.choice([states, others])
            match random.randrange(6):
                case 0 | 1:
                    found = await store.get_versioned(ALICE, "v")
                    assert found.value == {"n": stored}
                    read[store].append((found.version, stored))
                case 2:
                    await random.choice([self.old, self.new]).save("alice:s1", "v", f'{{"n":{number}}}')
                    stored = number
                case 3:
                    await store.save(ALICE, "v", {"n": number})
                    stored = number
                case _ if read[store]:
                    version, text = random.choice(read[store][-2:])
                    if text == stored:
                        version = await store.save_if_version(ALICE, "v", {"n": number}, version)
                        read[store].append((version, number))
                        stored = number
                    else:
                        with pytest.raises(StaleState):
                            await store.save_if_version(ALICE, "v", {"n": number}, version)
                case _:
                    pass

    async def test_is_read_and_saved_to_in_as_many_round_trips_as_without_checksums(
        self, states: StateStore, kind: Kind, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folds = kind.name == "mysql" and self.maker in (RELEASED, NEXT)
        saving = ["begin", "SELECT", "UPDATE", "commit"] if folds else ["UPDATE"]
        await states.save(ALICE, "v", {"n": 1})
        for java in (None, self.new, self.old):
            if java is not None:
                await java.save("alice:s1", "v", '{"n":"java"}')
            with counted_round_trips(monkeypatch) as sent:
                version = (await states.get_versioned(ALICE, "v")).version
                await states.save_if_version(ALICE, "v", {"n": 2}, version)
                await states.save(ALICE, "v", {"n": 3})
            assert [one[:6].strip() for one in sent] == ["SELECT", *saving, *saving]


class TestATableOfJava202(TestOurTable):
    """It gets versions and checksums at the first save; in MariaDB it takes one id for another."""

    maker = RELEASED

    async def test_gets_the_columns_when_something_is_saved(
        self, states: StateStore, caplog: pytest.LogCaptureFixture
    ) -> None:
        await self.old.save("alice:s1", "v", '{"n":1}')
        assert await states.get_versioned(ALICE, "v") == ({"n": 1}, 1)
        await states.delete("other")
        assert await self.old.columns() == COLUMNS
        assert await states.save_if_version(ALICE, "v", {"n": 2}, 1) == 2
        assert await self.old.columns() == COLUMNS | {"version", "leafward_sum"}
        assert not caplog.records

    async def test_has_values_that_count_from_1(self, states: StateStore, others: StateStore) -> None:
        await self.old.save("alice:s1", "v", '{"n":1}')
        assert await states.get_versioned(ALICE, "v") == ({"n": 1}, 1)
        await self.old.save("alice:s1", "v", '{"n":2}')
        with pytest.raises(StaleState):
            await states.save_if_version(ALICE, "v", {"n": 3}, 1)
        assert await states.get_versioned(ALICE, "v") == ({"n": 2}, 2)
        assert await others.get_versioned(ALICE, "v") == ({"n": 2}, 1)
        assert await states.save_if_version(ALICE, "v", {"n": 3}, 2) == 3
        with pytest.raises(StaleState):
            await others.save_if_version(ALICE, "v", {"n": 4}, 1)


class TestATableOfJava203(TestOurTable):
    """It has versions, and gets checksums at the first save; in MariaDB it takes one id for another."""

    maker = NEXT

    async def test_is_saved_to_in_as_many_round_trips_if_it_is_not_to_be_changed(
        self, kind: Kind, url: str, prefix: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folds = kind.name == "mysql" and self.maker == NEXT
        async with made(kind, url, prefix, create=False) as one, made(kind, url, prefix, create=False) as other:
            for store in (one, other, one, other):
                await store.save(ALICE, "v", {"n": 1})
            with counted_round_trips(monkeypatch) as sent:
                await one.save(ALICE, "v", {"n": 2})
                assert await other.save_if_version(ALICE, "v", {"n": 3}, -1) == 6
            assert len(sent) == (8 if folds else 2)
        assert await self.new.columns() == COLUMNS | {"version"}

    async def test_gets_the_column_when_something_is_saved(self, states: StateStore) -> None:
        await self.new.save("alice:s1", "v", '{"n":1}')
        assert await states.get_versioned(ALICE, "v") == ({"n": 1}, 1)
        assert await self.new.columns() == COLUMNS | {"version"}
        assert await states.save_if_version(ALICE, "v", {"n": 2}, 1) == 2
        assert await self.new.columns() == COLUMNS | {"version", "leafward_sum"}


class TestATableOfAnEarlierLeafward(TestATableOfJava203):
    """It compares bytes, and has versions without checksums."""

    maker = EARLIER


class TestSessionsOf1x(BesideJava):
    """1.x writes as 2.0.2 does, to slots without a user."""

    maker = RELEASED

    @pytest.fixture
    async def states(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[StateStore]:
        async with made(kind, url, prefix, layout="1.x") as states:
            yield states

    async def test_notice_a_save_by_java(self, states: StateStore) -> None:
        version = await states.save_if_version("user123", "agent_meta", {"n": 1}, 0)
        await self.old.save("user123", "agent_meta", '{"n":"java"}')
        with pytest.raises(StaleState):
            await states.save_if_version("user123", "agent_meta", {"n": 2}, version)
        assert await states.get_versioned("user123", "agent_meta") == ({"n": "java"}, version + 1)
        assert await states.save_if_version("user123", "agent_meta", {"n": 2}, version + 1) == version + 2


class TestATableThatIsNotToBeChanged(BesideJava):
    """With `create=False` it stays what it is, and versions are what they can be."""

    maker = RELEASED

    @pytest.fixture
    async def states(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[StateStore]:
        async with made(kind, url, prefix, create=False) as states:
            yield states

    @pytest.fixture
    async def others(self, kind: Kind, url: str, prefix: str) -> AsyncGenerator[StateStore]:
        async with made(kind, url, prefix, create=False) as states:
            yield states

    async def test_is_saved_to(self, states: StateStore, caplog: pytest.LogCaptureFixture) -> None:
        await states.save(ALICE, "a", {"n": 1})
        await states.save(ALICE, "a", {"n": 2})
        await states.save_list(ALICE, "l", [{"n": 1}, {"n": 2}])
        await states.save_list(ALICE, "l", [{"n": 1}])
        assert await states.get(ALICE, "a") == {"n": 2}
        assert await states.get_list(ALICE, "l") == [{"n": 1}]
        assert await self.old.columns() == COLUMNS
        (warning,) = caplog.records
        assert warning.levelno == logging.WARNING
        assert "create=False" in warning.getMessage()
        for missing in ("version", "leafward_sum"):
            assert f"no column {missing}" in warning.getMessage()
            assert f"ADD COLUMN {missing}" in warning.getMessage()

    async def test_is_not_looked_at_again_for_each_call(
        self, states: StateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        await states.exists(ALICE)
        with counted_round_trips(monkeypatch) as sent:
            await states.get(ALICE, "a")
            # The first save looks, because it has to warn.
            await states.save(ALICE, "a", {"n": 1})
            assert len(caplog.records) == 1
            for number in range(3):
                await states.save(ALICE, "a", {"n": number})
                await states.get(ALICE, "a")
        assert len([one for one in sent if "information_schema.columns" in one]) == 1

    async def test_lets_nothing_be_replaced_that_was_not_read(self, states: StateStore, others: StateStore) -> None:
        version = await states.save_if_version(ALICE, "a", {"n": 1}, 0)
        assert await states.get_versioned(ALICE, "a") == ({"n": 1}, version)
        # Another process has not read it yet.
        with pytest.raises(StaleState):
            await others.save_if_version(ALICE, "a", {"n": 2}, 0)
        found = await others.get_versioned(ALICE, "a")
        assert found.value == {"n": 1}
        await self.old.save("alice:s1", "a", '{"n":"java"}')
        for store, old in ((states, version), (others, found.version)):
            with pytest.raises(StaleState):
                await store.save_if_version(ALICE, "a", {"n": 2}, old)
        found = await others.get_versioned(ALICE, "a")
        assert found.value == {"n": "java"}
        await others.save_if_version(ALICE, "a", {"n": 3}, found.version)
        with pytest.raises(StaleState):
            await states.save_if_version(ALICE, "a", {"n": 4}, version)
        assert await self.old.get("alice:s1", "a") == ('{"n":3}',)

    async def test_has_versions_soon_after_java_adds_them(
        self, states: StateStore, kind: Kind, url: str, table: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(server_states, "LOOK_AGAIN_AFTER", 0.0)
        await states.save(ALICE, "a", {"n": 1})
        await kind.ask(url, f"ALTER TABLE {table} ADD COLUMN version BIGINT NOT NULL DEFAULT 0")
        await self.new.save("alice:s1", "a", '{"n":"java"}')
        version = (await states.get_versioned(ALICE, "a")).version
        await states.save_if_version(ALICE, "a", {"n": 2}, version)
        assert await self.new.get("alice:s1", "a") == ('{"n":2}', version + 1)
        await self.new.save_if_version("alice:s1", "a", '{"n":"too late"}', 1)
        assert await states.get(ALICE, "a") == {"n": 2}
