"""What goes for our own stores of typed state beyond versions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leafward import ConfigurationError, LeaseLost, SessionKey, StaleState
from leafward.stores import Slot
from leafward.stores.states.store import StateStore
from leafward.testing.versioned_states import VersionedStateContract


@pytest.mark.asyncio
class OurStateContract(VersionedStateContract):
    """Leases, long lists, and lists that must be new."""

    @pytest.fixture
    def ours(self, states: StateStore) -> StateStore:
        return states

    async def test_who_holds_the_lease_writes(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s", "alice") as lease:
            held = ours.with_lease(lease)
            await held.save(SessionKey("s", "alice"), "a", {"n": 1})
            await held.save_list(SessionKey("s", "alice"), "b", [{"n": 1}])
            assert await held.save_if_version(SessionKey("s", "alice"), "a", {"n": 2}, 1) == 2
            await held.delete(SessionKey("s", "alice"), "b")
        assert await ours.get(SessionKey("s", "alice"), "a") == {"n": 2}

    async def test_who_lost_the_lease_does_not(self, ours: StateStore) -> None:
        lease = await ours.leases.acquire("s")
        held = ours.with_lease(lease)
        await held.save("s", "a", {"n": 1})
        await lease.release()
        async with ours.leases.acquire("s"):
            for write in (
                held.save("s", "a", {"n": 2}),
                held.save_if_version("s", "a", {"n": 2}, 1),
                held.save_list("s", "a", [{"n": 2}]),
                held.save_list("s", "b", [{"n": 2}]),
                held.delete("s", "a"),
                held.delete("s"),
            ):
                with pytest.raises(LeaseLost):
                    await write
        assert await ours.get_versioned("s", "a") == ({"n": 1}, 1)
        assert await ours.get_list("s", "b") == []

    async def test_the_store_itself_still_writes(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s"):
            await ours.save("s", "a", {"n": 1})
        assert await ours.get("s", "a") == {"n": 1}

    async def test_a_lease_is_for_its_own_slot(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s", "alice") as lease:
            held = ours.with_lease(lease)
            for key in ("s", SessionKey("t", "alice"), SessionKey("s", "bob")):
                with pytest.raises(ConfigurationError):
                    await held.save(key, "a", {})
            assert await held.get("s", "a") is None

    async def test_who_leaves_a_fenced_store_leaves_the_store_open(self, ours: StateStore) -> None:
        async with ours.leases.acquire("s") as lease:
            async with ours.with_lease(lease) as held:
                await held.save("s", "a", {"n": 1})
            await held.close()
            assert await ours.get("s", "a") == {"n": 1}

    async def test_many_items_come_back(self, ours: StateStore) -> None:
        items: list[dict[str, Any]] = [{"n": n} for n in range(2_500)]
        await ours.save_list("s", "list", items)
        items.append({"n": "last"})
        await ours.save_list("s", "list", items)
        assert await ours.get_list("s", "list") == items

    async def test_a_new_list_is_made_only_where_there_is_nothing(self, ours: StateStore) -> None:
        table = await ours._table()  # pyright: ignore[reportPrivateUsage]
        slot = Slot("alice", "s")
        await table.put_list(slot, "new", ['{"n":1}'], None, fresh=True)
        assert await ours.get_list(SessionKey("s", "alice"), "new") == [{"n": 1}]
        await ours.save(SessionKey("s", "alice"), "value", {})
        await ours.save_list(SessionKey("s", "alice"), "empty", [])
        for name in ("new", "value", "empty"):
            with pytest.raises(StaleState):
                await table.put_list(slot, name, ['{"n":2}'], None, fresh=True)
        assert await ours.get_list(SessionKey("s", "alice"), "new") == [{"n": 1}]
        assert await ours.get_list(SessionKey("s", "alice"), "empty") == []

    async def test_names_that_end_as_files_do_are_names_as_any(self, ours: StateStore) -> None:
        table = await ours._table()  # pyright: ignore[reportPrivateUsage]
        for name in ("notes.jsonl", "notes.json", "notes.ver", ".json", ".jsonl"):
            await ours.save("s", name, {"of": name})
            await ours.save_list("t", name, [{"of": name}])
        names = dict.fromkeys(["notes.jsonl", "notes.json", "notes.ver", ".json", ".jsonl"], False)
        assert await table.names(Slot(None, "s")) == names
        assert await table.names(Slot(None, "t")) == dict.fromkeys(names, True)
        for name in names:
            assert await ours.get("s", name) == {"of": name}
            assert await ours.get_list("t", name) == [{"of": name}]

    async def test_a_long_id_goes_with_the_last_that_its_slot_holds(self, ours: StateStore) -> None:
        key = SessionKey("s" * 255, "u" * 255)
        for names in (["a", "b"], ["a"]):
            for name in names:
                await ours.save(key, name, {})
            assert await ours.list_session_keys(key.user_id) == {key}
            for name in names:
                await ours.delete(key, name)
            assert not await ours.exists(key)
            assert await ours.list_session_keys(key.user_id) == set()

    async def test_slots_of_sandboxes_are_in_no_listing_but_that_of_a_user(self, ours: StateStore) -> None:
        await ours.save("sandbox/global", "_sandbox_state", {})
        await ours.save("both", "_sandbox_state", {})
        await ours.save("both", "a", {})
        await ours.save(SessionKey("s", "alice"), "_sandbox_state", {})
        assert await ours.list_session_keys() == {SessionKey("both")}
        assert await ours.list_session_keys("alice") == {SessionKey("s", "alice")}
        await ours.delete("both", "a")
        assert await ours.list_session_keys() == set()
        await ours.delete("both")
        assert await ours.list_session_keys() == set()

    async def test_saves_of_one_session_keep_the_order_of_the_calls(self, ours: StateStore) -> None:
        saves = [ours.save("s", "value", {"n": n}) for n in range(12)]
        lists = [ours.save_list("s", "list", [{"n": n}] * (n % 4)) for n in range(12)]
        mixed = [ours.save("s", "either", [{}] * n if n % 2 else {"n": n}) for n in range(4)]

        await asyncio.gather(*saves, *lists, *mixed, ours.delete("s", "gone"), ours.save("s", "gone", {}))

        assert await ours.get("s", "value") == {"n": 11}
        assert await ours.get_list("s", "list") == [{"n": 11}] * 3
        assert await ours.get_list("s", "either") == [{}] * 3
        assert await ours.get("s", "gone") == {}

    async def test_it_says_whether_machines_can_share_it(self, ours: StateStore) -> None:
        assert isinstance(ours.distributed, bool)
