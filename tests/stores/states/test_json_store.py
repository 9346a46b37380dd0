"""The store behind JSON files: states are in the files, sessions in the SQLite file beside them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from leafward import Session, SessionKey, SessionManager, open_store, user
from leafward.stores import JsonFileAgentStateStore, JsonSession, Store, WorkspaceSession
from leafward.stores.files.json_store import JsonFileStore
from leafward.stores.sqlite.writer import Transaction
from leafward.testing import (
    DurableContract,
    LeaseContract,
    LeaseMessageContract,
    MessageContract,
    RegistryContract,
    StoreContract,
)
from leafward.testing.durable import Reopen
from tests.stores.sqlite_store import Held

NORMAL, FULL = 1, 2
"""What SQLite calls the levels: a commit at FULL survives a power cut."""


class TestJsonFiles(
    MessageContract, RegistryContract, StoreContract, LeaseContract, LeaseMessageContract, DurableContract
):
    """What concerns states too; all else is what `sqlite:///` does, on the same code."""

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncGenerator[Store]:
        async with JsonFileAgentStateStore(tmp_path / "states") as states:
            yield await states.open()

    async def settle(self, store: Store) -> None:
        assert isinstance(store, JsonFileStore)
        await store.settle()

    @pytest.fixture
    async def reopen(self, tmp_path: Path) -> AsyncGenerator[Reopen]:
        async with AsyncExitStack() as opened:

            async def reopen() -> Store:
                states = JsonFileAgentStateStore(tmp_path / "states")
                return await (await opened.enter_async_context(states)).open()

            yield reopen


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


class TestDurability:
    async def test_states_and_leases_alone_are_not_flushed_by_sqlite(self, tmp_path: Path, levels: list[int]) -> None:
        async with JsonFileAgentStateStore(tmp_path) as states:
            await states.save("s", "a", {"n": 1})
            async with states.leases.acquire("s") as lease:
                await states.with_lease(lease).save("s", "a", {"n": 2})
        assert {*levels} == {NORMAL}

    async def test_a_message_survives_a_power_cut_after_the_file_was_opened_for_leases(
        self, tmp_path: Path, levels: list[int]
    ) -> None:
        async with JsonFileAgentStateStore(tmp_path) as states:
            lease = await states.leases.acquire("s")
            assert {*levels} == {NORMAL}
            store = await states.with_lease(lease).open()
            assert store.durability() == "power"
            levels.clear()
            session = Session(store, "s").with_context("notes")
            await session.append_message(user("first"))
            await session.replace_context_block("notes", "text")
            await session.append_messages([user("second"), user("third")])
            assert levels == [FULL] * 3
            await lease.release()

    async def test_a_message_survives_a_power_cut_where_nothing_was_opened_before(
        self, tmp_path: Path, levels: list[int]
    ) -> None:
        async with JsonFileAgentStateStore(tmp_path) as states:
            store = await states.open()
            levels.clear()
            await Session(store, "s").append_message(user("first"))
        assert levels == [FULL]

    async def test_the_first_message_waits_for_a_commit_that_is_under_way(
        self, tmp_path: Path, levels: list[int]
    ) -> None:
        """Inside a transaction SQLite does not change how it commits."""
        async with JsonFileAgentStateStore(tmp_path) as states:
            async with states.leases.acquire("s"):
                directory: Any = (await states._later.get()).leases
                inner = (await directory._writing.get()).store._inner
                async with Held(inner):
                    opening = asyncio.ensure_future(states.open())
                    await asyncio.wait((opening,), timeout=0.1)
                    assert not opening.done()
            store = await opening
            levels.clear()
            await asyncio.gather(*(Session(store, f"s{n}").append_message(user("first")) for n in range(5)))
        assert {*levels} == {FULL}

    async def test_who_has_it_open_for_leases_does_not_keep_others_from_flushing(
        self, tmp_path: Path, levels: list[int]
    ) -> None:
        async with JsonFileAgentStateStore(tmp_path) as leasing, JsonFileAgentStateStore(tmp_path) as states:
            lease = await leasing.leases.acquire("s")
            session = Session(await states.open(), "s")
            levels.clear()
            stored = await session.append_message(user("first"))
            assert levels == [FULL]
            await lease.release()
        async with JsonFileAgentStateStore(tmp_path) as states:
            assert await Session(await states.open(), "s").get_history() == [stored]


class TestFiles:
    @pytest.mark.parametrize("kind", ["json", "1.x", "workspace"])
    async def test_what_is_in_the_directory(self, tmp_path: Path, kind: str) -> None:
        made, root, home = {
            "json": (lambda: JsonFileAgentStateStore(tmp_path), tmp_path, tmp_path / "alice" / "s"),
            "1.x": (lambda: JsonSession(tmp_path), tmp_path, tmp_path / "~alice~s"),
            "workspace": (
                lambda: WorkspaceSession(tmp_path, "helper"),
                tmp_path / "agents/helper/context",
                tmp_path / "agents/helper/context/~alice~s",
            ),
        }[kind]
        async with made() as states:
            store = await states.open()
            await Session(store, "s", user_id="alice").append_message(user("walnut"))
            assert not home.exists()
            await store.states.save(SessionKey("s", "alice"), "agent_state", {"n": 1})
            assert (home / "agent_state.json").read_text() == '{\n  "n" : 1\n}'
        assert sorted(os.listdir(root)) == [
            *(".leafward.sqlite", ".leafward.sqlite-lock", ".leafward.sqlite-lock-next"),
            home.relative_to(root).parts[0],
        ]
        # The same sessions by the file's URL, without the states.
        async with open_store(f"sqlite:///{root}/.leafward.sqlite") as beside:
            assert [one.text for one in await Session(beside, "s", user_id="alice").get_history()] == ["walnut"]
            assert await beside.states.list_session_keys("alice") == set()

    @pytest.mark.parametrize("ending", ["delete", "erase"])
    async def test_a_session_that_ends_takes_its_files_along(self, tmp_path: Path, ending: str) -> None:
        async with JsonFileAgentStateStore(tmp_path) as states:
            manager = SessionManager(await states.open(), user_id="alice")
            for session_id in ("gone", "stays"):
                await manager.get_session(session_id).append_message(user(f"canary-{session_id}"))
                await states.save(SessionKey(session_id, "alice"), "agent_state", {"text": f"canary-{session_id}"})
            assert await getattr(manager, ending)("gone")
            assert os.listdir(tmp_path / "alice") == ["stays"]
            assert [info.id for info in await manager.list()] == ["stays"]
        left = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert b"canary-stays" in left
        assert (b"canary-gone" in left) <= (ending == "delete")

    async def test_closing_the_store_closes_all_of_it(self, tmp_path: Path) -> None:
        before = len(os.listdir("/proc/self/fd"))
        async with await JsonFileAgentStateStore(tmp_path).open() as store:
            await Session(store, "s").append_message(user("hi"))
        assert len(os.listdir("/proc/self/fd")) == before
