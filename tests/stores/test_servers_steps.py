"""Steps of an agent on a server, in one round trip or in a transaction, are what they are in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from leafward import LATEST_LEAF, open_store, user
from leafward.core.attached_state import AttachedState
from leafward.core.errors import LeafwardError, LeaseLost, StaleSession
from leafward.core.ids import Scope
from leafward.stores import Appended, Draft, Head, Usage
from leafward.stores.servers.store import ServerStore
from leafward.stores.sql.operations import Operation, find_session
from leafward.stores.sql.store import SqlStore
from tests.stores.both_servers import OnBothServers, opened
from tests.stores.server_store import PREFIX

S = Scope.of("s")
NAMES = ["plan", "todo", "leafward.turn", "名 \ue000"]
VALUES = [None, '{"n":1}', '{"n":2}', '{"a":1,"b":[1.5,"\\u0000 \ue000 汉 %s \'"]}', '{"b":[1.5,"x"],"a":1}']
SAME = '{"b":[1.5,"\\u0000 \ue000 汉 %s \'"],"a":1}'
"""The fourth of the values in another order."""
USAGE_IDS = ["call 1", "call 2", "call 3"]


class Steps:
    """Chooses steps at random, and does each of them to any store."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._count = 0
        self.version = 0
        self.leaf_id: str | None = None

    def choose(self) -> tuple[str, dict[str, Any]]:
        """Return a call of a store's messages, and what it is given."""
        pick = self._random.random()
        if pick < 0.55:
            return "append", self._append(self._random.choice([1, 1, 1, 2, 3]))
        if pick < 0.67:
            return "append", self._append(0) | {"state": self._states(1), "usage": None}
        if pick < 0.72:
            return "append", self._append(0)
        if pick < 0.78:
            return "delete", {"message_ids": [self._known() for _ in range(self._random.choice([1, 1, 3]))]}
        if pick < 0.86:
            target = self._random.choice([None, self._known(), self._known()])
            return "checkout", {"message_id": target, "tip": self._random.random() < 0.5}
        if pick < 0.88:
            return "label", {"message_id": self._known(), "name": self._random.choice([None, "here"])}
        if pick < 0.89:
            return "clear", {}
        if pick < 0.95:
            ids = [self._known() for _ in range(self._random.randrange(7))]
            return "head", {"names": self._random.sample(NAMES, self._random.randrange(5)), "ids": ids}
        names = self._random.choice([None, NAMES[:1], NAMES, NAMES[1:]])
        return "states", {"leaf_id": self._random.choice([None, self._known()]), "names": names}

    def _append(self, messages: int) -> dict[str, Any]:
        chosen = self._random
        given = [self._message() for _ in range(messages)]
        return {
            "drafts": given if len({one.message.id for one in given}) == len(given) else given[:1],
            "parent": chosen.choice([LATEST_LEAF] * 6 + [self.leaf_id or LATEST_LEAF] * 4 + [None, self._known()]),
            "weigh": chosen.random() < 0.3,
            "state": self._states(chosen.choice([0, 0, 1, 2, 3])),
            "usage": chosen.choice([None, None, Usage(3, 2, 0.25), Usage(5, 1, 0.1, "model"), self._named()]),
            "expected_version": chosen.choice([None] * 8 + [self.version] * 3 + [self.version + 1]),
        }

    def _message(self) -> Draft:
        self._count += 1
        known = self._count > 1 and self._random.random() < 0.08
        number = self._random.randrange(self._count) if known else self._count
        message, body = user(f"text {number}", id=f"m{number}").sealed()
        return Draft(message, body, number % 7 + 1)

    def _known(self) -> str:
        return f"m{self._random.randrange(self._count + 2)}"

    def _states(self, count: int) -> list[AttachedState]:
        values = [*VALUES, SAME]
        return [AttachedState(self._random.choice(NAMES), self._random.choice(values)) for _ in range(count)]

    def _named(self) -> Usage:
        model = self._random.choice([None, "model"])
        return Usage(7, 7, 0.5, model, self._random.choice([*USAGE_IDS, f"call {self._count}"]))


def draft(id: str) -> Draft:
    return Draft(*user(f"text of {id}", id=id).sealed(), 3)


async def outcome(store: SqlStore, call: str, given: dict[str, Any]) -> Any:
    """Return what a step returned or raised."""
    try:
        result = await getattr(store.messages, call)(S, **given)
    except LeafwardError as error:
        return type(error).__name__, str(error)
    if not isinstance(result, Appended):
        return result
    texts = [(message.id, message.body) for message in result.messages]
    return result._replace(messages=[], states=list(result.states)), texts


async def rows(store: SqlStore) -> dict[str, Any]:
    """Return all that the tables hold of the session, with lanes counted from its first one."""
    return await store._serving.read(S, _rows)


