"""Many writers on one server: one unbroken chain, fair shares, no deadlock anybody notices, nothing left open."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

from leafward import Session, SessionExists, SessionManager, create_compact_function, user
from leafward.stores.servers.store import ServerStore
from tests.stores.both_servers import Kind, OnBothServers, opened, run_writers
from tests.stores.server_store import PREFIX

PROCESSES = 4
EACH = 100
SEED = 20261116


class TestProcesses(OnBothServers):
    async def test_that_append_to_one_new_session_form_one_chain_with_fair_shares(
        self, store: ServerStore, url: str
    ) -> None:
        await run_writers(url, PREFIX, "s", processes=PROCESSES, messages=EACH)

        session = Session(store, "s")
        order = [one.id for one in await session.get_history()]
        assert sorted(order) == sorted(f"p{p} {n}" for p in range(PROCESSES) for n in range(EACH))
        for p in range(PROCESSES):
            assert [one for one in order if one.startswith(f"p{p} ")] == [f"p{p} {n}" for n in range(EACH)]
        # While all of them were writing, none got less than a quarter of its fair share.
        firsts = [order.index(f"p{p} 0") for p in range(PROCESSES)]
        lasts = [order.index(f"p{p} {EACH - 1}") for p in range(PROCESSES)]
        together = order[max(firsts) : min(lasts) + 1]
        assert len(together) >= EACH
        shares = Counter(one.split()[0] for one in together)
        assert min(shares[f"p{p}"] for p in range(PROCESSES)) >= len(together) / PROCESSES / 4


class TestTasks(OnBothServers):
    async def test_that_fork_clear_delete_and_create_the_same_sessions_end_without_error(
        self, kind: Kind, store: ServerStore, url: str
    ) -> None:
        manager = SessionManager(store)
        for name in ("a", "b"):
            await manager.create(name, session_id=name)
            await manager.append_all(name, [user(f"walnut {n}", id=f"{name}{n}") for n in range(20)])

        async def fork(name: str) -> None:
            for _ in range(5):
                info = await manager.fork(name, f"{name}5", "copy")
                assert len(await manager.get_history(info.id)) == 6

        async def churn(name: str) -> None:
            for n in range(10):
                session = manager.get_session(f"churn {name}")
                await session.append_messages([user("x", id=f"{n}.{k}") for k in range(5)])
                await session.delete_messages([f"{n}.1", f"{n}.3"])
                await session.clear_messages()

        async def create(number: int) -> int:
            try:
                await manager.create(f"{number}", session_id="one of a kind")
            except SessionExists:
                return 0
            return 1

        async def remove(number: int) -> None:
            await Session(store, f"gone {number}").append_message(user("x"))
            await manager.delete(f"gone {number}")

        async def append(name: str, who: int) -> None:
            for n in range(10):
                await manager.append(name, user("x", id=f"{name} {who} {n}"))

        made = asyncio.gather(*(create(n) for n in range(8)))
        await asyncio.gather(
            *(fork(name) for name in ("a", "b", "a", "b")),
            *(churn(name) for name in ("x", "x", "y")),
            *(remove(n % 3) for n in range(12)),
            *(append(name, who) for name in ("a", "b") for who in range(4)),
        )
        assert sum(await made) == 1
        for name in ("a", "b"):
            assert len(await manager.get_history(name)) == 20 + 40
        await store.settle()
        await kind.until_idle(url, PREFIX)

    async def test_that_are_cancelled_anywhere_leave_each_message_whole_or_absent(
        self, kind: Kind, store: ServerStore, url: str
    ) -> None:
        session = Session(store, "s")
        await session.append_message(user("first", id="first"))
        dice = random.Random(SEED)
        tasks: list[asyncio.Task[object]] = []
        for n in range(300):
            batch = [user("walnut", id=f"{n}.{k}") for k in range(dice.choice([1, 1, 3]))]
            tasks.append(asyncio.create_task(session.append_messages(batch)))
            if dice.random() < 0.7:
                victim = dice.choice(tasks)
                asyncio.get_running_loop().call_later(dice.random() * 0.01, victim.cancel)
            await asyncio.sleep(dice.choice([0, 0, 0.001]))
        done = await asyncio.gather(*tasks, return_exceptions=True)

        kept = Counter(one.id.split(".")[0] for one in await session.get_history())
        expected = {str(n): len(one) for n, one in enumerate(done) if isinstance(one, list)}
        cancelled = {str(n) for n, one in enumerate(done) if isinstance(one, asyncio.CancelledError)}
        assert len(expected) + len(cancelled) == 300
        assert cancelled
        assert {n: kept[n] for n in expected} == expected
        async with opened(url, table_prefix=PREFIX) as other:
            assert len(await Session(other, "s").get_history()) == kept.total()
        await kind.until_none_is_lent(store)
        await kind.until_idle(url, PREFIX)

    async def test_that_compact_hold_no_connection_while_the_model_thinks(
        self, kind: Kind, store: ServerStore, url: str
    ) -> None:
        asked, answer = asyncio.Event(), asyncio.Event()

        async def summarise(prompt: str) -> str:
            asked.set()
            await answer.wait()
            return "in short"

        compact = create_compact_function(summarize=summarise, protect_head=1, tail_token_budget=10)
        session = Session(store, "s").on_compaction(compact)
        await session.append_messages([user(f"walnut {n} " * 20, id=f"m{n}") for n in range(20)])
        await store.settle()
        compacting = asyncio.ensure_future(session.compact())
        await asked.wait()

        await kind.until_none_is_lent(store)
        await kind.until_idle(url, PREFIX)
        await Session(store, "s").append_message(user("meanwhile", id="meanwhile"))

        answer.set()
        assert await compacting is not None
        assert [one.id for one in await session.get_history()][-1] == "meanwhile"
