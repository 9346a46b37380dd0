"""What may be attached to a message, and what is refused: names and values of states."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leafward import InvalidId, MessageTooLarge, Session, user
from leafward.testing.ids import HOSTILE_IDS, REFUSED_IDS

if TYPE_CHECKING:
    from leafward.stores import Store

OURS = ["leafward.", "leafward.turn", "leafward.state:agent_state", "leafward.anything"]
"""Names that an application may not set."""

NO_OBJECTS: list[Any] = [[], [{"a": 1}], "text", '{"a": 1}', b"{}", 0, 1.5, True, {"a"}, [("a", 1)], object()]
NOT_JSON: list[Any] = [
    {"a": math.nan},
    {"a": [1.0, {"b": math.inf}]},
    {"a": -math.inf},
    {"a": 2**64},
    {"a": -(2**63) - 1},
    {"a": object()},
    {"a": {1, 2}},
    {1: "a"},
]
NO_STATES: list[Any] = [[], "plan", [("plan", {})], {"plan"}, 1]
VALUES: list[dict[str, Any]] = [
    {},
    {"": ""},
    {"a": None},
    {"a": [1, 1.0, True, "1", [None, {}]]},
    {"big": 2**64 - 1, "small": -(2**63), "tiny": 5e-324, "third": 1 / 3},
    {"text": "漢字 🦊 \x00 \u2028 é e\u0301 '; DROP TABLE x; -- \\ \" \n"},
    {"漢字": {"🦊": {"\x00": "nested"}}},
    {"\ue000": "\ue0000 \ue000\ue0001"},
    {"name": "leafward.turn", "value": {"type": "state"}},
]


class AttachedValues:
    """What a state may hold. Part of `AttachedStateContract`."""

    async def test_a_state_comes_back_as_it_was_set(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one"))

        for value in VALUES:
            await session.set_state("plan", value)

            assert repr(await session.get_state("plan")) == repr(value)
            assert repr(await session.get_states()) == repr({"plan": value})

    async def test_lone_surrogates_of_a_state_become_replacement_characters(self, store: Store) -> None:
        session = Session(store, "s")

        await session.set_state("plan", {"a\ud800": "b\udfff", "deep": ["\udc00"]})

        assert await session.get_state("plan") == {"a\ufffd": "b\ufffd", "deep": ["\ufffd"]}

    async def test_every_id_is_a_name_and_no_two_are_the_same(self, store: Store) -> None:
        session = Session(store, "s")
        names = [name for name in HOSTILE_IDS if not name.startswith("leafward.")]
        await session.append_message(user("one"), state={name: {"is": name} for name in names[::2]})
        for name in names[1::2]:
            await session.set_state(name, {"is": name})

        assert await session.get_states() == {name: {"is": name} for name in names}
        for name in names:
            assert await session.get_state(name) == {"is": name}
        await session.set_state("alice", None)
        assert set(await session.get_states()) == set(names) - {"alice"}

    async def test_a_refused_name_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one"))
        version = await session.get_version()
        names: list[Any] = [*REFUSED_IDS, *OURS, 7, None, b"plan"]

        for name in names:
            for value in ({"a": 1}, None):
                with pytest.raises(InvalidId):
                    await session.set_state(name, value)
                with pytest.raises(InvalidId):
                    await session.append_message(user("two"), state={"fine": {}, name: value})
            assert await session.get_state(name) is None

        assert await session.get_states() == {}
        assert await session.get_path_length() == 1
        assert await session.get_version() == version

    async def test_names_that_only_resemble_ours_are_free(self, store: Store) -> None:
        session = Session(store, "s")
        names = ["leafward", "Leafward.turn", " leafward.turn", "leafward:turn", "my.leafward.turn"]

        for name in names:
            await session.set_state(name, {"is": name})

        assert await session.get_states() == {name: {"is": name} for name in names}

    async def test_what_is_not_a_json_object_writes_nothing(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one"))
        version = await session.get_version()

        for value in (*NO_OBJECTS, *NOT_JSON):
            with pytest.raises(ValueError, match="plan"):
                await session.set_state("plan", value)
            with pytest.raises(ValueError, match="plan"):
                await session.append_message(user("two"), state={"fine": {}, "plan": value})

        assert await session.get_states() == {}
        assert await session.get_path_length() == 1
        assert await session.get_version() == version

    async def test_states_are_given_by_name(self, store: Store) -> None:
        session = Session(store, "s")

        for state in NO_STATES:
            with pytest.raises(ValueError, match="state is a dict"):
                await session.append_message(user("one"), state=state)

        assert await session.get_history() == []

    async def test_a_state_may_be_as_large_as_a_message_and_no_larger(self, store: Store) -> None:
        session = Session(store, "s")
        await session.append_message(user("one"))
        largest = store.max_message_bytes
        # In bytes of JSON: '{"text":"…"}' is 11 of them.
        fits = {"text": "é" * ((largest - 11) // 2) + "x" * ((largest - 11) % 2)}
        beyond = {"text": fits["text"] + "x"}
        version = await session.get_version()

        for name in ("plan", "漢字"):
            with pytest.raises(MessageTooLarge, match=f"state '{name}'") as caught:
                await session.set_state(name, beyond)
            assert (caught.value.message_id, caught.value.size, caught.value.limit) == (name, largest + 1, largest)
        with pytest.raises(MessageTooLarge):
            await session.append_message(user("two"), state={"plan": beyond})
        assert await session.get_path_length() == 1
        assert await session.get_version() == version
        await session.set_state("plan", fits)

        assert await session.get_state("plan") == fits

    async def test_what_a_caller_does_to_a_state_changes_nothing_stored(self, store: Store) -> None:
        session = Session(store, "s")
        value: dict[str, Any] = {"steps": ["one"]}
        await session.set_state("plan", value)

        value["steps"].append("two")
        (await session.get_states())["plan"]["steps"].append("three")
        read = await session.get_state("plan")
        assert read is not None
        read["steps"].append("four")

        assert await session.get_state("plan") == {"steps": ["one"]}