def _rows() -> Operation[dict[str, Any]]:
    session = yield from find_session(S)
    if session is None:
        return {}
    tree, number = (session.tree_no,), (session.session_no,)
    lanes = yield "SELECT lane_no, origin, floor, removed FROM {p}lane WHERE tree_no = ? ORDER BY lane_no", tree
    ranks = {lane: rank for rank, (lane, *_) in enumerate(lanes, 1)}

    def place(value: int | None) -> tuple[int, int] | None:
        return None if value is None else (ranks.get(value >> 32, 0), value & 0xFFFFFFFF)

    usage = "version, window_tokens, input_tokens, output_tokens, estimated_cost"
    ((leaf, *totals),) = yield f"SELECT leaf, {usage} FROM {{p}}session WHERE session_no = ?", number
    messages = yield "SELECT place, seq, id, role, tokens, body FROM {p}message WHERE tree_no = ? ORDER BY place", tree
    points = yield "SELECT place, name, seq, text, digest FROM {p}point WHERE tree_no = ?", tree
    used = yield "SELECT usage_id, model, input_tokens, output_tokens, cost FROM {p}used WHERE session_no = ?", number
    changes = yield "SELECT seq, kind, ids FROM {p}change WHERE session_no = ? ORDER BY seq", number
    return {
        "leaf": place(leaf),
        "totals": [round(value, 9) if isinstance(value, float) else value for value in totals],
        "lanes": [(ranks[lane], place(origin), floor & 0xFFFFFFFF, gone) for lane, origin, floor, gone in lanes],
        "messages": [(place(at), *others) for at, *others in messages],
        "points": sorted((place(at) or (0, 0), *others) for at, *others in points),
        # Where only the model is given, the name is made up.
        "used": sorted((name if name.startswith("call") else "", *others) for name, *others in used),
        "changes": [(seq, kind, ids) for seq, kind, ids in changes],
    }


class ByTwoProcesses(OnBothServers):
    @pytest.fixture
    async def other(self, store: ServerStore, url: str) -> AsyncGenerator[ServerStore]:
        """The same store, as another process has it."""
        async with opened(url, table_prefix=PREFIX) as other:
            yield other


class TestTheSameSteps(ByTwoProcesses):
    @pytest.mark.parametrize("seed", range(12))
    async def test_by_two_processes_leave_the_rows_and_give_the_results_that_they_do_in_memory(
        self, store: ServerStore, other: ServerStore, seed: int
    ) -> None:
        steps, turns = Steps(seed), random.Random(seed)
        async with open_store("memory://") as memory:
            assert isinstance(memory, SqlStore)
            for number in range(120):
                call, given = steps.choose()
                expected = await outcome(memory, call, given)
                # A few in a row by one of them, so that it knows where it stands.
                if turns.random() < 0.2:
                    store, other = other, store
                assert await outcome(store, call, given) == expected, (number, call, given)
                assert await rows(store) == await rows(memory), (number, call, given)
                head = await memory.messages.head(S, [])
                steps.version, steps.leaf_id = head.version, head.leaf_id


class TestTheFirstStep(ByTwoProcesses):
    """An append below no message, which begins a session unless there is one."""

    @pytest.mark.parametrize("seed", range(12))
    async def test_leaves_the_rows_and_gives_the_result_that_it_does_in_memory(
        self, store: ServerStore, seed: int
    ) -> None:
        steps = Steps(seed)
        async with open_store("memory://") as memory:
            assert isinstance(memory, SqlStore)
            for messages in (1, 3, 2):
                # The first begins it; what follows stands beside it.
                given = steps._append(messages) | {"parent": None, "expected_version": None}
                expected = await outcome(memory, "append", given)
                assert await outcome(store, "append", given) == expected, given
                assert await rows(store) == await rows(memory), given

    @pytest.mark.parametrize("version", [0, 1])
    async def test_is_at_the_expected_version(self, store: ServerStore, version: int) -> None:
        appending = store.messages.append(S, [draft("first")], None, expected_version=version)
        if version:
            with pytest.raises(StaleSession):
                await appending
        else:
            assert (await appending).version == 1

    async def test_by_several_processes_at_once_begins_one_session(
        self, store: ServerStore, other: ServerStore
    ) -> None:
        done = await asyncio.gather(
            *(
                one.messages.append(S, [draft(f"{number}")], None, state=[AttachedState("of", f'{{"n":{number}}}')])
                for number, one in enumerate((store, other) * 4)
            )
        )

        assert sorted(one.version for one in done) == list(range(1, 9))
        assert len(await store.messages.children(S, None)) == 8
        assert await store.registry.count(S.owner) == 1
        for number in range(8):
            assert await other.messages.states(S, f"{number}", ["of"]) == {"of": {"n": number}}

    async def test_is_refused_behind_a_lost_lease(self, store: ServerStore) -> None:
        lease = await store.leases.acquire("s")
        leased = store.fenced(lease)
        await store.leases.release("s", token=lease.token)

        with pytest.raises(LeaseLost):
            await leased.messages.append(S, [draft("first")], None)

        assert await rows(store) == {}
        assert await store.registry.count(S.owner) == 0


