"""What is no longer needed goes away by itself, whoever left it behind."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from leafward import Session, SessionManager, user
from leafward.stores.servers import running
from leafward.stores.servers.store import ServerStore
from tests.stores.both_servers import Kind, OnBothServers, opened
from tests.stores.server_store import PREFIX

DELETE_AND_DIE = """
import asyncio, os, sys
from leafward import SessionManager, open_store

async def main(url, prefix, session_id):
    async with open_store(url, table_prefix=prefix) as store:
        await SessionManager(store).with_context("memory").delete(session_id)
        os._exit(0)

asyncio.run(main(*sys.argv[1:]))
"""
LET_GO_OF = ("message", "words", "entry", "tree", "shelf")


class TestWhatIsLeftBehind(OnBothServers):
    @pytest.fixture(autouse=True)
    def patience(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Keeps stores from tidying up until a test wants it."""
        monkeypatch.setattr(running, "TIDY_AFTER_S", 3600)

    async def test_by_a_process_that_was_killed_is_removed_by_one_that_opens_the_store(
        self, kind: Kind, url: str, store: ServerStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = Session(store, "s").with_context("memory")
        await session.append_messages([user(f"walnut {n}") for n in range(40)])
        await session.replace_context_block("memory", "walnut")
        await store.settle()
        await asyncio.to_thread(_run, DELETE_AND_DIE, url, PREFIX, "s")
        await _age_names(kind, url)
        assert await session.get_history() == []
        assert all(await _count(kind, url, *LET_GO_OF, "done"))

        monkeypatch.setattr(running, "TIDY_AFTER_S", 0)
        async with opened(url, table_prefix=PREFIX):
            await _until_empty(kind, url, *LET_GO_OF, "done")

    async def test_of_the_names_of_writes_is_forgotten_by_one_that_goes_on_writing(
        self, kind: Kind, url: str, store: ServerStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(running, "TIDY_EVERY", 5)
        manager = SessionManager(store)
        await manager.create("the session", session_id="s")
        await _age_names(kind, url)

        for _ in range(4):
            await manager.add_usage("s", 1, 1, 0.0)

        await _until_empty(kind, url, "done WHERE at = 0")
        assert await _count(kind, url, "done") == [4]


def _run(program: str, *arguments: str) -> None:
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True, cwd=root, timeout=60)


async def _age_names(kind: Kind, url: str) -> None:
    """Let the names of all writes be from long ago."""
    await kind.ask(url, "BEGIN", f"UPDATE {PREFIX}done SET at = 0", "COMMIT")


async def _count(kind: Kind, url: str, *tables: str) -> list[int]:
    return [(await kind.ask(url, f"SELECT count(*) FROM {PREFIX}{table}"))[0][0] for table in tables]


async def _until_empty(kind: Kind, url: str, *tables: str) -> None:
    """Return once none of these rows is left."""
    for _ in range(200):
        if not any(await _count(kind, url, *tables)):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"{await _count(kind, url, *tables)} rows were left in {tables}")
