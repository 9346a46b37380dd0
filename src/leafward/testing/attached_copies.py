"""What copies of a session promise about its states: a copy has those of the messages it has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leafward import MessageTooLarge, Session, SessionManager, assistant, user
from leafward.core.ids import Scope
from leafward.stores import AttachedState

if TYPE_CHECKING:
    from leafward.stores import Store

TURN = "leafward.turn"
VIEW, SMALL = "leafward.view:agent_state", "leafward.state:agent_state"
OWN = [AttachedState(name, json.dumps({"of": name})) for name in (TURN, VIEW, SMALL)]
"""States of this library's own, which an agent attaches to its messages."""


DAMAGED: list[Any] = [
    [{"message": "nowhere", "name": "plan", "value": {}}],
    [{"message": "1", "name": "plan", "value": {}}, {"message": "1", "name": "plan", "value": None}],
    [{"message": "1", "name": "plan", "value": []}],
    [{"message": "1", "name": "plan"}],
    [{"message": "1", "name": "", "value": {}}],
    [{"message": "1", "name": "..", "value": {}}],
    [{"message": "1", "name": TURN, "value": {}}],
    [{"message": "1", "name": "plan", "value": {"a": float("nan")}}],
    [{"message": "1", "name": "plan", "value": {"a": 2**70}}],
    [{"message": 1, "name": "plan", "value": {}}],
    "none",
]


async def _grow(store: Store) -> Session:
    """Make a tree with states in several lanes, before the first message, and of deleted messages."""
    session = Session(store, "s")
    await session.set_state("root", {"is": "root"})
    await session.append_messages([user("a", id=f"a{n}") for n in range(3)], state={"plan": {"n": "a2"}})
    await session.append_message(user("a", id="a3"), state={"mood": {"n": "a3"}})
    await session.append_message(user("a", id="a4"), state={"plan": None, "漢 字": {"é": ["🦊", 1.5, None]}})
    await session.append_message(user("a", id="a5"))
    await session.append_messages([user("b", id=f"b{n}") for n in range(3)], "a3", state={"plan": {"n": "b2"}})
    await session.append_message(user("b", id="b3"))
    await session.append_message(user("c", id="c0"), "b2", state={"mood": None})
    await session.append_message(user("d", id="d0"), "b0", state={"plan": {"n": "d0"}})
    await session.append_message(user("d", id="d1"))
    await session.append_message(user("r", id="r0"), parent_id=None, state={"root": {"is": "r0"}})
    await session.delete_messages(["a2", "a4", "b2", "d0"])
    await session.checkout("b3")
    return session


async def _all_states(session: Session) -> dict[str, dict[str, Any]]:
    return {node.id: await session.get_states(node.id) for node in await session.get_tree()}


