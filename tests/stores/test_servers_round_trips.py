"""What a step of an agent, and the look before it, cost on a server behind a network: one round trip each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import count, islice
from typing import Any, TypeVar

import pytest

from leafward import LATEST_LEAF, Session, SessionKey, user
from leafward.core.attached_state import AttachedState
from leafward.core.ids import Scope
from leafward.core.parent import ParentId
from leafward.stores import Appended, Draft, Usage
from leafward.stores.servers.paths import LANES
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql.store import SqlStore
from tests.stores.both_servers import BehindAProxy, opened
from tests.stores.proxy import Proxy
from tests.stores.server_store import PREFIX

T = TypeVar("T")

S = Scope.of("s")
NAMES = ["leafward.turn", "plan", "never"]
WARM = 3
"""How often a statement is run before it is counted: PostgreSQL's driver prepares it first."""


class Agent:
    """Takes one step after another in one session."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self._numbers = count()
        self.appended: Appended | None = None

    async def step(self, parent: ParentId = LATEST_LEAF, messages: int = 1, **extras: Any) -> None:
        drafts = [Draft(*user(f"text {next(self._numbers)}").sealed(), 3) for _ in range(messages)]
        self.appended = await self.store.messages.append(S, drafts, parent, **extras)
        assert self.appended.inserted == messages

    async def step_below_the_leaf(self, **extras: Any) -> None:
        assert self.appended is not None
        await self.step(self.appended.messages[-1].id, **extras)

    async def whole_step(self, **extras: Any) -> None:
        """Append as an agent does: with the note of its turn, a state that seldom changes, and usage."""
        number = next(self._numbers)
        state = [AttachedState("leafward.turn", f'{{"n":{number}}}'), AttachedState("plan", '{"goal":"walnuts"}')]
        await self.step_below_the_leaf(
            state=state, usage=Usage(3, 2, 0.5, "model", f"call {number}"), weigh=True, **extras
        )
        assert self.appended is not None
        assert self.appended.counted
        assert self.appended.states[:1] == state[:1]

    async def expected_step(self) -> None:
        assert self.appended is not None
        await self.whole_step(expected_version=self.appended.version)

    async def set_state(self) -> None:
        state = [AttachedState("plan", f'{{"n":{next(self._numbers)}}}')]
        assert (await self.store.messages.append(S, [], LATEST_LEAF, state=state)).states == state


class TestRoundTrips(BehindAProxy):
    @pytest.fixture
    async def behind(self, store: ServerStore, through: str) -> AsyncGenerator[ServerStore]:
        async with opened(through, table_prefix=PREFIX) as behind:
            self._behind = behind
            yield behind

    async def counted(self, proxy: Proxy, call: Callable[[], Awaitable[Any]]) -> int:
        """Return how many round trips a call takes once its statements are known."""
        for _ in range(WARM):
            await call()
        # What is indexed in the background would be counted too, or have the connection that knows the statements.
        await self._behind.settle()
        before = proxy.packets
        await call()
        return proxy.packets - before

    @pytest.mark.parametrize(
        "what", ["step", "step_below_the_leaf", "whole_step", "expected_step", "set_state"], ids=lambda one: one
    )
    async def test_of_a_step_where_the_last_one_ended(self, behind: ServerStore, proxy: Proxy, what: str) -> None:
        agent = Agent(behind)
        await agent.step()
        await agent.step()

        assert await self.counted(proxy, getattr(agent, what)) == 1

    async def test_of_a_step_with_several_messages(self, behind: ServerStore, proxy: Proxy) -> None:
        agent = Agent(behind)
        await agent.step()

        assert await self.counted(proxy, lambda: agent.whole_step(messages=3)) == 1

    async def test_of_a_step_behind_a_lease(self, behind: ServerStore, proxy: Proxy) -> None:
        async with behind.leases.acquire("s") as lease:
            leased = behind.fenced(lease)
            assert isinstance(leased, SqlStore)
            agent = Agent(leased)
            await agent.step()

            assert await self.counted(proxy, agent.whole_step) == 1
            assert await self.counted(proxy, agent.set_state) == 1
            behind.runner._appender._positions.clear()
            assert await self.counted(proxy, lambda: self.first(behind, agent.whole_step)) == 1

    async def test_of_the_first_step_and_the_first_state_of_a_session(self, behind: ServerStore, proxy: Proxy) -> None:
        """Also of one whose user is new."""
        numbers = count()

        async def begin() -> None:
            number = next(numbers)
            scope = Scope.of("s", user_id=f"user {number}")
            lease = await behind.leases.acquire("s", f"user {number}")
            leased = behind.fenced(lease)
            # What is done in the background would be counted too.
            await asyncio.sleep(0)
            trips = proxy.packets
            saved = await leased.states.save_if_version(SessionKey("s", f"user {number}"), "agent_state", {"n": 1}, 0)
            trips, saving = proxy.packets, proxy.packets - trips
            drafts = [Draft(*user("text").sealed(), 3) for _ in range(2)]
            state = [AttachedState("plan", "{}"), AttachedState("never", None)]
            usage = Usage(3, 2, 0.5, "model", "call")
            appended = await leased.messages.append(scope, drafts, None, state=state, usage=usage, weigh=True)
            assert (saved, appended.inserted, appended.counted, list(appended.states)) == (1, 2, True, state[:1])
            assert number < WARM or (saving, proxy.packets - trips) == (1, 1)

        for _ in range(WARM + 1):
            await begin()

    @pytest.mark.parametrize(
        "what", ["step", "step_below_the_leaf", "whole_step", "expected_step", "set_state"], ids=lambda one: one
    )
    async def test_of_a_process_s_first_step_in_a_session(self, behind: ServerStore, proxy: Proxy, what: str) -> None:
        agent = Agent(behind)
        await agent.step()

        assert await self.counted(proxy, lambda: self.first(behind, getattr(agent, what))) == 1

    async def first(self, store: ServerStore, call: Callable[[], Awaitable[None]]) -> None:
        # Another process has prepared statements too, but knows no positions.
        store.runner._appender._positions.clear()
        await call()

    async def test_of_a_lease(self, behind: ServerStore, proxy: Proxy) -> None:
        """Acquire, renew and release, also where no lease was ever taken."""
        table, sessions = behind.runner, iter(f"s{number}" for number in count())
        trips: dict[str, list[int]] = {"acquire": [], "renew": [], "receive": [], "waiting": [], "release": []}

        async def counted(what: str, call: Awaitable[T]) -> T:
            before = proxy.packets
            result = await call
            trips[what].append(proxy.packets - before)
            return result

        for session_id in ("again", "again", "again", *islice(sessions, 3), "again"):
            lease = await counted("acquire", behind.leases.acquire(session_id, label="agent:a"))
            assert await counted("renew", table.renew(lease.fence.slot, lease._holder, 30)) == (True, False)
            assert await counted("receive", lease.receive()) == []
            assert await counted("waiting", table.waiting([lease.fence.slot])) == set()
            await counted("release", lease.release())

        assert {what: found[WARM:] for what, found in trips.items()} == dict.fromkeys(trips, [1] * 4)

    @pytest.mark.parametrize("branches", [1, 8, 40, 200])
    async def test_on_a_path_of_many_branches(self, behind: ServerStore, proxy: Proxy, branches: int) -> None:
        """A step, the first one of a process, the head and a state: one round trip each once a long path is known."""
        agent = Agent(behind)
        await agent.step()
        await agent.whole_step()
        first = agent.appended
        assert first is not None
        await self.branch(agent, branches)
        ids = [first.messages[-1].id, "no such message", "aside 0"]
        known = {ids[0]: True, **({"aside 0": False} if branches > 1 else {})}

        async def look() -> None:
            head = await behind.messages.head(S, NAMES, ids=ids)
            assert agent.appended is not None
            assert head.leaf_id == agent.appended.messages[-1].id
            assert head.states["plan"] == {"goal": "walnuts"}
            assert head.known == known

        # What is indexed in the background would be counted too.
        await behind.settle()
        for number in range(WARM):
            await behind.messages.head(Scope.of(f"another {number}"), NAMES, ids=ids)
        await behind.messages.states(Scope.of("another"), None, NAMES)
        before = proxy.packets
        await look()
        # Its lanes are asked for, and the head again; PostgreSQL's driver prepares both statements, and a long one
        # may arrive in two pieces.
        assert proxy.packets - before <= (1 if branches <= LANES else 6)
        assert await self.counted(proxy, look) == 1
        assert await self.counted(proxy, agent.whole_step) == 1
        assert await self.counted(proxy, lambda: self.first(behind, agent.whole_step)) == 1
        assert await self.counted(proxy, lambda: behind.messages.states(S, ids[0], NAMES)) == 1
        assert await self.counted(proxy, agent.set_state) == 1
        assert (await behind.messages.head(S, ["plan"])).states["plan"].keys() == {"n"}

    async def test_after_the_leaf_went_elsewhere(self, behind: ServerStore, store: ServerStore, proxy: Proxy) -> None:
        """A path that the process knows is not taken for that of another leaf."""
        agent = Agent(behind)
        await agent.step()
        await agent.whole_step()
        await self.branch(agent, 12)
        names = ["plan"]
        assert (await behind.messages.head(S, names)).states == {"plan": {"goal": "walnuts"}}
        for leaf in ("aside 0", "aside 8", "on 10", "aside 2", None):
            # Somebody else does this.
            await store.messages.checkout(S, leaf)
            state = [AttachedState("plan", f'{{"at":"{leaf}"}}')]
            await store.messages.append(S, [], LATEST_LEAF, state=state)
            head = await behind.messages.head(S, names, ids=["aside 0", "on 0"])
            assert (head.leaf_id, head.states) == (leaf, {"plan": {"at": leaf or "None"}})
            assert head.known == {"aside 0": leaf == "aside 0", "on 0": leaf not in ("aside 0", None)}
            assert (await behind.messages.append(S, [], LATEST_LEAF, state=state)).states == []
            behind.runner._appender._positions.clear()
            await agent.step(state=state)
            assert agent.appended is not None
            assert agent.appended.states == []

    async def test_after_the_leaf_left_the_only_lane(
        self, behind: ServerStore, store: ServerStore, proxy: Proxy
    ) -> None:
        """That most paths have one lane is remembered, and not taken for granted."""
        agent = Agent(behind)
        await agent.step()
        await agent.whole_step()
        trunk = await behind.messages.head(S, NAMES)
        assert "plan" in trunk.states
        # What is indexed in the background would be counted too.
        await behind.settle()
        # Somebody else does this.
        for name, parent in (("below", trunk.leaf_id), ("aside", trunk.leaf_id), ("root", None)):
            await store.messages.append(S, [Draft(*user(name, id=name).sealed(), 3)], parent)

        for leaf, states in (("aside", trunk.states), ("root", {}), ("below", trunk.states)):
            await store.messages.checkout(S, leaf)

            async def look(leaf: str = leaf, states: Any = states) -> None:
                assert (await behind.messages.head(S, NAMES))[1:3] == (leaf, states)

            assert await self.counted(proxy, look) == 1

    async def branch(self, agent: Agent, branches: int) -> None:
        """Branch from branch after branch, so that the path has so many lanes."""
        for number in range(branches - 1):
            assert agent.appended is not None
            above = agent.appended.messages[-1].id
            for name in ("aside", "on"):
                draft = Draft(*user(name, id=f"{name} {number}").sealed(), 3)
                agent.appended = await agent.store.messages.append(S, [draft], above)

    async def test_of_a_state(self, behind: ServerStore, proxy: Proxy) -> None:
        session = Session(behind, "s")
        await session.append_message(user("one", id="1"), state={"plan": {"a": 1}})
        await session.append_message(user("two"))

        assert await self.counted(proxy, lambda: session.get_state("plan")) == 1
        assert await self.counted(proxy, lambda: session.get_state("plan", "1")) == 1

    async def test_of_a_head_of_a_session_that_was_never_written_to(self, behind: ServerStore, proxy: Proxy) -> None:
        assert await self.counted(proxy, lambda: behind.messages.head(S, NAMES)) == 1

    async def test_of_a_head_after_others_were_cancelled(self, behind: ServerStore, proxy: Proxy) -> None:
        await Agent(behind).step()
        await self.counted(proxy, lambda: behind.messages.head(S, NAMES))
        for turns in range(12):
            looking = asyncio.ensure_future(behind.messages.head(S, NAMES))
            for _ in range(turns):
                await asyncio.sleep(0)
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
            # What was sent is answered before the connection serves another.
            await behind.messages.revision(S)

        # A cancelled call may leave the next one to a connection that has not prepared its statement yet.
        assert await self.counted(proxy, lambda: behind.messages.head(S, NAMES)) == 1
