"""Appends of many sessions at once go to the server together, and each is what it would be alone."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import LeaseLost, Message, Session, open_store, user
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Owner, Scope
from leafward.core.parent import LATEST_LEAF
from leafward.core.times import now_micros
from leafward.core.tokens import count_tokens
from leafward.sessions import Change
from leafward.stores import Appended, Usage
from leafward.stores.drafts import Draft
from leafward.stores.servers import running
from leafward.stores.servers.appending import MOST_AT_ONCE
from leafward.stores.servers.positions import Planned, Position
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql.commands import Append
from leafward.testing.durable import PATIENCE
from tests.stores.both_servers import BehindAProxy, Kind, OnBothServers, OnPrivateServers, opened
from tests.stores.proxy import Fault, Proxy
from tests.stores.server_store import PREFIX

MANY = 20
STRANGE = ["nul \0 and mark \ue000", "100 % of %s and %(x)s", "quote ' \" \\ ; -- `", "汉字 🌰", "\ue0000 ?? $1", ""]


async def begun(store: ServerStore, count: int = MANY) -> list[Session]:
    """Return sessions that were each appended to, so that the store knows where they end."""
    sessions = [Session(store, f"s{n}") for n in range(count)]
    for text in ("zeroth", "first"):
        await asyncio.gather(*(session.append_message(user(text)) for session in sessions))
    return sessions


def scope_of(session: Session) -> Scope:
    return Scope(Owner("default", None), session.session_id)


def positions_in(store: ServerStore) -> dict[Scope, Position]:
    """Where the store's next appends stand."""
    runner: Any = store._serving
    return runner._appender._positions


def draft(text: str) -> Draft:
    message, body = user(text).sealed()
    return Draft(message, body, count_tokens(message))


async def texts(session: Session) -> list[str]:
    """Return the texts of a session after the one that brought it into being."""
    zeroth, *others = await session.get_history()
    assert zeroth.text == "zeroth"
    return [message.text for message in others]


class TestManyAtOnce(OnBothServers):
    async def test_are_sent_in_a_few_groups(self, store: ServerStore, monkeypatch: pytest.MonkeyPatch) -> None:
        sessions = await begun(store)
        groups: list[int] = []
        send = store._server.append_at

        async def spy(connection: object, planned: list[Planned], at: int) -> object:
            groups.append(len(planned))
            return await send(connection, planned, at)

        monkeypatch.setattr(store._server, "append_at", spy)
        await asyncio.gather(*(session.append_message(user("second")) for session in sessions))
        assert sum(groups) == MANY
        assert len(groups) <= 4

    async def test_are_stored_each_in_its_session(self, store: ServerStore) -> None:
        sessions = await begun(store)
        for n in range(5):
            await asyncio.gather(*(one.append_message(user(f"{n} of {one.session_id}")) for one in sessions))
        for one in sessions:
            assert await texts(one) == ["first", *(f"{n} of {one.session_id}" for n in range(5))]
            assert await one.get_version() == 7

    async def test_may_be_batches_of_any_text(self, store: ServerStore) -> None:
        sessions = await begun(store)
        for _ in range(2):
            batches = (one.append_messages([user(f"{one.session_id} {text}") for text in STRANGE]) for one in sessions)
            await asyncio.gather(*batches)
        for one in sessions:
            assert await texts(one) == ["first", *(f"{one.session_id} {text}" for text in STRANGE * 2)]

    async def test_have_each_its_states_and_usage(self, store: ServerStore) -> None:
        sessions = await begun(store)
        for turn in range(4):
            appended = await asyncio.gather(*(self.step(store, number, turn) for number in range(MANY)))
            assert {one.version for one in appended} == {turn + 3}
            assert [[state.name for state in one.states] for one in appended] == [
                ["turn", "name"][: 0 if number % 3 == 0 else 2 if turn == 0 else 1] for number in range(MANY)
            ]
            assert [one.counted for one in appended] == [number % 4 > 0 for number in range(MANY)]
        for number, one in enumerate(sessions):
            assert await texts(one) == ["first", *(f"{turn} of {number}" for turn in range(4))]
            found = await one.get_states()
            assert found == ({} if number % 3 == 0 else {"turn": {"n": 3}, "name": {"number": number}})
            info = await store.registry.get(scope_of(one))
            assert info is not None
            assert (info.input_tokens, info.output_tokens) == ((4 * number, 4) if number % 4 else (0, 0))

    async def step(self, store: ServerStore, number: int, turn: int) -> Appended:
        """Append to a session: to some with states, to some with usage, which has a name or none."""
        name = [None, f"call {turn}", None][number % 4 - 1]
        states = [AttachedState("turn", f'{{"n":{turn}}}'), AttachedState("name", f'{{"number":{number}}}')]
        return await store.messages.append(
            Scope.of(f"s{number}"),
            [draft(f"{turn} of {number}")],
            LATEST_LEAF,
            state=states if number % 3 else [],
            usage=Usage(number, 1, 0.5, "model" if number % 2 else None, name) if number % 4 else None,
        )

    async def test_are_weighed_each_for_itself(self, store: ServerStore) -> None:
        sessions = await begun(store)
        scopes = [scope_of(one) for one in sessions]
        for _ in range(2):
            drafts = [draft("word " * n) for n in range(1, MANY + 1)]
            appended = await asyncio.gather(
                *(
                    store.messages.append(scope, [one], LATEST_LEAF, weigh=True)
                    for scope, one in zip(scopes, drafts, strict=True)
                )
            )
            assert [one.weight for one in appended] == [await store.messages.weigh(scope) for scope in scopes]
            assert len({one.weight for one in appended}) == MANY


