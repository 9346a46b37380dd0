"""An erasure on a server is one step: one that is cut off leaves the session as it was, or nothing of it."""

from __future__ import annotations

import asyncio

import pytest

from leafward import SessionManager, StoreError, user
from leafward.stores.servers import running
from leafward.stores.servers.store import ServerStore
from tests.stores.both_servers import BehindAProxy, Kind, OnBothServers, opened
from tests.stores.proxy import Fault, Proxy
from tests.stores.server_store import PREFIX

CANARY = "wpmxgkvbdzcf"
MOST_COMMITS = 50


class TestAnErasure(BehindAProxy):
    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Gives up soon, and has nobody else tidy up."""
        monkeypatch.setattr(running, "PATIENCE_S", 0.1)
        monkeypatch.setattr(running, "TIDY_AFTER_S", 3600)

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.LOSE_REPLY], ids=lambda one: one.name)
    async def test_that_is_cut_off_at_any_commit_leaves_all_or_nothing(
        self, kind: Kind, url: str, store: ServerStore, through: str, proxy: Proxy, fault: Fault
    ) -> None:
        here = SessionManager(store).with_context("memory")
        async with opened(through, table_prefix=PREFIX) as other:
            for commit in range(1, MOST_COMMITS):
                session = here.get_session(str(commit))
                written = await session.append_messages([user(f"{CANARY} {n}") for n in range(3)])
                await session.replace_context_block("memory", CANARY)
                await store.settle()
                assert await _holding(kind, url) >= {f"{PREFIX}message", f"{PREFIX}entry", f"{PREFIX}words"}

                proxy.strike(fault, b"COMMIT", packet=commit, and_then_unreachable=True)
                erased = await _erase(other, str(commit))
                struck = proxy.struck
                proxy.spare()
                await kind.until_idle(url, PREFIX)

                if await here.get(str(commit)) is None:
                    assert await _holding(kind, url) == set(), f"cut off at commit {commit}"
                else:
                    assert not erased
                    assert await session.get_history() == written
                    assert (await here.erase(str(commit))).erased
                if not struck:
                    assert commit > 1
                    assert erased
                    return
        pytest.fail(f"an erasure takes more than {MOST_COMMITS} commits")


class TestWhatOthersHold(OnBothServers):
    @pytest.fixture(autouse=True)
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has only those tidy up that deleted something."""
        monkeypatch.setattr(running, "TIDY_AFTER_S", 3600)

    @pytest.mark.parametrize("deleted", [False, True], ids=["cleared", "deleted"])
    async def test_of_what_was_let_go_of_before_an_erasure_is_waited_for(
        self, kind: Kind, url: str, store: ServerStore, deleted: bool
    ) -> None:
        manager = SessionManager(store).with_context("memory")
        session = manager.get_session("s")
        await session.append_messages([user(f"{CANARY} {n}") for n in range(5)])
        await session.replace_context_block("memory", CANARY)
        async with opened(url, table_prefix=PREFIX) as other:
            async with kind.holding(url, f"SELECT * FROM {PREFIX}message FOR UPDATE"):
                await (manager.delete("s") if deleted else session.clear_messages())
                await _until_one_tidies(kind, url)
                erasing = asyncio.ensure_future(SessionManager(other).erase("s"))
                await asyncio.wait({erasing}, timeout=1)
                waited = not erasing.done()
            assert (await erasing).erased is not deleted
            assert waited
            assert await _holding(kind, url) == set()

    async def test_of_other_sessions_is_not_waited_for(self, kind: Kind, url: str, store: ServerStore) -> None:
        # A row that stands next to one that is deleted may be waited for, by a server that reads one too many.
        for name in ("far before", "near before", "s", "near after", "far after"):
            session = SessionManager(store).with_context("memory").get_session(name)
            await session.append_messages([user(CANARY), user(CANARY)])
            await session.replace_context_block("memory", CANARY)
        await store.settle()
        rows = await kind.ask(
            url,
            f"SELECT m.place FROM {PREFIX}message m JOIN {PREFIX}session s ON s.tree_no = m.tree_no "
            "WHERE s.session_id LIKE 'far%'",
        )
        places = ", ".join(str(place) for (place,) in rows)
        held = [f"SELECT * FROM {PREFIX}{name} WHERE place IN ({places}) FOR UPDATE" for name in ("message", "words")]
        async with kind.holding(url, *held):
            erasing = asyncio.ensure_future(SessionManager(store).erase("s"))
            await asyncio.wait({erasing}, timeout=10)
            waited = not erasing.done()
        assert (await erasing).erased
        assert not waited

    async def test_of_a_lease_is_waited_for_before_the_session_is_held(
        self, kind: Kind, url: str, store: ServerStore
    ) -> None:
        """Whoever writes behind a lease takes the two in that order; in the other, both would wait for each other."""
        await SessionManager(store).get_session("s").append_message(user("hi"))
        async with store.leases.acquire("s"):
            pass
        async with kind.holding(url, f"SELECT * FROM {PREFIX}lease FOR UPDATE"):
            erasing = asyncio.ensure_future(SessionManager(store).erase("s"))
            await asyncio.wait({erasing}, timeout=0.5)
            assert not erasing.done()
            free = await kind.ask(url, f"SELECT session_id FROM {PREFIX}session FOR UPDATE SKIP LOCKED")
        assert (await erasing).erased
        assert free == [("s",)]


async def _until_one_tidies(kind: Kind, url: str) -> None:
    """Return once somebody holds what was let go of."""
    for _ in range(200):
        if await kind.ask(url, f"SELECT tree_no FROM {PREFIX}tree WHERE discarded = 1") and not await kind.ask(
            url, f"SELECT tree_no FROM {PREFIX}tree WHERE discarded = 1 FOR UPDATE SKIP LOCKED"
        ):
            return
        await asyncio.sleep(0.05)
    pytest.fail("nobody tidies up")


async def _erase(store: ServerStore, session_id: str) -> bool:
    """Erase a session; tell whether that was told to have succeeded."""
    try:
        return (await SessionManager(store).erase(session_id)).erased
    except StoreError:
        return False


async def _holding(kind: Kind, url: str) -> set[str]:
    """Return the tables in which the word stands."""
    found = {name: str(await kind.ask(url, f"SELECT * FROM {name}")) for name in await kind.tables(url, PREFIX)}
    return {name for name, rows in found.items() if CANARY in rows}
