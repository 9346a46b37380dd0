"""Rows of attached states and of usage are gone when nothing can reach them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from leafward import LATEST_LEAF, SessionManager, open_store, user
from leafward.core.ids import Scope
from leafward.stores import Draft, Store, Usage
from leafward.stores.sql.operations import Operation
from leafward.stores.sqlite import SqliteStore, purge
from tests.stores.both_servers import Kind, OnBothServers, opened
from tests.stores.sqlite_store import rows

Count = Callable[[str], Awaitable[int]]
"""Returns how many rows a table has."""


async def check(store: Store, count: Count) -> None:
    manager = SessionManager(store)
    session = manager.get_session("s")
    for n in range(8):
        await session.append_message(user("x", id=f"{n}"), state={"plan": {"n": n}, "mood": {"n": n}})
    await session.append_message(user("x", id="b"), "3")
    assert await count("point") == 16
    # Those of 3 are in force for 4 no more, but for the branch; those of 5 are hidden by those of 6.
    await session.delete_messages(["3", "5"])
    assert await count("point") == 14
    await session.delete_messages(["b"])
    assert await count("point") == 12
    await session.delete_messages(["7", "6", "4"])
    assert await count("point") == 6
    for _ in range(3):
        await session.set_state("plan", {"n": "again"})
    assert await count("point") == 6
    await session.delete_messages(["0", "1", "2"])
    assert await count("point") == 0


async def check_ending(store: Store, count: Count, settle: Callable[[], Awaitable[None]]) -> None:
    manager = SessionManager(store)
    for end in (manager.clear_messages, manager.delete, manager.erase):
        draft = Draft(*user("x", id="1").sealed(), 1)
        await store.messages.append(Scope.of("s"), [draft], LATEST_LEAF, usage=Usage(1, 1, 1.0, "m", end.__name__))
        await manager.get_session("s").set_state("plan", {})
        assert await count("point") >= 1

        await end("s")

        await settle()
        assert await count("point") == 0
    assert await count("used") == 0


class TestSQLite:
    async def test_no_row_is_left_of_messages_that_are_gone(self, tmp_path: Path) -> None:
        async def count(table: str) -> int:
            return rows(tmp_path / "chat.db", f"SELECT count(*) FROM leafward_{table}")[0][0]

        async with open_store(f"sqlite:///{tmp_path}/chat.db", durability="process") as store:
            await check(store, count)

    async def test_no_row_is_left_of_sessions_that_are_gone(self, tmp_path: Path) -> None:
        async def count(table: str) -> int:
            return rows(tmp_path / "chat.db", f"SELECT count(*) FROM leafward_{table}")[0][0]

        async with open_store(f"sqlite:///{tmp_path}/chat.db", durability="process") as store:
            assert isinstance(store, SqliteStore)
            await check_ending(store, count, store.settle)

    async def test_states_are_removed_in_slices(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(purge, "STATES", 4)
        monkeypatch.setattr(purge, "LARGEST_TEXTS", 100)
        dropped: list[int] = []
        original = purge.apply

        def apply(discarded: purge.Discarded) -> Operation[None]:
            before = count("point")
            yield from original(discarded)
            dropped.append(before)

        def count(table: str) -> int:
            return rows(tmp_path / "chat.db", f"SELECT count(*) FROM leafward_{table}")[0][0]

        monkeypatch.setattr(purge, "apply", apply)
        async with open_store(f"sqlite:///{tmp_path}/chat.db", durability="process") as store:
            assert isinstance(store, SqliteStore)
            session = SessionManager(store).get_session("s")
            for n in range(10):
                plan = {"n": f"{n}" * (200 if n == 6 else 1)}
                await session.append_message(user("x"), state={"plan": plan, "n": {"n": n}})
            await session.clear_messages()
            await store.settle()

        assert count("point") == count("tree") - 1 == 0
        steps = [first - second for first, second in zip(dropped, [*dropped[1:], 0], strict=True)]
        assert sum(steps) == 20
        assert max(steps) <= 4
        assert len([one for one in steps if one]) >= 5


class TestServers(OnBothServers):
    @pytest.fixture
    def count(self, kind: Kind, url: str, prefix: str) -> Count:
        async def count(table: str) -> int:
            return (await kind.ask(url, f"SELECT count(*) FROM {prefix}{table}"))[0][0]

        return count

    async def test_no_row_is_left_of_messages_that_are_gone(self, url: str, prefix: str, count: Count) -> None:
        async with opened(url, table_prefix=prefix) as store:
            await check(store, count)

    async def test_no_row_is_left_of_sessions_that_are_gone(self, url: str, prefix: str, count: Count) -> None:
        async with opened(url, table_prefix=prefix) as store:
            await check_ending(store, count, store.settle)