class TestOneAlone(OnBothServers):
    @pytest.fixture
    async def session(self, store: ServerStore, monkeypatch: pytest.MonkeyPatch) -> Session:
        """A session whose end is known, in a store that knows no other way to append."""
        (session,) = await begun(store, 1)

        async def refuse(*_: object) -> None:
            pytest.fail("it was not appended where the last append ended")

        monkeypatch.setattr(store._server, "append_quickly", refuse)
        monkeypatch.setattr(store._server, "begin", refuse)
        return session

    @pytest.mark.parametrize("count", [1, 2, 20])
    async def test_is_one_round_trip(self, session: Session, count: int) -> None:
        await session.append_messages([user(f"{n}") for n in range(count)])
        await session.append_messages([user(f"{n}") for n in range(count)])
        assert await texts(session) == ["first", *(f"{n}" for n in range(count)), *(f"{n}" for n in range(count))]

    async def test_is_one_round_trip_behind_a_lease(self, session: Session, store: ServerStore) -> None:
        # Where leases are kept is asked in transactions.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(store._server, "begin", type(store._server).begin.__get__(store._server))
            lease = await store.leases.acquire("s0")
        await session.with_lease(lease).append_message(user("second"))
        assert await texts(session) == ["first", "second"]


class TestOneAmongMany(OnBothServers):
    """What is wrong with one of a group is nothing to the others."""

    async def append_all(self, sessions: list[Session]) -> list[object]:
        return await asyncio.gather(
            *(one.append_message(user("second", id="second")) for one in sessions), return_exceptions=True
        )

    async def test_whose_session_another_process_wrote_to(self, store: ServerStore, url: str) -> None:
        sessions = await begun(store)
        async with open_store(url, table_prefix=PREFIX) as other:
            for one in sessions[5:8]:
                await Session(other, one.session_id).append_message(user("between"))
        assert [result for result in await self.append_all(sessions) if isinstance(result, Exception)] == []
        for n, one in enumerate(sessions):
            assert await texts(one) == ["first", *(["between"] if 5 <= n < 8 else []), "second"]

    async def test_that_was_stored_before(self, store: ServerStore) -> None:
        sessions = await begun(store)
        before = await sessions[5].append_message(user("second", id="second"))
        results = await self.append_all(sessions)
        assert results[5] == before
        assert [await texts(one) for one in sessions] == [["first", "second"]] * MANY

    async def test_whose_usage_was_counted_before(self, store: ServerStore) -> None:
        sessions = await begun(store)
        scopes = [scope_of(one) for one in sessions]
        await store.registry.add_usage(scopes[5], Usage(1, 1, usage_id="call"))
        appended = await asyncio.gather(
            *(
                store.messages.append(scope, [draft("second")], LATEST_LEAF, usage=Usage(2, 2, usage_id="call"))
                for scope in scopes
            )
        )
        assert [n for n, one in enumerate(appended) if not one.counted] == [5]
        assert [await texts(one) for one in sessions] == [["first", "second"]] * MANY
        infos = [await store.registry.get(scope) for scope in scopes]
        assert [info.input_tokens for info in infos if info] == [1 if n == 5 else 2 for n in range(MANY)]

    async def test_whose_lease_was_lost(self, store: ServerStore, url: str) -> None:
        sessions = await begun(store)
        leases = [await store.leases.acquire(one.session_id) for one in sessions]
        held = [one.with_lease(lease) for one, lease in zip(sessions, leases, strict=True)]
        await asyncio.gather(*(one.append_message(user("behind a lease")) for one in held))
        await leases[5].release()
        async with open_store(url, table_prefix=PREFIX) as other, other.leases.acquire("s5"):
            results = await self.append_all(held)
        assert [n for n, result in enumerate(results) if isinstance(result, Exception)] == [5]
        assert isinstance(results[5], LeaseLost)
        for n, one in enumerate(sessions):
            assert await texts(one) == ["first", "behind a lease", *(["second"] if n != 5 else [])]
        for lease in leases:
            await lease.release()

    async def test_of_which_another_process_stored_a_part(self, store: ServerStore, url: str) -> None:
        sessions = await begun(store, 3)
        async with open_store(url, table_prefix=PREFIX) as other:
            await Session(other, "s0").append_message(user("theirs", id="x"))
        batch = [user("mine", id="a"), user("mine too", id="x")]
        stored, *_ = await asyncio.gather(
            sessions[0].append_messages(batch), *(one.append_messages([user("second")]) for one in sessions[1:])
        )
        assert [message.text for message in stored] == ["mine", "theirs"]
        assert await texts(sessions[0]) == ["first", "theirs", "mine"]
        await asyncio.gather(*(one.append_message(user("third")) for one in sessions))
        assert await sessions[0].get_path_length() == 5

    async def test_that_is_planned_below_an_older_leaf(self, store: ServerStore) -> None:
        sessions = await begun(store, 2)
        positions = positions_in(store)
        before = positions[scope_of(sessions[0])]
        await asyncio.gather(*(one.append_message(user("second")) for one in sessions))
        now = [positions[scope_of(one)] for one in sessions]
        planned = [
            Planned(position, Append(scope_of(sessions[n]), [draft(text)], LATEST_LEAF), None)
            for position, n, text in ((before, 0, "stale"), (now[0], 0, "third"), (now[1], 1, "third"))
        ]
        async with store._server.connection() as connection:
            placed = await store._server.append_at(connection, planned, now_micros())
        assert [one is None for one in placed] == [True, False, False]
        assert [await texts(one) for one in sessions] == [["first", "second", "third"]] * 2

    async def test_whose_session_somebody_holds(self, store: ServerStore, kind: Kind, url: str) -> None:
        sessions = await begun(store)
        rows = (f"SELECT * FROM {PREFIX}session WHERE session_id = '{held}' FOR UPDATE" for held in ("s3", "s4"))
        async with kind.holding(url, *rows):
            waiting = {asyncio.create_task(one.append_message(user("second"))) for one in sessions[3:5]}
            await asyncio.sleep(0)
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(one.append_message(user("second")) for one in (*sessions[:3], *sessions[5:])))
            assert not any(task.done() for task in waiting)
        await asyncio.gather(*waiting)
        assert [await texts(one) for one in sessions] == [["first", "second"]] * MANY

    @pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8, 13])
    async def test_that_is_cancelled(self, store: ServerStore, turns: int) -> None:
        sessions = await begun(store)
        tasks = [asyncio.create_task(one.append_message(user("second", id="second"))) for one in sessions]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for n, (one, result) in enumerate(zip(sessions, results, strict=True)):
            stored = await texts(one)
            assert stored in (["first"], ["first", "second"])
            assert n % 2 == 0 or not isinstance(result, BaseException)
            if not isinstance(result, BaseException):
                assert stored == ["first", "second"]
        await asyncio.gather(*(one.append_message(user("third")) for one in sessions))