class TestAPathThroughManyLanes(ByTwoProcesses):
    @pytest.mark.parametrize("lanes", [2, 4, 5, 8, 9, 12])
    async def test_has_the_states_of_its_beginning_and_is_continued(
        self, store: ServerStore, other: ServerStore, lanes: int
    ) -> None:
        plan, todo = AttachedState("plan", '{"n":1}'), AttachedState("todo", '{"n":2}')
        await store.messages.append(S, [draft("0")], LATEST_LEAF, state=[plan])
        for lane in range(1, lanes):
            await store.messages.append(S, [draft(f"end of {lane}")], f"{lane - 1}")
            # The parent has a child: its next one begins a lane.
            await store.messages.append(S, [draft(f"{lane}")], f"{lane - 1}")

        head = await store.messages.head(S, ["plan", "never"], ids=["0", "end of 1"])
        stepped = await other.messages.append(S, [draft("new")], LATEST_LEAF, state=[plan, todo])
        again = await other.messages.append(S, [draft("newer")], "new", state=[todo, AttachedState("never", None)])
        removed = await store.messages.append(S, [], "newer", state=[AttachedState("plan", None), todo])

        assert (head.leaf_id, head.states, head.known) == (
            f"{lanes - 1}",
            {"plan": {"n": 1}},
            {"0": True, "end of 1": False},
        )
        assert [list(one.states) for one in (stepped, again, removed)] == [[todo], [], [AttachedState("plan", None)]]
        assert await store.messages.states(S, "newer", ["plan", "todo"]) == {"todo": {"n": 2}}
        assert await store.messages.states(S, "new", ["plan", "todo"]) == {"plan": {"n": 1}, "todo": {"n": 2}}


class TestAHeadOfMuch(ByTwoProcesses):
    @pytest.mark.parametrize("count", [5, 9, 16, 17, 90])
    async def test_has_all_that_is_asked_for(self, store: ServerStore, count: int) -> None:
        names, ids = [f"name {n}" for n in range(count)], [f"{n}" for n in range(count)]
        for n, (name, id) in enumerate(zip(names, ids, strict=True)):
            state = [AttachedState(name, f'{{"n":{n}}}')] if n % 3 else []
            await store.messages.append(S, [draft(id)], ids[n - 2] if n == count - 1 else LATEST_LEAF, state=state)

        head = await store.messages.head(S, [*names, "never"], ids=[*ids, "no such message", ids[0]])

        # The last message was put beside the one before it.
        beside = ids[-2]
        states = {name: {"n": n} for n, name in enumerate(names) if n % 3 and ids[n] != beside}
        assert head == Head(count, ids[-1], states, {id: id != beside for id in ids})


class TestStepsAtTheSameTime(ByTwoProcesses):
    async def test_by_two_processes_are_one_chain_and_counted_once_each(
        self, store: ServerStore, other: ServerStore
    ) -> None:
        await store.messages.append(S, [draft("first")], LATEST_LEAF)

        async def work(one: ServerStore, name: str) -> list[Appended]:
            done: list[Appended] = []
            for number in range(25):
                state = [AttachedState("turn", f'{{"of":"{name} {number}"}}'), AttachedState("plan", "{}")]
                usage = Usage(1, 2, 0.5, "model", f"call {name} {number}" if number % 2 else None)
                given = [draft(f"{name} {number}")]
                done.append(await one.messages.append(S, given, LATEST_LEAF, state=state, usage=usage))
                if number % 5 == 0:
                    changed = [AttachedState("set", f'{{"of":"{name} {number}"}}')]
                    done.append(await one.messages.append(S, [], LATEST_LEAF, state=changed))
            return done

        both = await asyncio.gather(work(store, "a"), work(other, "b"), work(store, "c"), work(other, "d"))

        done = sorted((one for each in both for one in each), key=lambda one: one.version)
        assert [one.version for one in done] == list(range(2, 2 + 4 * 30))
        steps = [one for one in done if one.inserted]
        path = await store.messages.path(S, None)
        assert [message.id for message in path] == ["first", *(one.messages[0].id for one in steps)]
        assert [one.states[0].name for one in steps] == ["turn"] * 100
        # The same all the time: it is attached to the first of them, by the one that came first.
        assert [[state.name for state in one.states[1:]] for one in steps] == [["plan"]] + [[]] * 99
        for one in done:
            found = await other.messages.states(S, one.attached_to, [state.name for state in one.states])
            assert [found[state.name] for state in one.states[:1] if one.inserted] == [
                {"of": message.id} for message in one.messages
            ]
        info = await store.registry.get(S)
        assert info is not None
        assert (info.input_tokens, info.output_tokens, info.estimated_cost) == (100, 200, 50.0)
