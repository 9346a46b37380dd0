"""Large numbers are no different on a server."""

from __future__ import annotations

import pytest

from leafward import Session, SessionManager, user
from leafward.stores.servers.store import ServerStore
from tests.stores.both_servers import OnBothServers


class TestLargeNumbers(OnBothServers):
    @pytest.mark.parametrize("limit", [2**31, 2**63, 10**30])
    async def test_may_be_asked_for(self, store: ServerStore, limit: int) -> None:
        session = Session(store, "s")
        await session.append_message(user("walnut", id="a"))

        assert [one.id for one in await session.search("walnut", limit=limit)] == ["a"]
        assert [one.id for one in await SessionManager(store).search("walnut", limit=limit)] == ["a"]
        assert [one.id for one in await SessionManager(store).list(limit=limit)] == ["s"]
        assert len((await session.get_recent_history(max_messages=limit, max_tokens=limit)).messages) == 1

    async def test_of_messages_may_be_appended_at_once(self, store: ServerStore) -> None:
        session = Session(store, "s")
        for name in ("first", "second"):
            batch = [user(f"{name} {n}", id=f"{name} {n}") for n in range(3000)]
            assert await session.append_messages(batch) == batch
        assert await session.get_path_length() == 6000
        assert await session.delete_messages([f"first {n}" for n in range(0, 3000, 3)]) == 1000
        assert await session.get_path_length() == 5000

    async def test_of_different_words_are_found_before_and_after_they_are_indexed(self, store: ServerStore) -> None:
        session = Session(store, "s")
        await session.append_message(user(" ".join(f"unusualword{n}" for n in range(60_000)), id="large"))
        await session.append_message(user("a walnut", id="small"))

        for _ in range(2):
            for word in ("unusualword7", "unusualword59999", '"unusualword100 unusualword101"'):
                assert [one.id for one in await session.search(word)] == ["large"], word
            assert [one.id for one in await session.search("walnut")] == ["small"]
            await store.settle()
