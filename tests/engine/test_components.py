"""Classes of a user save and restore the components they name, all under one key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import msgspec
import pytest

from leafward import (
    ConfigurationError,
    InvalidId,
    LeaseLost,
    Message,
    SessionKey,
    StateDecodeError,
    assistant,
    open_store,
    user,
)
from leafward.engine import InMemoryMemory, Plan, PlanNotebook, StateModule, Toolkit
from leafward.stores import AgentStateStore, InMemoryAgentStateStore
from tests.engine.assistant import Assistant


class Counter(StateModule):
    """A component with a state of its own, as a dict."""

    def __init__(self, name: str) -> None:
        self.state_name = name
        self.count = 0

    def get_state(self) -> dict[str, Any]:
        return {"count": self.count}

    def set_state(self, state: dict[str, Any] | None) -> None:
        self.count = 0 if state is None else state["count"]


class Group(StateModule):
    """A component of any others."""

    def __init__(self, *parts: StateModule) -> None:
        self.parts = parts

    def components(self) -> Iterable[StateModule]:
        return self.parts


@dataclass
class Trip:
    city: str = ""
    packed: list[str] = field(default_factory=list[str])


class Traveller(StateModule):
    """A component with a state of a type of its own, and with a part."""

    state_name = "trip"
    state_type = Trip

    def __init__(self) -> None:
        self.trip = Trip()
        self.memory = InMemoryMemory()

    def components(self) -> Iterable[StateModule]:
        yield self.memory

    def get_state(self) -> Trip:
        return self.trip

    def set_state(self, state: Trip | None) -> None:
        self.trip = state or Trip()


class Step(msgspec.Struct):
    n: int


class Steps(StateModule):
    """A component whose state is a list."""

    state_name = "steps"
    state_type = list[Step]

    def __init__(self, *steps: Step) -> None:
        self.steps = list(steps)

    def get_state(self) -> list[Step]:
        return self.steps

    def set_state(self, state: list[Step]) -> None:
        self.steps = state


# ── saving and loading ───────────────────────────────────────────────────────


async def test_a_class_saves_its_components_under_one_key(states: AgentStateStore) -> None:
    one = Assistant()
    one.memory.add_message(user("hi"))
    one.plan.current_plan = Plan("P")
    one.tools.set_active_groups(["files"])
    await one.save_to(states, SessionKey("s", "alice"))

    other = Assistant()
    await other.load_from(states, SessionKey("s", "alice"))
    assert [message.text for message in other.memory.get_messages()] == ["hi"]
    assert other.plan.current_plan == Plan("P")
    assert other.tools.active_groups == ["files"]
    assert not await Assistant().load_if_exists(states, "s")


async def test_a_class_may_have_a_typed_state_and_parts(states: AgentStateStore) -> None:
    one = Traveller()
    one.trip = Trip("Rome", ["socks"])
    one.memory.add_message(assistant("Bring socks."))
    await one.save_to(states, "s")

    other = Traveller()
    await other.load_from(states, "s")
    assert (other.trip, len(other.memory)) == (Trip("Rome", ["socks"]), 1)
    assert await states.get("s", "trip") == {"city": "Rome", "packed": ["socks"]}


async def test_a_state_may_be_a_list_of_a_type(states: AgentStateStore) -> None:
    await Steps(Step(1), Step(2)).save_to(states, "s")

    other = Steps()
    await other.load_from(states, "s")
    assert other.steps == [Step(1), Step(2)]
    assert await states.get_list("s", "steps") == [{"n": 1}, {"n": 2}]


async def test_parts_may_have_parts(states: AgentStateStore) -> None:
    first, second, deep = Counter("first"), Counter("second"), Assistant()
    first.count, second.count = 1, 2
    deep.memory.add_message(assistant("deep"))
    await Group(first, Group(second, Group(deep))).save_to(states, "s")

    others = Counter("first"), Counter("second"), Assistant()
    await Group(*others).load_from(states, "s")
    assert (others[0].count, others[1].count, len(others[2].memory)) == (1, 2, 1)


async def test_a_component_that_several_name_is_saved_once(states: AgentStateStore) -> None:
    class Child(Counter):
        def __init__(self, parent: Parent) -> None:
            super().__init__("child")
            self.parent = parent

        def components(self) -> Iterable[StateModule]:
            return self.parent, self.parent.memory

    class Parent(StateModule):
        def __init__(self) -> None:
            self.memory = InMemoryMemory()
            self.child = Child(self)

        def components(self) -> Iterable[StateModule]:
            return self.memory, self.child, self.memory

    one = Parent()
    one.memory.add_message(user("hi"))
    one.child.count = 3
    await one.save_to(states, "s")
    other = Parent()
    await other.load_from(states, "s")
    assert (len(other.memory), other.child.count) == (1, 3)


async def test_a_component_that_nothing_is_saved_of_is_reset(states: AgentStateStore) -> None:
    await Counter("other").save_to(states, "s")
    one = Group(counter := Counter("c"), traveller := Traveller(), steps := Steps(Step(1)))
    counter.count, traveller.trip = 5, Trip("Rome")
    traveller.memory.add_message(user("of another session"))

    await one.load_from(states, "s")
    assert (counter.count, traveller.trip, len(traveller.memory), steps.steps) == (0, Trip(), 0, [])


async def test_groups_of_one_session_are_not_those_of_the_next(states: AgentStateStore) -> None:
    tools = Toolkit().create_group("safe", active=True).create_group("admin")
    tools.set_active_groups(["safe", "admin"])
    await tools.save_to(states, "of an admin")
    await InMemoryMemory().save_to(states, "of a guest")
    await tools.load_from(states, "of a guest")
    assert tools.active_groups == ["safe"]


async def test_attributes_that_are_not_named_are_not_touched(states: AgentStateStore) -> None:
    class Agent(StateModule):
        """A class of which instances serve many sessions, with a memory per session."""

        shared = InMemoryMemory("shared")

        def __init__(self) -> None:
            self.memory = InMemoryMemory()
            self.cache = Counter("cache")

        @property
        def trap(self) -> NoReturn:
            raise RuntimeError("no one asked for this")

        def components(self) -> Iterable[StateModule]:
            return (self.memory,)

    agent = Agent()
    agent.cache.count = 5
    await agent.save_to(states, "s")
    await agent.load_from(states, "s")
    assert agent.cache.count == 5
    assert await states.get("s", "cache") is None
    assert await states.get_list("s", "memory_messages") == []


# ── what cannot be saved is refused ──────────────────────────────────────────


async def test_two_components_of_one_name_are_refused_and_nothing_is_written(states: AgentStateStore) -> None:
    two = Group(Counter("c"), InMemoryMemory(), InMemoryMemory())
    with pytest.raises(ConfigurationError, match="memory_messages"):
        await two.save_to(states, "s")
    assert not await states.exists("s")

    await Counter("c").save_to(states, "s")
    with pytest.raises(ConfigurationError, match="memory_messages"):
        await two.load_from(states, "s")

    apart = Group(InMemoryMemory(), notes := InMemoryMemory("notes"))
    notes.add_message(user("a note"))
    await apart.save_to(states, "s")
    assert len(await states.get_list("s", "notes")) == 1


async def test_a_class_that_names_no_parts_is_refused_instead_of_saving_nothing(states: AgentStateStore) -> None:
    class Forgetful(StateModule):
        def __init__(self) -> None:
            self.memory = InMemoryMemory()

    for call in (Forgetful().save_to, Forgetful().load_from, Forgetful().load_if_exists):
        with pytest.raises(ConfigurationError, match=r"Forgetful has nothing to save: .*components\(\)"):
            await call(states, "s")


async def test_a_class_with_a_name_but_without_a_state_is_refused(states: AgentStateStore) -> None:
    class Unfinished(StateModule):
        state_name = "unfinished"

    with pytest.raises(ConfigurationError, match=r"override get_state\(\)"):
        await Unfinished().save_to(states, "s")
    await Counter("unfinished").save_to(states, "s")
    with pytest.raises(ConfigurationError, match=r"set_state\(\)"):
        await Unfinished().load_from(states, "s")


class Foreign:
    """Saves itself, in its own way."""

    async def save_to(self, store: object, key: object) -> None: ...

    async def load_from(self, store: object, key: object) -> None: ...

    async def load_if_exists(self, store: object, key: object) -> bool:
        return True


class OwnWay(StateModule):
    async def save_to(self, store: Any, key: Any) -> None:
        await store.save(key, "own", {"way": True})


@pytest.mark.parametrize(
    "part", [Foreign(), OwnWay(), "memory", None, InMemoryMemory], ids=["foreign", "own way", "text", "none", "class"]
)
async def test_a_part_that_could_not_be_checked_first_is_refused(states: AgentStateStore, part: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"components\(\) of Group returns a .*: save it by itself"):
        await Group(InMemoryMemory(), part).save_to(states, "s")
    assert not await states.exists("s")


async def test_a_component_with_its_own_way_to_save_is_saved_by_itself(states: AgentStateStore) -> None:
    await OwnWay().save_to(states, "s")
    assert await states.get("s", "own") == {"way": True}


async def test_a_name_that_the_layouts_use_is_refused(states: AgentStateStore) -> None:
    with pytest.raises(InvalidId):
        await Group(InMemoryMemory(), Counter("x:list")).save_to(states, "s")
    assert not await states.exists("s")


@pytest.mark.parametrize("state", [{"n": float("nan")}, None, [{"n": 1}], "text"])
async def test_of_components_of_which_one_cannot_be_written_none_is(states: AgentStateStore, state: Any) -> None:
    class Unsound(Counter):
        def get_state(self) -> Any:
            return state

    with pytest.raises(ValueError, match="the state 'unsound' cannot be saved: "):
        await Group(InMemoryMemory(), Unsound("unsound")).save_to(states, "s")
    assert not await states.exists("s")


@pytest.mark.parametrize("state", [None, 5, {"n": 1}, [1]])
async def test_a_list_that_is_not_one_of_states_is_refused(states: AgentStateStore, state: Any) -> None:
    steps = Steps()
    steps.steps = state
    with pytest.raises(ValueError, match="the state 'steps' cannot be saved: "):
        await Group(InMemoryMemory(), steps).save_to(states, "s")
    assert not await states.exists("s")


async def test_a_message_that_was_made_unsound_is_refused_before_anything_is_written(states: AgentStateStore) -> None:
    memory = InMemoryMemory()
    memory.add_message(message := user("hi"))
    message.parts[0]["text"] = object()
    with pytest.raises(ValueError, match="memory_messages"):
        await Group(Counter("c"), memory).save_to(states, "s")
    assert not await states.exists("s")


# ── loads that fail, other tasks, cancellation ───────────────────────────────


@pytest.mark.parametrize("stored", [True, False])
async def test_a_load_that_fails_changes_no_component(states: AgentStateStore, stored: bool) -> None:
    one = Assistant()
    one.memory.add_message(user("mine"))
    one.tools.set_active_groups(["files"])
    if stored:
        await Assistant().save_to(states, "s")
    await states.save("s", "planNotebook_state", {"currentPlan": 5})
    for load in (one.load_from, one.load_if_exists):
        with pytest.raises(StateDecodeError, match="planNotebook_state"):
            await load(states, "s")
        assert [message.text for message in one.memory.get_messages()] == ["mine"]
        assert one.tools.active_groups == ["files"]


class Paused(InMemoryAgentStateStore):
    """A store whose reads of one name wait until they may go on, and fail if they are to."""

    def __init__(self, name: str, error: Exception | None = None) -> None:
        super().__init__()
        self._name = name
        self._error = error
        self.reached, self.go_on = asyncio.Event(), asyncio.Event()

    async def get(self, key: Any, name: str, type: Any = dict) -> Any:
        if name == self._name:
            self.reached.set()
            await self.go_on.wait()
            if self._error is not None:
                raise self._error
        return await super().get(key, name, type)


@pytest.mark.parametrize("end", ["fails", "is cancelled"])
async def test_a_load_that_fails_keeps_what_another_task_changed_meanwhile(end: str) -> None:
    async with Paused("planNotebook_state", StateDecodeError(None, "s", "planNotebook_state", "damaged")) as states:
        one = Assistant()
        await one.save_to(states, "s")
        loading = asyncio.ensure_future(one.load_from(states, "s"))
        await states.reached.wait()

        one.memory.add_message(user("said meanwhile"))
        one.plan.current_plan = plan = Plan("made meanwhile")
        one.tools.set_active_groups(["files"])
        one.title = "set meanwhile"
        if end == "fails":
            states.go_on.set()
        else:
            loading.cancel()
        with pytest.raises((StateDecodeError, asyncio.CancelledError)):
            await loading

        assert [message.text for message in one.memory.get_messages()] == ["said meanwhile"]
        assert (one.plan.current_plan, one.tools.active_groups, one.title) == (plan, ["files"], "set meanwhile")


async def test_a_load_changes_all_components_at_one_moment() -> None:
    async with Paused("toolkit_activeGroups") as states:
        saved = Assistant()
        saved.memory.add_message(user("saved"))
        saved.plan.current_plan = Plan("saved")
        await saved.save_to(states, "s")
        one = Assistant()
        loading = asyncio.ensure_future(one.load_from(states, "s"))
        await states.reached.wait()
        assert (len(one.memory), one.plan.current_plan) == (0, None)
        states.go_on.set()
        await loading
        assert (len(one.memory), one.plan.current_plan) == (1, Plan("saved"))


async def test_loads_at_once_never_mix_two_sessions(states: AgentStateStore) -> None:
    for number in range(20):
        one = Assistant()
        one.memory.add_message(user(f"{number}"))
        one.plan.current_plan = Plan(f"{number}")
        await one.save_to(states, f"s{number}")
    shared = Assistant()

    async def load(number: int) -> None:
        await shared.load_from(states, f"s{number}")
        # Whichever load was last, it is a whole one.
        assert shared.plan.current_plan is not None
        assert [shared.plan.current_plan.name] == [one.text for one in shared.memory.get_messages()]

    await asyncio.gather(*(load(number) for number in range(20)))


async def test_a_cancelled_save_has_saved_all_or_nothing(states: AgentStateStore) -> None:
    one = Assistant()
    for number in range(40):
        await Assistant().save_to(states, "s")
        one.memory.clear()
        one.memory.add_message(user(f"{number}"))
        one.plan.current_plan = Plan(f"{number}")
        saving = asyncio.ensure_future(one.save_to(states, "s"))
        for _ in range(number):
            await asyncio.sleep(0)
        saving.cancel()
        await asyncio.wait([saving])
        other = Assistant()
        await other.load_from(states, "s")
        found = [message.text for message in other.memory.get_messages()]
        assert found == ([] if other.plan.current_plan is None else [other.plan.current_plan.name])


async def test_states_are_saved_as_they_were_at_the_call(states: AgentStateStore) -> None:
    one = Assistant()
    one.memory.add_message(message := user("before"))
    one.plan.current_plan = Plan("before")
    saving = asyncio.ensure_future(one.save_to(states, "s"))
    await asyncio.sleep(0)
    message.parts[0]["text"] = "after"
    one.plan.current_plan.name = "after"
    await saving
    other = Assistant()
    await other.load_from(states, "s")
    assert ([one.text for one in other.memory.get_messages()], other.plan.current_plan) == (["before"], Plan("before"))


async def test_each_save_counts_as_a_version(states: InMemoryAgentStateStore) -> None:
    one = Assistant()
    await one.save_to(states, "s")
    await one.save_to(states, "s")
    assert (await states.get_versioned("s", "planNotebook_state")).version == 2


async def test_components_are_saved_behind_a_lease() -> None:
    async with open_store("memory://") as store:
        lease = await store.leases.acquire("s")
        fenced = store.states.with_lease(lease)
        await Assistant().save_to(fenced, "s")
        await lease.release()
        async with store.leases.acquire("s"):
            with pytest.raises(LeaseLost):
                await Assistant().save_to(fenced, "s")


# ── one encoding ─────────────────────────────────────────────────────────────


async def test_a_state_is_encoded_once(states: AgentStateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = InMemoryMemory()
    memory.add_message(Message("user", "x" * 100))
    encoded: list[object] = []
    real = msgspec.json.Encoder().encode

    def counted(value: object) -> bytes:
        encoded.append(value)
        return real(value)

    monkeypatch.setattr("leafward.core.json.encode", counted)
    monkeypatch.setattr("leafward.core.state_values.encode", counted)
    await Group(memory, PlanNotebook()).save_to(states, "s")
    # A message and a plan; what a message does to check itself is its own.
    assert len([one for one in encoded if isinstance(one, dict) and ("content" in one or "currentPlan" in one)]) == 2