class TestASessionThatAnotherMakes(OnBothServers):
    async def test_while_a_large_batch_is_on_its_way_gets_all_of_it_on_its_path(
        self, store: ServerStore, url: str
    ) -> None:
        async with opened(url, table_prefix=PREFIX) as other:
            for number in range(12):
                here, there = (Session(one, f"s{number}") for one in (store, other))
                first, batch = user("first"), [user("x" * 1500) for _ in range(300)]

                async def make(session: Session, pause: float, first: Message) -> None:
                    await asyncio.sleep(pause)
                    await session.append_message(first)
                    for name in range(10):
                        await session.label(first.id, f"label {name}")

                await asyncio.gather(make(here, number * 0.0025, first), there.append_messages(batch))

                path = [message.id for message in await here.get_history()]
                assert set(path) == {first.id, *(message.id for message in batch)}
                told = [change async for change in changes(here)]
                assert sorted(len(change.message_ids) for change in told if change.kind == "append") == [1, 300]

    async def test_at_the_same_moment_has_what_each_was_told_is_stored(self, store: ServerStore, url: str) -> None:
        async with opened(url, table_prefix=PREFIX) as second, opened(url, table_prefix=PREFIX) as third:
            for number in range(150):
                messages = [user(str(n)) for n in range(6)]
                stores = (store, second, third) * 2
                sessions = [Session(one, f"s{number}") for one in stores]
                await asyncio.gather(
                    *(session.append_message(one) for session, one in zip(sessions, messages, strict=True))
                )
                path = {message.id for message in await sessions[0].get_history()}
                assert path == {message.id for message in messages}


