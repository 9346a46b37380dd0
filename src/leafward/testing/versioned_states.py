"""What a store of typed state that counts its saves promises beyond the eight methods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from leafward import SessionKey, StaleState
from leafward.stores import VersionedStateStore
from leafward.testing.states import StateContract


@pytest.mark.asyncio
class VersionedStateContract(StateContract):
    """Versions as well; `states` is then a `VersionedStateStore`."""

    @pytest.fixture
    def counted(self, states: VersionedStateStore) -> VersionedStateStore:
        return states

    async def test_what_is_not_there_is_at_version_0(self, counted: VersionedStateStore) -> None:
        assert await counted.get_versioned("s", "a") == (None, 0)

    async def test_every_save_counts(self, counted: VersionedStateStore) -> None:
        for version in range(1, 5):
            await counted.save("s", "a", {"n": version})
            found = await counted.get_versioned("s", "a")
            assert (found.value, found.version) == ({"n": version}, version)

    async def test_saving_the_same_again_counts(self, counted: VersionedStateStore) -> None:
        await counted.save("s", "a", {"n": 1})
        await counted.save("s", "a", {"n": 1})
        assert (await counted.get_versioned("s", "a")).version == 2

    async def test_a_save_at_the_expected_version_is_made(self, counted: VersionedStateStore) -> None:
        assert await counted.save_if_version("s", "a", {"n": 1}, 0) == 1
        assert await counted.save_if_version("s", "a", {"n": 2}, 1) == 2
        assert await counted.get_versioned("s", "a") == ({"n": 2}, 2)

    @pytest.mark.parametrize("expected", [0, 1, 3, 99])
    async def test_a_save_at_another_version_is_refused(self, counted: VersionedStateStore, expected: int) -> None:
        key = SessionKey("s", "alice")
        await counted.save(key, "a", {"n": 1})
        await counted.save(key, "a", {"n": 2})
        with pytest.raises(StaleState) as told:
            await counted.save_if_version(key, "a", {"n": 3}, expected)
        assert (told.value.user_id, told.value.session_id, told.value.name) == ("alice", "s", "a")
        assert await counted.get_versioned(key, "a") == ({"n": 2}, 2)

    async def test_nothing_is_made_at_a_version_of_something(self, counted: VersionedStateStore) -> None:
        with pytest.raises(StaleState):
            await counted.save_if_version("s", "a", {"n": 1}, 1)
        assert not await counted.exists("s")

    async def test_with_minus_one_it_is_saved_whatever_is_there(self, counted: VersionedStateStore) -> None:
        assert await counted.save_if_version("s", "a", {"n": 1}, -1) == 1
        assert await counted.save_if_version("s", "a", {"n": 2}, -1) == 2
        assert await counted.get("s", "a") == {"n": 2}

    @pytest.mark.parametrize("expected", [-2, True, "1", None, 1.0])
    async def test_what_is_no_version_is_refused(self, counted: VersionedStateStore, expected: Any) -> None:
        with pytest.raises(ValueError):
            await counted.save_if_version("s", "a", {"n": 1}, expected)
        assert not await counted.exists("s")

    async def test_after_a_delete_it_begins_anew(self, counted: VersionedStateStore) -> None:
        await counted.save("s", "a", {"n": 1})
        await counted.save("s", "a", {"n": 2})
        await counted.delete("s", "a")
        assert await counted.get_versioned("s", "a") == (None, 0)
        assert await counted.save_if_version("s", "a", {"n": 3}, 0) == 1

    async def test_names_are_counted_apart(self, counted: VersionedStateStore) -> None:
        await counted.save("s", "a", {})
        await counted.save("s", "a", {})
        assert await counted.save_if_version("s", "b", {}, 0) == 1
        assert await counted.save_if_version(SessionKey("s", "alice"), "a", {}, 0) == 1

    async def test_a_list_is_not_saved_at_a_version(self, counted: VersionedStateStore) -> None:
        with pytest.raises(ValueError):
            await counted.save_if_version("s", "a", [{"n": 1}], 0)

    @pytest.mark.parametrize("items", [[], [{"n": 1}], [{"n": 1}, {"n": 2}]])
    async def test_a_value_in_place_of_a_list_is_new(
        self, counted: VersionedStateStore, items: list[dict[str, Any]]
    ) -> None:
        await counted.save_list("s", "a", items)
        for expected in (0, 1):
            with pytest.raises(StaleState):
                await counted.save_if_version("s", "a", {"n": 2}, expected)
        assert await counted.get_list("s", "a") == items
        assert await counted.save_if_version("s", "a", {"n": 2}, -1) == 1
        assert await counted.get("s", "a") == {"n": 2}

    async def test_of_eight_at_one_version_one_wins(self, counted: VersionedStateStore) -> None:
        for expected in range(3):
            tries = [counted.save_if_version("s", "a", {"writer": n}, expected) for n in range(8)]
            results = await asyncio.gather(*tries, return_exceptions=True)
            assert sorted(map(str, map(type, results))) == sorted(map(str, [int, *[StaleState] * 7]))
            assert expected + 1 in results
            winner = results.index(expected + 1)
            assert await counted.get_versioned("s", "a") == ({"writer": winner}, expected + 1)
