"""Steps of warm and of cold processes, and of some of the version before, are what they are in memory."""

from __future__ import annotations

import asyncio
import random

import pytest

from leafward import LATEST_LEAF, open_store
from leafward.core.attached_state import AttachedState
from leafward.stores import Usage
from leafward.stores.redis.opening import RedisStore
from leafward.stores.sql.store import SqlStore
from tests.stores.cold_redis import OnRedis, S, cool, draft, is_cold
from tests.stores.redis_before import opened_before
from tests.stores.test_servers_steps import NAMES, Steps, outcome, rows


def without_window(found: dict[str, object]) -> dict[str, object]:
    """Return rows without the tokens of the history, which only one who asked for them has summed up."""
    totals = found.get("totals")
    return {**found, "totals": [totals[0], *totals[2:]]} if isinstance(totals, list) else found


class TestTheSameSteps(OnRedis):
    @pytest.mark.parametrize("seed", range(8))
    async def test_by_warm_and_cold_processes_leave_the_rows_and_give_the_results_that_they_do_in_memory(
        self, url: str, prefix: str, store: RedisStore, other: RedisStore, seed: int
    ) -> None:
        steps, turns = Steps(seed), random.Random(seed)
        done_cold = 0
        async with open_store("memory://") as memory, opened_before(url, prefix) as before:
            assert isinstance(memory, SqlStore)
            for number in range(150):
                call, given = steps.choose()
                expected = await outcome(memory, call, given)
                chosen = turns.choices([store, other, before], [4, 8, 1 if seed % 2 else 0])[0]
                if chosen is other:
                    cool(other)
                assert await outcome(chosen, call, given) == expected, (number, call, given)
                done_cold += chosen is other and call == "append" and is_cold(other)
                assert without_window(await rows(store)) == without_window(await rows(memory)), (number, call, given)
                ids = [f"m{n}" for n in range(0, steps._count + 1, 3)]
                head = await memory.messages.head(S, NAMES, ids=ids)
                if turns.random() < 0.5:
                    cool(other)
                assert await other.messages.head(S, NAMES, ids=ids) == head, (number, call, given)
                steps.version, steps.leaf_id = head.version, head.leaf_id
            info, expected_info = await other.registry.get(S), await memory.registry.get(S)
        assert done_cold > (5 if seed % 2 else 15)
        assert info is not None
        assert expected_info is not None
        used = (info.input_tokens, info.output_tokens)
        assert used == (expected_info.input_tokens, expected_info.output_tokens)
        assert info.estimated_cost == pytest.approx(expected_info.estimated_cost)


class TestStepsAtTheSameTime(OnRedis):
    async def test_by_warm_and_cold_processes_are_one_chain_and_counted_once_each(
        self, store: RedisStore, other: RedisStore
    ) -> None:
        await store.messages.append(S, [draft("first")], LATEST_LEAF)

        async def work(one: RedisStore, name: str) -> list[int]:
            versions: list[int] = []
            for number in range(40):
                state = [AttachedState("turn", f'{{"of":"{name} {number}"}}'), AttachedState("plan", "{}")]
                usage = Usage(1, 2, 0.5, "model", f"call {name} {number}" if number % 2 else None)
                done = await one.messages.append(S, [draft(f"{name} {number}")], LATEST_LEAF, state=state, usage=usage)
                assert done.inserted == 1
                assert done.counted
                versions.append(done.version)
            return versions

        assert is_cold(other)
        found = await asyncio.gather(work(store, "a"), work(other, "b"), work(store, "c"), work(other, "d"))

        assert is_cold(other)
        assert sorted(one for each in found for one in each) == list(range(2, 162))
        path = await store.messages.path(S, None)
        assert len({one.id for one in path}) == 161
        for name in "abcd":
            assert [one.id for one in path if one.id[0] == name] == [f"{name} {n}" for n in range(40)]
        cool(other)
        head = await other.messages.head(S, ["turn", "plan"], ids=[one.id for one in path])
        assert head == await store.messages.head(S, ["turn", "plan"], ids=[one.id for one in path])
        info = await other.registry.get(S)
        assert info is not None
        assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (160, 320, 80.0)