async def changes(session: Session) -> AsyncGenerator[Change]:
    """Give what has happened to a session until now."""
    last = await session.get_version()
    async for change in session.subscribe(since=0):
        yield change
        if change.version >= last:
            return


class TestASender(OnBothServers):
    async def test_that_is_cancelled_before_it_begins_leaves_what_waits_to_the_next(self, store: ServerStore) -> None:
        (session,) = await begun(store, 1)
        for number in range(2 * MOST_AT_ONCE):
            appending = asyncio.ensure_future(session.append_message(user(f"more {number}")))
            while not (sending := _just_made("Appender._send")):  # noqa: ASYNC110  (nobody tells of it)
                await asyncio.sleep(0)
            sending.pop().cancel()
            async with asyncio.timeout(PATIENCE):
                await appending
        assert len(await texts(session)) == 1 + 2 * MOST_AT_ONCE


def _just_made(name: str) -> list[asyncio.Task[Any]]:
    """Return the tasks of this name that have not begun."""
    found: list[asyncio.Task[Any]] = []
    for task in asyncio.all_tasks():
        coroutine: Any = task.get_coro()
        if coroutine.__qualname__ == name and inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
            found.append(task)
    return found


class TestConnections(OnPrivateServers):
    async def test_that_the_server_ended_while_they_were_idle_are_not_tried_one_by_one(
        self, store: ServerStore, kind: Kind, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (session,) = await begun(store, 1)
        await asyncio.gather(*(session.get_history() for _ in range(100)))
        monkeypatch.setattr(running, "PATIENCE_S", 0.0)
        assert await kind.end_connections(url) > 5
        # What the server said has to be heard.
        await asyncio.sleep(0.1)
        await session.append_message(user("second"))
        assert await texts(session) == ["first", "second"]

    @pytest.mark.parametrize("size", [1, 2])
    async def test_of_a_small_pool_are_had_by_readers_too(
        self, store: ServerStore, kind: Kind, url: str, size: int
    ) -> None:
        options = {"max_size" if kind.name == "postgres" else "maxsize": size}
        async with (
            await kind.pool(url, **options) as pool,
            open_store(url, table_prefix=PREFIX, client=pool) as small,
        ):
            assert isinstance(small, ServerStore)
            sessions = await begun(small, 100)
            reading = asyncio.Event()

            async def write(session: Session) -> None:
                while not reading.is_set():
                    await session.append_message(user("more"))

            writing = asyncio.gather(*map(write, sessions))
            async with asyncio.timeout(PATIENCE):
                for _ in range(10):
                    await sessions[0].get_latest_leaf()
            reading.set()
            await writing

    async def test_of_a_pool_that_was_closed_are_not_waited_for(self, store: ServerStore, kind: Kind, url: str) -> None:
        pool = await kind.pool(url)
        async with open_store(url, table_prefix=PREFIX, client=pool) as given:
            assert isinstance(given, ServerStore)
            sessions = await begun(given, 3)
            closing = pool.close()
            await (closing if kind.name == "postgres" else pool.wait_closed())
            async with asyncio.timeout(PATIENCE):
                results = await asyncio.gather(
                    *(one.append_message(user("second")) for one in sessions), return_exceptions=True
                )
            assert all(isinstance(result, Exception) for result in results)


class TestALostReply(BehindAProxy):
    @pytest.fixture
    async def behind(self, store: ServerStore, through: str) -> AsyncGenerator[ServerStore]:
        async with open_store(through, table_prefix=PREFIX) as behind:
            assert isinstance(behind, ServerStore)
            yield behind

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY], ids=lambda one: one.name)
    async def test_of_a_group_leaves_one_effect_for_each(self, behind: ServerStore, proxy: Proxy, fault: Fault) -> None:
        sessions = await begun(behind)
        words = [f"word {number}" for number in range(8)]
        for word in words:
            proxy.strike(fault, b"word")
            await asyncio.gather(*(one.append_message(user(word)) for one in sessions))
            assert proxy.struck
        proxy.spare()
        assert [await texts(one) for one in sessions] == [["first", *words]] * MANY
        assert {await one.get_version() for one in sessions} == {2 + len(words)}

    @pytest.mark.parametrize("fault", [Fault.CUT_BEFORE, Fault.CUT_AFTER, Fault.LOSE_REPLY], ids=lambda one: one.name)
    async def test_of_a_group_of_steps_leaves_one_effect_for_each(
        self, behind: ServerStore, proxy: Proxy, fault: Fault
    ) -> None:
        sessions = await begun(behind)
        words = [f"word {number}" for number in range(8)]
        for number, word in enumerate(words):
            state = [AttachedState("turn", f'{{"n":{number}}}'), AttachedState("plan", "{}")]
            proxy.strike(fault, b"word")
            appended = await asyncio.gather(
                *(
                    behind.messages.append(
                        scope_of(one), [draft(word)], LATEST_LEAF, state=state, usage=Usage(1, 2, 0.5, "model")
                    )
                    for one in sessions
                )
            )
            assert proxy.struck
            assert [(one.inserted, one.version, list(one.states), one.counted) for one in appended] == [
                (1, 3 + number, state if number == 0 else state[:1], True)
            ] * MANY
        proxy.spare()
        assert [await texts(one) for one in sessions] == [["first", *words]] * MANY
        assert {await one.get_version() for one in sessions} == {2 + len(words)}
        infos = [await behind.registry.get(scope_of(one)) for one in sessions]
        assert {(info.input_tokens, info.output_tokens, info.estimated_cost) for info in infos if info} == {(8, 16, 4)}
        assert [await one.get_states() for one in sessions] == [{"turn": {"n": 7}, "plan": {}}] * MANY