class AttachedCopies:
    """States of sessions that are forked, split, exported and imported. Part of `AttachedStateContract`."""

    async def test_a_fork_has_the_states_of_its_path(self, store: Store) -> None:
        session = await _grow(store)
        manager = SessionManager(store)
        states = await _all_states(session)
        assert len({json.dumps(one, sort_keys=True) for one in states.values()}) > 5

        for message_id in states:
            fork = manager.get_session((await manager.fork("s", message_id, "copy")).id)
            assert await _all_states(fork) == {m.id: states[m.id] for m in await fork.get_history()}
            assert await fork.get_states() == states[message_id]
            await fork.checkout(None)
            assert await fork.get_states() == {"root": {"is": "root"}}

    async def test_a_fork_and_its_source_change_by_themselves(self, store: Store) -> None:
        session = await _grow(store)
        manager = SessionManager(store)
        fork = manager.get_session((await manager.fork("s", "b3", "copy")).id)
        before = await _all_states(session)

        await fork.set_state("plan", {"n": "fork"})
        await fork.append_message(user("on", id="on"), state={"mood": {"n": "on"}})
        await fork.append_message(user("aside", id="aside"), "a3")
        await fork.delete_messages(["a3"])

        assert await _all_states(session) == before
        assert await fork.get_states() == {
            "root": {"is": "root"},
            "plan": {"n": "a2"},
            "mood": {"n": "a3"},
        }
        assert await fork.get_states("on") == {
            "root": {"is": "root"},
            "plan": {"n": "fork"},
            "mood": {"n": "on"},
        }
        await session.set_state("plan", None)
        await session.clear_messages()
        assert await fork.get_state("plan", "b3") == {"n": "fork"}

    async def test_a_continuation_begins_with_the_states_in_force(self, store: Store) -> None:
        session = await _grow(store)
        manager = SessionManager(store)
        in_force = await session.get_states()
        assert in_force == {"root": {"is": "root"}, "plan": {"n": "b2"}, "mood": {"n": "a3"}}
        before = await _all_states(session)

        continued = manager.get_session((await manager.compact_and_split("s", "so far")).id)

        assert await continued.get_states() == in_force
        await continued.append_message(user("on"))
        assert await continued.get_states() == in_force
        await continued.checkout(None)
        assert await continued.get_states() == in_force
        await continued.set_state("plan", None)
        assert await _all_states(session) == before

    async def test_an_export_brings_all_states_along(self, store: Store) -> None:
        session = await _grow(store)
        manager = SessionManager(store)
        exported = json.loads(json.dumps(await manager.export_session("s")))

        copy = manager.get_session((await manager.import_session(exported, session_id="copy")).id)

        assert await _all_states(copy) == await _all_states(session)
        assert await copy.get_states() == await session.get_states()
        again = await manager.export_session("copy")
        assert again["states"] == exported["states"]
        await copy.checkout(None)
        assert await copy.get_states() == {"root": {"is": "root"}}

    async def test_of_our_own_states_only_the_note_of_an_open_turn_stays_behind(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await session.append_message(user("one", id="1"), state={"plan": {}})
        await store.messages.append(Scope.of("s"), [], "1", state=OWN)
        exported = await manager.export_session("s")
        assert sorted(one["name"] for one in exported["states"]) == [SMALL, VIEW, "plan"]

        copies = [
            await manager.fork("s", "1", "fork"),
            await manager.import_session(exported, session_id="copy"),
            await manager.compact_and_split("s", "so far"),
        ]

        for copy in copies:
            found = await store.messages.states(Scope.of(copy.id), None)
            assert found == {"plan": {}, VIEW: {"of": VIEW}, SMALL: {"of": SMALL}}
            assert await manager.get_session(copy.id).get_states() == {"plan": {}}
        assert await session.get_state(TURN) == {"of": TURN}

    async def test_an_export_of_the_version_before_is_read(self, store: Store) -> None:
        manager = SessionManager(store)
        session = manager.get_session("s")
        await session.append_messages([user("one", id="1"), assistant("two", id="2")])
        await manager.add_usage("s", 3, 4, 0.5)
        exported = await manager.export_session("s")
        del exported["states"], exported["usages"]

        made = await manager.import_session({**exported, "version": 1}, session_id="copy")

        copy = manager.get_session("copy")
        assert await copy.get_history() == await session.get_history()
        assert (made.input_tokens, made.output_tokens, made.estimated_cost) == (3, 4, 0.5)
        await copy.set_state("plan", {"step": 1})
        assert await copy.get_states() == {"plan": {"step": 1}}

    async def test_an_export_with_damaged_states_is_refused_whole(self, store: Store) -> None:
        manager = SessionManager(store)
        await manager.get_session("s").append_message(user("one", id="1"))
        exported = await manager.export_session("s")

        for states in DAMAGED:
            with pytest.raises(ValueError, match=r"damaged: .*(state|nowhere)"):
                await manager.import_session({**exported, "states": states}, session_id="copy")

        assert await manager.get("copy") is None

    async def test_an_imported_state_is_not_larger_than_one_that_is_set(self, store: Store) -> None:
        manager = SessionManager(store)
        await manager.get_session("s").append_message(user("one", id="1"))
        exported = await manager.export_session("s")
        large = {"message": None, "name": "plan", "value": {"text": "x" * store.max_message_bytes}}

        with pytest.raises(MessageTooLarge, match="'plan'"):
            await manager.import_session({**exported, "states": [large]}, session_id="copy")

        assert await manager.get("copy") is None
