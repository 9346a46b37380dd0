"""Classes of a user's save and restore the components they consist of, all under one key."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock

import pytest

from leafward import (
    ConfigurationError,
    SessionKey,
    SessionNotFound,
    StateDecodeError,
    assistant,
    open_store,
    user,
)
from leafward.engine import InMemoryMemory, Plan, PlanNotebook, StateModule, Toolkit
from leafward.stores import AgentStateStore
from tests.engine.assistant import Assistant


class Counter(StateModule):
    """A component that saves in its own way."""

    def __init__(self, name: str) -> None:
        self.count = 0
        self._name = name

    async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
        await states.save(key, self._name, {"count": self.count})

    async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
        saved = await states.get(key, self._name)
        self.count = 0 if saved is None else saved["count"]


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


async def test_a_class_of_ones_own_is_a_component_among_others(states: AgentStateStore) -> None:
    class Both(StateModule):
        def __init__(self) -> None:
            self.first, self.second = Counter("first"), Counter("second")
            self.assistant = Assistant()

    one = Both()
    one.first.count, one.second.count = 1, 2
    one.assistant.memory.add_message(assistant("deep"))
    await one.save_to(states, "s")
    other = Both()
    await other.load_from(states, "s")
    assert (other.first.count, other.second.count) == (1, 2)
    assert len(other.assistant.memory) == 1


async def test_two_components_of_one_name_are_refused(states: AgentStateStore) -> None:
    class Two(StateModule):
        def __init__(self) -> None:
            self.first, self.second = InMemoryMemory(), InMemoryMemory()

    class ByHand(Two):
        async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
            await self.first.save_state(states, key)
            await self.second.save_state(states, key)

    for kind in (Two, ByHand):
        with pytest.raises(ConfigurationError, match="memory_messages"):
            await kind().save_to(states, "s")

    class Apart(StateModule):
        def __init__(self) -> None:
            self.first, self.second = InMemoryMemory(), InMemoryMemory("notes")

    one = Apart()
    one.second.add_message(user("a note"))
    await one.save_to(states, "s")
    other = Apart()
    await other.load_from(states, "s")
    assert (len(other.first), len(other.second)) == (0, 1)


async def test_groups_of_one_session_are_not_those_of_the_next(states: AgentStateStore) -> None:
    tools = Toolkit().create_group("safe", active=True).create_group("admin")
    tools.set_active_groups(["safe", "admin"])
    await tools.save_to(states, "of an admin")
    await InMemoryMemory().save_to(states, "of a guest")
    await tools.load_from(states, "of a guest")
    assert tools.active_groups == ["safe"]


async def test_a_component_that_others_refer_to_is_saved_once(states: AgentStateStore) -> None:
    class Child(StateModule):
        __slots__ = ("counter", "parent")

        def __init__(self, parent: StateModule) -> None:
            self.parent, self.counter = parent, Counter("of the child")

    class Parent(StateModule):
        def __init__(self) -> None:
            self.memory = self.again = InMemoryMemory()
            self.child = Child(self)

    one = Parent()
    one.memory.add_message(user("hi"))
    one.child.counter.count = 3
    await one.save_to(states, "s")
    other = Parent()
    await other.load_from(states, "s")
    assert (len(other.again), other.child.counter.count) == (1, 3)


async def test_components_of_a_class_and_in_slots_are_saved_and_properties_let_be(states: AgentStateStore) -> None:
    @dataclass(slots=True)
    class Slotted(StateModule):
        memory: InMemoryMemory = field(default_factory=InMemoryMemory)

    class Shared(StateModule):
        counter = Counter("shared")

        @property
        def trap(self) -> Any:
            raise RuntimeError("nobody asked for this")

    one = Slotted()
    one.memory.add_message(user("hi"))
    await one.save_to(states, "slots")
    other = Slotted()
    await other.load_from(states, "slots")
    assert len(other.memory) == 1
    Shared.counter.count = 5
    await Shared().save_to(states, "class")
    Shared.counter.count = 0
    await Shared().load_from(states, "class")
    assert Shared.counter.count == 5


async def test_what_a_component_saves_is_saved_at_once(states: AgentStateStore) -> None:
    class Flushing(StateModule):
        items: list[dict[str, Any]]

        async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
            await states.save_list(key, "items", self.items)
            self.items.clear()
            value = {"of": "a"}
            await states.save(key, "a", value)
            value["of"] = "b"
            await states.save(key, "b", value)
            await states.save(key, "gone", {})
            await states.delete(key, "gone")
            await states.save(key, "gone", {"n": len(await states.get_list(key, "items"))})

    one = Flushing()
    one.items = [{"n": 1}]
    await one.save_to(states, "s")
    assert await states.get_list("s", "items") == [{"n": 1}]
    found = [await states.get("s", name) for name in ("a", "b", "gone")]
    assert found == [{"of": "a"}, {"of": "b"}, {"n": 1}]


class Notes(StateModule):
    """A component that has the three methods for itself."""

    def __init__(self, text: str = "") -> None:
        self.text = text

    async def save_to(self, store: Any, key: Any) -> None:
        await store.states.save(key, "notes", {"text": self.text})

    async def load_from(self, store: Any, key: Any) -> None:
        saved = await store.states.get(key, "notes")
        if saved is None:
            raise SessionNotFound("s")
        self.text = saved["text"]


class Foreign:
    """One that is none of ours."""

    text = ""

    async def save_to(self, store: Any, key: Any) -> None:
        await store.states.save(key, "foreign", {"text": self.text})

    async def load_from(self, store: Any, key: Any) -> None:
        if not await self.load_if_exists(store, key):
            raise SessionNotFound("s")

    async def load_if_exists(self, store: Any, key: Any) -> bool:
        saved = await store.states.get(key, "foreign")
        self.text = "" if saved is None else saved["text"]
        return saved is not None


class Remembering(InMemoryMemory):
    """A component of ours with another in it."""

    def __init__(self) -> None:
        super().__init__()
        self.plan = PlanNotebook()


class Everything(StateModule):
    def __init__(self) -> None:
        self.memory, self.notes, self.foreign = Remembering(), Notes(), Foreign()
        self.many = [Counter("first"), Counter("second")]
        self.named = {"third": Counter("third")}


async def test_components_of_any_kind_and_wherever_they_are_come_back() -> None:
    async with open_store("memory://") as store:
        one = Everything()
        one.memory.add_message(user("hi"))
        one.memory.plan.current_plan = Plan("P")
        one.notes.text, one.foreign.text = "noted", "abroad"
        one.many[1].count, one.named["third"].count = 2, 3
        await one.save_to(store, "s")

        other = Everything()
        await other.load_from(store, "s")
        assert (len(other.memory), other.memory.plan.current_plan) == (1, Plan("P"))
        assert (other.notes.text, other.foreign.text) == ("noted", "abroad")
        assert (other.many[1].count, other.named["third"].count) == (2, 3)
        # What is not there any more is as in a new component.
        await store.states.delete("s", "foreign")
        await other.load_from(store, "s")
        assert other.foreign.text == ""
        # Or it is told, by one that has its own way: it would go on with what it had in the session before.
        await store.states.delete("s", "notes")
        with pytest.raises(SessionNotFound):
            await other.load_from(store, "s")


async def test_components_with_their_own_way_to_save_may_refer_to_each_other(states: AgentStateStore) -> None:
    class Logged(StateModule):
        def __init__(self, name: str) -> None:
            self.name, self.saved = name, 0
            self.other: Logged | None = None

        async def save_to(self, store: Any, key: Any) -> None:
            self.saved += 1
            await store.save(key, self.name, {"name": self.name})
            await super().save_to(store, key)

    one, two = Logged("one"), Logged("two")
    one.other, two.other = two, one
    await one.save_to(states, "s")
    assert (one.saved, two.saved) == (1, 1)
    assert [await states.get("s", name) for name in ("one", "two")] == [{"name": "one"}, {"name": "two"}]


async def test_a_component_among_others_may_compare_versions(states: AgentStateStore) -> None:
    class Careful(StateModule):
        version = 0

        async def save_to(self, store: Any, key: Any) -> None:
            self.version = await store.save_if_version(key, "careful", {}, self.version)

    class Holder(StateModule):
        def __init__(self) -> None:
            self.careful = Careful()

    holder = Holder()
    await holder.save_to(states, "s")
    await holder.save_to(states, "s")
    assert holder.careful.version == 2


async def test_what_only_looks_like_a_component_is_none(states: AgentStateStore) -> None:
    class Holder(StateModule):
        def __init__(self) -> None:
            self.anything, self.memory = MagicMock(), InMemoryMemory()

    holder = Holder()
    holder.memory.add_message(user("hi"))
    await holder.save_to(states, "s")
    assert len(await states.get_list("s", "memory_messages")) == 1


@pytest.mark.parametrize("wrong", ["name", "value"])
async def test_of_components_that_cannot_be_saved_together_none_is(states: AgentStateStore, wrong: str) -> None:
    class Two(StateModule):
        def __init__(self) -> None:
            self.first = InMemoryMemory()
            self.second: StateModule = InMemoryMemory() if wrong == "name" else Unsound()

    class Unsound(StateModule):
        async def save_state(self, states: AgentStateStore, key: SessionKey) -> None:
            await states.save(key, "unsound", {"n": float("nan")})

    with pytest.raises((ConfigurationError, ValueError)):
        await Two().save_to(states, "s")
    assert not await states.exists("s")


@pytest.mark.parametrize("stored", [True, False])
async def test_a_load_that_fails_leaves_every_component_as_it_was(states: AgentStateStore, stored: bool) -> None:
    one = Assistant()
    one.memory.add_message(user("mine"))
    one.tools.set_active_groups(["files"])
    if stored:
        await Assistant().save_to(states, "s")
    await states.save("s", "planNotebook_state", {"currentPlan": 5})
    for load in (one.load_from, one.load_if_exists):
        with pytest.raises(StateDecodeError):
            await load(states, "s")
        assert [message.text for message in one.memory.get_messages()] == ["mine"]
        assert one.tools.active_groups == ["files"]


async def test_one_who_is_cancelled_has_saved_all_or_nothing(states: AgentStateStore) -> None:
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


async def test_a_component_may_save_while_it_is_loaded(states: AgentStateStore) -> None:
    class Upgraded(StateModule):
        async def load_state(self, states: AgentStateStore, key: SessionKey) -> None:
            old = await states.get(key, "old")
            if old is not None:
                await states.save(key, "new", {"v": old["v"] + 1})
                await states.delete(key, "old")

    await states.save("s", "old", {"v": 1})
    await Upgraded().load_from(states, "s")
    assert [await states.get("s", name) for name in ("old", "new")] == [None, {"v": 2}]


async def test_a_component_in_place_of_that_of_a_class_is_the_one(states: AgentStateStore) -> None:
    class Base(StateModule):
        memory = InMemoryMemory()

    class Own(Base):
        def __init__(self) -> None:
            self.memory = InMemoryMemory()

    one, other = Own(), Own()
    one.memory.add_message(user("hi"))
    await one.save_to(states, "s")
    await other.load_from(states, "s")
    assert (len(other.memory), len(Base.memory)) == (1, 0)
